/**
 * Keeps a snapshot of the credentials database current, over one connection that listens, polls and reads.
 * A notification, a poll or a login starts an update; updates never overlap. A connection that breaks is replaced once
 * before the database counts as down; from then on it is tried again after growing pauses.
 */
import {
  type Connection,
  connect,
  type PostgresFailure,
  type PostgresTarget,
  postgresFailure,
  readUrlFile,
} from './connection.ts'
import { SCHEMA } from './schema.ts'
import { readSnapshot, type Snapshot } from './snapshot.ts'

const POLL_MS = 400
/** For each query; a page of rows takes about 10 ms. */
const QUERY_MS = 1000
const MAX_PAUSE_MS = 1000
const MAX_PROBLEMS_LOGGED = 20

export interface ReplicaOptions {
  /** Path of the file that holds the URL; read again for each new connection. */
  readonly urlFile: string
  readonly log: Record<'info' | 'warn', (fields: object, message: string) => void>
  /** Called right after a change is active: cached verdicts must be dropped now. */
  readonly onChange: () => void
  /** `seconds`: from the change to its being active, by the database's clock. */
  readonly onReload?: (result: 'ok' | 'failed', seconds?: number) => void
  /** Milliseconds between two polls. */
  readonly pollMs?: number
}

export interface Replica {
  readonly snapshot: Snapshot | undefined
  readonly isDown: boolean
  /** Resolves with nothing once there is a snapshot, or with the problem that keeps it from being read. */
  readonly opening: Promise<string | undefined>
  /**
   * Resolves with true once an update that began after this call is done, with false when the database is down or the
   * replica is stopped. Never rejects.
   */
  update(): Promise<boolean>
  /** The same, with a new connection and reading every row. */
  reload(): Promise<boolean>
  /** Resolves when the connection is closed. */
  stop(): Promise<void>
}

/** Begins to connect to `target`, which the URL file held at the start. */
export function startReplica(options: ReplicaOptions, target: PostgresTarget): Replica {
  const { log, onChange, onReload, pollMs = POLL_MS } = options
  let database = target.label
  let connection: Connection | undefined
  let snapshot: Snapshot | undefined
  let failures = 0
  let isStopped = false
  let isWanted = false
  let isReload = false
  let waiting: ((isCurrent: boolean) => void)[] = []
  let endPause = () => {}
  let opened: (problem?: string) => void = () => {}
  const opening = new Promise<string | undefined>((resolve) => {
    opened = (problem) => resolve(problem && `${options.urlFile}: the database ${database}: ${problem}`)
  })

  function want(): void {
    isWanted = true
    endPause()
  }

  function pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      endPause = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  function disconnect(): void {
    connection?.close()
    connection = undefined
  }

  async function open(): Promise<Connection> {
    const read = await readUrlFile(options.urlFile)
    const current = read.ok ? read.value : target
    database = current.label
    const fresh = await connect(current, QUERY_MS)
    fresh.client.on('notification', want)
    await fresh.client.query(`LISTEN ${SCHEMA}`).catch((cause: unknown) => {
      // As on a read replica.
      const fields = { database, reason: postgresFailure(cause).message }
      log.warn(fields, 'LISTEN failed: polling finds changes of credentials')
    })
    return fresh
  }

  async function updateOnce(): Promise<void> {
    const known = isReload ? undefined : snapshot
    if (isReload) disconnect()
    connection ??= await open()
    const fresh = await readSnapshot(connection.client, known)
    isReload &&= known !== undefined
    if (fresh !== snapshot && !isStopped) publish(fresh)
  }

  function publish(fresh: Snapshot): void {
    const isFirst = snapshot === undefined
    snapshot = fresh
    if (!isFirst) onChange()
    report(fresh, isFirst ? undefined : fresh.ageSeconds)
    for (const problem of fresh.problems.slice(0, MAX_PROBLEMS_LOGGED)) {
      log.warn({ database, problem }, 'a row is left out')
    }
    const sizes = { credentials: fresh.credentials.size, revocations: fresh.revocations.size }
    log.info(sizes, 'credentials are up to date')
    opened()
  }

  function report({ problems }: Snapshot, seconds?: number): void {
    onReload?.(problems.length === 0 ? 'ok' : 'failed', seconds)
  }

  /** Returns whether to try again. */
  function onFailure({ kind, message }: PostgresFailure): boolean {
    if (snapshot === undefined && kind === 'unusable') {
      opened(message)
      return false
    }
    if (failures > 1) return true
    const fields = { database, reason: message }
    if (snapshot === undefined) log.warn(fields, 'waiting for the credentials database')
    else {
      onReload?.('failed')
      log.warn(fields, 'the credentials database is down: no logins; the last snapshot serves token checks')
    }
    return true
  }

  async function run(): Promise<void> {
    while (!isStopped) {
      isWanted = false
      const served = waiting
      waiting = []
      const isReused = connection !== undefined
      const former = snapshot
      try {
        await updateOnce()
        if (failures > 0 && former !== undefined) {
          report(snapshot ?? former)
          log.info({ database }, 'the credentials database is back')
        }
        failures = 0
        for (const resolve of served) resolve(!isStopped)
        if (!isWanted && !isStopped) await pause(pollMs)
      } catch (cause) {
        const failure = postgresFailure(cause)
        disconnect()
        // The server may have closed an idle connection; a server that hangs is not asked twice.
        if (isReused && failure.kind !== 'timeout' && !isStopped) {
          waiting.unshift(...served)
          continue
        }
        failures++
        for (const resolve of [...served, ...waiting.splice(0)]) resolve(false)
        if (isStopped || !onFailure(failure)) break
        // Replicas differ, so that they do not all return at once.
        await pause(Math.min(MAX_PAUSE_MS, 100 * 2 ** (failures - 1)) * (0.8 + 0.2 * Math.random()))
      }
    }
    isStopped = true
    disconnect()
    for (const resolve of waiting) resolve(false)
  }

  function request(): Promise<boolean> {
    if (isStopped) return Promise.resolve(false)
    return new Promise((resolve) => {
      waiting.push(resolve)
      want()
    })
  }

  const running = run()
  return {
    get snapshot() {
      return snapshot
    },
    get isDown() {
      return failures > 0
    },
    opening,
    update: () => (failures > 0 ? Promise.resolve(false) : request()),
    reload() {
      isReload = true
      return request()
    },
    stop() {
      isStopped = true
      opened('stopped before it could be reached')
      disconnect()
      endPause()
      return running
    },
  }
}
