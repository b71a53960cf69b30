/**
 * Credentials and revocations in PostgreSQL, shared by all replicas. Token checks read a snapshot in memory.
 * Each login first polls the revision of the database. Concurrent logins share a poll.
 * LISTEN would be faster, but needs a connection of its own and does not pass connection poolers.
 * The snapshot leaves out rows without a valid credential. The log names the ids of these rows.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ClientBase, Pool } from 'pg'
import { loggedItems } from '../../base/log.ts'
import { type Loaded, loaded, notLoaded } from '../../base/result.ts'
import { type Outcome, Reloadable, type ReloadResult } from '../../reload/reloadable.ts'
import type { CredentialSource } from '../credential-checks.ts'
import { CredentialList } from '../credential-list.ts'
import { RevocationList } from '../revocation-list.ts'
import { DatabasePool, type DatabaseTarget, databaseFailure, readUrlFile } from './connection.ts'
import type { CredentialRow, RevocationRow } from './tables.ts'
import { readRevision, rowProblem, SELECT_CREDENTIALS, SELECT_REVOCATIONS } from './tables.ts'

export interface DatabaseOptions {
  readonly urlFile: string
  readonly poolSize: number
  readonly log: Record<'info' | 'warn', (fields: object, message: string) => void>
  readonly onReload: (result: ReloadResult) => void
  readonly pollMs?: number
}

export type DatabaseState = 'current' | 'database down, last snapshot active'

const POLL_MS = 250
const RETRY_MS = 500
const REVOKE_SQL =
  'INSERT INTO storage_auth.revocations (jti, expires_at) VALUES ($1, to_timestamp($2::float8))'

/** Reads the URL. The database connects only after `start` is called. Never rejects. */
export async function openDatabase(options: DatabaseOptions): Promise<Loaded<CredentialsDatabase>> {
  const named = await readUrlFile(options.urlFile)
  return named.ok ? loaded(new CredentialsDatabase(options, named.value), named.warnings) : named
}

/** No method and no promise of this class rejects. */
export class CredentialsDatabase implements CredentialSource {
  /** Resolves with true once there is a snapshot, with false if stopped earlier, or with the problem that ended the start. */
  readonly whenLoaded: Promise<Loaded<boolean>>
  readonly #options: DatabaseOptions
  readonly #pool: DatabasePool
  readonly #snapshots: Reloadable<Snapshot>
  #isDown = false
  #resolveStart: (first: Loaded<boolean>) => void = () => {}

  constructor(options: DatabaseOptions, target: DatabaseTarget) {
    const { urlFile, poolSize, log, pollMs = POLL_MS } = options
    const pool = new DatabasePool(urlFile, target, poolSize)
    this.#options = options
    this.#pool = pool
    const load = (active: Snapshot, isForced: boolean) =>
      pool.ask((connections) => readSnapshot(connections, isForced ? undefined : active))
    this.#snapshots = new Reloadable<Snapshot>({
      poll: async () => {
        const revision = await pool.ask(readRevision)
        return revision.ok ? loaded({ version: revision.value.version, load }) : revision
      },
      initial: NO_SNAPSHOT,
      pollMs,
      retryMs: RETRY_MS,
      onPolled: (outcome) => this.#report(outcome),
      onError: (err) => log.warn({ err }, 'error while polling the credentials database'),
    })
    // The first subscriber: the others find the new revocations in the list.
    this.#snapshots.subscribe(({ revocations, newRows }) => {
      for (const row of newRows) revocations.add(row)
    })
    this.whenLoaded = new Promise((resolve) => {
      this.#resolveStart = resolve
    })
    void this.#snapshots.whenLoaded.then((isLoaded) => this.#resolveStart(loaded(isLoaded)))
  }

  /** `list` and `revocations` return an empty list until there is a snapshot. */
  readonly list = (): CredentialList => this.#snapshots.current().credentials
  readonly revocations = (): RevocationList => this.#snapshots.current().revocations

  /** Resolves with whether the snapshot is as new as the call. Does not wait for a database that is known to be down. */
  readonly refresh = async (): Promise<boolean> =>
    this.#isRead && !this.#isDown && (await this.#snapshots.refresh())

  /** Resolves with whether the token is refused now. @param endsAtSeconds - after this time, the row may be removed */
  readonly revoke = async (tokenId: string, endsAtSeconds: number): Promise<boolean> => {
    if (!(await this.refresh())) return false
    try {
      await (await this.#pool.current()).query(REVOKE_SQL, [tokenId, endsAtSeconds])
    } catch (cause) {
      const { kind, message: reason } = databaseFailure(cause)
      const fields = { database: this.#pool.label(), reason }
      if (kind === 'unusable') this.#options.log.warn(fields, 'a request failed in the database')
      return false
    }
    return this.#snapshots.refresh()
  }

  readonly condition = () => {
    const state: DatabaseState = this.#isDown ? 'database down, last snapshot active' : 'current'
    return { name: 'credentials', ok: this.#isRead, state: this.#isRead ? state : undefined } as const
  }

  /** `onChange`: called for each new snapshot except the first. `revocations`: no credential has changed. */
  subscribe(onChange: (subject: 'credentials' | 'revocations') => void): void {
    this.#snapshots.subscribe(({ credentials }, former) => {
      const isSame = credentials === former.credentials
      if (former !== NO_SNAPSHOT) onChange(isSame ? 'revocations' : 'credentials')
    })
  }

  start(): void {
    this.#snapshots.start()
  }

  /** Reconnects, and reads all rows. */
  async reload(): Promise<void> {
    if (!this.#isRead) return
    this.#pool.replace()
    await this.#snapshots.reload()
  }

  /** Stops polling, and closes the connections after the poll in progress, which could open others. */
  async stop(): Promise<void> {
    this.#snapshots.stop()
    await this.#snapshots.whenIdle()
    this.#pool.replace()
  }

  get #isRead(): boolean {
    return this.#snapshots.current() !== NO_SNAPSHOT
  }

  #report(outcome: Outcome<Snapshot>): void {
    const { urlFile, onReload, log } = this.#options
    const database = this.#pool.label()
    const wasDown = this.#isDown
    this.#isDown = !outcome.ok
    if (outcome.ok) {
      const { credentials, revocations, problems, hasOnlyIds } = outcome.value
      const result = problems.length === 0 ? 'ok' : 'failed'
      // Each logout revokes one id. A log line for each logout in each sidecar would be noise.
      if (outcome.isNew && !hasOnlyIds) {
        onReload(result)
        for (const problem of loggedItems(problems)) log.warn({ database, problem }, 'invalid row skipped')
        log.info({ credentials: credentials.size, revocations: revocations.size }, 'new credentials active')
      }
      if (!wasDown) return
      onReload(result)
      log.info({ database }, 'the credentials database is back')
      return
    }
    const [reason] = outcome.problems
    if (!this.#isRead && outcome.isPermanent) {
      this.#resolveStart(notLoaded([`${urlFile}: the database ${database}: ${reason}`]))
      this.#snapshots.stop()
    }
    if (wasDown) return
    if (!this.#isRead) return void log.warn({ database, reason }, 'waiting for the credentials database')
    onReload('failed')
    const message = 'the credentials database is down: no logins; the last snapshot serves token checks'
    log.warn({ database, reason }, message)
  }
}

interface Snapshot {
  /** A text that differs after every change except new revocations. */
  readonly otherChange: string
  readonly credentials: CredentialList
  readonly problems: readonly string[]
  readonly revocations: RevocationList
  /** Added to `revocations`, which is active already, once this snapshot is active. A copy would take a second. */
  readonly newRows: readonly RevocationRow[]
  /** The newest revocation that was read. While the table has this row, only rows after it are new. */
  readonly newestRow: RevocationRow | undefined
  /** The number of rows that were added to the list since all rows were read. */
  readonly addedRows: number
  /** Since the former snapshot, only revocations by `jti` were added, or removed because their tokens ended. */
  readonly hasOnlyIds: boolean
}

const NO_SNAPSHOT: Snapshot = {
  otherChange: '',
  credentials: new CredentialList(),
  problems: [],
  revocations: new RevocationList(),
  newRows: [],
  newestRow: undefined,
  addedRows: 0,
  hasOnlyIds: false,
}

const PAGE_ROWS = 1000
/** After so many additions, all rows are read again, which removes the rows of ended tokens from the list. */
const MAX_ADDED = 10_000

/** Reads all rows, or only new revocations if nothing else has changed. Between pages, requests are served. */
async function readSnapshot(pool: Pool, former: Snapshot | undefined): Promise<Snapshot> {
  const client = await pool.connect()
  let isBroken = true
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
    const { otherChange } = await readRevision(client)
    const kept = otherChange === former?.otherChange ? former : undefined
    const { credentials, problems } = kept ?? (await readCredentials(client))
    const onlyNew = kept && (await readNewRevocations(client, kept))
    const revocations = onlyNew ?? (await readRevocations(client, kept))
    await client.query('COMMIT')
    isBroken = false
    return { otherChange, credentials, problems, ...revocations }
  } finally {
    client.release(isBroken)
  }
}

async function readCredentials(client: ClientBase) {
  const credentials = new CredentialList()
  const problems: string[] = []
  await readPages<CredentialRow>(client, SELECT_CREDENTIALS, (row) => {
    const problem = rowProblem(row)
    if (problem === undefined) credentials.add(row)
    else problems.push(problem)
  })
  return { credentials, problems }
}

async function readRevocations(client: ClientBase, kept: Snapshot | undefined) {
  const revocations = new RevocationList()
  const newestRow = await readPages<RevocationRow>(client, SELECT_REVOCATIONS, (row) => revocations.add(row))
  const hasOnlyIds = revocations.ofNames === kept?.revocations.ofNames
  return { revocations, newestRow, newRows: [], addedRows: 0, hasOnlyIds }
}

/** Undefined if all rows must be read. */
async function readNewRevocations(client: ClientBase, { revocations, newestRow, addedRows }: Snapshot) {
  if (newestRow === undefined || addedRows >= MAX_ADDED) return undefined
  const found: RevocationRow[] = []
  await readPages<RevocationRow>(client, SELECT_REVOCATIONS, (row) => found.push(row), BigInt(newestRow.id))
  const [known, ...newRows] = found
  // The newest row is gone if its token has ended. After a restore, another row may have the same id.
  if (!isDeepStrictEqual(known, newestRow)) return undefined
  const hasOnlyIds = newRows.every(({ jti }) => jti != null)
  const newest = newRows.at(-1) ?? newestRow
  return { revocations, newestRow: newest, newRows, addedRows: addedRows + newRows.length, hasOnlyIds }
}

/** Reads rows from the id `first` on, in the order of ids. Resolves with the last row. */
async function readPages<T extends { readonly id: string }>(
  client: ClientBase,
  select: string,
  add: (row: T) => void,
  first = -(2n ** 63n),
): Promise<T | undefined> {
  let last: T | undefined
  for (let from = first; ; from = BigInt(last.id) + 1n) {
    const { rows } = await client.query<T>(`${select} WHERE id >= $1 ORDER BY id LIMIT ${PAGE_ROWS}`, [from])
    rows.forEach(add)
    last = rows.at(-1) ?? last
    if (last === undefined || rows.length < PAGE_ROWS) return last
  }
}
