/**
 * The tables of the credentials database (`tables.sql`), and commands to list and change their rows.
 * Each command is one statement or one transaction.
 */
import { readFileSync } from 'node:fs'
import pg from 'pg'
import { type Loaded, loaded, NotDone, notLoaded } from '../../base/result.ts'
import { parseTime } from '../../base/values.ts'
import type { Credential, CredentialName } from '../credential-list.ts'
import type { CredentialEditor, Editors, RevocationEditor } from '../editor.ts'
import { NAME_TAKEN, NO_SUCH_ACCOUNT, NO_SUCH_NAME, NO_SUCH_REVOCATION } from '../editor.ts'
import type { Revocation } from '../revocation-list.ts'
import { clientConfig, databaseFailure, readUrlFile } from './database-pool.ts'
import type { CredentialRow } from './snapshot.ts'
import { readVersion, rowProblem, SELECT_CREDENTIALS, SELECT_REVOCATIONS, UNLESS_ENDED } from './snapshot.ts'

const LOCK_MS = 10_000
const STATEMENT_MS = 120_000

/** With the time to connect, the three statements of a check take less than 5 s. */
const CHECK_STATEMENT_MS = 900

const NAME_KEY = 'storage_auth.name_key(account_id, access_key)'
const BY_NAME = `${NAME_KEY} = storage_auth.name_key($1, $2)`

async function inDatabase<T>(
  urlFile: string,
  statementMs: number,
  run: (client: pg.Client) => Promise<T>,
): Promise<Loaded<T>> {
  const read = await readUrlFile(urlFile)
  if (!read.ok) {
    return read
  }
  const { value: target, warnings } = read
  const client = new pg.Client(clientConfig(target, statementMs))
  // Without a listener, the event would end the process; the next query rejects anyway.
  client.on('error', () => {})
  try {
    await client.connect()
    await client.query(`SET lock_timeout = ${LOCK_MS}`)
    return loaded(await run(client), warnings)
  } catch (error) {
    const { kind, message } = databaseFailure(error)
    const problem = `${urlFile}: the database ${target.label}: ${message}`
    if (kind !== 'unusable') {
      throw new NotDone(problem)
    }
    return notLoaded([problem])
  } finally {
    client.end() // not awaited: a server may hang
  }
}

export function tableEditors(urlFile: string): Editors {
  /**
   * Resolves with the rows that the statement returns.
   * @throws NotDone with `ifNone`, if it has changed no row
   */
  async function query<T extends object>(text: string, values: unknown[], ifNone: string) {
    const changed = await inDatabase(urlFile, STATEMENT_MS, (client) => client.query<T>(text, values))
    if (!changed.ok) {
      return changed
    }
    if (changed.value.rowCount === 0) {
      throw new NotDone(`${urlFile}: ${ifNone}`)
    }
    return loaded(changed.value.rows)
  }
  async function change(text: string, values: unknown[], ifNone: string): Promise<Loaded> {
    const changed = await query(text, values, ifNone)
    return changed.ok ? loaded(undefined) : changed
  }
  const list = <T extends object>(text: string) =>
    inDatabase(urlFile, STATEMENT_MS, async (client) => (await client.query<T>(text)).rows)
  const credentials: CredentialEditor = {
    async list() {
      const order = 'ORDER BY min(id) OVER (PARTITION BY account_id), id'
      const listed = await list<CredentialRow>(`${SELECT_CREDENTIALS} ${order}`)
      if (!listed.ok) {
        return listed
      }
      const problems = listed.value.flatMap((row) => rowProblem(row) ?? [])
      const rows = listed.value.filter((row) => rowProblem(row) === undefined)
      return loaded(rows, [...listed.warnings, ...problems.map((problem) => `${problem}: it is left out`)])
    },
    add: ({ accountId, accessKey, secretHash, expiresAt, scope }) =>
      change(
        `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash, expires_at, scope)
         VALUES ($1, $2, $3, to_timestamp($4::float8 / 1000), $5) ON CONFLICT (${NAME_KEY}) DO NOTHING`,
        [accountId, accessKey, secretHash, expiresAt === undefined ? null : parseTime(expiresAt), scope],
        NAME_TAKEN,
      ),
    update({ accountId, accessKey }, update) {
      const [column, value] = 'scope' in update ? ['scope', update.scope] : ['disabled', update.disabled]
      const text = `UPDATE storage_auth.credentials SET ${column} = $3 WHERE ${BY_NAME}`
      return change(text, [accountId, accessKey, value], NO_SUCH_NAME)
    },
    async disableAccount(accountId) {
      const text = `UPDATE storage_auth.credentials SET disabled = true WHERE account_id = $1
        RETURNING access_key AS "accessKey"`
      const changed = await query<CredentialName>(text, [accountId], NO_SUCH_ACCOUNT)
      return changed.ok ? loaded(changed.value.map(({ accessKey }) => accessKey)) : changed
    },
    rotate({ accountId, accessKey }, { secretHash, previousSecretExpiresAt }) {
      const endsAtMs = previousSecretExpiresAt === undefined ? null : parseTime(previousSecretExpiresAt)
      const text = `UPDATE storage_auth.credentials SET secret_hash = $3,
        previous_secret_hash = CASE WHEN $4::float8 IS NULL THEN NULL ELSE secret_hash END,
        previous_secret_expires_at = to_timestamp($4::float8 / 1000) WHERE ${BY_NAME}`
      return change(text, [accountId, accessKey, secretHash, endsAtMs], NO_SUCH_NAME)
    },
    remove: ({ accountId, accessKey }) =>
      change(`DELETE FROM storage_auth.credentials WHERE ${BY_NAME}`, [accountId, accessKey], NO_SUCH_NAME),
  }
  const revocations: RevocationEditor = {
    list: () => list<Revocation>(`${SELECT_REVOCATIONS} ORDER BY id`),
    async add({ jti, issuer, accountId, accessKey, issuedBeforeMs }) {
      const text = `INSERT INTO storage_auth.revocations (jti, issuer, account_id, access_key, issued_before)
        VALUES ($1, $2, $3, $4, to_timestamp($5::float8 / 1000)) ${UNLESS_ENDED}`
      const values = [jti, issuer, accountId, accessKey, issuedBeforeMs]
      const added = await inDatabase(urlFile, STATEMENT_MS, (client) => client.query(text, values))
      return added.ok ? loaded(undefined) : added
    },
    remove({ jti, accountId, accessKey }) {
      const text = 'DELETE FROM storage_auth.revocations WHERE jti = $1 OR account_id = $2 OR access_key = $3'
      return change(text, [jti, accountId, accessKey], NO_SUCH_REVOCATION)
    },
  }
  return { credentials, revocations }
}

/**
 * Adds credentials with their hashes in one transaction.
 * Resolves with the names that were there, which are unchanged.
 */
export const importCredentials = (urlFile: string, credentials: readonly Credential[]) =>
  inDatabase(urlFile, STATEMENT_MS, async (client): Promise<readonly CredentialName[]> => {
    const existing: CredentialName[] = []
    await client.query('BEGIN')
    for (const credential of credentials) {
      const { rowCount } = await client.query(IMPORT_CREDENTIAL, importedValues(credential))
      if (rowCount === 0) {
        const { accountId, accessKey } = credential
        existing.push({ accountId, accessKey })
      }
    }
    await client.query('COMMIT')
    return existing
  })

const IMPORT_CREDENTIAL = `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash, expires_at,
    disabled, scope, previous_secret_hash, previous_secret_expires_at)
  VALUES ($1, $2, $3, to_timestamp($4::float8 / 1000), $5, $6, $7, to_timestamp($8::float8 / 1000))
  ON CONFLICT (${NAME_KEY}) DO NOTHING`

function importedValues(credential: Credential) {
  const { accountId, accessKey, secretHash, expiresAtMs, disabled, scope } = credential
  const { previousSecretHash, previousSecretExpiresAtMs } = credential
  const endsAtMs = expiresAtMs === Number.POSITIVE_INFINITY ? null : expiresAtMs
  const previous = [previousSecretHash, previousSecretExpiresAtMs]
  return [accountId, accessKey, secretHash, endsAtMs, disabled, scope, ...previous]
}

/** Checks within 5 s whether a sidecar can use the tables. */
export const checkDatabase = (urlFile: string) =>
  inDatabase(urlFile, CHECK_STATEMENT_MS, async (client) => {
    await readVersion(client)
    await client.query(`${SELECT_CREDENTIALS} LIMIT 0; ${SELECT_REVOCATIONS} LIMIT 0`)
  })

/** An idempotent script. */
export const TABLES_SQL = readFileSync(new URL('./tables.sql', import.meta.url), 'utf8')

/** Creates the tables, or brings them up to date. Resolves with whether they are new. */
export const migrate = (urlFile: string) =>
  inDatabase(urlFile, STATEMENT_MS, async (client) => {
    const { rows } = await client.query(`SELECT to_regclass('storage_auth.credentials') IS NULL AS is_new`)
    await client.query(TABLES_SQL)
    return rows[0]?.is_new === true
  })
