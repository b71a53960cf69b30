/**
 * Connects to the database at the URL in a file, in bounded time, and explains failures in plain words.
 * The URL holds a password, so problems quote no part of the URL.
 */
import { Socket } from 'node:net'
import pg from 'pg'
import { failed, type Loaded, loaded, notLoaded, ok, type Result } from '../../base/result.ts'
import { readRegularFile } from '../../files/files.ts'
import { isLoopback, lookup } from '../../http/hosts.ts'

/** `label`: `host:port/database`. */
export type DatabaseTarget = Readonly<{ url: string; label: string }>

const MAX_URL_BYTES = 65_536
const CONNECT_MS = 2000
const QUERY_MS = 1000
/**
 * Stands before a statement, and ends a wait for a lock before the query times out.
 * Connection poolers refuse it as an option of the connection.
 */
export const LIMIT_LOCKS = `SET LOCAL lock_timeout = ${QUERY_MS - 200};`
const NEEDS_TLS = 'names a remote host: it needs ?sslmode=verify-full, or ?sslmode=disable to do without TLS'
const PASSWORD_HINT = 'special characters of the password must be percent-encoded'

export async function readUrlFile(file: string): Promise<Loaded<DatabaseTarget>> {
  const read = await readRegularFile(file, MAX_URL_BYTES)
  if (!read.ok) {
    return read
  }
  const target = parseDatabaseUrl(read.value.bytes.toString().trim())
  if (!target.ok) {
    return notLoaded([`${file}: ${target.error}`])
  }
  return loaded(target.value, read.warnings)
}

/** Checks the URL here, because pg accepts any text as a URL. */
function parseDatabaseUrl(text: string): Result<DatabaseTarget> {
  if (!/^postgres(ql)?:\/\/\S+$/.test(text)) {
    return failed('must hold one URL such as postgres://user:password@host:5432/database')
  }
  // An empty host means a Unix socket named by the parameter `host`, as in libpq. `URL` refuses it.
  const parseable = text.replace('@/', '@socket/')
  const url = URL.canParse(parseable) ? new URL(parseable) : undefined
  // An unencoded `#`, `/` or `?` ends the password.
  // The rest of the password would become part of the database name.
  if (url === undefined || url.hash !== '' || `${url.pathname}${url.search}`.includes('@')) {
    return failed(`holds no valid URL (${PASSWORD_HINT})`)
  }
  // pg treats these three modes as `verify-full`, and warns on stderr that this will change.
  const connectionString = text.replace(/([?&]sslmode=)(?:prefer|require|verify-ca)(?=&|$)/g, '$1verify-full')
  try {
    const { host, port, database = '' } = new pg.Client({ connectionString })
    const isRemote = !host.startsWith('/') && !isLoopback(host)
    // Passwords and hashes would cross the network in plain text, without a warning by pg.
    const mode = url.searchParams.getAll('sslmode').at(-1)
    if (isRemote && mode !== 'verify-full' && mode !== 'disable') {
      return failed(NEEDS_TLS)
    }
    return ok({ url: connectionString, label: `${host}:${port}/${database}` })
  } catch {
    return failed(
      `holds a URL that cannot be used (${PASSWORD_HINT}; the files that it names must be readable)`,
    )
  }
}

/** pg has no option for the lookup of its host. */
class DatabaseSocket extends Socket {
  /** pg passes a port and a host, or a path. */
  override connect(portOrPath: unknown, host?: unknown): this {
    if (typeof host !== 'string') {
      return super.connect(String(portOrPath))
    }
    return super.connect({ port: Number(portOrPath), host, lookup })
  }
}

export const clientConfig = ({ url }: DatabaseTarget, queryMs: number) => ({
  connectionString: url,
  fallback_application_name: 'storage-auth-sidecar',
  connectionTimeoutMillis: CONNECT_MS,
  query_timeout: queryMs,
  keepAlive: true,
  stream: () => new DatabaseSocket(),
})

/**
 * After a failure, the pool reads the URL file again and reconnects.
 * The file may name another database by then.
 */
export class DatabasePool {
  readonly #urlFile: string
  readonly #size: number
  #target: DatabaseTarget
  #pool: Promise<pg.Pool> | undefined

  constructor(urlFile: string, target: DatabaseTarget, size: number) {
    this.#urlFile = urlFile
    this.#size = size
    this.#target = target
  }

  readonly label = (): string => this.#target.label

  current(): Promise<pg.Pool> {
    this.#pool ??= this.#createPool()
    return this.#pool
  }

  /** The next query opens new connections. Queries in progress continue until their end or timeout. */
  disconnect(): void {
    this.#pool?.then((former) => former.end()).catch(() => {})
    this.#pool = undefined
  }

  /**
   * Runs a query. If it fails on connections that were open before, the server may have closed them, so
   * the query runs a second time, on new ones. Never rejects.
   */
  ask<T>(run: (pool: pg.Pool) => Promise<T>): Promise<Loaded<T>> {
    const mayRetry = this.#pool !== undefined
    return this.#attempt(run, mayRetry)
  }

  async #attempt<T>(run: (pool: pg.Pool) => Promise<T>, mayRetry: boolean): Promise<Loaded<T>> {
    try {
      return loaded(await run(await this.current()))
    } catch (error) {
      this.disconnect()
      const { kind, message } = databaseFailure(error)
      // A server that hangs is not asked twice.
      if (mayRetry && kind !== 'timeout') {
        return this.#attempt(run, false)
      }
      return notLoaded([message], kind === 'unusable' ? 'permanent' : undefined)
    }
  }

  async #createPool(): Promise<pg.Pool> {
    const target = await readUrlFile(this.#urlFile)
    if (target.ok) {
      this.#target = target.value
    }
    // Without a listener, an `error` event would end the process. The next query rejects anyway.
    const ignore = () => {}
    return new pg.Pool({ ...clientConfig(this.#target, QUERY_MS), max: this.#size })
      .on('error', ignore)
      .on('connect', (client) => {
        client.on('error', ignore)
      })
  }
}

/** `down` and `timeout` may pass by themselves. `unusable` needs a change in the database or in the URL. */
interface DatabaseFailure {
  readonly kind: 'down' | 'timeout' | 'unusable'
  readonly message: string
}

const RUN_MIGRATE =
  'run `storage-auth-sidecar credentials migrate --postgres-url-file FILE` with a role that may create them'

/**
 * The triggers or the revision are missing, such as after a partial restore: polls would never find a change.
 */
export class ChangesNotRecorded extends Error {}

/** Messages by SQLSTATE. */
const UNUSABLE_STATES: Readonly<Record<string, string>> = {
  '3D000': 'there is no database of that name',
  '3F000': `its tables are missing: ${RUN_MIGRATE}`,
  '42P01': `its tables are missing: ${RUN_MIGRATE}`,
  '42703': `its tables are not up to date: ${RUN_MIGRATE}`,
  '42501': 'this user lacks a privilege there: docs/credentials-and-revocations.md has the grants it needs',
  '28000': 'it refuses this user',
  '28P01': 'it refuses this user or the password',
}

/**
 * Callers write the message after the name of the database.
 * The detail of server errors is left out: it quotes rows.
 */
export function databaseFailure(error: unknown): DatabaseFailure {
  if (!(error instanceof Error)) {
    return { kind: 'down', message: 'it failed for an unknown reason' }
  }
  if (error instanceof ChangesNotRecorded) {
    return { kind: 'unusable', message: `${error.message}: ${RUN_MIGRATE}` }
  }
  const code = 'code' in error ? String(error.code) : ''
  if (error instanceof pg.DatabaseError) {
    return serverFailure(code, error.message)
  }
  return connectionFailure(code, error.message)
}

/** A check in `tables.sql` has failed. */
const RAISE_EXCEPTION = 'P0001'
/** By a `statement_timeout`. */
const QUERY_CANCELED = '57014'
const LOCK_NOT_AVAILABLE = '55P03'

/** @param code - an SQLSTATE */
function serverFailure(code: string, message: string): DatabaseFailure {
  const unusable = code === RAISE_EXCEPTION ? message : UNUSABLE_STATES[code]
  if (unusable !== undefined) {
    return { kind: 'unusable', message: unusable }
  }
  const isLate = code === QUERY_CANCELED || code === LOCK_NOT_AVAILABLE
  return { kind: isLate ? 'timeout' : 'down', message: `it reports: ${message} (${code})` }
}

/** @param code - of Node, OpenSSL or the system, or empty */
function connectionFailure(code: string, message: string): DatabaseFailure {
  if (code === 'ETIMEDOUT' || /timeout/i.test(message)) {
    return { kind: 'timeout', message: 'it does not answer in time' }
  }
  if (message === 'The server does not support SSL connections') {
    return { kind: 'unusable', message: 'it does not offer TLS' }
  }
  if (/^ERR_(?:SSL|TLS)_|CERT|^UNABLE_TO_/.test(code)) {
    return { kind: 'unusable', message: `its TLS certificate or protocol is not accepted (${code})` }
  }
  return { kind: 'down', message: `the connection failed (${code || message})` }
}
