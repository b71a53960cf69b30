/**
 * The soak run of reloads: a change of the credentials each second under a constant rate of requests, from a
 * file and from PostgreSQL. No request may be lost or refused, and memory must stay flat. p99 is reported
 * beside that of a quiet time before.
 *
 *     npm run soak -- --reloads [SECONDS]
 *
 * The last line is `0 violations`, with exit code 0, or `N violations`, with exit code 1.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ask, cpuMicroseconds, listening, openLab, residentMegabytes } from '../../bench/lab.ts'
import { type LoadReport, loadWithAnyAnswers, requestText, writeRequests } from '../../bench/load.ts'
import { startSmallUpstream } from '../../bench/peers.ts'
import { createTrust, MAIN } from '../../bench/trust.ts'
import { hashSecret } from '../../src/credentials/secret-hash.ts'
import { freePort } from '../support/free-port.ts'
import { startPostgres } from '../support/postgres.ts'

const RATE = 2000
const CONNECTIONS = 50
const TOKENS = 500
const CHANGE_MS = 1000
/** What V8 keeps before it collects: measured 10 to 40. */
const MAX_GROWTH_MB = 60
/** A change is loaded after 0.7 s; one that comes meanwhile is loaded with it. */
const MIN_RELOADS = 0.5

/** Where the sidecar has its credentials from. */
interface Store {
  readonly name: string
  readonly flags: readonly string[]
  /** Disables a credential, or enables it again. */
  readonly change: (count: number) => Promise<unknown>
}

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
const cleanUps: (() => unknown)[] = []
let violations = 0

function violation(text: string): void {
  violations++
  console.log(`violation: ${text}`)
}

function fileStore(): Store {
  const file = join(lab.directory, 'credentials.yaml')
  const enabled = readFileSync(file, 'utf8')
  const line = new RegExp(`( +)- accessKey: ${other.accessKey}\n`)
  const disabled = enabled.replace(line, '$&$1  disabled: true\n')
  if (enabled === disabled) {
    throw new Error('the credential is not in the file')
  }
  const change = async (count: number) => {
    writeFileSync(`${file}.next`, count % 2 === 0 ? enabled : disabled, { mode: 0o600 })
    renameSync(`${file}.next`, file)
  }
  return { name: 'file', flags: trust.flags, change }
}

/** Undefined where no server can be had. */
async function postgresStore(): Promise<Store | undefined> {
  const server = await startPostgres({ teardown: (cleanUp: () => unknown) => cleanUps.push(cleanUp) })
  if (server === undefined) {
    return undefined
  }
  const database = await server.createDatabase('tables')
  for (const { accountId, accessKey, secret } of [trust.login, other]) {
    await database.sql(
      'INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash) VALUES ($1, $2, $3)',
      [accountId, accessKey, await hashSecret(secret, 'sha256')],
    )
  }
  const keys = join(lab.directory, 'keys')
  return {
    name: 'PostgreSQL',
    flags: ['--keys-directory', keys, '--credentials-postgres-url-file', database.urlFile],
    change: (count) =>
      database.sql('UPDATE storage_auth.credentials SET disabled = $1 WHERE access_key = $2', [
        count % 2 === 1,
        other.accessKey,
      ]),
  }
}

async function reloadsOf(adminPort: number): Promise<number> {
  const { body } = await ask(adminPort, '/metrics')
  const pattern = /^auth_sidecar_reloads_total\{subject="credentials",result="ok"\} (\d+)$/m
  return Number(pattern.exec(body)?.[1])
}

function report(
  store: Store,
  phase: string,
  { requests: count, p99, failed, refused }: LoadReport,
  cpu: number,
) {
  const perRequest = (cpu / count).toFixed(0)
  console.log(
    `${store.name}, ${phase}: ${count} requests, p99 ${p99.toFixed(1)} ms, ${perRequest} us a request`,
  )
  if (failed > 0 || refused > 0) {
    violation(`${store.name}, ${phase}: ${failed} requests without a response, ${refused} refused`)
  }
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
    const loaded = await loadWithAnyAnswers(lab, options)
    report(store, name, loaded, cpuMicroseconds(sidecar) - before)
  }
  await phase('warm-up', Math.min(10, seconds))
  await phase('quiet', Math.min(30, seconds))
  const before = { megabytes: residentMegabytes(sidecar), reloads: await reloadsOf(adminPort) }
  let changes = 0
  let isOver = false
  const changing = (async () => {
    while (!isOver) {
      await store.change(++changes)
      await sleep(CHANGE_MS)
    }
  })()
  await phase('with a change a second', seconds)
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

const postgres = await postgresStore()
if (postgres === undefined) {
  console.log('skipped: PostgreSQL: there is no server for this machine')
}
for (const store of [fileStore(), ...(postgres === undefined ? [] : [postgres])]) {
  await soak(store)
}
for (const cleanUp of cleanUps) {
  await cleanUp()
}
console.log(`${violations} violations`)
process.exit(violations === 0 ? 0 : 1)
