/**
 * Reads all rows of the credentials database at one revision, in pages, so that requests are served in between.
 * A row without a valid credential is left out and reported by its id; no problem repeats a name or a hash.
 */
import type { ClientBase, Pool } from 'pg'
import { scopeProblem } from '../../token/scopes.ts'
import { nameProblem, namesProblem } from '../names.ts'
import { createRevocations, type Revocation, type Revocations } from '../revocations.ts'
import { parseSecretHash } from '../secret-hash.ts'
import { type Credential, type CredentialIndex, createCredentialIndex } from '../store.ts'
import { MissingRevision } from './connection.ts'

export interface Snapshot {
  /** Number and stamp. */
  readonly revision: string
  readonly credentials: CredentialIndex
  readonly revocations: Revocations
  readonly problems: readonly string[]
}

/** A row of the table, not checked yet. */
export type CredentialRow = Credential & { readonly id: string }

export const CREDENTIAL_COLUMNS = `id, account_id AS "accountId", access_key AS "accessKey",
  secret_hash AS "secretHash", disabled, scope,
  coalesce(extract(epoch FROM expires_at) * 1000, 'Infinity')::float8 AS "expiresAt"`
export const REVOCATION_COLUMNS = `id, jti, account_id AS "accountId", access_key AS "accessKey",
  (extract(epoch FROM issued_before) * 1000)::float8 AS "issuedBefore"`

/** About 5 ms of work. */
const PAGE_ROWS = 1000

export async function readSnapshot(pool: Pool): Promise<Snapshot> {
  const client = await pool.connect()
  let isBroken = true
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
    const revision = await readRevision(client)
    const credentials = createCredentialIndex()
    const problems: string[] = []
    for await (const rows of pages<CredentialRow>(client, 'credentials', CREDENTIAL_COLUMNS)) {
      for (const row of rows) {
        const problem = rowProblem(row)
        if (problem !== undefined) problems.push(problem)
        else credentials.add(row)
      }
    }
    const revocations: Revocation[] = []
    for await (const rows of pages<Revocation>(client, 'revocations', REVOCATION_COLUMNS)) {
      revocations.push(...rows)
    }
    await client.query('COMMIT')
    isBroken = false
    return { revision, credentials, revocations: createRevocations(revocations), problems }
  } finally {
    client.release(isBroken)
  }
}

/** Differs after every change. @throws MissingRevision */
export async function readRevision(database: Pool | ClientBase): Promise<string> {
  const { rows } = await database.query<{ revision: string }>(
    `SELECT number || ' ' || stamp AS revision FROM storage_auth.revision`,
  )
  if (rows[0] === undefined) throw new MissingRevision()
  return rows[0].revision
}

async function* pages<T>(client: ClientBase, table: string, columns: string) {
  const text = `SELECT ${columns} FROM storage_auth.${table} WHERE id > $1 ORDER BY id LIMIT ${PAGE_ROWS}`
  for (let last: string | undefined = '-9223372036854775808'; last !== undefined; ) {
    const { rows }: { rows: (T & { id: string })[] } = await client.query(text, [last])
    yield rows
    last = rows[PAGE_ROWS - 1]?.id
  }
}

export function rowProblem({
  id,
  accountId,
  accessKey,
  secretHash,
  scope,
}: CredentialRow): string | undefined {
  const hash = parseSecretHash(secretHash)
  const problems = [
    ['account_id', nameProblem(accountId)],
    ['access_key', nameProblem(accessKey) ?? namesProblem(accountId, accessKey, scope ?? '')],
    ['secret_hash', typeof hash === 'string' ? hash : undefined],
    ['scope', scope == null ? undefined : scopeProblem(scope)],
  ]
  const [column, problem] = problems.find(([, problem]) => problem !== undefined) ?? []
  return problem && `credentials, row ${id}: ${column} ${problem}`
}
