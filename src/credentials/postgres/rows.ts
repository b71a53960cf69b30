/**
 * What rows of the credentials database mean.
 *
 * In: a row. Out: a credential or a revocation, or what is wrong with the row: somebody may write to the tables in
 * SQL, and what the tables' own rules let pass may still be no whole hash. No problem repeats a name or a
 * hash; the row's id leads to it.
 *
 * @module
 */

import { nameProblem, namesProblem } from '../../names.ts'
import type { Revocation } from '../../token/revocations.ts'
import type { Credential } from '../accounts.ts'
import { parseSecretHash } from '../secret-hash.ts'

/** A row of `credentials`, as the columns of {@link CREDENTIAL_COLUMNS}. */
export interface CredentialRow {
  readonly id: string
  readonly account_id: string
  readonly access_key: string
  readonly secret_hash: string
  /** Epoch milliseconds. */
  readonly expires_at: number | null
  readonly disabled: boolean
}

/** A row of `revocations`, as the columns of {@link REVOCATION_COLUMNS}. */
export interface RevocationRow {
  readonly id: string
  readonly subject: 'jti' | 'accountId' | 'accessKey'
  readonly name: string
  /** Epoch milliseconds. */
  readonly issued_before: number | null
}

/** What is selected of `credentials`. */
export const CREDENTIAL_COLUMNS = `id, account_id, access_key, secret_hash, disabled,
  (extract(epoch FROM expires_at) * 1000)::float8 AS expires_at`

/** What is selected of `revocations`: the table sees to it that each names one thing. */
export const REVOCATION_COLUMNS = `id, coalesce(jti, account_id, access_key) AS name,
  CASE WHEN jti IS NOT NULL THEN 'jti' WHEN account_id IS NOT NULL THEN 'accountId' ELSE 'accessKey' END AS subject,
  (extract(epoch FROM issued_before) * 1000)::float8 AS issued_before`

/** A credential, or what keeps its row from being one. */
export type ReadCredential =
  | { readonly ok: true; readonly accountId: string; readonly credential: Credential }
  | { readonly ok: false; readonly problem: string }

/** Reads a row of `credentials`. */
export function credentialOf(row: CredentialRow): ReadCredential {
  const { id, account_id: accountId, access_key: accessKey, disabled } = row
  const bad = (column: string, what: string): ReadCredential => ({
    ok: false,
    problem: `credentials, row ${id}: ${column} ${what}`,
  })
  const accountProblem = nameProblem(accountId)
  if (accountProblem !== undefined) return bad('account_id', accountProblem)
  const accessKeyProblem = nameProblem(accessKey) ?? namesProblem(accountId, accessKey)
  if (accessKeyProblem !== undefined) return bad('access_key', accessKeyProblem)
  const hash = parseSecretHash(row.secret_hash)
  if (!hash.ok) return bad('secret_hash', hash.problem)
  const expiresAt = row.expires_at ?? Number.POSITIVE_INFINITY
  return { ok: true, accountId, credential: { accessKey, secretHash: hash.hash, expiresAt, disabled } }
}

/** Reads a row of `revocations`. */
export function revocationOf({ subject, name, issued_before: issuedBefore }: RevocationRow): Revocation {
  if (subject === 'jti') return { jti: name }
  const bound = issuedBefore === null ? {} : { issuedBefore }
  return subject === 'accountId' ? { accountId: name, ...bound } : { accessKey: name, ...bound }
}
