/**
 * A credential store over PostgreSQL, shared by all replicas.
 * Token checks read a snapshot in memory and never wait for the database; a login first makes sure that the snapshot is
 * current. While the database is down logins are `unavailable`, and the last snapshot serves token checks.
 */
import { createCredentialIndex } from '../credential.ts'
import { createRevocations, type Revocations } from '../revocations.ts'
import { type CredentialStore, createCredentialStore } from '../store.ts'
import { readUrlFile } from './connection.ts'
import { type ReplicaOptions, startReplica } from './replica.ts'

export interface PostgresStoreOptions extends ReplicaOptions {
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called with the cause when a login ends `unavailable` though the database is up. */
  readonly onFault?: (cause: unknown) => void
  /** Ends the wait for a database that is down at the start. */
  readonly signal?: AbortSignal
}

/** A condition of readiness: a sidecar with a snapshot stays ready. */
export interface PostgresReady {
  readonly name: 'credentials'
  readonly ok: true
  readonly state: 'current' | 'database down, last snapshot active'
}

export interface PostgresStore {
  readonly store: CredentialStore
  readonly revocations: () => Revocations
  readonly ready: () => PostgresReady
  /** Reads the URL file and every row again. Never rejects. */
  readonly refresh: () => Promise<void>
  /** Stops polling and closes the connection. The last snapshot stays active. */
  readonly stop: () => Promise<void>
}

export type OpenedPostgresStore =
  | ({ readonly ok: true; readonly warnings: readonly string[] } & PostgresStore)
  | { readonly ok: false; readonly problems: readonly string[] }

/**
 * Resolves when there is a snapshot, or with problems that only an operator can solve (no URL, no tables, no access).
 * Waits for a database that is down. Never rejects.
 */
export async function openPostgresStore(options: PostgresStoreOptions): Promise<OpenedPostgresStore> {
  const named = await readUrlFile(options.urlFile)
  if (!named.ok) return named
  const replica = startReplica(options, named.value)
  const { signal } = options
  const abort = () => void replica.stop()
  signal?.addEventListener('abort', abort)
  if (signal?.aborted) abort()
  const problem = await replica.opening
  signal?.removeEventListener('abort', abort)
  if (problem !== undefined) return { ok: false, problems: [problem] }

  const noCredentials = createCredentialIndex()
  const noRevocations = createRevocations([])
  const { authenticate, hasAccount, standing } = createCredentialStore({
    ...options,
    credentials: () => replica.snapshot?.credentials ?? noCredentials,
  })
  return {
    ok: true,
    warnings: named.warnings,
    store: {
      authenticate: async (...login) => ((await replica.update()) ? authenticate(...login) : 'unavailable'),
      hasAccount,
      standing,
    },
    revocations: () => replica.snapshot?.revocations ?? noRevocations,
    ready: () => ({
      name: 'credentials',
      ok: true,
      state: replica.isDown ? 'database down, last snapshot active' : 'current',
    }),
    refresh: async () => void (await replica.reload()),
    stop: () => replica.stop(),
  }
}
