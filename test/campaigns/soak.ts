/**
 * The fault run: mixed traffic through a sidecar whose upstream is killed, paused, and answers garbage.
 *
 *     npm run soak [seconds] [seed]
 *
 * Prints what clients saw by kind, and what the sidecar holds at rest before and after. Exit code 1 when anything leaked,
 * an answer was outside the contract, a whole transfer had other bytes, or the process died.
 *
 * @module
 */
import { randomInt } from 'node:crypto'
import { Agent } from 'node:http'
import { Tally } from './fuzz-report.ts'
import { prepareTrust } from './fuzz-trust.ts'
import { createRandom } from './random.ts'
import { startSidecarProcess } from './sidecar-process.ts'
import { type AtRest, leaks, lookAtRest } from './soak-leaks.ts'
import { KINDS } from './soak-traffic.ts'
import { startSoakUpstream } from './soak-upstream-process.ts'

/** Clients at work at once. */
const CLIENTS = 24
const WARM_UP_MS = 6000
/** Longer than an unused connection to the upstream is kept. */
const QUIET_MS = 6000

const [seconds = 60, seed = randomInt(2 ** 32), more] = process.argv.slice(2).map(Number)
if (!Number.isInteger(seconds) || seconds < 1 || !Number.isInteger(seed) || more !== undefined) {
  console.error('usage: npm run soak [seconds] [seed]')
  process.exit(2)
}
console.log(`seed ${seed}, ${seconds} seconds`)
const trust = await prepareTrust(seconds)
const upstream = await startSoakUpstream()
const sidecar = await startSidecarProcess(
  {
    ...trust.flags,
    'upstream-url': `http://127.0.0.1:${upstream.port}`,
    'upgrade-enabled': 'true',
    'timeouts-idle-seconds': '3',
    'timeouts-upstream-connect-seconds': '1',
    'timeouts-upstream-response-seconds': '3',
    'limits-login-failures-count': '1000000',
    'log-access': 'off',
  },
  [
    `--import=${import.meta.resolve('ts-blank-space/register')}`,
    `--import=${import.meta.resolve('./collect-on-signal.ts')}`,
  ],
)
const outcomes = new Map<string, Tally>()
const problems = new Map<string, number>()
let requests = 0
let peak = 0

process.exitCode = await run().finally(async () => {
  await sidecar.stop()
  await upstream.stop()
  await trust.remove()
})

async function run(): Promise<number> {
  const looks = setInterval(() => {
    if (sidecar.ended === undefined) peak = Math.max(peak, sidecar.residentBytes())
  }, 500)
  await traffic(WARM_UP_MS)
  const before = await atRest()
  console.log(`warmed up with ${requests} requests`)
  let over = false
  const faults = new Tally()
  const mistreating = (async () => {
    const random = createRandom(seed, 0)
    while (!over) {
      faults.add(await upstream.mistreat(random))
      await sleep(random.int(200, 3000)) // whole transfers need their time
    }
  })()
  const progress = setInterval(
    () => console.log(`${requests} requests, ${problems.size} problems, faults: ${faults}`),
    10_000,
  )
  await traffic(seconds * 1000)
  over = true
  await mistreating
  clearInterval(progress)
  const alive = await recovered()
  const after = await atRest()
  clearInterval(looks)

  console.log(`\nfaults: ${faults}`)
  console.log(
    `requests: ${requests} (${Math.round(requests / (seconds + WARM_UP_MS / 1000))} a second), by what clients saw:`,
  )
  for (const [kind, tally] of outcomes) console.log(`  ${kind}: ${tally}`)
  console.log(`at rest before: ${describe(before)}`)
  console.log(`at rest after:  ${describe(after)}`)
  console.log(`resident at the peak: ${megabytes(peak)}`)
  if (!alive) note('the sidecar does not serve after the last fault')
  if (sidecar.ended !== undefined) note(`the sidecar ended: ${sidecar.ended}`)
  for (const complaint of sidecar.complaints.slice(0, 5)) note(`the sidecar complained: ${complaint}`)
  for (const leak of leaks(before, after)) note(`leak: ${leak}`)
  for (const [problem, count] of problems) console.log(`violation, ${count} times: ${problem}`)
  if (problems.size === 0) console.log('violations: 0')
  return problems.size === 0 ? 0 : 1
}

/** Has every client at work for a while, and waits until the last one has finished. */
async function traffic(ms: number): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY })
  const until = performance.now() + ms
  const part = requests
  await Promise.all(
    Array.from({ length: CLIENTS }, async (_, client) => {
      const random = createRandom(seed, part + client + 1)
      while (performance.now() < until && sidecar.ended === undefined) {
        const [name, run] = random.weighted(KINDS)
        const { word, problem } = await run({ port: sidecar.port, agent, shelf: trust.shelf }, random)
        requests++
        const tally = outcomes.get(name) ?? new Tally()
        outcomes.set(name, tally)
        tally.add(word)
        if (problem !== undefined) note(`${name}: ${problem}`)
      }
    }),
  )
  agent.destroy()
}

/** Whether the sidecar serves again. */
async function recovered(): Promise<boolean> {
  const [, [, get]] = KINDS[0] as (typeof KINDS)[number]
  const agent = new Agent()
  const random = createRandom(seed, 1)
  for (let tries = 0; tries < 3; tries++) {
    const { word } = await get({ port: sidecar.port, agent, shelf: trust.shelf }, random)
    if (word === '200') return true
  }
  return false
}

async function atRest(): Promise<AtRest> {
  await sleep(QUIET_MS)
  return lookAtRest(sidecar)
}

function note(problem: string): void {
  problems.set(problem, (problems.get(problem) ?? 0) + 1)
}

function describe({ descriptors, handles, heapBytes, residentBytes, ...counts }: AtRest): string {
  const rest = Object.entries(counts)
    .map(([name, value]) => `${name} ${value}`)
    .join(', ')
  return `descriptors ${descriptors}, handles ${handles}, heap ${megabytes(heapBytes)}, resident ${megabytes(residentBytes)}, ${rest}`
}

function megabytes(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(1)} MB`
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
