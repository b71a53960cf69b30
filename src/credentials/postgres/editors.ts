/**
 * The `credentials` and `revocations` commands on PostgreSQL: tables and changes, each one statement or
 * one transaction.
 */
import pg from 'pg'
import type { Loaded, NotDone } from '../../files/files.ts'
import { parseTime } from '../../values/names.ts'
import {
  type Changed,
  type CredentialEditor,
  type Editors,
  NAME_TAKEN,
  NO_SUCH_NAME,
  NO_SUCH_REVOCATION,
  type RevocationEditor,
} from '../editors.ts'
import { clientConfig, postgresFailure, readUrlFile } from './connection.ts'
import { SCHEMA_SQL } from './schema.ts'
import { readRevision, rowProblem, SELECT_CREDENTIALS, SELECT_REVOCATIONS } from './snapshot.ts'

const LOCK_MS = 10_000
const STATEMENT_MS = 120_000

/** Together with the time to connect, less than 5 s. */
const CHECK_MS = 2000

const NAME_KEY = 'storage_auth.name_key(account_id, access_key)'
const BY_NAME = `${NAME_KEY} = storage_auth.name_key($1, $2)`

/** @param run - `warnings`: of the URL file */
async function inDatabase<T>(
  urlFile: string,
  run: (client: pg.Client, warnings: readonly string[], refuse: (problem: string) => NotDone) => Promise<T>,
  statementMs = STATEMENT_MS,
): Promise<T | NotDone> {
  const named = await readUrlFile(urlFile)
  if (!named.ok) return { ok: false, unusable: true, problems: named.problems }
  const { value: target, warnings } = named
  const client = new pg.Client(clientConfig(target, statementMs))
  client.on('error', () => {}) // without it the event ends the process; the next query rejects anyway
  const failed = (unusable: boolean, problem: string): NotDone => ({
    ok: false,
    unusable,
    problems: [`${urlFile}: the database ${target.label}: ${problem}`],
  })
  try {
    await client.connect()
    await client.query(`SET lock_timeout = ${LOCK_MS}`)
    return await run(client, warnings, (problem) => failed(false, problem))
  } catch (cause) {
    const { kind, message } = postgresFailure(cause)
    return failed(kind === 'unusable', message)
  } finally {
    void client.end() // not awaited: a server may hang
  }
}

export function openPostgresEditors(urlFile: string): Editors {
  const change = (text: string, values: unknown[], ifNone: string) =>
    inDatabase<Changed>(urlFile, async (client, _warnings, refuse) => {
      const { rowCount } = await client.query(text, values)
      return rowCount === 0 ? refuse(ifNone) : { ok: true }
    })
  const list = <T extends object>(text: string, problemOf: (row: T) => string | undefined) =>
    inDatabase<Loaded<readonly T[]>>(urlFile, async (client, warnings) => {
      const { rows } = await client.query<T>(text)
      const leftOut = rows
        .flatMap((row) => problemOf(row) ?? [])
        .map((problem) => `${problem}: it is left out`)
      const value = rows.filter((row) => problemOf(row) === undefined)
      return { ok: true, value, warnings: [...warnings, ...leftOut] }
    })
  const credentials: CredentialEditor = {
    // In the order in which they were added, accounts together, as in a file.
    list: () => list(`${SELECT_CREDENTIALS} ORDER BY min(id) OVER (PARTITION BY account_id), id`, rowProblem),
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
    remove({ accountId, accessKey }) {
      const text = `DELETE FROM storage_auth.credentials WHERE ${BY_NAME}`
      return change(text, [accountId, accessKey], NO_SUCH_NAME)
    },
  }
  const revocations: RevocationEditor = {
    list: () => list(`${SELECT_REVOCATIONS} ORDER BY id`, () => undefined),
    add: ({ jti, accountId, accessKey, issuedBefore }) =>
      change(
        `INSERT INTO storage_auth.revocations (jti, account_id, access_key, issued_before)
         VALUES ($1, $2, $3, to_timestamp($4::float8 / 1000))`,
        [jti, accountId, accessKey, issuedBefore],
        NO_SUCH_REVOCATION,
      ),
    remove({ jti, accountId, accessKey }) {
      const text = 'DELETE FROM storage_auth.revocations WHERE jti = $1 OR account_id = $2 OR access_key = $3'
      return change(text, [jti, accountId, accessKey], NO_SUCH_REVOCATION)
    },
  }
  return { credentials, revocations }
}

/** Whether a sidecar can use the tables; `unusable` is false where the database did not answer, within 5 s. */
export const checkDatabase = (urlFile: string) =>
  inDatabase(
    urlFile,
    async (client, warnings) => {
      await readRevision(client)
      await client.query(`${SELECT_CREDENTIALS} LIMIT 0`)
      await client.query(`${SELECT_REVOCATIONS} LIMIT 0`)
      return { ok: true as const, warnings }
    },
    CHECK_MS,
  )

/** `created`: what was missing, in words. */
export function migrate(urlFile: string) {
  return inDatabase(urlFile, async (client, warnings) => {
    const { rows } = await client.query(`SELECT to_regclass('storage_auth.credentials') IS NULL AS is_new`)
    // A script of several statements has an array of results, which the type leaves out.
    const results = [await client.query(SCHEMA_SQL)].flat()
    const isRepaired = results.some(({ command, rowCount }) => command === 'INSERT' && rowCount === 1)
    const repaired = isRepaired ? 'the missing row of storage_auth.revision' : undefined
    const created = rows[0]?.is_new === true ? 'the tables' : repaired
    return { ok: true as const, ...(created !== undefined && { created }), warnings }
  })
}
