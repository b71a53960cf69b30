/**
 * The differential fuzz run: random and damaged requests through a sidecar, each held against what the rules say.
 *
 *     npm run fuzz [seconds] [-- --seed N [--only CONNECTION]]
 *
 * Exit code 0 when every invariant held; 1 when one did not: then the input is made small and printed. A connection's
 * script depends on the seed and its number alone, so `--only` plays it again without the others.
 *
 * @module
 */
import { randomInt } from 'node:crypto'
import { parseFuzzArguments } from './fuzz-arguments.ts'
import { type FuzzCampaign, startFuzzCampaign, type Violation } from './fuzz-campaign.ts'
import { describeScript, escaped, Tally } from './fuzz-report.ts'
import { makeScript, type Script } from './fuzz-requests.ts'
import { prepareTrust } from './fuzz-trust.ts'
import { isOwnAnswer } from './own-answers.ts'
import { shrink } from './shrink.ts'
import type { Trial } from './trial.ts'

/** Connections under way at once. */
const CONCURRENT = 40
/** Tries to make a failing input small. */
const SHRINK_TRIES = 500
/** How much the sidecar may grow: buffers of so many connections, a warm compiler, and what V8 has not collected yet. */
const MAX_GROWTH = 250 * 1024 * 1024

const { seconds, seed, only } = parseFuzzArguments(process.argv.slice(2), randomInt(2 ** 32))
console.log(`seed ${seed}`)
const trust = await prepareTrust(seconds)
const campaign = await startFuzzCampaign(trust)
process.exitCode = await run().finally(async () => {
  await campaign.stop()
  await trust.remove()
})

async function run(): Promise<number> {
  const before = { pid: campaign.sidecar.pid, resident: campaign.sidecar.residentBytes() }
  const started = performance.now()
  const until = started + seconds * 1000
  const statuses = new Tally()
  let connections = 0
  let requests = 0
  let peak = before.resident

  const count = (trial: Trial) => {
    connections++
    requests += trial.requests.length
    const answers = trial.answers(trial.received, undefined)
    for (const answer of typeof answers === 'string' ? [] : answers) {
      statuses.add(isOwnAnswer(answer) ? String(answer.status) : 'upstream')
    }
  }
  const rate = () => Math.round(requests / ((performance.now() - started) / 1000))
  const progress = setInterval(() => {
    peak = Math.max(peak, campaign.sidecar.ended === undefined ? campaign.sidecar.residentBytes() : 0)
    console.log(
      `${connections} connections, ${requests} requests, ${rate()} a second, ${megabytes(peak)} resident`,
    )
  }, 5000)
  let next = 0
  const work = async () => {
    while (performance.now() < until && campaign.violation() === undefined) {
      count(await campaign.run(makeScript(seed, next++, trust.shelf)))
    }
  }
  if (only === undefined) await Promise.all(Array.from({ length: CONCURRENT }, work))
  else count(await campaign.run(makeScript(seed, only, trust.shelf)))
  clearInterval(progress)
  await sleep(2500) // what is late turns up, and finished trials are forgotten

  const violation = campaign.violation() ?? (await finalViolation(before.pid))
  if (violation !== undefined) {
    await report(violation)
    return 1
  }
  const resident = campaign.sidecar.residentBytes()
  console.log(`connections: ${connections}`)
  console.log(`requests tried: ${requests} (${rate()} a second)`)
  console.log(`whole at the upstream: ${campaign.forwarded}`)
  console.log(`answers by status, and those of the upstream: ${statuses}`)
  console.log(
    `resident memory: ${megabytes(before.resident)} at the start, ${megabytes(resident)} at the end`,
  )
  if (resident > before.resident + MAX_GROWTH) {
    console.log('violation: the sidecar grew beyond its bound')
    return 1
  }
  console.log('violations: 0')
  return 0
}

/** Whether the sidecar is the same process, at rest, and still answers a good request. */
async function finalViolation(pid: number): Promise<Violation | undefined> {
  const token = trust.shelf.good[0]
  const bytes = `GET /still/there HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer ${token}\r\n\r\n`
  const last: Script = { name: 'last', bytes, cuts: [], leave: 'close', replies: [] }
  const { problem } = await campaign.run(last)
  if (problem !== undefined) return { what: `at the end: ${problem}`, suspects: [] }
  if (campaign.sidecar.pid !== pid) return { what: 'another process', suspects: [] }
  const inFlight = (await campaign.sidecar.metrics()).get('auth_sidecar_requests_in_flight')
  return inFlight === 0 ? undefined : { what: `${inFlight} requests are left in flight`, suspects: [] }
}

async function report({ what, suspects, received = '' }: Violation): Promise<void> {
  console.log(`\nviolation: ${what}`)
  const solo = createSolo()
  try {
    for (const suspect of suspects.slice(-100)) {
      const found = await solo.violates(suspect)
      if (found === undefined) continue
      console.log(`connection ${numberOf(suspect)} of seed ${seed} alone: ${found}\n`)
      const small = await smallest(suspect, solo)
      console.log(describeScript(small, trust.shelf))
      console.log(`\n  ${await solo.violates(small)}; the client received:`)
      console.log(`    "${escaped(solo.received(), trust.shelf)}"`)
      console.log(`\nagain: npm run fuzz -- --seed ${seed} --only ${numberOf(suspect)}`)
      return
    }
  } finally {
    await solo.stop()
  }
  console.log(`none of the ${suspects.length} connections under way does it alone; the last of them:`)
  for (const suspect of suspects.slice(-1)) console.log(describeScript(suspect, trust.shelf))
  console.log(`\n  the client received:\n    "${escaped(received, trust.shelf)}"`)
}

interface Solo {
  /** Plays a script alone; returns what it violates, if anything. */
  violates(script: Script): Promise<string | undefined>
  /** What the client of the last script received. */
  received(): string
  stop(): Promise<unknown>
}

/** A sidecar for one connection at a time; another one whenever it has ended. */
function createSolo(): Solo {
  let alone: FuzzCampaign | undefined
  let received = ''
  return {
    async violates(script) {
      if (alone?.sidecar.ended !== undefined) {
        await alone.stop()
        alone = undefined
      }
      alone ??= await startFuzzCampaign(trust)
      const trial = await alone.run(script)
      received = trial.received
      await sleep(30) // what is late turns up
      const violation = alone.violation()
      alone.forget()
      return violation?.what
    },
    received: () => received,
    stop: async () => alone?.stop(),
  }
}

/** The smallest script that still violates something. */
async function smallest(script: Script, solo: Solo): Promise<Script> {
  const budget = { left: SHRINK_TRIES }
  let small = script
  const tryIt = async (candidate: Script) => {
    if (budget.left-- <= 0 || (await solo.violates(candidate)) === undefined) return false
    small = candidate
    return true
  }
  await tryIt({ ...small, replies: [] })
  await tryIt({ ...small, cuts: [] })
  await tryIt({ ...small, leave: 'close' })
  const parts = async (split: (bytes: string) => string[]) => {
    await shrink(split(small.bytes), (fewer) => tryIt({ ...small, bytes: fewer.join('') }), budget)
  }
  await parts((bytes) => bytes.split(/(?<=\r\n)/))
  await parts((bytes) => bytes.match(/eyJ[\w.-]+|[\s\S]/g) ?? [])
  return small
}

/** The number of a connection, from its name. */
function numberOf({ name }: Script): number {
  return Number.parseInt(name, 10)
}

function megabytes(bytes: number): string {
  return `${Math.round(bytes / 2 ** 20)} MB`
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
