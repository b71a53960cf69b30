/**
 * The fuzz run:
 * random and damaged requests through the built program, judged by what a recording upstream saw.
 *
 *     npm run fuzz -- [SECONDS] [--limits] [--seed N [--only CONNECTION]]
 *
 * With `--limits`, one account has limits (fair use): it alone may get a 429. Such a request reaches no
 * upstream.
 * Needs Node only. The last line is `0 violations`, with exit code 0, or `N violations`, with exit code 1.
 */
import { randomInt } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { LIMITED_ACCOUNT, startCampaign } from './campaign.ts'
import { makeScript } from './requests.ts'
import { createCampaignTrust, startSidecar } from './sidecar-process.ts'

/** Connections at a time. */
const CONCURRENT = 100

const text = { type: 'string' } as const
const flag = { type: 'boolean', default: false } as const
const { values, positionals } = parseArgs({
  options: { seed: text, only: text, limits: flag },
  allowPositionals: true,
})
const seconds = Number(positionals[0] ?? 60)
const seed = Number(values.seed ?? randomInt(2 ** 32))
if (!(seconds > 0) || !Number.isInteger(seed)) {
  throw new Error('usage: npm run fuzz -- [SECONDS] [--limits] [--seed N [--only N]]')
}
console.log(`seed ${seed}`)

const trust = await createCampaignTrust('/b')
const campaign = await startCampaign(trust)
const FLAGS =
  '--timeouts-idle-seconds 3 --timeouts-upstream-response-seconds 3 --timeouts-headers-seconds 3 ' +
  '--limits-login-failures-count 1000000 --log-access all --basic-enabled true'
const LIMITS =
  '{ requestsPerSecond: 50, burst: 10, inFlight: 5, uploadBytesPerSecond: 2000000, downloadBytesPerSecond: 2000000 }'
const limitsFile = join(trust.directory, 'fair-use.yaml')
writeFileSync(limitsFile, `accounts: { ${LIMITED_ACCOUNT}: ${LIMITS} }`)
const flags = [...FLAGS.split(' '), ...(values.limits ? ['--fair-use-file', limitsFile] : [])]
const sidecar = await startSidecar(trust, campaign.upstreamPort, flags, {
  onLine({ reason, account, path }) {
    if (reason === 'fair_use') {
      campaign.onLimited(account, String(path))
    }
  },
})
const violations = () => [
  ...campaign.violations,
  ...sidecar.complaints.map((line) => `logged: ${line}`),
  ...(sidecar.ended === undefined ? [] : [`the sidecar ended: ${sidecar.ended}`]),
]

let connections = Number(values.only ?? 0)
const began = performance.now()
async function work(): Promise<void> {
  do {
    await campaign.play(makeScript(seed, connections++, trust), sidecar.port)
  } while (
    values.only === undefined &&
    performance.now() - began < seconds * 1000 &&
    violations().length === 0
  )
}
await Promise.all(Array.from({ length: values.only === undefined ? CONCURRENT : 1 }, work))

// Everything is over within the timeouts; then no request may be left in flight.
await sleep(4000)
const found = violations()
if (sidecar.ended === undefined) {
  const inFlight = (await sidecar.metrics()).get('auth_sidecar_requests_in_flight')
  if (inFlight !== 0) {
    found.push(`${inFlight} requests are left in flight`)
  }
}
if (values.limits && values.only === undefined && !campaign.counts.has('own 429')) {
  found.push('no request was over a limit')
}
/** In less time, there may be none. */
const ENOUGH_SECONDS = 30
if (
  seconds >= ENOUGH_SECONDS &&
  values.only === undefined &&
  !campaign.counts.has('HTTP Basic at the upstream')
) {
  found.push('no login by HTTP Basic has passed')
}
await sidecar.stop()
campaign.close()
trust.remove()
for (const [what, count] of [...campaign.counts].sort()) {
  console.log(`${what}: ${count}`)
}
for (const what of found) {
  console.log(`violation: ${what}`)
}
if (found.length > 0) {
  console.log(
    `again: npm run fuzz -- ${seconds}${values.limits ? ' --limits' : ''} --seed ${seed} [--only CONNECTION]`,
  )
}
console.log(`${found.length} violations`)
process.exit(found.length === 0 ? 0 : 1)
