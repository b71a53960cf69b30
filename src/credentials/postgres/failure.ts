/**
 * Says what a failed exchange with the database means, in plain words.
 *
 * In: what pg or the system threw. Out: whether it can pass by itself, and a line for a person, which begins
 * behind the database's name. Neither the URL nor the content of a row is repeated: of a server's error only
 * its code and its primary message are used, never the detail, which quotes rows.
 *
 * @module
 */
import pg from 'pg'

/** What a failure means. */
export interface PostgresFailure {
  /**
   * `away`: the database cannot be reached or asked now; waiting may help. `timeout`: the same, after waiting for
   * an answer. `unusable`: it answers, and somebody has to change something there or in the URL.
   */
  readonly kind: 'away' | 'timeout' | 'unusable'
  readonly message: string
}

/** The tables are there, but not in the form this program reads. */
export class SchemaFailure extends Error {
  override readonly name = 'SchemaFailure'
}

/** What to do where tables are missing. */
export const RUN_MIGRATE =
  'run `storage-auth-sidecar credentials migrate --postgres-url-file FILE` with a role that may create them'

/** Errors that a server reports about what was asked or who asked (SQLSTATE). */
const UNUSABLE: Readonly<Record<string, string>> = {
  '3D000': 'there is no database of that name',
  '3F000': `its tables are missing: ${RUN_MIGRATE}`,
  '42P01': `its tables are missing: ${RUN_MIGRATE}`,
  '42703': `its tables have another form: ${RUN_MIGRATE}`,
  '42501': 'this user lacks a privilege there: `credentials migrate --help` shows the grants it needs',
  '28000': 'it does not let this user in',
  '28P01': 'it does not let this user in with this password',
}

const TIMEOUTS = /timeout/i

const REACHING: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'it refuses the connection',
  ENOENT: 'there is no such socket',
  ENOTFOUND: 'its host name cannot be resolved',
  EAI_AGAIN: 'its host name cannot be resolved now',
}

/** Says what a failure means. */
export function postgresFailure(error: unknown): PostgresFailure {
  if (!(error instanceof Error)) return { kind: 'away', message: 'it failed for an unknown reason' }
  if (error instanceof SchemaFailure) return { kind: 'unusable', message: error.message }
  const code = 'code' in error ? String(error.code) : ''
  if (error instanceof pg.DatabaseError) {
    const known = UNUSABLE[code]
    if (known !== undefined) return { kind: 'unusable', message: known }
    // 57014, query_canceled: the statement_timeout that every longer query of ours carries.
    return { kind: code === '57014' ? 'timeout' : 'away', message: `it reports: ${error.message} (${code})` }
  }
  if (code === 'ETIMEDOUT' || TIMEOUTS.test(error.message)) {
    return { kind: 'timeout', message: 'it does not answer in time' }
  }
  const tls = tlsFailure(code, error.message)
  if (tls !== undefined) return { kind: 'unusable', message: tls }
  return { kind: 'away', message: REACHING[code] ?? `the connection failed (${code || error.message})` }
}

/** What keeps two ends from agreeing on TLS; neither changes its mind by itself. */
function tlsFailure(code: string, message: string): string | undefined {
  if (message === 'The server does not support SSL connections') return 'it does not offer TLS'
  const isTls = /^ERR_(?:SSL|TLS)_/.test(code) || code.includes('CERT') || code.startsWith('UNABLE_TO_')
  return isTls ? `its TLS certificate or protocol is not accepted (${code})` : undefined
}
