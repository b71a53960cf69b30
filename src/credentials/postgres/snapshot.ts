/**
 * Reads all rows of the credentials database at one revision.
 * They are read in pages within one transaction, so that requests are served in between. A row that holds no valid
 * credential is left out and reported by its id; no problem repeats a name or a hash.
 */
import type { ClientBase, Pool, QueryResultRow } from 'pg'
import { type Credential, type CredentialIndex, createCredentialIndex } from '../credential.ts'
import { nameProblem, namesProblem } from '../names.ts'
import { createRevocations, type Revocation, type Revocations } from '../revocations.ts'
import { parseSecretHash } from '../secret-hash.ts'
import { SCHEMA } from './schema.ts'

export interface Snapshot {
  /** Number and stamp. */
  readonly revision: string
  readonly credentials: CredentialIndex
  readonly revocations: Revocations
  readonly problems: readonly string[]
  /** Seconds since the newest change, by the database's clock. */
  readonly ageSeconds: number
}

export interface CredentialRow {
  readonly id: string
  readonly account_id: string
  readonly access_key: string
  readonly secret_hash: string
  /** Epoch milliseconds. */
  readonly expires_at: number | null
  readonly disabled: boolean
}

interface RevocationRow {
  readonly id: string
  readonly jti: string | null
  readonly account_id: string | null
  readonly access_key: string | null
  /** Epoch milliseconds. */
  readonly issued_before: number | null
}

export const CREDENTIAL_COLUMNS = `id, account_id, access_key, secret_hash, disabled,
  (extract(epoch FROM expires_at) * 1000)::float8 AS expires_at`
const REVOCATION_COLUMNS = `id, jti, account_id, access_key,
  (extract(epoch FROM issued_before) * 1000)::float8 AS issued_before`

/** About 5 ms of work. */
const PAGE_ROWS = 1000

export async function readSnapshot(pool: Pool): Promise<Snapshot> {
  const client = await pool.connect()
  let isBroken = true
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
    const head = await readRevision(client)
    const credentials = createCredentialIndex()
    const problems: string[] = []
    for await (const rows of pages<CredentialRow>(client, 'credentials', CREDENTIAL_COLUMNS)) {
      for (const row of rows) {
        const credential = credentialOf(row)
        if (typeof credential === 'string') problems.push(credential)
        else credentials.add(credential)
      }
    }
    const revocations: Revocation[] = []
    for await (const rows of pages<RevocationRow>(client, 'revocations', REVOCATION_COLUMNS)) {
      for (const row of rows) revocations.push(...revocationOf(row))
    }
    await client.query('COMMIT')
    isBroken = false
    return { ...head, credentials, revocations: createRevocations(revocations), problems }
  } finally {
    client.release(isBroken)
  }
}

/** Reads what differs after every change, and how long ago the newest change was. */
export async function readRevision(
  database: Pool | ClientBase,
): Promise<Pick<Snapshot, 'revision' | 'ageSeconds'>> {
  const { rows } = await database.query<{ revision: string; age: number }>(
    `SELECT number || ' ' || stamp AS revision, extract(epoch FROM clock_timestamp() - changed_at)::float8 AS age
     FROM ${SCHEMA}.revision`,
  )
  return { revision: rows[0]?.revision ?? '', ageSeconds: rows[0]?.age ?? 0 }
}

async function* pages<Row extends QueryResultRow & { readonly id: string }>(
  client: ClientBase,
  table: string,
  columns: string,
): AsyncGenerator<readonly Row[]> {
  const text = `SELECT ${columns} FROM ${SCHEMA}.${table} WHERE id > $1 ORDER BY id LIMIT ${PAGE_ROWS}`
  for (let last: string | undefined = '-9223372036854775808'; last !== undefined; ) {
    const { rows }: { rows: Row[] } = await client.query<Row>(text, [last])
    yield rows
    last = rows[PAGE_ROWS - 1]?.id
  }
}

/** The credential, or what is wrong with the row. */
export function credentialOf(row: CredentialRow): Credential | string {
  const { id, account_id: accountId, access_key: accessKey, secret_hash: secretHash, disabled } = row
  const problem = (column: string, what: string) => `credentials, row ${id}: ${column} ${what}`
  const accountProblem = nameProblem(accountId)
  if (accountProblem !== undefined) return problem('account_id', accountProblem)
  const accessKeyProblem = nameProblem(accessKey) ?? namesProblem(accountId, accessKey)
  if (accessKeyProblem !== undefined) return problem('access_key', accessKeyProblem)
  const hash = parseSecretHash(secretHash)
  if (!hash.ok) return problem('secret_hash', hash.problem)
  return { accountId, accessKey, secretHash, disabled, expiresAt: row.expires_at ?? Number.POSITIVE_INFINITY }
}

/** A check of the table makes each row name one thing. */
function revocationOf({ jti, account_id, access_key, issued_before }: RevocationRow): Revocation[] {
  const bound = issued_before === null ? {} : { issuedBefore: issued_before }
  if (jti !== null) return [{ jti }]
  if (account_id !== null) return [{ accountId: account_id, ...bound }]
  return access_key === null ? [] : [{ accessKey: access_key, ...bound }]
}
