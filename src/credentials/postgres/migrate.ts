/**
 * Brings the tables of the credentials database up to date.
 *
 * In: a connection of a role that may create them. Out: the version they have now and what was done. All missing
 * migrations are made in one transaction, or none; commands at the same time wait for each other; doing it
 * again does nothing. Tables newer than this program are left as they are. PostgreSQL 13 is the oldest that will do.
 *
 * @module
 */
import type { ClientBase } from 'pg'
import { SchemaFailure } from './failure.ts'
import { MIGRATIONS, type Migration, SCHEMA } from './schema.ts'

/** What was done. */
export interface Migrated {
  /** The version of the tables now. */
  readonly version: number
  /** The versions made by this call, oldest first. */
  readonly applied: readonly number[]
}

/** Any number that no other program takes for its own lock. */
const LOCK = 0x5341_5343
/**
 * Migrates.
 *
 * @throws SchemaFailure where the database cannot hold the tables
 */
export async function migrate(
  client: ClientBase,
  migrations: readonly Migration[] = MIGRATIONS,
): Promise<Migrated> {
  await client.query('BEGIN')
  try {
    await client.query('SELECT pg_advisory_xact_lock($1)', [LOCK])
    const migrated = await migrateLocked(client, migrations)
    await client.query('COMMIT')
    return migrated
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {}) // the connection may be what failed
    throw error
  }
}

async function migrateLocked(client: ClientBase, migrations: readonly Migration[]): Promise<Migrated> {
  const { rows } = await client.query<{ encoding: string; present: boolean }>(
    `SELECT current_setting('server_encoding') AS encoding, to_regnamespace($1) IS NOT NULL AS present`,
    [SCHEMA],
  )
  const [found] = rows
  // Names may be in any script.
  if (found?.encoding !== 'UTF8') throw new SchemaFailure(`its encoding must be UTF8, not ${found?.encoding}`)
  // Asked first: IF NOT EXISTS alone needs the right to create schemas even where there is nothing to create.
  if (!found.present) await client.query(`CREATE SCHEMA ${SCHEMA}`)
  await client.query(
    `CREATE TABLE IF NOT EXISTS ${SCHEMA}.migrations
      (version int PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())`,
  )
  const newest = await client.query<{ version: number }>(`SELECT version FROM ${SCHEMA}.migrations`)
  const before = Math.max(0, ...newest.rows.map(({ version }) => version))
  const missing = migrations.filter(({ version }) => version > before)
  for (const { version, sql } of missing) {
    await client.query(sql)
    await client.query(`INSERT INTO ${SCHEMA}.migrations (version) VALUES ($1)`, [version])
  }
  const applied = missing.map(({ version }) => version)
  return { version: applied.at(-1) ?? before, applied }
}
