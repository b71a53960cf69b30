/**
 * What is asked of the credentials database, and what its answers mean.
 *
 * @module
 */
import type { Revocation } from '../../token/revocations.ts'
import type { CredentialChange } from '../credential-table.ts'
import type { Connection } from './connections.ts'
import { RUN_MIGRATE, SchemaFailure } from './failure.ts'
import {
  CREDENTIAL_COLUMNS,
  type CredentialRow,
  credentialOf,
  REVOCATION_COLUMNS,
  type RevocationRow,
  revocationOf,
} from './rows.ts'
import { LEAST_VERSION, SCHEMA } from './schema.ts'

/** Asks one thing within a time limit. */
export type Query = <Row extends object>(
  text: string,
  values?: readonly unknown[],
) => Promise<{ readonly rows: Row[] }>

/** Which state of the tables it is. Two states never have the same pair, not even after a restore. */
export interface Revision {
  readonly number: string
  readonly stamp: string
}

/** Where the tables are, as seen from a revision known before. */
export interface Head {
  readonly revision: Revision
  /** Whether everything that has changed since the known revision is noted row by row. */
  readonly follows: boolean
  /** Seconds since the oldest change that is not known yet, by the database's own clock. */
  readonly lagSeconds: number
}

/** What is to become of one revocation. */
export interface RevocationChange {
  readonly id: string
  readonly stored: Revocation | undefined
}

/** Rows, read. */
export interface RowChanges {
  readonly credentials: readonly CredentialChange[]
  readonly revocations: readonly RevocationChange[]
  /** Rows that cannot be used; they count as not being there. */
  readonly problems: readonly string[]
}

/** Rows of one page: some 5 ms of work. */
const PAGE_ROWS = 2000
const BEFORE_ALL_IDS = '-9223372036854775808'

/** Makes the function that asks on this connection; a query that takes longer rejects. */
export function queryOn(connection: Connection, ms: number): Query {
  // pg knows the time limit, its types do not.
  return (text, values = []) => connection.query({ text, values: [...values], ...{ query_timeout: ms } })
}

/** The revision in force in the database: the one cheap question that is asked all the time. */
export async function askRevision(query: Query): Promise<Revision | undefined> {
  const { rows } = await query<Revision>(`SELECT number::text, stamp::text FROM ${SCHEMA}.revision`)
  return rows[0]
}

/**
 * Looks at what has changed since a revision, or since ever.
 *
 * @throws SchemaFailure where the tables are too old for this program
 */
export async function readHead(query: Query, known?: Revision): Promise<Head> {
  const { rows } = await query<Revision & { version: number; follows: boolean; lag: number }>(
    `SELECT number::text, stamp::text,
      (SELECT coalesce(max(version), 0) FROM ${SCHEMA}.migrations) AS version,
      EXISTS (SELECT FROM ${SCHEMA}.changes WHERE revision = $1 AND stamp = $2)
        AND NOT EXISTS (SELECT FROM ${SCHEMA}.changes WHERE revision > $1 AND row_id IS NULL) AS follows,
      (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - changed_at)), 0)
        FROM ${SCHEMA}.changes WHERE revision > $1)::float8 AS lag
     FROM ${SCHEMA}.revision`,
    [known?.number, known?.stamp],
  )
  const [head] = rows
  if (head === undefined || head.version < LEAST_VERSION) {
    throw new SchemaFailure(`its tables are not up to date: ${RUN_MIGRATE}`)
  }
  const { number, stamp, follows, lag } = head
  return { revision: { number, stamp }, follows, lagSeconds: lag }
}

/** Reads the rows that have been touched since a revision. */
export async function readTouched(query: Query, since: Revision): Promise<RowChanges> {
  const touched = <Row extends object>(table: string, columns: string) =>
    query<{ readonly row_id: string } & (Row | { readonly id: null })>(
      `SELECT row_id, found.*
       FROM (SELECT DISTINCT row_id FROM ${SCHEMA}.changes WHERE revision > $1 AND relation = '${table}') AS touched
       LEFT JOIN (SELECT ${columns} FROM ${SCHEMA}.${table}) AS found ON found.id = row_id`,
      [since.number],
    )
  const credentials = await touched<CredentialRow>('credentials', CREDENTIAL_COLUMNS)
  const revocations = await touched<RevocationRow>('revocations', REVOCATION_COLUMNS)
  const problems: string[] = []
  return {
    credentials: credentials.rows.map((row) =>
      row.id === null ? { id: row.row_id } : credentialChange(row, problems),
    ),
    revocations: revocations.rows.map((row) => ({
      id: row.row_id,
      stored: row.id === null ? undefined : revocationOf(row),
    })),
    problems,
  }
}

/** Reads every row, page by page. */
export async function* readAll(query: Query): AsyncGenerator<RowChanges> {
  for await (const rows of pages<CredentialRow>(query, 'credentials', CREDENTIAL_COLUMNS)) {
    const problems: string[] = []
    const credentials = rows.map((row) => credentialChange(row, problems))
    yield { credentials, revocations: [], problems }
  }
  for await (const rows of pages<RevocationRow>(query, 'revocations', REVOCATION_COLUMNS)) {
    const revocations = rows.map((row) => ({ id: row.id, stored: revocationOf(row) }))
    yield { credentials: [], revocations, problems: [] }
  }
}

async function* pages<Row extends { readonly id: string }>(
  query: Query,
  table: string,
  columns: string,
): AsyncGenerator<readonly Row[]> {
  let last: string | undefined = BEFORE_ALL_IDS
  while (last !== undefined) {
    const { rows }: { rows: readonly Row[] } = await query<Row>(
      `SELECT ${columns} FROM ${SCHEMA}.${table} WHERE id > $1 ORDER BY id LIMIT ${PAGE_ROWS}`,
      [last],
    )
    yield rows
    last = rows.length < PAGE_ROWS ? undefined : rows.at(-1)?.id
  }
}

function credentialChange(row: CredentialRow, problems: string[]): CredentialChange {
  const read = credentialOf(row)
  if (read.ok) return { id: row.id, stored: read }
  problems.push(read.problem)
  return { id: row.id }
}
