/**
 * A credential store over PostgreSQL, shared by all replicas.
 *
 * In: the file that holds the database's URL. Out: a store and the revocations, both from a snapshot in memory that
 * follows the database, so that token checks never wait for it. A login is decided by what the database held when
 * the login came. While the database is away logins are `unavailable`, and tokens go on being
 * checked by the last snapshot, however long that lasts.
 *
 * The role needs to read the tables and nothing else; see `credentials migrate --help`.
 *
 * @module
 */
import type { Revocations } from '../../token/revocations.ts'
import { createHashQueue } from '../hash-queue.ts'
import { createCredentialStore } from '../login-check.ts'
import type { CredentialStore } from '../store.ts'
import { postgresFailure } from './failure.ts'
import { firstUpdate } from './first-update.ts'
import { createFollower, type Follower } from './follower.ts'
import { createSession } from './session.ts'
import { createSnapshot, type Updated } from './snapshot.ts'
import { readUrlFile } from './url.ts'

/** Every time limit and pause of the store, in milliseconds. */
export interface PostgresTimes {
  /** Between two questions for changes; they are found within this time even where no notification comes. */
  readonly pollMs: number
  /** For a connection, from name resolution to authentication. */
  readonly connectMs: number
  /** For the answer to the question for changes. */
  readonly askMs: number
  /** For each query that reads rows. */
  readonly readMs: number
  /** How long a login waits for the database before it is `unavailable`. */
  readonly patienceMs: number
  /** The longest pause between two tries to reach a database that is away. */
  readonly longestPauseMs: number
  /** Between two checks of the connection that hears notifications, and for their answer. */
  readonly pingMs: number
  /** The longest pause between two tries to hear notifications. */
  readonly longestDeafMs: number
}

const USUAL_TIMES: PostgresTimes = {
  pollMs: 400,
  connectMs: 2000,
  askMs: 1000,
  readMs: 10_000,
  patienceMs: 2000,
  longestPauseMs: 1000,
  pingMs: 5000,
  longestDeafMs: 10_000,
}

/** Where events go; pino's methods. */
export interface StoreLog {
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
}

/** What the store needs. */
export interface PostgresStoreOptions {
  /** Path of the file that holds the URL. */
  readonly urlFile: string
  /** The most connections at one time. From 2 on, one of them hears notifications. */
  readonly poolSize: number
  /** Epoch milliseconds. */
  readonly now: () => number
  readonly log: StoreLog
  /** Called right after changes have come into force: whoever remembers verdicts must forget them now. */
  readonly onChange: () => void
  /**
   * How each reload ended. `seconds`: from the change to its being in force, by the database's clock; absent where
   * no single change was the reason.
   */
  readonly onReload?: (result: 'ok' | 'failed', seconds?: number) => void
  /** Told why a login ended `unavailable` though the database is there. */
  readonly onFault?: (cause: unknown) => void
  /** Ends the wait for a database that is away at the start. */
  readonly signal?: AbortSignal
  readonly times?: Partial<PostgresTimes>
}

/** A condition of readiness: once there is a snapshot the sidecar stays ready, and says how it is. */
export interface PostgresReady {
  readonly name: 'credentials'
  readonly ok: true
  readonly state: 'current' | 'database away, last snapshot in force'
}

/** A store that follows its database. */
export interface PostgresStore {
  readonly store: CredentialStore
  /** The revocations in force. */
  readonly revocations: () => Revocations
  readonly ready: () => PostgresReady
  /** Reads the URL file again, and everything in the database. Never rejects. */
  readonly refresh: () => Promise<void>
  /** Follows no longer and closes every connection. The last snapshot stays in force. */
  readonly stop: () => Promise<void>
}

/** The outcome of opening; problems are lines for a person, free of secrets. */
export type OpenedPostgresStore =
  | ({ readonly ok: true; readonly warnings: readonly string[] } & PostgresStore)
  | { readonly ok: false; readonly problems: readonly string[] }

/**
 * Opens the store: resolves when there is a snapshot, or with problems where only a person can help (no URL, no
 * tables, no access). A database that is away is waited for. Never rejects.
 */
export async function openPostgresStore(options: PostgresStoreOptions): Promise<OpenedPostgresStore> {
  const { urlFile, log, onChange, onReload } = options
  const times = { ...USUAL_TIMES, ...options.times }
  const named = await readUrlFile(urlFile)
  if (!named.ok) return named

  const snapshot = createSnapshot(times)
  const session = createSession({
    ...options,
    ...times,
    target: named.target,
    onNotify: () => void follower.wake(),
    onDeaf: (cause) =>
      log.warn(describe(cause), 'changes of credentials cannot be heard of, so they are asked for'),
  })
  const describe = (cause: unknown) => ({ database: session.label, reason: postgresFailure(cause).message })
  let wantsEverything = false
  /** What was told of the version in force. */
  let result: 'ok' | 'failed' = 'ok'
  /** Whether the database has been away since. */
  let wasAway = false

  async function update(): Promise<Updated> {
    const everything = wantsEverything
    wantsEverything = false
    try {
      return await session.use((connection) => snapshot.update(connection, everything))
    } catch (cause) {
      wantsEverything ||= everything
      throw cause
    }
  }

  function tellOf({ problems, lagSeconds }: Updated): void {
    result = problems.length === 0 ? 'ok' : 'failed'
    wasAway = false
    onReload?.(result, lagSeconds)
    for (const problem of problems.slice(0, MOST_PROBLEMS_LOGGED)) {
      log.warn({ database: session.label, problem }, 'a row is left out')
    }
    const { size: credentials } = snapshot
    log.info({ credentials, revocations: snapshot.revocations().size }, 'credentials are up to date')
  }

  // Ends what is being asked just now as well, and not only the wait between two questions.
  options.signal?.addEventListener('abort', () => void session.close(), { once: true })
  const first = await firstUpdate(update, {
    ...times,
    signal: options.signal,
    onAway: (cause) => log.warn(describe(cause), 'waiting for the credentials database'),
  })
  if (!first.ok) {
    await session.close()
    return { ok: false, problems: [`${urlFile}: the database ${session.label}: ${first.problem}`] }
  }
  tellOf(first.updated)

  const follower: Follower = createFollower({
    ...times,
    async update() {
      const updated = await update()
      if (!updated.changed) return
      onChange()
      tellOf(updated)
    },
    onAway(cause) {
      wasAway = true
      onReload?.('failed')
      log.warn(describe(cause), 'the credentials database is away: no logins, tokens go on being checked')
    },
    onBack() {
      // Where nothing has changed meanwhile nobody has said yet that all is well again.
      if (wasAway) onReload?.(result)
      log.info({ database: session.label }, 'the credentials database is back')
    },
  })
  session.listen()

  const { accounts, revocations } = snapshot
  const { authenticate, hasAccount, standing } = createCredentialStore({
    ...options,
    accounts,
    hashQueue: createHashQueue(),
  })
  return {
    ok: true,
    warnings: named.warnings,
    store: {
      authenticate: async (...login) => ((await follower.confirm()) ? authenticate(...login) : 'unavailable'),
      hasAccount,
      standing,
    },
    revocations,
    ready: () => ({
      name: 'credentials',
      ok: true,
      state: follower.away ? 'database away, last snapshot in force' : 'current',
    }),
    async refresh() {
      wantsEverything = true
      await session.move()
      await follower.wake()
    },
    async stop() {
      follower.stop()
      await session.close()
    },
  }
}

/** A broken table of thousands is no log line. */
const MOST_PROBLEMS_LOGGED = 20
