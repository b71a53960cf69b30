/**
 * Explains failures of the credentials database in plain words.
 * Of a server's error only the code and the primary message are used: the detail quotes rows, and no line holds the URL.
 */
import pg from 'pg'

export interface PostgresFailure {
  /** `down` and `timeout` may pass by themselves; `unusable` needs a change in the database or in the URL. */
  readonly kind: 'down' | 'timeout' | 'unusable'
  /** Fits behind the name of the database. */
  readonly message: string
}

const RUN_MIGRATE =
  'run `storage-auth-sidecar credentials migrate --postgres-url-file FILE` with a role that may create them'

/** By SQLSTATE. */
const UNUSABLE: Readonly<Record<string, string>> = {
  '3D000': 'there is no database of that name',
  '3F000': `its tables are missing: ${RUN_MIGRATE}`,
  '42P01': `its tables are missing: ${RUN_MIGRATE}`,
  '42703': `its tables are not up to date: ${RUN_MIGRATE}`,
  '42501': 'this user lacks a privilege there: `credentials migrate --help` shows the grants it needs',
  '28000': 'it does not let this user in',
  '28P01': 'it does not let this user in with this password',
}

const CONNECTING: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'it refuses the connection',
  ENOENT: 'there is no such socket',
  ENOTFOUND: 'its host name cannot be resolved',
  EAI_AGAIN: 'its host name cannot be resolved now',
}

export function postgresFailure(error: unknown): PostgresFailure {
  if (!(error instanceof Error)) return { kind: 'down', message: 'it failed for an unknown reason' }
  const code = 'code' in error ? String(error.code) : ''
  if (error instanceof pg.DatabaseError) {
    // P0001, raise_exception: a check of our own schema script.
    const unusable = code === 'P0001' ? error.message : UNUSABLE[code]
    if (unusable !== undefined) return { kind: 'unusable', message: unusable }
    // 57014, query_canceled: a statement_timeout.
    return { kind: code === '57014' ? 'timeout' : 'down', message: `it reports: ${error.message} (${code})` }
  }
  if (code === 'ETIMEDOUT' || /timeout/i.test(error.message)) {
    return { kind: 'timeout', message: 'it does not answer in time' }
  }
  if (error.message === 'The server does not support SSL connections') {
    return { kind: 'unusable', message: 'it does not offer TLS' }
  }
  if (/^ERR_(?:SSL|TLS)_|CERT|^UNABLE_TO_/.test(code)) {
    return { kind: 'unusable', message: `its TLS certificate or protocol is not accepted (${code})` }
  }
  return { kind: 'down', message: CONNECTING[code] ?? `the connection failed (${code || error.message})` }
}
