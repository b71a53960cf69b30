/**
 * Credentials and revocations in PostgreSQL, shared by all replicas.
 * Token checks read a snapshot in memory and never wait for the database. A login first polls its revision, and logins
 * share a poll. LISTEN would be faster, but takes a connection of its own and does not pass poolers.
 */
import { MAX_LOGGED_PROBLEMS, Reloadable, type ReloadResult } from '../../reload/reloadable.ts'
import type { Loaded } from '../../values/problem.ts'
import type { RevocationList } from '../revocation-list.ts'
import type { CredentialIndex } from '../store.ts'
import { DatabasePool, type DatabaseTarget, databaseFailure, readUrlFile } from './database-pool.ts'
import { NO_SNAPSHOT, readRevision, readSnapshot, type Snapshot } from './snapshot.ts'

export interface DatabaseOptions {
  /** Read again whenever connections are replaced. */
  readonly urlFile: string
  readonly poolSize: number
  readonly log: Record<'info' | 'warn', (fields: object, message: string) => void>
  /** A change is active. Cached verdicts must be dropped now: on these tokens, or without them on all. */
  readonly onChange: (revokedTokens?: readonly string[]) => void
  readonly onReload: (result: ReloadResult) => void
  readonly pollMs?: number
}

/** Nothing here rejects. */
export interface CredentialsDatabase {
  readonly opened: Promise<Opened>
  /** Until there is a snapshot, there are none. */
  credentials(): CredentialIndex
  revocations(): RevocationList
  /** Whether the snapshot is as new as the call. While the database is known to be down, no request waits for it. */
  refresh(): Promise<boolean>
  /** Whether the token is refused from now on. @param untilSeconds - its end, when the row is removed */
  revoke(tokenId: string, untilSeconds: number): Promise<boolean>
  /** A condition of readiness: a sidecar with a snapshot stays ready. */
  check(): {
    readonly name: string
    readonly ok: boolean
    readonly state?: 'current' | 'database down, last snapshot active'
  }
  /** Connects, and polls from now on. */
  start(): void
  /** Connects anew, and reads everything. */
  reload(): Promise<void>
  /** The last snapshot stays active. */
  stop(): Promise<void>
}

/** `ok`: there is a snapshot. `problems`: those only an operator can solve (tables, access); none after a stop. */
interface Opened {
  readonly ok: boolean
  readonly problems: readonly string[]
}

const POLL_MS = 250
const RETRY_MS = 500
const REVOKE_SQL =
  'INSERT INTO storage_auth.revocations (jti, expires_at) VALUES ($1, to_timestamp($2::float8))'

export async function openDatabase(options: DatabaseOptions): Promise<Loaded<CredentialsDatabase>> {
  const named = await readUrlFile(options.urlFile)
  return named.ok ? { ...named, value: createStore(options, named.value) } : named
}

function createStore(options: DatabaseOptions, target: DatabaseTarget): CredentialsDatabase {
  const { urlFile, poolSize, log, onChange, onReload, pollMs = POLL_MS } = options
  const pool = new DatabasePool(urlFile, target, poolSize)
  let isDown = false
  let settle: (opened: Opened) => void = () => {}
  const opened = new Promise<Opened>((resolve) => {
    settle = resolve
  })

  const snapshots: Reloadable<Snapshot> = new Reloadable<Snapshot>({
    observe: () => pool.ask(async (connections) => (await readRevision(connections)).number),
    load: (isForced) =>
      pool.ask((connections) => readSnapshot(connections, isForced ? NO_SNAPSHOT : snapshots.current())),
    initial: NO_SNAPSHOT,
    pollMs,
    retryMs: RETRY_MS,
    onActive(fresh) {
      const { revokedTokens, problems } = fresh
      for (const revocation of fresh.newRevocations) fresh.revocations.add(revocation)
      if (revokedTokens !== undefined) return // a line for each logout in each sidecar would be noise
      report()
      for (const problem of problems.slice(0, MAX_LOGGED_PROBLEMS)) {
        log.warn({ database: pool.label, problem }, 'invalid row skipped')
      }
      const sizes = { credentials: fresh.credentials.size, revocations: fresh.revocations.size }
      log.info(sizes, 'new credentials active')
    },
    onFailed([reason]) {
      if (!isOpen() && pool.failure?.kind === 'unusable') {
        settle({ ok: false, problems: [`${urlFile}: the database ${pool.label}: ${reason}`] })
      }
      if (isDown) return
      const fields = { database: pool.label, reason }
      if (!isOpen()) return void log.warn(fields, 'waiting for the credentials database')
      onReload('failed')
      log.warn(fields, 'the credentials database is down: no logins; the last snapshot serves token checks')
    },
    onPolled(isCurrent) {
      if (isOpen() && isDown && isCurrent) {
        report()
        log.info({ database: pool.label }, 'the credentials database is back')
      }
      isDown = !isCurrent
      if (isCurrent) settle({ ok: true, problems: [] })
    },
    onFault: (err) => log.warn({ err }, 'fault while polling the credentials database'),
  })

  snapshots.subscribe((fresh, former) => {
    if (former !== NO_SNAPSHOT) onChange(fresh.revokedTokens)
  })
  const isOpen = () => snapshots.current() !== NO_SNAPSHOT
  const report = () => onReload(snapshots.current().problems.length === 0 ? 'ok' : 'failed')
  const refresh = async () => isOpen() && !isDown && (await snapshots.refresh())

  return {
    opened,
    credentials: () => snapshots.current().credentials,
    refresh,
    revocations: () => snapshots.current().revocations,
    async revoke(tokenId, untilSeconds) {
      if (!(await refresh())) return false
      try {
        await (await pool.current()).query(REVOKE_SQL, [tokenId, untilSeconds])
      } catch (cause) {
        const { kind, message } = databaseFailure(cause)
        const fields = { database: pool.label, reason: message }
        if (kind === 'unusable') log.warn(fields, 'a request failed in the database')
        return false
      }
      return snapshots.refresh()
    },
    check: () => {
      const state = isDown ? 'database down, last snapshot active' : 'current'
      return { name: 'credentials', ok: isOpen(), ...(isOpen() && { state }) }
    },
    start: () => snapshots.start(),
    async reload() {
      if (!isOpen()) return
      pool.replace()
      await snapshots.reload()
    },
    async stop() {
      snapshots.stop()
      settle({ ok: false, problems: [] })
      await snapshots.refresh() // ends after the poll in progress
      pool.replace()
    },
  }
}
