/**
 * A credential store over PostgreSQL, shared by all replicas.
 * Token checks read a snapshot in memory and never wait for the database. A login first polls its revision, and logins
 * share a poll. LISTEN would be faster, but takes a connection of its own and does not pass poolers.
 */
import { MAX_LOGGED_PROBLEMS, Reloadable, type ReloadResult } from '../../reload/reloadable.ts'
import { type CredentialStore, createCredentialStore } from '../store.ts'
import { postgresFailure, ReplacedPool } from './connection.ts'
import { NO_SNAPSHOT, readRevision, readSnapshot, type Snapshot } from './snapshot.ts'

export interface PostgresStoreOptions {
  /** Read again whenever connections are replaced. */
  readonly urlFile: string
  readonly poolSize: number
  readonly log: Record<'info' | 'warn', (fields: object, message: string) => void>
  /** A change is active. Cached verdicts must be dropped now: on these tokens, or without them on all. */
  readonly onChange: (revokedTokens?: readonly string[]) => void
  readonly onReload: (result: ReloadResult) => void
  /** A login ended `unavailable`. */
  readonly onFault?: (cause: unknown) => void
  /** Epoch milliseconds. */
  readonly now: () => number
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
/** Logins and logouts that query the database or wait for it; more would delay polls. */
const MAX_REQUESTS = 1000
const REVOKE_SQL =
  'INSERT INTO storage_auth.revocations (jti, expires_at) VALUES ($1, to_timestamp($2::float8))'

/** Nothing here rejects. */
export function openPostgresStore(options: PostgresStoreOptions) {
  const { urlFile, poolSize, log, now, onChange, onReload, onFault, pollMs = POLL_MS } = options
  const pool = new ReplacedPool(urlFile, poolSize)
  let requests = 0
  let isOpen = false
  let isDown = false
  let settle: (opened: Opened) => void = () => {}
  const opened = new Promise<Opened>((resolve) => {
    settle = resolve
  })

  const snapshots: Reloadable<Snapshot> = new Reloadable<Snapshot>({
    source: {
      observe: () => pool.ask(async (connections) => (await readRevision(connections)).number),
      load: (isForced) =>
        pool.ask((connections) => readSnapshot(connections, isForced ? NO_SNAPSHOT : snapshots.current())),
    },
    initial: NO_SNAPSHOT,
    pollMs,
    retryMs: RETRY_MS,
    onActive: publish,
    onFailed([reason]) {
      if (!isOpen && pool.failure?.kind === 'unusable') {
        settle({ ok: false, problems: [`${urlFile}: the database ${pool.label}: ${reason}`] })
      }
      if (isDown) return
      const fields = { database: pool.label, reason }
      if (!isOpen) return void log.warn(fields, 'waiting for the credentials database')
      onReload('failed')
      log.warn(fields, 'the credentials database is down: no logins; the last snapshot serves token checks')
    },
    onPolled(isCurrent) {
      if (isOpen && isDown && isCurrent) {
        report()
        log.info({ database: pool.label }, 'the credentials database is back')
      }
      isDown = !isCurrent
      if (!isCurrent) return
      isOpen = true
      settle({ ok: true, problems: [] })
    },
    onFault: (err) => log.warn({ err }, 'fault while polling the credentials database'),
  })

  /** Until there is a snapshot, logins are `unavailable` and no token is valid. */
  const current = createCredentialStore(() => snapshots.current().credentials, now, onFault)
  const store: CredentialStore = {
    ...current,
    authenticate: async (...args) => (await whenCurrent()) ?? current.authenticate(...args),
  }
  return {
    store,
    opened,
    revocations: () => snapshots.current().revocations,
    /** Whether the token is refused from now on. @param until - its end, in epoch seconds: then the row is removed */
    async revoke(tokenId: string, until: number): Promise<boolean> {
      const failed = await whenCurrent(async () => {
        await (await pool.current()).query(REVOKE_SQL, [tokenId, until])
        await snapshots.refresh()
      })
      return failed === undefined
    },
    /** A condition of readiness: a sidecar with a snapshot stays ready. */
    check: () => {
      const state = isDown ? ('database down, last snapshot active' as const) : ('current' as const)
      return { name: 'credentials', ok: isOpen, ...(isOpen && { state }) }
    },
    start(): void {
      void pool.readUrl().then((named) => {
        if (!named.ok) return settle(named)
        for (const warning of named.warnings) log.warn({ file: urlFile }, warning)
        snapshots.start()
      })
    },
    async reload(): Promise<void> {
      if (!isOpen) return
      pool.replace()
      await snapshots.reload()
    },
    /** The last snapshot stays active. */
    async stop(): Promise<void> {
      snapshots.stop()
      settle({ ok: false, problems: [] })
      pool.close()
      await snapshots.refresh() // ends after the poll in progress
    },
  }

  /** Calls `use` when the snapshot is current. Undefined when it is done. */
  async function whenCurrent(use?: () => Promise<void>): Promise<'busy' | 'unavailable' | undefined> {
    if (!isOpen || isDown) return 'unavailable'
    if (requests >= MAX_REQUESTS) return 'busy'
    requests++
    try {
      if (!(await snapshots.refresh())) return 'unavailable'
      await use?.()
      return undefined
    } catch (cause) {
      const { kind, message } = postgresFailure(cause)
      if (kind === 'unusable')
        log.warn({ database: pool.label, reason: message }, 'a request failed in the database')
      void snapshots.refresh() // finds out whether the database is down
      return 'unavailable'
    } finally {
      requests--
    }
  }

  function publish(fresh: Snapshot): void {
    const { revokedTokens } = fresh
    if (isOpen) onChange(revokedTokens)
    if (revokedTokens !== undefined) return // a line for each logout in each sidecar would be noise
    report()
    for (const problem of fresh.problems.slice(0, MAX_LOGGED_PROBLEMS)) {
      log.warn({ database: pool.label, problem }, 'invalid row skipped')
    }
    const sizes = { credentials: fresh.credentials.size, revocations: fresh.revocations.size }
    log.info(sizes, 'new credentials active')
  }

  function report(): void {
    onReload(snapshots.current().problems.length === 0 ? 'ok' : 'failed')
  }
}
