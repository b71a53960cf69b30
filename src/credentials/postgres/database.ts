/**
 * Credentials and revocations in PostgreSQL, shared by all replicas. Token checks read a snapshot in memory.
 * Each login first polls the revision of the database. Concurrent logins share a poll.
 * LISTEN would be faster, but needs a connection of its own and does not pass connection poolers.
 */
import { escapeLiteral, type QueryResult } from 'pg'
import { loggedItems } from '../../base/log.ts'
import { type Loaded, loaded, notLoaded } from '../../base/result.ts'
import { type PollResult, Reloadable, type ReloadResult } from '../../reload/reloadable.ts'
import type { CredentialSource } from '../credential-checks.ts'
import type { CredentialList } from '../credential-list.ts'
import type { EndedTokens, RevocationList } from '../revocation-list.ts'
import type { DatabaseTarget } from './database-pool.ts'
import { DatabasePool, databaseFailure, LIMIT_LOCKS, readUrlFile } from './database-pool.ts'
import { NO_SNAPSHOT, readVersion, type Snapshot, SnapshotReader, UNLESS_ENDED } from './snapshot.ts'

export interface DatabaseOptions {
  readonly urlFile: string
  readonly poolSize: number
  readonly log: Record<'info' | 'warn', (fields: object, message: string) => void>
  readonly onReload: (result: ReloadResult) => void
  /** Revocations of these tokens may be lost. */
  readonly endedTokens: () => EndedTokens
  readonly pollMs?: number | undefined
}

export type DatabaseState = 'current' | 'database down, last snapshot active'

const DB_POLL_MS = 500
const RETRY_MS = 500
/** A token that a client has ended. */
export interface EndedToken {
  readonly tokenId: string
  readonly issuer: string
  readonly accountId: string
  /** After this time, in epoch seconds, the row may be removed. */
  readonly rowEndsAtSeconds: number
}

/** `full`: the clients of the account have ended as many tokens as may be alive at once. */
export type EndingOutcome = 'ended' | 'full' | 'unavailable'

/**
 * With parameters, a query may have only one statement.
 * The last statement finds a row unless the account is full.
 */
function endTokenSql({ tokenId, issuer, accountId, rowEndsAtSeconds }: EndedToken): string {
  const jti = escapeLiteral(tokenId)
  const iss = escapeLiteral(issuer)
  const account = escapeLiteral(accountId)
  return `${LIMIT_LOCKS}
    INSERT INTO storage_auth.revocations (jti, issuer, ended_by, expires_at)
      VALUES (${jti}, ${iss}, ${account}, to_timestamp(${rowEndsAtSeconds}))
      ${UNLESS_ENDED};
    SELECT FROM storage_auth.revocations
      WHERE storage_auth.name_key(jti, issuer) = storage_auth.name_key(${jti}, ${iss}) AND issuer IS NOT NULL`
}

/** Reads the URL. The database connects only after `start` is called. Never rejects. */
export async function openDatabase(options: DatabaseOptions): Promise<Loaded<CredentialsDatabase>> {
  const target = await readUrlFile(options.urlFile)
  return target.ok ? loaded(new CredentialsDatabase(options, target.value), target.warnings) : target
}

/** No method and no promise of this class rejects. */
export class CredentialsDatabase implements CredentialSource {
  readonly whenLoaded: Promise<Loaded<boolean>>
  readonly #options: DatabaseOptions
  readonly #pool: DatabasePool
  readonly #snapshots: Reloadable<Snapshot>
  #isDown = false
  #reachedAtMonotonicMs = performance.now()

  constructor(options: DatabaseOptions, target: DatabaseTarget) {
    const { urlFile, poolSize, log, endedTokens, pollMs = DB_POLL_MS } = options
    const pool = new DatabasePool(urlFile, target, poolSize)
    this.#options = options
    this.#pool = pool
    const reader = new SnapshotReader(endedTokens)
    const load = (_active: Snapshot, isForced: boolean) =>
      pool.ask((connections) => reader.read(connections, isForced))
    this.#snapshots = new Reloadable<Snapshot>({
      poll: async () => {
        const version = await pool.ask(readVersion)
        return version.ok ? loaded({ version: version.value, load }) : version
      },
      initial: NO_SNAPSHOT,
      pollMs,
      failingMs: RETRY_MS,
      onPolled: (polled) => this.#report(polled),
      onError: (err) => log.warn({ err }, 'error while polling the credentials database'),
    })
    const named = (reason: string) => `${urlFile}: the database ${pool.label()}: ${reason}`
    this.whenLoaded = this.#snapshots.whenLoaded.then((first) =>
      first.ok ? first : notLoaded(first.problems.map(named)),
    )
  }

  /** `list` and `revocations` return an empty list until there is a snapshot. */
  readonly list = (): CredentialList => this.#snapshots.current().credentials
  readonly revocations = (): RevocationList => this.#snapshots.current().revocations

  readonly isLoaded = (): boolean => this.#isRead
  /** Which database, for the log, without its password. */
  readonly label = (): string => this.#pool.label()
  /** What of the snapshot is probably a mistake, such as a restore from an old backup. */
  readonly suspicions = (): Pick<Snapshot, 'hasGoneBack' | 'lostRevocations'> => this.#snapshots.current()

  /**
   * Resolves with whether the snapshot is as new as the call.
   * Does not wait for a database that is known to be down.
   */
  readonly refresh = async (): Promise<boolean> =>
    this.#isRead && !this.#isDown && (await this.#snapshots.refresh())

  /** Resolves once this process refuses the token, or with why it does not. */
  readonly endToken = async (token: EndedToken): Promise<EndingOutcome> => {
    if (!(await this.refresh())) {
      return 'unavailable'
    }
    try {
      const pool = await this.#pool.current()
      const results: unknown = await pool.query(endTokenSql(token))
      const [, , written] = results as [unknown, unknown, QueryResult] // one for each statement
      if (written.rowCount === 0) {
        return 'full'
      }
    } catch (error) {
      const { kind, message: reason } = databaseFailure(error)
      const fields = { database: this.#pool.label(), reason }
      if (kind !== 'timeout' && !this.#isDown) {
        this.#options.log.warn(fields, 'a request failed in the database')
      }
      return 'unavailable'
    }
    return (await this.#snapshots.refresh()) ? 'ended' : 'unavailable'
  }

  readonly condition = () => {
    const state: DatabaseState = this.#isDown ? 'database down, last snapshot active' : 'current'
    return { name: 'credentials', ok: this.#isRead, state: this.#isRead ? state : undefined } as const
  }

  /** `onChange`: called for each new snapshot except the first. `revocations`: no credential has changed. */
  subscribe(onChange: (subject: 'credentials' | 'revocations') => void): void {
    this.#snapshots.subscribe(({ changedCredentials }, former) => {
      if (former !== NO_SNAPSHOT) {
        onChange(changedCredentials?.length === 0 ? 'revocations' : 'credentials')
      }
    })
  }

  /** The snapshot that `list` and `revocations` are part of. Undefined until there is one. */
  readonly snapshot = (): Snapshot | undefined => (this.#isRead ? this.#snapshots.current() : undefined)

  /** `onSnapshot`: called for each new snapshot. */
  subscribeSnapshots(onSnapshot: (snapshot: Snapshot) => void): void {
    this.#snapshots.subscribe(onSnapshot)
  }

  /** How long the database has not been reached. */
  readonly downSeconds = (): number =>
    this.#isDown ? Math.max(0, (performance.now() - this.#reachedAtMonotonicMs) / 1000) : 0

  start(): void {
    this.#snapshots.start()
  }

  /** Reconnects, and reads all rows. */
  async reload(): Promise<void> {
    if (!this.#isRead) {
      return
    }
    this.#pool.disconnect()
    await this.#snapshots.reload()
  }

  /** Stops polling, and closes the connections after the poll in progress, which could open others. */
  async stop(): Promise<void> {
    this.#snapshots.stop()
    await this.#snapshots.whenIdle()
    this.#pool.disconnect()
  }

  get #isRead(): boolean {
    return this.#snapshots.current() !== NO_SNAPSHOT
  }

  #report(polled: PollResult<Snapshot>): void {
    const wasDown = this.#isDown
    this.#isDown = !polled.ok
    if (polled.ok) {
      this.#reachedAtMonotonicMs = performance.now()
      // Each logout revokes one token. A log line for each logout in each sidecar would be noise.
      const isReported = polled.mustReport && !polled.value.changesOnlyTokens
      this.#reportSnapshot(polled.value, { isReported, wasDown })
    } else if (!wasDown) {
      this.#reportDown(polled.problems[0])
    }
  }

  #reportSnapshot(
    { credentials, revocations, problems }: Snapshot,
    { isReported, wasDown }: { readonly isReported: boolean; readonly wasDown: boolean },
  ): void {
    const { onReload, log } = this.#options
    const database = this.#pool.label()
    if (isReported || wasDown) {
      onReload(problems.length === 0 ? 'ok' : 'failed')
    }
    if (isReported) {
      for (const problem of loggedItems(problems)) {
        log.warn({ database, problem }, 'invalid row skipped')
      }
      log.info({ credentials: credentials.size, revocations: revocations.size }, 'new credentials active')
    }
    if (wasDown) {
      log.info({ database }, 'the credentials database is back')
    }
  }

  #reportDown(reason: string | undefined): void {
    const { onReload, log } = this.#options
    const fields = { database: this.#pool.label(), reason }
    if (!this.#isRead) {
      log.warn(fields, 'waiting for the credentials database')
      return
    }
    onReload('failed')
    log.warn(fields, 'the credentials database is down: no logins; the last snapshot serves token checks')
  }
}
