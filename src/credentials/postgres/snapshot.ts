/**
 * The content of the credentials database at one revision, and how it gets to the next.
 *
 * In: a connection. Out: accounts and revocations of the newest revision. They are read in one transaction that
 * sees one state of all tables, and come into force in one step. Where the database still knows what has changed
 * since, only that is read: with 100,000 credentials, reading all would cost every replica half a second of its
 * only thread for each change, and be late. Where it does not (the first time, after a restore from a
 * backup, after very many changes) everything is read, in pages, so that requests are answered in between.
 *
 * @module
 */
import { createRevocations, type Revocation, type Revocations } from '../../token/revocations.ts'
import type { Accounts } from '../accounts.ts'
import { type CredentialTable, createCredentialTable } from '../credential-table.ts'
import type { Connection } from './connections.ts'
import {
  askRevision,
  queryOn,
  type Revision,
  type RowChanges,
  readAll,
  readHead,
  readTouched,
} from './read.ts'

/** How long the database may take, in milliseconds. */
export interface ReadTimes {
  /** For telling its revision. */
  readonly askMs: number
  /** For each of the queries that read rows. */
  readonly readMs: number
}

/** What an update brought. */
export interface Updated {
  /** Whether anything may be different from before. */
  readonly changed: boolean
  /** Seconds from the oldest of the changes to now; absent where everything was read and that is unknown. */
  readonly lagSeconds?: number
  /** Rows that cannot be used, among those that were read; they count as not being there. */
  readonly problems: readonly string[]
}

/** What is in force. */
export interface Snapshot {
  /** No credentials before the first update. */
  accounts(): Accounts
  revocations(): Revocations
  /** How many credentials there are. */
  readonly size: number
  /**
   * Takes over what the database holds now. When it rejects, nothing has changed. Must not be called again before it
   * has ended.
   *
   * @param everything - reads all rows, whatever seems to have changed
   * @throws SchemaFailure where the tables are too old for this program
   */
  update(connection: Connection, everything?: boolean): Promise<Updated>
}

/** Content by row. */
interface Tables {
  readonly credentials: CredentialTable
  readonly revocations: Map<string, Revocation>
}

const UNCHANGED: Updated = { changed: false, problems: [] }

const emptyTables = (): Tables => ({ credentials: createCredentialTable(), revocations: new Map() })

/** Makes an empty snapshot. */
export function createSnapshot({ askMs, readMs }: ReadTimes): Snapshot {
  let tables = emptyTables()
  let revocations = createRevocations([])
  let known: Revision | undefined

  async function updateFrom(base: Revision | undefined, connection: Connection): Promise<Updated> {
    const query = queryOn(connection, readMs)
    // The server gives up as well: it would not notice that nobody waits any more.
    await query(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = ${readMs}`)
    const head = await readHead(query, base)
    if (base !== undefined && head.follows) {
      const changes = await readTouched(query, base)
      await query('COMMIT')
      // First what takes a while, during which requests are answered; then both come into force in one step.
      applyRevocations(changes, tables)
      const isNew = changes.revocations.length > 0
      const fresh = isNew ? createRevocations(tables.revocations.values()) : revocations
      tables.credentials.apply(changes.credentials)
      revocations = fresh
      known = head.revision
      return { changed: true, lagSeconds: head.lagSeconds, problems: changes.problems }
    }
    const fresh = emptyTables()
    const problems: string[] = []
    for await (const page of readAll(query)) {
      fresh.credentials.apply(page.credentials)
      applyRevocations(page, fresh)
      problems.push(...page.problems)
    }
    await query('COMMIT')
    const freshRevocations = createRevocations(fresh.revocations.values())
    tables = fresh
    revocations = freshRevocations
    known = head.revision
    return { changed: true, problems }
  }

  return {
    accounts: () => tables.credentials.accounts,
    revocations: () => revocations,
    get size() {
      return tables.credentials.size
    },
    async update(connection, everything = false) {
      if (everything || known === undefined) return updateFrom(undefined, connection)
      const newest = await askRevision(queryOn(connection, askMs))
      const isKnown = newest?.number === known.number && newest.stamp === known.stamp
      return isKnown ? UNCHANGED : updateFrom(known, connection)
    },
  }
}

function applyRevocations({ revocations }: RowChanges, tables: Tables): void {
  for (const { id, stored } of revocations) {
    if (stored === undefined) tables.revocations.delete(id)
    else tables.revocations.set(id, stored)
  }
}
