/**
 * Reads credentials and revocations from their tables into memory. Each read is one transaction.
 * After the first read, only the changes are read (`tables.sql`). Leaves out rows without a valid credential.
 * Their problems name the ids of the rows.
 */
import type { ClientBase, Pool, QueryResult } from 'pg'
import { eachInTurns } from '../../base/each-in-turns.ts'
import { claimsProblem, nameProblem } from '../../base/values.ts'
import { scopeProblem } from '../../token/scopes.ts'
import {
  type Credential,
  CredentialList,
  type CredentialName,
  previousSecretProblem,
} from '../credential-list.ts'
import {
  type EndedTokens,
  MAX_REMOVED_BY_COMMAND,
  type Revocation,
  RevocationList,
} from '../revocation-list.ts'
import { secretHashProblem } from '../secret-hash.ts'
import { ChangesNotRecorded, LIMIT_LOCKS } from './database-pool.ts'
import { LostRevocations } from './lost-revocations.ts'

export type CredentialRow = Credential & { readonly id: string }
type RevocationRow = Revocation & { readonly id: string }
/** `number`: that of the revision after the statement that removed it. */
type RemovedRow = Revocation & { readonly number: string }

const epochMs = (column: string) => `(extract(epoch FROM ${column}) * 1000)::float8`

export const SELECT_CREDENTIALS = `SELECT id, account_id AS "accountId", access_key AS "accessKey",
  secret_hash AS "secretHash", previous_secret_hash AS "previousSecretHash",
  ${epochMs('previous_secret_expires_at')} AS "previousSecretExpiresAtMs", disabled, scope,
  coalesce(${epochMs('expires_at')}, 'Infinity') AS "expiresAtMs" FROM storage_auth.credentials`

const SELECT_REMOVED_CREDENTIALS = `SELECT id, account_id AS "accountId", access_key AS "accessKey"
  FROM storage_auth.removed_credentials WHERE number > $1`

/** No token was issued before either. The feed cannot express a time before the year 1. */
const ISSUED_BEFORE = `CASE WHEN issued_before < '0001-01-01 00:00:00+00'
  THEN timestamptz '0001-01-01 00:00:00+00' ELSE issued_before END`
/**
 * Rounded up to whole milliseconds, as in the feed, so that two rows that are equal there are equal here.
 * As `numeric`, because PostgreSQL 13 extracts a float.
 */
const REVOCATION_COLUMNS = `jti, issuer, account_id AS "accountId", access_key AS "accessKey",
  ceil(extract(epoch FROM ${ISSUED_BEFORE})::numeric * 1000)::float8 AS "issuedBeforeMs"`
/** An end that no time of the feed can express is none. */
const REVOCATION_END = `CASE WHEN expires_at < '10000-01-01 00:00:00+00' THEN ${epochMs('expires_at')} END`
export const SELECT_REVOCATIONS = `SELECT id, ${REVOCATION_COLUMNS},
  ${REVOCATION_END} AS "expiresAtMs" FROM storage_auth.revocations`
const SELECT_REMOVED_REVOCATIONS = `SELECT number, ${REVOCATION_COLUMNS} FROM storage_auth.removed_revocations WHERE number > $1 AND id <= $2`

/** A token that is revoked twice is one row. */
export const UNLESS_ENDED =
  'ON CONFLICT (storage_auth.name_key(jti, issuer)) WHERE issuer IS NOT NULL DO NOTHING'

/** What `tables.sql` says of the changes. */
interface Revision {
  readonly number: string
  readonly stamp: string
  readonly credentialsChange: string
  readonly credentialsReset: string
  readonly revocationsReset: string
  /**
   * The versions of the triggers. They differ after a trigger was disabled, as by `pg_restore
   * --disable-triggers`: changes may then be missing.
   */
  readonly triggers: string
  readonly triggerCount: number
}

const TRIGGERS = [
  'record_change',
  'record_removal',
  'record_credential_removal',
  'mark_credential',
  'limit_ended',
]
/** `record_change` is a trigger of both tables. */
const TRIGGER_COUNT = TRIGGERS.length + 1

/** @throws ChangesNotRecorded */
async function readRevision(database: Pool | ClientBase): Promise<Revision> {
  const results: unknown = await database.query(
    `${LIMIT_LOCKS} SELECT number, stamp, credentials_change AS "credentialsChange",
       credentials_reset AS "credentialsReset", revocations_reset AS "revocationsReset", triggers, "triggerCount"
     FROM storage_auth.revision, (
       SELECT count(*)::int AS "triggerCount", string_agg(xmin::text, ' ' ORDER BY oid) AS triggers
       FROM pg_trigger WHERE tgname IN ('${TRIGGERS.join("', '")}') AND tgenabled IN ('O', 'A')
       AND tgrelid IN ('storage_auth.credentials'::regclass, 'storage_auth.revocations'::regclass)) AS recording`,
  )
  const [, { rows }] = results as [unknown, QueryResult<Revision>] // one for each statement
  const [row] = rows
  if (row === undefined) {
    throw new ChangesNotRecorded('its table storage_auth.revision has no row')
  }
  if (row.triggerCount !== TRIGGER_COUNT) {
    throw new ChangesNotRecorded('triggers of its tables are missing or disabled')
  }
  return row
}

/**
 * Returns a text that differs after every change of the tables.
 * @throws ChangesNotRecorded
 */
export async function readVersion(database: Pool | ClientBase): Promise<string> {
  return versionOf(await readRevision(database))
}

const versionOf = ({ number, stamp, triggers }: Revision) => `${number} ${stamp} ${triggers}`

export function rowProblem(row: CredentialRow) {
  const { id, accountId, accessKey, secretHash, previousSecretHash, scope } = row
  const problems = {
    account_id: nameProblem(accountId),
    access_key: nameProblem(accessKey) ?? claimsProblem(accountId, accessKey, scope ?? ''),
    secret_hash: secretHashProblem(secretHash),
    previous_secret_hash: previousSecretHash ? secretHashProblem(previousSecretHash) : undefined,
    previous_secret_expires_at: previousSecretProblem(row),
    scope: scope == null ? undefined : scopeProblem(scope),
  }
  for (const [column, problem] of Object.entries(problems)) {
    if (problem !== undefined) {
      return `credentials, row ${id}: ${column} ${problem}`
    }
  }
  return undefined
}

/**
 * The rows of the tables at one moment. The lists are the same objects in all snapshots, until all of their
 * rows are read.
 */
export interface Snapshot {
  /** A text that differs after every change of the tables. */
  readonly version: string
  readonly credentials: CredentialList
  readonly problems: readonly string[]
  readonly revocations: RevocationList
  /** Against the former snapshot, only revocations of single tokens were added or removed. */
  readonly changesOnlyTokens: boolean
  /** The credentials that differ from the former snapshot. Undefined if all were read. */
  readonly changedCredentials: readonly CredentialName[] | undefined
  /** Against the former snapshot. Undefined if all revocations were read. */
  readonly revocationChanges: RevocationChanges | undefined
  /**
   * An earlier state is back, as after a restore from a backup, until the state before it returns, or until
   * all rows were read on demand.
   */
  readonly hasGoneBack: boolean
  /** How many revocations were lost, other than one by one, and are not back. */
  readonly lostRevocations: number
}

export const NO_SNAPSHOT: Snapshot = {
  version: '',
  credentials: new CredentialList(),
  problems: [],
  revocations: new RevocationList(),
  changesOnlyTokens: false,
  changedCredentials: undefined,
  revocationChanges: undefined,
  hasGoneBack: false,
  lostRevocations: 0,
}

export interface RevocationChanges {
  readonly added: readonly RevocationRow[]
  readonly removed: readonly RemovedRow[]
}

interface CredentialChanges {
  readonly changed: readonly CredentialRow[]
  readonly removed: readonly (CredentialName & { readonly id: string })[]
}

/** Those of the last read that found the rows invalid, by their ids. */
type Problems = Map<string, string>

interface AllCredentials {
  readonly credentials: CredentialList
  readonly problems: Problems
}

interface AllRevocations {
  readonly revocations: RevocationList
  readonly newestId: bigint
}

/** What a read has found: of credentials and of revocations, either their changes or all rows. */
interface Rows {
  readonly credentialChanges: CredentialChanges | undefined
  readonly allCredentials: AllCredentials | undefined
  readonly revocationChanges: RevocationChanges | undefined
  readonly allRevocations: AllRevocations | undefined
}

const PAGE_ROWS = 2000
/** They take 1 to 2 ms. */
const ROWS_PER_TURN = 100

/**
 * All rows are read, page by page, instead of so many changes, which would be applied in
 * one turn of the event loop.
 */
const MAX_CHANGES = 20_000

/**
 * Owns what has been read, and changes it only after the transaction has ended well.
 * Reads must not overlap. Between pages, requests are served.
 */
export class SnapshotReader {
  readonly #endedTokens: () => EndedTokens
  #revision: Revision | undefined
  /** The revision before an earlier state came back. */
  #goneBackFrom: Revision | undefined
  #snapshot = NO_SNAPSHOT
  #problems: Problems = new Map()
  #lost = new LostRevocations()
  /** The greatest id of the revocations that were read. */
  #newestId = 0n

  constructor(endedTokens: () => EndedTokens) {
    this.#endedTokens = endedTokens
  }

  /**
   * Reads what has changed since the last read.
   * @param readsAll - read all rows, even if nothing has changed, and accept what is there
   */
  async read(pool: Pool, readsAll: boolean): Promise<Snapshot> {
    const client = await pool.connect()
    let isBroken = true
    try {
      await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
      const revision = await readRevision(client)
      const ancestor = readsAll ? undefined : await ancestorOf(revision, this.#revision, client)
      const goneBackFrom = readsAll ? undefined : await this.#goneBackBy(revision, client)
      const known = ancestor?.triggers === revision.triggers ? ancestor : undefined
      const rows = await this.#readRows(client, revision, known)
      await client.query('COMMIT')
      isBroken = false
      if (readsAll) {
        this.#lost = new LostRevocations()
      } else {
        this.#noteLost(rows, goneBackFrom !== undefined)
      }
      this.#revision = revision
      this.#goneBackFrom = goneBackFrom
      return this.#replaceSnapshot(rows, versionOf(revision))
    } finally {
      client.release(isBroken)
    }
  }

  /** @param known - the revision since which the changes are known */
  async #readRows(client: ClientBase, revision: Revision, known: Revision | undefined): Promise<Rows> {
    const credentialChanges = await readCredentialChanges(client, revision, known)
    const allCredentials = credentialChanges === undefined ? await readCredentials(client) : undefined
    const keepsRevocations = known?.revocationsReset === revision.revocationsReset
    const revocationChanges = keepsRevocations ? await this.#readRevocationChanges(client, known) : undefined
    const allRevocations = revocationChanges === undefined ? await readRevocations(client) : undefined
    return { credentialChanges, allCredentials, revocationChanges, allRevocations }
  }

  #replaceSnapshot(rows: Rows, version: string): Snapshot {
    const { credentialChanges, allCredentials, revocationChanges, allRevocations } = rows
    if (credentialChanges !== undefined) {
      this.#applyToCredentials(credentialChanges)
    }
    if (revocationChanges !== undefined) {
      this.#applyToRevocations(revocationChanges)
    }
    this.#newestId = allRevocations?.newestId ?? this.#newestId
    this.#problems = allCredentials?.problems ?? this.#problems
    const credentials = allCredentials?.credentials ?? this.#snapshot.credentials
    const revocations = allRevocations?.revocations ?? this.#snapshot.revocations
    const changedCredentials = credentialChanges && [
      ...credentialChanges.removed,
      ...credentialChanges.changed,
    ]
    this.#snapshot = {
      version,
      credentials,
      problems: [...this.#problems.values()],
      revocations,
      changesOnlyTokens: changedCredentials?.length === 0 && isOfTokens(revocationChanges),
      changedCredentials,
      revocationChanges,
      hasGoneBack: this.#goneBackFrom !== undefined,
      lostRevocations: this.#lost.countIn(revocations),
    }
    return this.#snapshot
  }

  /**
   * Must be called before the changes are applied. Those that were added again are not counted afterwards.
   */
  #noteLost({ revocationChanges, allRevocations }: Rows, hasGoneBack: boolean): void {
    const { revocations } = this.#snapshot
    const ended = this.#endedTokens()
    if (allRevocations !== undefined) {
      const lost = revocations.lostIn(allRevocations.revocations, ended)
      this.#lost.add(lost, hasGoneBack ? 0 : MAX_REMOVED_BY_COMMAND)
      return
    }
    const byStatement = new Map<string, Revocation[]>()
    for (const row of revocationChanges?.removed ?? []) {
      if (!revocations.hasEnded(row, ended)) {
        const ofStatement = byStatement.get(row.number) ?? []
        ofStatement.push(row)
        byStatement.set(row.number, ofStatement)
      }
    }
    for (const lost of byStatement.values()) {
      this.#lost.add(lost, MAX_REMOVED_BY_COMMAND)
    }
  }

  /** Returns the revision whose state is missing in that of `fresh`. */
  async #goneBackBy(fresh: Revision, client: ClientBase): Promise<Revision | undefined> {
    const former = this.#goneBackFrom
    if (former !== undefined) {
      return (await ancestorOf(fresh, former, client)) === undefined ? former : undefined
    }
    const known = this.#revision
    const isOlder = known !== undefined && BigInt(fresh.number) < BigInt(known.number)
    return isOlder ? known : undefined
  }

  /**
   * A row that was added and removed since the last read is in neither list.
   * Undefined if there are too many changes.
   */
  async #readRevocationChanges(
    client: ClientBase,
    { number }: Revision,
  ): Promise<RevocationChanges | undefined> {
    const limit = `LIMIT ${MAX_CHANGES}`
    const newest = String(this.#newestId)
    const removals = `${SELECT_REMOVED_REVOCATIONS} ${limit}`
    const { rows: removed } = await client.query<RemovedRow>(removals, [number, newest])
    const newer = `${SELECT_REVOCATIONS} WHERE id > $1 ORDER BY id ${limit}`
    const { rows: added } = await client.query<RevocationRow>(newer, [newest])
    return Math.max(added.length, removed.length) < MAX_CHANGES ? { added, removed } : undefined
  }

  /** What was removed may be there again. */
  #applyToCredentials({ changed, removed }: CredentialChanges): void {
    for (const { id, ...name } of removed) {
      this.#problems.delete(id)
      this.#snapshot.credentials.remove(name)
    }
    for (const row of changed) {
      this.#snapshot.credentials.remove(row)
      addRow(row, { credentials: this.#snapshot.credentials, problems: this.#problems })
    }
  }

  #applyToRevocations({ added, removed }: RevocationChanges): void {
    const { revocations } = this.#snapshot
    for (const row of removed) {
      revocations.remove(row)
    }
    for (const row of added) {
      revocations.add(row)
    }
    this.#newestId = BigInt(added.at(-1)?.id ?? this.#newestId)
  }
}

/** Returns `known` if `fresh` came after it in one history, or undefined, such as after a restore. */
async function ancestorOf(
  fresh: Revision,
  known: Revision | undefined,
  client: ClientBase,
): Promise<Revision | undefined> {
  if (known === undefined) {
    return undefined
  }
  if (known.stamp !== fresh.stamp && BigInt(known.number) >= BigInt(fresh.number)) {
    return undefined
  }
  const text = 'SELECT FROM storage_auth.history WHERE number = $1 AND stamp = $2'
  const { rowCount } = await client.query(text, [known.number, known.stamp])
  return rowCount === 1 ? known : undefined
}

const isOfTokens = (changes: RevocationChanges | undefined): boolean =>
  changes !== undefined && [...changes.added, ...changes.removed].every(({ jti }) => jti)

/** Undefined if there are too many changes, or none can be known. */
async function readCredentialChanges(
  client: ClientBase,
  revision: Revision,
  known: Revision | undefined,
): Promise<CredentialChanges | undefined> {
  if (known?.credentialsReset !== revision.credentialsReset) {
    return undefined
  }
  if (known.credentialsChange === revision.credentialsChange) {
    return { changed: [], removed: [] }
  }
  const limit = `LIMIT ${MAX_CHANGES}`
  const { rows: removed } = await client.query<CredentialName & { readonly id: string }>(
    `${SELECT_REMOVED_CREDENTIALS} ${limit}`,
    [known.number],
  )
  const newer = `${SELECT_CREDENTIALS} WHERE changed > $1 ${limit}`
  const { rows: changed } = await client.query<CredentialRow>(newer, [known.number])
  return Math.max(changed.length, removed.length) < MAX_CHANGES ? { changed, removed } : undefined
}

async function readCredentials(client: ClientBase): Promise<AllCredentials> {
  const all = { credentials: new CredentialList(), problems: new Map<string, string>() }
  await readPages<CredentialRow>(client, SELECT_CREDENTIALS, (row) => addRow(row, all))
  return all
}

function addRow(row: CredentialRow, { credentials, problems }: AllCredentials): void {
  const problem = rowProblem(row)
  if (problem === undefined) {
    problems.delete(row.id)
    credentials.add(row)
  } else {
    problems.set(row.id, problem)
  }
}

async function readRevocations(client: ClientBase): Promise<AllRevocations> {
  const revocations = new RevocationList()
  const newestRow = await readPages<RevocationRow>(client, SELECT_REVOCATIONS, (row) => revocations.add(row))
  return { revocations, newestId: BigInt(newestRow?.id ?? 0) }
}

/** Reads all rows in the order of their ids. Resolves with the last row. */
async function readPages<T extends { readonly id: string }>(
  client: ClientBase,
  select: string,
  add: (row: T) => void,
): Promise<T | undefined> {
  let last: T | undefined
  let from = -(2n ** 63n)
  while (true) {
    const { rows } = await client.query<T>(`${select} WHERE id >= $1 ORDER BY id LIMIT ${PAGE_ROWS}`, [from])
    await eachInTurns(rows, ROWS_PER_TURN, add)
    last = rows.at(-1) ?? last
    if (last === undefined || rows.length < PAGE_ROWS) {
      return last
    }
    from = BigInt(last.id) + 1n
  }
}
