/**
 * The soak run of reloads: a change of the credentials each second under a constant rate of requests, from a
 * file and from PostgreSQL. No request may be lost or refused, and memory must stay flat. p99 is reported
 * for each minute, beside that of a quiet time before.
 *
 *     npm run soak -- --reloads [SECONDS]
 *
 * The last line is `0 violations`, with exit code 0, or `N violations`, with exit code 1.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuMicroseconds, listening, openLab, residentMegabytes } from '../../bench/lab.ts'
import { loadWithAnyAnswers, requestText, writeRequests } from '../../bench/load.ts'
import { reloadsOf } from '../../bench/loading.ts'
import { startSmallUpstream } from '../../bench/peers.ts'
import { fileStore, postgresStore, type Store } from '../../bench/stores.ts'
import { createTrust, MAIN } from '../../bench/trust.ts'
import { freePort } from '../support/free-port.ts'

const RATE = 2000
const CONNECTIONS = 50
const TOKENS = 500
const CHANGE_MS = 1000
/** Figures are told for each part of the time, to show that they stay the same. */
const PART_SECONDS = 60
/** What V8 keeps before it collects: measured 10 to 40. */
const MAX_GROWTH_MB = 60
/** A change is loaded after 0.7 s; one that comes meanwhile is loaded with it. */
const MIN_RELOADS = 0.5

const seconds = Number(process.argv[3] ?? 300)
if (!(seconds > 0)) {
  throw new Error('usage: npm run soak -- --reloads [SECONDS]')
}
const lab = openLab()
const trust = createTrust(lab.directory)
const other = trust.addLogin('other')
const upstreamPort = await startSmallUpstream(lab)
const requests = writeRequests(
  lab,
  Array.from({ length: TOKENS }, () => requestText(trust.mint())),
)
let violations = 0

function violation(text: string): void {
  violations++
  console.log(`violation: ${text}`)
}

async function soak(store: Store): Promise<void> {
  const port = await freePort()
  const adminPort = await freePort()
  const sidecar = lab.run(0, process.execPath, [MAIN, 'serve', ...store.flags], {
    SIDECAR_UPSTREAM_URL: `http://127.0.0.1:${upstreamPort}`,
    SIDECAR_LISTEN_HOST: '127.0.0.1',
    SIDECAR_LISTEN_PORT: String(port),
    SIDECAR_ADMIN_HOST: '127.0.0.1',
    SIDECAR_ADMIN_PORT: String(adminPort),
  })
  await listening(port)
  const phase = async (name: string, length: number) => {
    const before = cpuMicroseconds(sidecar)
    const options = { port, requests, connections: CONNECTIONS, seconds: length, rate: RATE }
    const { requests: count, p99, failed, refused } = await loadWithAnyAnswers(lab, options)
    const cpu = (cpuMicroseconds(sidecar) - before) / count
    const megabytes = residentMegabytes(sidecar)
    console.log(
      `${store.name}, ${name}: ${count} requests, p99 ${p99.toFixed(1)} ms, ` +
        `${cpu.toFixed(0)} us a request, memory ${megabytes.toFixed(0)} MB`,
    )
    if (failed > 0 || refused > 0) {
      violation(`${store.name}, ${name}: ${failed} requests without a response, ${refused} refused`)
    }
  }
  await phase('warm-up', Math.min(10, seconds))
  await phase('quiet', Math.min(30, seconds))
  const before = { megabytes: residentMegabytes(sidecar), reloads: await reloadsOf(adminPort) }
  let changes = 0
  let isOver = false
  const changing = (async () => {
    while (!isOver) {
      await store.setDisabled(++changes % 2 === 1)
      await sleep(CHANGE_MS)
    }
  })()
  const parts = Math.ceil(seconds / PART_SECONDS)
  for (let part = 1; part <= parts; part++) {
    await phase(`with a change a second, part ${part} of ${parts}`, seconds / parts)
  }
  isOver = true
  await changing
  const reloads = (await reloadsOf(adminPort)) - before.reloads
  const growth = residentMegabytes(sidecar) - before.megabytes
  console.log(`${store.name}: ${changes} changes, ${reloads} reloads, memory ${growth.toFixed(0)} MB more`)
  if (!(reloads >= changes * MIN_RELOADS)) {
    violation(`${store.name}: ${reloads} reloads of ${changes} changes`)
  }
  if (!(growth <= MAX_GROWTH_MB)) {
    violation(`${store.name}: memory grew by ${growth.toFixed(0)} MB`)
  }
  await sidecar.stop()
}

const options = { directory: lab.directory, login: trust.login, other, further: 0 }
const stores = [await fileStore(options)]
const database = await postgresStore(options)
if (database === undefined) {
  console.log('skipped: PostgreSQL: there is no server for this machine')
} else {
  stores.push(database)
}
for (const store of stores) {
  await soak(store)
  await store.close()
}
console.log(`${violations} violations`)
process.exit(violations === 0 ? 0 : 1)
