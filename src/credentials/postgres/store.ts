/**
 * A credential store over PostgreSQL, shared by all replicas.
 * Token checks read a snapshot in memory and never wait for the database; a login first makes sure that the snapshot is
 * current. While the database is down logins are `unavailable`, and the last snapshot serves token checks.
 */

import { createCredentialIndex } from '../credential.ts'
import { createRevocations, type Revocations } from '../revocations.ts'
import { type CredentialStore, createCredentialStore } from '../store.ts'
import { readUrlFile } from './connection.ts'
import { startReplica } from './replica.ts'
import type { Snapshot } from './snapshot.ts'

export interface PostgresStoreOptions {
  /** Path of the file that holds the URL; read again for each new connection. */
  readonly urlFile: string
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Where events go; pino's methods. */
  readonly log: Record<'info' | 'warn', (fields: object, message: string) => void>
  /** Called right after a change is active: cached verdicts must be dropped now. */
  readonly onChange: () => void
  /** How each reload ended. `seconds`: from the change to its being active, by the database's clock. */
  readonly onReload?: (result: 'ok' | 'failed', seconds?: number) => void
  /** Called with the cause when a login ends `unavailable` though the database is up. */
  readonly onFault?: (cause: unknown) => void
  /** Ends the wait for a database that is down at the start. */
  readonly signal?: AbortSignal
  /** Milliseconds between two polls. */
  readonly pollMs?: number
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

const POLL_MS = 400
const MAX_PROBLEMS_LOGGED = 20

/**
 * Resolves when there is a snapshot, or with problems that only an operator can solve (no URL, no tables, no access).
 * Waits for a database that is down. Never rejects.
 */
export async function openPostgresStore(options: PostgresStoreOptions): Promise<OpenedPostgresStore> {
  const { urlFile, log, signal, onChange, onReload, pollMs = POLL_MS } = options
  const named = await readUrlFile(urlFile)
  if (!named.ok) return named
  let snapshot: Snapshot | undefined
  let isOutage = false

  function report(fresh: Snapshot, seconds?: number): void {
    onReload?.(fresh.problems.length === 0 ? 'ok' : 'failed', seconds)
  }

  let settle: (problem?: string) => void = () => {}
  const opening = new Promise<string | undefined>((resolve) => {
    settle = resolve
  })
  const replica = startReplica({
    urlFile,
    target: named.value,
    pollMs,
    onSnapshot(fresh) {
      const isFirst = snapshot === undefined
      snapshot = fresh
      if (!isFirst) onChange()
      report(fresh, isFirst ? undefined : fresh.ageSeconds)
      for (const problem of fresh.problems.slice(0, MAX_PROBLEMS_LOGGED)) {
        log.warn({ database: replica.label, problem }, 'a row is left out')
      }
      const sizes = { credentials: fresh.credentials.size, revocations: fresh.revocations.size }
      log.info(sizes, 'credentials are up to date')
      settle()
    },
    onFailure({ kind, message }, failures) {
      if (snapshot === undefined && kind === 'unusable') {
        settle(message)
        return false
      }
      if (failures > 1) return true
      const fields = { database: replica.label, reason: message }
      if (snapshot === undefined) log.warn(fields, 'waiting for the credentials database')
      else {
        isOutage = true
        onReload?.('failed')
        log.warn(fields, 'the credentials database is down: no logins; the last snapshot serves token checks')
      }
      return true
    },
    onUp() {
      if (!isOutage || snapshot === undefined) return
      isOutage = false
      report(snapshot)
      log.info({ database: replica.label }, 'the credentials database is back')
    },
    onNoListen({ message }) {
      log.warn(
        { database: replica.label, reason: message },
        'LISTEN failed: polling finds changes of credentials',
      )
    },
  })
  const abort = () => settle('stopped before it could be reached')
  signal?.addEventListener('abort', abort, { once: true })
  if (signal?.aborted) abort()
  const problem = await opening
  signal?.removeEventListener('abort', abort)
  if (problem !== undefined) {
    void replica.stop()
    return { ok: false, problems: [`${urlFile}: the database ${replica.label}: ${problem}`] }
  }

  const noCredentials = createCredentialIndex()
  const noRevocations = createRevocations([])
  const { authenticate, hasAccount, standing } = createCredentialStore({
    ...options,
    credentials: () => snapshot?.credentials ?? noCredentials,
  })
  return {
    ok: true,
    warnings: named.warnings,
    store: {
      authenticate: async (...login) => ((await replica.update()) ? authenticate(...login) : 'unavailable'),
      hasAccount,
      standing,
    },
    revocations: () => snapshot?.revocations ?? noRevocations,
    ready: () => ({
      name: 'credentials',
      ok: true,
      state: replica.isDown ? 'database down, last snapshot active' : 'current',
    }),
    async refresh() {
      await replica.reload()
    },
    stop: () => replica.stop(),
  }
}
