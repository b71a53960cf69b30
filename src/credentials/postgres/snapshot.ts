/**
 * Reads the rows of the credentials database at one revision, in pages, so that requests are served in between; of new
 * revocations these alone. A row without a valid credential is left out and reported by its id.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ClientBase, Pool } from 'pg'
import { scopeProblem } from '../../token/scopes.ts'
import { claimsProblem, nameProblem } from '../../values/names.ts'
import { type Revocation, RevocationList } from '../revocation-list.ts'
import { secretHashProblem } from '../secret-hash.ts'
import { type Credential, CredentialIndex } from '../store.ts'
import { ChangesNotRecorded } from './database-pool.ts'

export interface Snapshot {
  readonly base: string
  readonly credentials: CredentialIndex
  readonly problems: readonly string[]
  readonly revocations: RevocationList
  /** How many revocations were added since all were read. */
  readonly added: number
  /** The newest revocation: while the table has it, only rows after it are new. */
  readonly newest?: RevocationRow | undefined
  /** Since the former snapshot, nothing has changed but that tokens were revoked by their ids. */
  readonly onlyIdsRevoked?: boolean
}

type RevocationRow = Revocation & { readonly id: string; readonly createdAt: string }

export const NO_SNAPSHOT: Snapshot = {
  base: '',
  credentials: new CredentialIndex(),
  problems: [],
  revocations: new RevocationList(),
  added: 0,
}

export type CredentialRow = Credential & { readonly id: string }

export const SELECT_CREDENTIALS = `SELECT id, account_id AS "accountId", access_key AS "accessKey",
  secret_hash AS "secretHash", disabled, scope,
  coalesce(extract(epoch FROM expires_at) * 1000, 'Infinity')::float8 AS "expiresAtMs" FROM storage_auth.credentials`
export const SELECT_REVOCATIONS = `SELECT id, jti, account_id AS "accountId", access_key AS "accessKey",
  (extract(epoch FROM issued_before) * 1000)::float8 AS "issuedBeforeMs", created_at::text AS "createdAt"
  FROM storage_auth.revocations`

const PAGE_ROWS = 1000

/** After so many, all are read again: rows whose tokens have ended are gone from the table, but not from the list. */
const MAX_ADDED = 10_000

export async function readSnapshot(pool: Pool, former: Snapshot): Promise<Snapshot> {
  const client = await pool.connect()
  let isBroken = true
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
    const { base } = await readRevision(client)
    const isSameBase = base === former.base
    const { credentials, problems } = isSameBase ? former : await readCredentials(client)
    const added = isSameBase ? await readAddedRevocations(client, former) : undefined
    const { revocations, newest } = added ? former : await readAllRevocations(client)
    await client.query('COMMIT')
    isBroken = false
    if (added) return withAdded(former, added)
    const onlyIdsRevoked = isSameBase && revocations.addsOnlyIds(former.revocations)
    return { base, credentials, problems, revocations, added: 0, newest, onlyIdsRevoked }
  } finally {
    client.release(isBroken)
  }
}

/** `version` differs after every change, `base` after those other than new revocations. @throws ChangesNotRecorded */
export async function readRevision(database: Pool | ClientBase) {
  const { rows } = await database.query<{ version: string; base: string; triggers: number }>(
    `SELECT number || ' ' || stamp AS version, CASE WHEN base_of = stamp THEN base ELSE stamp END AS base,
       (SELECT count(*)::int FROM pg_trigger
        WHERE tgrelid IN ('storage_auth.credentials'::regclass, 'storage_auth.revocations'::regclass)
        AND tgname = 'note_change' AND tgenabled IN ('O', 'A')) AS triggers
     FROM storage_auth.revision`,
  )
  const [row] = rows
  if (row === undefined) throw new ChangesNotRecorded('its table storage_auth.revision has no row')
  if (row.triggers !== 2) throw new ChangesNotRecorded('triggers of its tables are missing or disabled')
  return row
}

async function readCredentials(client: ClientBase) {
  const credentials = new CredentialIndex()
  const problems: string[] = []
  await readPages<CredentialRow>(client, SELECT_CREDENTIALS, (row) => {
    const problem = rowProblem(row)
    if (problem === undefined) credentials.add(row)
    else problems.push(problem)
  })
  return { credentials, problems }
}

async function readAllRevocations(client: ClientBase) {
  const revocations = new RevocationList()
  const newest = await readPages<RevocationRow>(client, SELECT_REVOCATIONS, (row) => revocations.add(row))
  return { revocations, newest }
}

/** Undefined where all must be read. */
async function readAddedRevocations(client: ClientBase, { newest, added }: Snapshot) {
  if (newest === undefined || added >= MAX_ADDED) return undefined
  const found: RevocationRow[] = []
  await readPages<RevocationRow>(client, SELECT_REVOCATIONS, (row) => found.push(row), BigInt(newest.id))
  const [known, ...rows] = found
  // The row is gone when its token has ended, and may be another one after a restore.
  return isDeepStrictEqual(known, newest) ? rows : undefined
}

/** Adds to the active list: a token may be refused a moment before the others, a copy would take time. */
function withAdded(former: Snapshot, rows: readonly RevocationRow[]): Snapshot {
  for (const row of rows) former.revocations.add(row)
  return {
    ...former,
    added: former.added + rows.length,
    newest: rows.at(-1) ?? former.newest,
    onlyIdsRevoked: rows.every(({ jti }) => jti != null),
  }
}

/** In order of their ids, from `first` on. Resolves with the last row. */
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
