/**
 * Credentials and revocations in PostgreSQL, shared by all replicas.
 * Token checks read a snapshot in memory and never wait for the database. A login first polls its revision, and logins
 * share a poll. LISTEN would be faster, but takes a connection of its own and does not pass poolers.
 */
import { MAX_LOGGED_PROBLEMS, Reloadable, type ReloadResult } from '../../reload/reloadable.ts'
import { type Loaded, loaded } from '../../values/problem.ts'
import { countOf, type RevocationList } from '../revocation-list.ts'
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

/** Of a database with a snapshot. */
export type DatabaseState = 'current' | 'database down, last snapshot active'

/** `ok`: there is a snapshot. `problems`: those only an operator can solve (tables, access); none after a stop. */
interface Opened {
  readonly ok: boolean
  readonly problems: readonly string[]
}

const POLL_MS = 250
const RETRY_MS = 500
const REVOKE_SQL =
  'INSERT INTO storage_auth.revocations (jti, expires_at) VALUES ($1, to_timestamp($2::float8))'

/** Reads the URL; connects from `start` on. Never rejects. */
export async function openDatabase(options: DatabaseOptions): Promise<Loaded<CredentialsDatabase>> {
  const named = await readUrlFile(options.urlFile)
  return named.ok ? loaded(new CredentialsDatabase(options, named.value), named.warnings) : named
}

/** Nothing in it rejects. */
export class CredentialsDatabase {
  readonly opened: Promise<Opened>
  readonly #options: DatabaseOptions
  readonly #pool: DatabasePool
  readonly #snapshots: Reloadable<Snapshot>
  #isDown = false
  #problems: readonly string[] = []

  constructor(options: DatabaseOptions, target: DatabaseTarget) {
    const { urlFile, poolSize, log, pollMs = POLL_MS } = options
    this.#options = options
    const pool = new DatabasePool(urlFile, target, poolSize)
    this.#pool = pool
    this.#snapshots = new Reloadable<Snapshot>({
      observe: () => pool.ask(async (connections) => (await readRevision(connections)).number),
      load: (isForced) =>
        pool.ask((connections) => readSnapshot(connections, isForced ? NO_SNAPSHOT : this.#snapshot())),
      initial: NO_SNAPSHOT,
      pollMs,
      retryMs: RETRY_MS,
      onFailed: ([reason = '']) => this.#onFailed(reason),
      onPolled: (isCurrent) => this.#onPolled(isCurrent),
      onError: (err) => log.warn({ err }, 'fault while polling the credentials database'),
    })
    this.#snapshots.subscribe((fresh, former) => this.#onActive(fresh, former))
    this.opened = this.#snapshots.whenLoaded.then((ok) => ({ ok, problems: this.#problems }))
  }

  /** Until there is a snapshot, there are none. */
  readonly credentials = (): CredentialIndex => this.#snapshot().credentials

  readonly revocations = (): readonly RevocationList[] => this.#snapshot().revocations

  /** Whether the snapshot is as new as the call. While the database is known to be down, no request waits for it. */
  readonly refresh = async (): Promise<boolean> =>
    this.#isOpen() && !this.#isDown && (await this.#snapshots.refresh())

  /** Whether the token is refused from now on. @param untilSeconds - its end, when the row is removed */
  readonly revoke = async (tokenId: string, untilSeconds: number): Promise<boolean> => {
    if (!(await this.refresh())) return false
    try {
      await (await this.#pool.current()).query(REVOKE_SQL, [tokenId, untilSeconds])
    } catch (cause) {
      const { kind, message } = databaseFailure(cause)
      const fields = { database: this.#pool.label, reason: message }
      if (kind === 'unusable') this.#options.log.warn(fields, 'a request failed in the database')
      return false
    }
    return this.#snapshots.refresh()
  }

  /** Undefined until there is a snapshot; a sidecar with one stays ready. */
  state(): DatabaseState | undefined {
    if (!this.#isOpen()) return undefined
    return this.#isDown ? 'database down, last snapshot active' : 'current'
  }

  /** Connects, and polls from now on. */
  start(): void {
    this.#snapshots.start()
  }

  /** Connects anew, and reads everything. */
  async reload(): Promise<void> {
    if (!this.#isOpen()) return
    this.#pool.replace()
    await this.#snapshots.reload()
  }

  /** The last snapshot stays active. */
  async stop(): Promise<void> {
    this.#snapshots.stop()
    await this.#snapshots.refresh() // ends after the poll in progress
    this.#pool.replace()
  }

  #snapshot(): Snapshot {
    return this.#snapshots.current()
  }

  #isOpen(): boolean {
    return this.#snapshot() !== NO_SNAPSHOT
  }

  #onActive({ revokedTokens, problems, revocations, credentials }: Snapshot, former: Snapshot): void {
    const { log, onChange } = this.#options
    // A line for each logout in each sidecar would be noise.
    if (revokedTokens === undefined) {
      this.#reportReload()
      for (const problem of problems.slice(0, MAX_LOGGED_PROBLEMS))
        log.warn({ database: this.#pool.label, problem }, 'invalid row skipped')
      const sizes = { credentials: credentials.size, revocations: countOf(revocations) }
      log.info(sizes, 'new credentials active')
    }
    if (former !== NO_SNAPSHOT) onChange(revokedTokens)
  }

  #onFailed(reason: string): void {
    const { log, urlFile, onReload } = this.#options
    const { label, failure } = this.#pool
    if (!this.#isOpen() && failure?.kind === 'unusable') {
      this.#problems = [`${urlFile}: the database ${label}: ${reason}`]
      this.#snapshots.stop()
    }
    if (this.#isDown) return
    const fields = { database: label, reason }
    if (!this.#isOpen()) return void log.warn(fields, 'waiting for the credentials database')
    onReload('failed')
    log.warn(fields, 'the credentials database is down: no logins; the last snapshot serves token checks')
  }

  #onPolled(isCurrent: boolean): void {
    if (this.#isOpen() && this.#isDown && isCurrent) {
      this.#reportReload()
      this.#options.log.info({ database: this.#pool.label }, 'the credentials database is back')
    }
    this.#isDown = !isCurrent
  }

  #reportReload(): void {
    this.#options.onReload(this.#snapshot().problems.length === 0 ? 'ok' : 'failed')
  }
}
