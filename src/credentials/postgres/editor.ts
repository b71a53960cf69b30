/**
 * Changing credentials in PostgreSQL.
 *
 * Each change is one statement, so that nothing can come in between.
 *
 * @module
 */

import { parseRfc3339 } from '../../rfc3339.ts'
import type { Account, Credential } from '../accounts.ts'
import type { CredentialName } from '../accounts-edit.ts'
import { type Changed, type CredentialEditor, NAME_TAKEN, NO_SUCH_NAME } from '../credential-editor.ts'
import { inDatabase } from './command.ts'
import { CREDENTIAL_COLUMNS, type CredentialRow, credentialOf } from './rows.ts'
import { SCHEMA } from './schema.ts'

const BY_NAME = `${SCHEMA}.name_key(account_id, access_key) = ${SCHEMA}.name_key($1, $2)`

/** Makes an editor. */
export function createPostgresEditor(urlFile: string): CredentialEditor {
  /** Makes a change of one row, and says so where it found none. */
  const changeOne = (text: string, values: readonly unknown[], ifNone: string): Promise<Changed> =>
    inDatabase(urlFile, async ({ query, refuse }) => {
      const { rows } = await query(`${text} RETURNING id`, values)
      return rows.length === 0 ? refuse(ifNone) : { ok: true }
    })
  const named = ({ accountId, accessKey }: CredentialName) => [accountId, accessKey]

  return {
    list: () =>
      inDatabase(urlFile, async ({ query, warnings }) => {
        // In the order in which they were added, accounts together, as in a file.
        const { rows } = await query<CredentialRow>(
          `SELECT ${CREDENTIAL_COLUMNS} FROM ${SCHEMA}.credentials
           ORDER BY min(id) OVER (PARTITION BY account_id), id`,
        )
        const { accounts, problems } = accountsOf(rows)
        const leftOut = problems.map((problem) => `${problem}: it is left out`)
        return { ok: true, accounts, warnings: [...warnings, ...leftOut] }
      }),
    add: ({ secretHash, expiresAt, ...name }) =>
      changeOne(
        `INSERT INTO ${SCHEMA}.credentials (account_id, access_key, secret_hash, expires_at)
         VALUES ($1, $2, $3, to_timestamp($4::float8 / 1000))
         ON CONFLICT (${SCHEMA}.name_key(account_id, access_key)) DO NOTHING`,
        [...named(name), secretHash, expiresAt === undefined ? null : parseRfc3339(expiresAt)],
        NAME_TAKEN,
      ),
    setDisabled: (name, disabled) =>
      changeOne(
        `UPDATE ${SCHEMA}.credentials SET disabled = $3 WHERE ${BY_NAME}`,
        [...named(name), disabled],
        NO_SUCH_NAME,
      ),
    remove: (name) =>
      changeOne(`DELETE FROM ${SCHEMA}.credentials WHERE ${BY_NAME}`, named(name), NO_SUCH_NAME),
  }
}

function accountsOf(rows: readonly CredentialRow[]): { accounts: Account[]; problems: string[] } {
  const accounts = new Map<string, Credential[]>()
  const problems: string[] = []
  for (const row of rows) {
    const read = credentialOf(row)
    if (!read.ok) {
      problems.push(read.problem)
      continue
    }
    const credentials = accounts.get(read.accountId)
    if (credentials === undefined) accounts.set(read.accountId, [read.credential])
    else credentials.push(read.credential)
  }
  return { accounts: [...accounts].map(([accountId, credentials]) => ({ accountId, credentials })), problems }
}
