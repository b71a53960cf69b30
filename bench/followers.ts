/**
 * The load of a fleet on its hubs: simulated followers that wait at two hubs over one PostgreSQL.
 * Run by itself:
 *
 *   ulimit -n 20000
 *   node --import=./scripts/strip-types.mjs bench/followers.ts [--followers=10000] [--changes=10]
 *   node --import=./scripts/strip-types.mjs bench/followers.ts --beside [--followers=2000]
 *
 * Prints the time from the commit of a change to each follower's having it, CPU time and memory of the hubs,
 * and bytes. With `--beside`: the waiting time of a hub's own requests, without followers and with them, and
 * what turns of its event loop take (`turns.mjs`): CPU time, which does not count the time of other programs
 * on Node 26.
 */
import { type ChildProcess, execFile } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs, promisify } from 'node:util'
import { hashSecret } from '../src/credentials/secret-hash.ts'
import { makeKeyDirectory } from '../test/support/keys.ts'
import { startPostgres, type TestDatabase } from '../test/support/postgres.ts'
import { serve } from '../test/support/program.ts'
import { recordingUpstream } from '../test/support/recording-upstream.ts'
import { mintToken } from '../test/support/tokens.ts'
import { MeasuredTurns } from './turns.ts'

const { values: flags } = parseArgs({
  options: {
    followers: { type: 'string' },
    credentials: { type: 'string', default: '100000' },
    revocations: { type: 'string', default: '10000' },
    changes: { type: 'string', default: '10' },
    beside: { type: 'boolean', default: false },
  },
})
const changes = Number(flags.changes)
const TOKEN = 'the-token-of-all-followers'
/** The pause of a follower after a failure, at random. */
const MAX_PAUSE_MS = 10_000

/** One simulated follower: asks, waits for the response, asks again. */
class Follower {
  version = ''
  /** When the newest version has arrived. */
  knownAtMs = 0
  changeBytes = 0
  failures = 0
  port: () => number
  #socket: Socket | undefined
  #head = ''
  #left = -1
  #isState = false
  #mayWait = true

  constructor(port: () => number) {
    this.port = port
  }

  start(): void {
    const socket = connect({ port: this.port(), host: '127.0.0.1', noDelay: true })
    this.#socket = socket
    this.#head = ''
    this.#left = -1
    socket.on('connect', () => this.#ask())
    socket.on('data', (chunk) => this.#read(chunk))
    socket.on('error', () => {})
    socket.on('close', () => this.#onClose(socket))
  }

  stop(): void {
    const socket = this.#socket
    this.#socket = undefined
    socket?.destroy()
  }

  #ask(): void {
    const query = this.version === '' ? '' : `?since=${this.version}`
    const wait = this.#mayWait ? 'Prefer: wait=60\r\n' : ''
    this.#socket?.write(
      `GET /feed${query} HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer ${TOKEN}\r\nAccept-Encoding: gzip\r\n${wait}\r\n`,
    )
  }

  #read(chunk: Buffer): void {
    if (this.#left < 0) {
      this.#head += chunk.toString('latin1')
      const end = this.#head.indexOf('\r\n\r\n')
      if (end < 0) {
        return
      }
      const length = /\r\ncontent-length: (\d+)/i.exec(this.#head)?.[1] ?? '0'
      this.#isState = this.#head.startsWith('HTTP/1.1 200')
      this.#left = Number(length) - (this.#head.length - end - 4)
      if (this.#isState) {
        this.changeBytes = end + 4 + Number(length)
      }
    } else {
      this.#left -= chunk.length
    }
    if (this.#left <= 0) {
      this.#finish()
    }
  }

  #finish(): void {
    const version = /\r\netag: "([^"]+)"/i.exec(this.#head)?.[1] ?? ''
    if (version !== this.version) {
      this.version = version
      this.knownAtMs = performance.now()
    }
    const isLast = /\r\nconnection: close/i.test(this.#head)
    this.#head = ''
    this.#left = -1
    this.#mayWait = true
    if (isLast) {
      this.stop()
      this.start()
    } else {
      this.#ask()
    }
  }

  #onClose(socket: Socket): void {
    if (this.#socket !== socket) {
      return
    }
    this.failures++
    this.#mayWait = false
    setTimeout(() => this.#socket === socket && this.start(), Math.random() * MAX_PAUSE_MS)
  }
}

const teardowns: (() => unknown)[] = []
const t = {
  teardown: (end: () => unknown) => {
    teardowns.unshift(end)
  },
  testdir: () => '',
}

interface Hub {
  readonly pid: number
  readonly port: number
  readonly adminPort: number
  readonly child: ChildProcess
}

/** @param turns - those of the hub, if they are measured */
async function startHub(settings: Readonly<Record<string, string>>, turns?: MeasuredTurns): Promise<Hub> {
  const options =
    turns === undefined ? {} : { nodeArgs: [turns.nodeOption], env: { BENCH_TURNS_FILE: turns.file } }
  const { pid, port, adminPort, child } = await serve(t, settings, options)
  return { pid, port, adminPort, child }
}

/** Of all threads, in milliseconds. */
function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
    .replace(/^.*\) /, '')
    .split(' ')
  return (Number(fields[11]) + Number(fields[12])) * 10
}

function residentKb(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1])
}

async function fill(database: TestDatabase): Promise<void> {
  await database.sql(
    `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash)
     SELECT 'account-' || (i / 10), 'AK' || i, $1 FROM generate_series(1, $2::int) i`,
    [await hashSecret('secret', 'sha256'), flags.credentials],
  )
  await database.sql(
    `INSERT INTO storage_auth.revocations (jti, issuer, ended_by, expires_at)
     SELECT md5(i::text), 'storage-account-api', 'account-' || i, now() + interval '1 day'
     FROM generate_series(1, $1::int) i`,
    [flags.revocations],
  )
}

let disabled = 0
const disableOne = (database: TestDatabase) =>
  database.sql('UPDATE storage_auth.credentials SET disabled = true WHERE access_key = $1', [
    `AK${++disabled}`,
  ])
let ended = 0
const revokeOne = (database: TestDatabase) =>
  database.sql(
    `INSERT INTO storage_auth.revocations (jti, issuer, ended_by, expires_at)
     VALUES ($1, 'storage-account-api', 'acme', now() + interval '1 day')`,
    [`ended-${++ended}`],
  )

const quantile = (sorted: readonly number[], q: number) =>
  sorted[Math.ceil(sorted.length * q) - 1] ?? Number.NaN
const say = (what: string, value: string) => console.log(`${what.padEnd(58)} ${value}`)
const ms = (value: number) => `${value.toFixed(0)} ms`

async function until(holds: () => boolean, what: string, seconds = 60): Promise<void> {
  const deadline = performance.now() + seconds * 1000
  while (!holds()) {
    if (performance.now() > deadline) {
      throw new Error(`waited in vain for ${what}`)
    }
    await sleep(2)
  }
}

function followAll(count: number, hubs: readonly Hub[]): Follower[] {
  return Array.from({ length: count }, (_, at) => new Follower(() => hubs[at % hubs.length]?.adminPort ?? 0))
}

/** A few in each turn, so that no backlog overflows. */
async function startAll(followers: readonly Follower[]): Promise<void> {
  for (const [at, follower] of followers.entries()) {
    follower.start()
    if (at % 50 === 49) {
      await sleep(5)
    }
  }
  await until(() => followers.every(({ version }) => version !== ''), 'the first states', 300)
  await sleep(2000)
}

/** Changes the database, and waits until every follower has the change. */
async function measureChange(
  hubs: readonly Hub[],
  followers: readonly Follower[],
  change: () => Promise<unknown>,
): Promise<{ readonly times: number[]; readonly cpu: number[] }> {
  const before = new Map(followers.map((follower) => [follower, follower.version]))
  const cpuBefore = hubs.map(({ pid }) => cpuMs(pid))
  await change()
  const committedAtMs = performance.now()
  await until(() => followers.every((follower) => follower.version !== before.get(follower)), 'the change')
  const times = followers.map(({ knownAtMs }) => knownAtMs - committedAtMs)
  await sleep(1500)
  return { times, cpu: hubs.map(({ pid }, at) => cpuMs(pid) - (cpuBefore[at] ?? 0)) }
}

async function measureChanges(
  name: string,
  hubs: readonly Hub[],
  followers: readonly Follower[],
  change: () => Promise<unknown>,
): Promise<void> {
  const times: number[] = []
  const cpu: number[] = []
  for (let at = 0; at < changes; at++) {
    const measured = await measureChange(hubs, followers, change)
    times.push(...measured.times)
    cpu.push(...measured.cpu)
    await sleep(Math.random() * 500)
  }
  times.sort((a, b) => a - b)
  cpu.sort((a, b) => a - b)
  const [p50, p99, max] = [0.5, 0.99, 1].map((q) => ms(quantile(times, q)))
  say(`${name}: from the commit to a follower, p50, p99, max`, `${p50}, ${p99}, ${max}`)
  say(
    `${name}: CPU time of a hub for a change, median, max`,
    `${ms(quantile(cpu, 0.5))}, ${ms(cpu.at(-1) ?? 0)}`,
  )
  const bytes = followers.reduce((sum, { changeBytes }) => sum + changeBytes, 0) / followers.length
  say(`${name}: bytes for a follower and a change, head included`, bytes.toFixed(0))
}

async function setUp() {
  const server = await startPostgres(t)
  if (server === undefined) {
    throw new Error('there is no embedded PostgreSQL for this machine')
  }
  const database = await server.createDatabase('tables')
  await fill(database)
  const directory = await mkdtemp(join(tmpdir(), 'followers-'))
  const tokenFile = join(directory, 'token')
  writeFileSync(tokenFile, TOKEN)
  const key = await makeKeyDirectory(t)
  const upstream = await recordingUpstream(t)
  const settings = {
    'keys-directory': key.directory,
    'credentials-postgres-url-file': database.urlFile,
    'upstream-url': upstream.url,
    'feed-enabled': 'true',
    'feed-token-file': tokenFile,
    'log-access': 'off',
    'log-audit': 'false',
  }
  return { database, directory, key, settings }
}

/** The whole fleet on two hubs. */
async function fleet(): Promise<void> {
  const count = Number(flags.followers ?? 10_000)
  const { database, settings } = await setUp()
  const hubs = await Promise.all([startHub(settings), startHub(settings)])
  await sleep(5000)
  const empty = hubs.map(({ pid }) => residentKb(pid))
  const idleBefore = hubs.map(({ pid }) => cpuMs(pid))
  await sleep(10_000)
  say('CPU of a hub without followers', percents(hubs, idleBefore, 10))

  const followers = followAll(count, hubs)
  const began = performance.now()
  const cpuBefore = hubs.map(({ pid }) => cpuMs(pid))
  await startAll(followers)
  say(`all ${count} have their first state after`, ms(performance.now() - began - 2000))
  say('CPU time of a hub for it', hubs.map(({ pid }, at) => ms(cpuMs(pid) - (cpuBefore[at] ?? 0))).join(', '))
  const waitingBefore = hubs.map(({ pid }) => cpuMs(pid))
  await sleep(10_000)
  say('CPU of a hub while all wait', percents(hubs, waitingBefore, 10))
  const grown = hubs.map(({ pid }, at) => (residentKb(pid) - (empty[at] ?? 0)) / (count / hubs.length))
  say(
    'resident memory of a hub',
    hubs.map(({ pid }) => `${(residentKb(pid) / 1024).toFixed(0)} MB`).join(', '),
  )
  say('memory of a hub for a follower', grown.map((kb) => `${kb.toFixed(1)} KB`).join(', '))

  await measureChanges('disabled credential', hubs, followers, () => disableOne(database))
  await measureChanges('ended token', hubs, followers, () => revokeOne(database))
  say(
    'resident memory of a hub after all changes',
    hubs.map(({ pid }) => `${(residentKb(pid) / 1024).toFixed(0)} MB`).join(', '),
  )

  await reconnect(database, hubs, followers, settings)
  for (const follower of followers) {
    follower.stop()
  }
}

/** Both hubs end without a word, a credential is disabled meanwhile, and all come back. */
async function reconnect(
  database: TestDatabase,
  hubs: Hub[],
  followers: readonly Follower[],
  settings: Readonly<Record<string, string>>,
): Promise<void> {
  for (const { child } of hubs) {
    child.kill('SIGKILL')
  }
  await Promise.all(hubs.map(({ child }) => child.exitCode ?? child.signalCode ?? once(child, 'exit')))
  const before = new Map(followers.map((follower) => [follower, follower.version]))
  await disableOne(database)
  const fresh = await Promise.all([startHub(settings), startHub(settings)])
  hubs.splice(0, 2, ...fresh)
  const began = performance.now()
  const cpuBefore = hubs.map(({ pid }) => cpuMs(pid))
  await until(
    () => followers.every((follower) => follower.version !== before.get(follower)),
    'all to come back',
    300,
  )
  say('both hubs replaced: all have the whole new state after', ms(performance.now() - began))
  await sleep(1000)
  say('CPU time of a hub for it', hubs.map(({ pid }, at) => ms(cpuMs(pid) - (cpuBefore[at] ?? 0))).join(', '))
  say(
    'resident memory of a hub after it',
    hubs.map(({ pid }) => `${(residentKb(pid) / 1024).toFixed(0)} MB`).join(', '),
  )
}

function percents(hubs: readonly Hub[], before: readonly number[], seconds: number): string {
  return hubs
    .map(({ pid }, at) => `${((cpuMs(pid) - (before[at] ?? 0)) / seconds / 10).toFixed(1)} %`)
    .join(', ')
}

/** What followers and a change a second do to the hub's own requests. */
async function beside(): Promise<void> {
  const count = Number(flags.followers ?? 2000)
  const { database, directory, key, settings } = await setUp()
  const turns = new MeasuredTurns(directory)
  const hub = await startHub(settings, turns)
  const token = await mintToken({ key, claims: { sub: 'account-9999', client_id: 'AK99999' } })
  const file = join(directory, 'requests')
  writeFileSync(file, `GET /object HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`)
  const load = async (seconds = 15) => {
    const options = {
      port: hub.port,
      requests: { file, expect: 'success' },
      connections: 16,
      seconds,
      rate: 500,
    }
    const args = ['--import=./scripts/strip-types.mjs', 'bench/load-client.ts', JSON.stringify(options)]
    turns.restart()
    await sleep(300)
    const { stdout } = await promisify(execFile)(process.execPath, args)
    const times = turns.read()
    const report: { readonly p99: number; readonly failed: number; readonly refused: number } =
      JSON.parse(stdout)
    const failed = report.failed + report.refused
    const p99 = times.p99.toFixed(2)
    const longest = times.longest.toFixed(1)
    const wait = times.wait.toFixed(1)
    const ofTurns = `turns of CPU: p99 ${p99} ms, longest ${longest} ms, p99 of the wait for one ${wait} ms`
    return `${report.p99.toFixed(2)} ms (${failed} failed); ${ofTurns}`
  }
  await load(3)
  say('p99 of 500 requests a second, alone', await load())
  const followers = followAll(count, [hub])
  await startAll(followers)
  say(`beside ${count} followers that wait`, await load())
  const change = async (what: string, makeOne: () => Promise<unknown>) => {
    const timer = setInterval(() => makeOne(), 1000)
    say(`beside ${count} followers and ${what} a second`, await load())
    clearInterval(timer)
  }
  await change('an ended token', () => revokeOne(database))
  await change('a disabled credential', () => disableOne(database))
  for (const follower of followers) {
    follower.stop()
  }
  await sleep(1000)
  say('alone again', await load())
  const timer = setInterval(() => disableOne(database), 1000)
  say('without followers, a disabled credential a second', await load())
  clearInterval(timer)
}

try {
  await (flags.beside ? beside() : fleet())
} finally {
  for (const end of teardowns) {
    await end()
  }
}
process.exit()
