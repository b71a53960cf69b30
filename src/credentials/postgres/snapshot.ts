/**
 * Reads credentials and revocations from their tables into memory, in one transaction.
 * Leaves out rows without a valid credential. Their problems name the ids of the rows.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ClientBase, Pool, QueryResult } from 'pg'
import { claimsProblem, nameProblem } from '../../base/values.ts'
import { scopeProblem } from '../../token/scopes.ts'
import { type Credential, CredentialList } from '../credential-list.ts'
import { type Revocation, RevocationList } from '../revocation-list.ts'
import { secretHashProblem } from '../secret-hash.ts'
import { ChangesNotRecorded, LIMIT_LOCKS } from './database-pool.ts'

type RevocationRow = Revocation & { readonly id: string; readonly createdAt: string }
export type CredentialRow = Credential & { readonly id: string }

export const SELECT_CREDENTIALS = `SELECT id, account_id AS "accountId", access_key AS "accessKey",
  secret_hash AS "secretHash", disabled, scope,
  coalesce(extract(epoch FROM expires_at) * 1000, 'Infinity')::float8 AS "expiresAtMs" FROM storage_auth.credentials`
export const SELECT_REVOCATIONS = `SELECT id, jti, account_id AS "accountId", access_key AS "accessKey",
  (extract(epoch FROM issued_before) * 1000)::float8 AS "issuedBeforeMs", created_at::text AS "createdAt"
  FROM storage_auth.revocations`

type Revision = Readonly<{ version: string; otherChange: string; triggers: number }>

/**
 * Every change replaces `version`. Every change except new revocations replaces `otherChange`. A disabled trigger, as
 * by `pg_restore --disable-triggers`, replaces both, because it changes `xmin` of the trigger's row. @throws ChangesNotRecorded
 */
export async function readRevision(database: Pool | ClientBase) {
  const results: unknown = await database.query(
    `${LIMIT_LOCKS} SELECT concat_ws(' ', number, stamp, xmins) AS version, concat_ws(' ', other_change, xmins) AS "otherChange", triggers
     FROM storage_auth.revision, (SELECT count(*)::int AS triggers, string_agg(xmin::text, ' ' ORDER BY oid) AS xmins
       FROM pg_trigger WHERE tgname = 'record_change' AND tgenabled IN ('O', 'A')
       AND tgrelid IN ('storage_auth.credentials'::regclass, 'storage_auth.revocations'::regclass)) AS recording`,
  )
  const [, { rows }] = results as [unknown, QueryResult<Revision>] // one for each statement
  const [row] = rows
  if (row === undefined) {
    throw new ChangesNotRecorded('its table storage_auth.revision has no row')
  }
  if (row.triggers !== 2) {
    throw new ChangesNotRecorded('triggers of its tables are missing or disabled')
  }
  return row
}

export function rowProblem({ id, accountId, accessKey, secretHash, scope }: CredentialRow) {
  const problems = {
    account_id: nameProblem(accountId),
    access_key: nameProblem(accessKey) ?? claimsProblem(accountId, accessKey, scope ?? ''),
    secret_hash: secretHashProblem(secretHash),
    scope: scope == null ? undefined : scopeProblem(scope),
  }
  const [column, problem] = Object.entries(problems).find(([, problem]) => problem !== undefined) ?? []
  return problem && `credentials, row ${id}: ${column} ${problem}`
}

export interface Snapshot {
  /** A text that differs after every change except new revocations. */
  readonly otherChange: string
  readonly credentials: CredentialList
  readonly problems: readonly string[]
  readonly revocations: RevocationList
  /** Against the former snapshot, only revocations by `jti` were added, or removed because their tokens ended. */
  readonly changesOnlyIds: boolean
  /** Added to `revocations`, which is active already, once this snapshot is active. A copy would take a second. */
  readonly newRows: readonly RevocationRow[]
  /** The newest revocation that was read. While the table has this row, only rows after it are new. */
  readonly newestRow: RevocationRow | undefined
  /** The number of rows that were added to the list since all rows were read. */
  readonly addedRows: number
}

export const NO_SNAPSHOT: Snapshot = {
  otherChange: '',
  credentials: new CredentialList(),
  problems: [],
  revocations: new RevocationList(),
  changesOnlyIds: false,
  newRows: [],
  newestRow: undefined,
  addedRows: 0,
}

const PAGE_ROWS = 1000
/** After so many additions, all rows are read again, which removes the rows of ended tokens from the list. */
const MAX_ADDED = 10_000

/** Reads all rows, or only new revocations if nothing else has changed. Between pages, requests are served. */
export async function readSnapshot(pool: Pool, former: Snapshot | undefined): Promise<Snapshot> {
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
    if (problem === undefined) {
      credentials.add(row)
    } else {
      problems.push(problem)
    }
  })
  return { credentials, problems }
}

async function readRevocations(client: ClientBase, former: Snapshot | undefined) {
  const revocations = new RevocationList()
  const newestRow = await readPages<RevocationRow>(client, SELECT_REVOCATIONS, (row) => revocations.add(row))
  const changesOnlyIds = revocations.ofNames === former?.revocations.ofNames
  return { revocations, changesOnlyIds, newestRow, newRows: [], addedRows: 0 }
}

/** Undefined if all rows must be read. */
async function readNewRevocations(client: ClientBase, { revocations, newestRow, addedRows }: Snapshot) {
  if (newestRow === undefined || addedRows >= MAX_ADDED) {
    return undefined
  }
  const found: RevocationRow[] = []
  await readPages<RevocationRow>(client, SELECT_REVOCATIONS, (row) => found.push(row), BigInt(newestRow.id))
  const [known, ...newRows] = found
  // The newest row is gone if its token has ended. After a restore, another row may have the same id.
  if (!isDeepStrictEqual(known, newestRow)) {
    return undefined
  }
  const changesOnlyIds = newRows.every(({ jti }) => jti)
  const counts = { newestRow: found.at(-1), newRows, addedRows: addedRows + newRows.length }
  return { revocations, changesOnlyIds, ...counts }
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
    if (last === undefined || rows.length < PAGE_ROWS) {
      return last
    }
  }
}
