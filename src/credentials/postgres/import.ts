/**
 * Takes credentials from elsewhere into PostgreSQL: all of them, or none.
 *
 * @module
 */
import type { Account } from '../accounts.ts'
import type { NotDone } from '../credential-editor.ts'
import { formatSecretHash } from '../secret-hash.ts'
import { inDatabase } from './command.ts'
import { SCHEMA } from './schema.ts'

/** What was done. */
export type Imported =
  | {
      readonly ok: true
      readonly imported: number
      /** How many of them were there before. */
      readonly replaced: number
    }
  | NotDone

/** How many names a refusal lists. */
const MOST_NAMES_TOLD = 20

const WANTED = `unnest($1::text[], $2::text[], $3::text[], $4::float8[], $5::bool[]) WITH ORDINALITY
  AS wanted (account_id, access_key, secret_hash, expires_at, disabled, place)`

/**
 * Imports credentials. Others than those stay as they are.
 *
 * @param replace - whether a credential that is there takes over secret, expiry and state; otherwise none is imported
 *   when any is there
 */
export function importCredentials(
  urlFile: string,
  accounts: readonly Account[],
  { replace }: { readonly replace: boolean },
): Promise<Imported> {
  const wanted = accounts.flatMap(({ accountId, credentials }) =>
    credentials.map((credential) => ({ accountId, ...credential })),
  )
  const columns = [
    wanted.map(({ accountId }) => accountId),
    wanted.map(({ accessKey }) => accessKey),
    wanted.map(({ secretHash }) => formatSecretHash(secretHash)),
    wanted.map(({ expiresAt }) => (Number.isFinite(expiresAt) ? expiresAt : null)),
    wanted.map(({ disabled }) => disabled),
  ]
  return inDatabase<Imported>(urlFile, async ({ query, refuse }) => {
    await query('BEGIN') // whatever happens before the COMMIT: the connection is closed, and nothing was done
    const { rows: present } = await query<{ account_id: string; access_key: string }>(
      `SELECT account_id, access_key FROM ${WANTED} JOIN ${SCHEMA}.credentials AS present
         USING (account_id, access_key) ORDER BY place`,
      columns,
    )
    if (present.length > 0 && !replace) {
      const names = present.map(({ account_id, access_key }) => `${account_id} ${access_key}`)
      return refuse(
        `nothing was imported: ${present.length} of ${wanted.length} credentials are there already (--replace takes over)`,
        ...names.slice(0, MOST_NAMES_TOLD).map((name) => `is there already: ${name}`),
        ...(names.length > MOST_NAMES_TOLD ? [`and ${names.length - MOST_NAMES_TOLD} more`] : []),
      )
    }
    const ifPresent = replace
      ? `ON CONFLICT (${SCHEMA}.name_key(account_id, access_key)) DO UPDATE SET
           secret_hash = excluded.secret_hash, expires_at = excluded.expires_at, disabled = excluded.disabled`
      : ''
    await query(
      `INSERT INTO ${SCHEMA}.credentials (account_id, access_key, secret_hash, expires_at, disabled)
       SELECT account_id, access_key, secret_hash, to_timestamp(expires_at / 1000), disabled
       FROM ${WANTED} ORDER BY place ${ifPresent}`,
      columns,
    )
    await query('COMMIT')
    return { ok: true, imported: wanted.length, replaced: present.length }
  })
}
