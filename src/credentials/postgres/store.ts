/**
 * A credential store over PostgreSQL, shared by all replicas.
 * Token checks read a snapshot in memory and never wait for the database. A login first asks it whether the snapshot is
 * current, and so does a poll: LISTEN would be faster, but takes a connection of its own and does not pass poolers.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { MAX_LOGGED_PROBLEMS } from '../../reload/polled-files.ts'
import {
  type CredentialStore,
  type CredentialStoreOptions,
  createCredentialStore,
  DATABASE_DOWN,
} from '../store.ts'
import { clientConfig, type PostgresTarget, postgresFailure, readUrlFile } from './connection.ts'
import { NO_SNAPSHOT, readRevision, readSnapshot, type Snapshot } from './snapshot.ts'

export interface PostgresStoreOptions extends Omit<CredentialStoreOptions, 'credentials'> {
  /** Read again whenever connections are replaced. */
  readonly urlFile: string
  readonly poolSize: number
  readonly log: Record<'info' | 'warn', (fields: object, message: string) => void>
  /** A change is active. Cached verdicts must be dropped now: on these tokens, or without them on all. */
  readonly onChange: (revokedTokens?: readonly string[]) => void
  readonly onReload?: (result: 'ok' | 'failed') => void
  readonly pollMs?: number
}

export type PostgresStore = ReturnType<typeof openPostgresStore>

/** `ok`: there is a snapshot. `problems`: those only an operator can solve (URL, tables, access); none after a stop. */
interface Opened {
  readonly ok: boolean
  readonly problems: readonly string[]
}

const POLL_MS = 250
const RETRY_MS = 500
/** For each query; a page of rows takes about 10 ms. */
const QUERY_MS = 1000
/** Logins and logouts that query the database or wait for it; more would delay polls. */
const MAX_REQUESTS = 1000
const REVOKE_SQL =
  'INSERT INTO storage_auth.revocations (jti, expires_at) VALUES ($1, to_timestamp($2::float8))'

/** Nothing here rejects. */
export function openPostgresStore(options: PostgresStoreOptions) {
  const { urlFile, poolSize, log, onChange, onReload, pollMs = POLL_MS } = options
  let target: PostgresTarget | undefined
  let pool: Promise<pg.Pool> | undefined
  let snapshot = NO_SNAPSHOT
  let reading: Promise<void> | undefined
  let requests = 0
  let isOpen = false
  let isDown = false
  let isStopped = false
  let pause = new AbortController()
  let settle: (opened: Opened) => void = () => {}
  const opened = new Promise<Opened>((resolve) => {
    settle = resolve
  })
  const running = run()

  /** Until there is a snapshot, logins are `unavailable` and no token is valid. */
  const current = createCredentialStore({ ...options, credentials: () => snapshot.credentials })
  const store: CredentialStore = {
    ...current,
    async authenticate(...args) {
      const failed = await inDatabase(async () => {})
      return failed ?? current.authenticate(...args)
    },
  }
  return {
    store,
    opened,
    revocations: () => snapshot.revocations,
    /** Whether the token is refused from now on. @param until - its end, in epoch seconds: then the row is removed */
    async revoke(tokenId: string, until: number): Promise<boolean> {
      const failed = await inDatabase(async (used) => {
        await used.query(REVOKE_SQL, [tokenId, until])
        await update()
      })
      return failed === undefined
    },
    /** A condition of readiness: a sidecar with a snapshot stays ready. */
    check: () => ({
      name: 'credentials',
      ok: isOpen,
      ...(isOpen && { state: isDown ? DATABASE_DOWN : 'current' }),
    }),
    async reload(): Promise<void> {
      if (!isOpen || isStopped) return
      await reading?.catch(() => {})
      disconnect()
      snapshot = { ...snapshot, revision: NO_SNAPSHOT.revision }
      await update().catch(() => {})
      pause.abort() // the next poll finds out whether the database is down
    },
    /** The last snapshot stays active. */
    stop(): Promise<void> {
      isStopped = true
      pause.abort()
      disconnect()
      return running
    },
  }

  /** Calls `use` when the snapshot is current. Undefined when it is done. */
  async function inDatabase(
    use: (used: pg.Pool) => Promise<void>,
  ): Promise<'busy' | 'unavailable' | undefined> {
    if (!isOpen || isDown || isStopped) return 'unavailable'
    if (requests >= MAX_REQUESTS) return 'busy'
    requests++
    try {
      await update()
      pool ??= connect()
      await use(await pool)
      return undefined
    } catch (cause) {
      const { kind, message } = postgresFailure(cause)
      if (kind === 'unusable')
        log.warn({ database: target?.label, reason: message }, 'a request failed in the database')
      pause.abort()
      return 'unavailable'
    } finally {
      requests--
    }
  }

  async function run(): Promise<void> {
    const named = await readUrlFile(urlFile)
    if (!named.ok) return settle(named)
    target = named.value
    while (!isStopped) {
      pause = new AbortController() // a login that fails during the update ends the pause after it
      try {
        await update()
        if (isDown && isOpen) {
          report()
          log.info({ database: target.label }, 'the credentials database is back')
        }
        isDown = false
        isOpen = true
        settle({ ok: true, problems: [] })
      } catch (cause) {
        if (isStopped) break
        disconnect()
        const { kind, message } = postgresFailure(cause)
        if (!isOpen && kind === 'unusable') {
          return settle({ ok: false, problems: [`${urlFile}: the database ${target.label}: ${message}`] })
        }
        if (!isDown) onDown(message)
      }
      await sleep(isDown ? RETRY_MS : pollMs, undefined, { signal: pause.signal }).catch(() => {})
    }
    settle({ ok: false, problems: [] })
  }

  /** Makes the snapshot at least as new as this call. `mayRetry`: on new connections, as idle ones may be closed. */
  async function update(mayRetry = pool !== undefined): Promise<void> {
    pool ??= connect()
    const used = pool
    try {
      const { number } = await readRevision(await used)
      if (number !== snapshot.revision.number) await reading // it may have begun before this change
      if (number === snapshot.revision.number) return
      reading ??= readSnapshot(await used, snapshot)
        .then(publish)
        .finally(() => {
          reading = undefined
        })
      await reading
    } catch (cause) {
      // A server that hangs is not asked twice.
      if (!mayRetry || isStopped || postgresFailure(cause).kind === 'timeout') throw cause
      if (pool === used) disconnect()
      await update(false)
    }
  }

  async function connect(): Promise<pg.Pool> {
    const named = await readUrlFile(urlFile)
    if (named.ok) target = named.value
    if (target === undefined) throw new Error('there is no URL')
    // Without listeners such an event ends the process; the next query rejects anyway.
    const ignore = () => {}
    return new pg.Pool({ ...clientConfig(target, QUERY_MS), max: poolSize })
      .on('error', ignore)
      .on('connect', (client) => void client.on('error', ignore))
  }

  /** Queries in progress go on to their end or timeout. */
  function disconnect(): void {
    pool?.then((used) => used.end()).catch(() => {})
    pool = undefined
  }

  function publish(fresh: Snapshot): void {
    if (isStopped) return
    snapshot = fresh
    const { revokedTokens } = fresh
    if (isOpen) onChange(revokedTokens)
    if (revokedTokens !== undefined) return // a line for each logout in each sidecar would be noise
    report()
    for (const problem of fresh.problems.slice(0, MAX_LOGGED_PROBLEMS)) {
      log.warn({ database: target?.label, problem }, 'invalid row skipped')
    }
    const sizes = { credentials: fresh.credentials.size(), revocations: fresh.revocations.size }
    log.info(sizes, 'new credentials active')
  }

  function report(): void {
    onReload?.(snapshot.problems.length === 0 ? 'ok' : 'failed')
  }

  function onDown(reason: string): void {
    isDown = true
    const fields = { database: target?.label, reason }
    if (!isOpen) return void log.warn(fields, 'waiting for the credentials database')
    onReload?.('failed')
    log.warn(fields, 'the credentials database is down: no logins; the last snapshot serves token checks')
  }
}
