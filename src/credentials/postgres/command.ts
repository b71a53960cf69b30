/**
 * One connection to the credentials database, for one command.
 *
 * In: the URL file, and what to do. Out: what came of it, or why it could not be done, in words. The connection is
 * closed in any case, and nothing waits without bounds.
 *
 * @module
 */
import type { NotDone } from '../credential-editor.ts'
import { type Connection, createConnections } from './connections.ts'
import { postgresFailure } from './failure.ts'
import { type Query, queryOn } from './read.ts'
import { readUrlFile } from './url.ts'

/** What a command works with. */
export interface CommandConnection {
  readonly connection: Connection
  readonly query: Query
  /** Says that the command's own change cannot be made. */
  readonly refuse: (...problems: readonly string[]) => NotDone
  /** What is worth a warning about the URL file. */
  readonly warnings: readonly string[]
}

/** What a command can be told to wait for, in milliseconds. */
export interface CommandTimes {
  readonly connectMs: number
  /** For rows that another transaction holds. */
  readonly lockMs: number
  /** For each statement. */
  readonly statementMs: number
}

const USUAL_TIMES: CommandTimes = { connectMs: 5000, lockMs: 10_000, statementMs: 120_000 }

/** Does something in the database. Never rejects: whatever it fails on is told. */
export async function inDatabase<T>(
  urlFile: string,
  work: (command: CommandConnection) => Promise<T>,
  { connectMs, lockMs, statementMs }: CommandTimes = USUAL_TIMES,
): Promise<T | NotDone> {
  const named = await readUrlFile(urlFile)
  if (!named.ok) return { ok: false, unusable: true, problems: named.problems }
  const { target, warnings } = named
  const failed = (unusable: boolean, problems: readonly string[]): NotDone => ({
    ok: false,
    unusable,
    problems: problems.map((problem) => `${urlFile}: the database ${target.label}: ${problem}`),
  })

  const connections = createConnections(target, { max: 1, connectMs })
  const attempt = async () => {
    const connection = await connections.take()
    try {
      // The client's own limit is only for a server that hangs.
      const query = queryOn(connection, statementMs + 1000)
      await query(`SET lock_timeout = ${lockMs}; SET statement_timeout = ${statementMs}`)
      const refuse = (...problems: readonly string[]) => failed(false, problems)
      return await work({ connection, query, refuse, warnings })
    } finally {
      connection.release(true)
    }
  }
  const outcome = await attempt().catch((cause: unknown) => {
    const { kind, message } = postgresFailure(cause)
    return failed(kind === 'unusable', [message])
  })
  await connections.close()
  return outcome
}
