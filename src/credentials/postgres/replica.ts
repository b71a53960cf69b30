/**
 * Keeps a snapshot of the credentials database current, over one connection that listens, polls and reads.
 * A notification, a poll or a login starts an update; updates never overlap. A connection that breaks is replaced once
 * before the database counts as down; from then on it is tried again after growing pauses.
 */
import { type Connection, connect, type PostgresTarget, readUrlFile } from './connection.ts'
import { type PostgresFailure, postgresFailure } from './failure.ts'
import { SCHEMA } from './schema.ts'
import { readSnapshot, type Snapshot } from './snapshot.ts'

/** For each query; a page of rows takes about 10 ms. */
const QUERY_MS = 1000
const MAX_PAUSE_MS = 1000

export interface ReplicaOptions {
  readonly urlFile: string
  /** What the file holds at the start; it is read again for each new connection. */
  readonly target: PostgresTarget
  /** Milliseconds between two polls. */
  readonly pollMs: number
  readonly onSnapshot: (snapshot: Snapshot) => void
  /** Called for each failed update, with how many failed in a row. Returns whether to try again. */
  readonly onFailure: (failure: PostgresFailure, failures: number) => boolean
  readonly onUp: () => void
  /** LISTEN is impossible, as on a read replica: polling finds the changes. */
  readonly onNoListen: (failure: PostgresFailure) => void
}

export interface Replica {
  readonly label: string
  readonly isDown: boolean
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

export function startReplica(options: ReplicaOptions): Replica {
  let { target } = options
  let connection: Connection | undefined
  let snapshot: Snapshot | undefined
  let failures = 0
  let isStopped = false
  let isWanted = false
  let isReload = false
  let waiting: ((isCurrent: boolean) => void)[] = []
  let endPause = () => {}

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
    if (read.ok) target = read.value
    const opened = await connect(target, QUERY_MS)
    opened.client.on('notification', want)
    await opened.client
      .query(`LISTEN ${SCHEMA}`)
      .catch((cause: unknown) => options.onNoListen(postgresFailure(cause)))
    return opened
  }

  async function updateOnce(): Promise<void> {
    const known = isReload ? undefined : snapshot
    if (isReload) disconnect()
    connection ??= await open()
    const fresh = await readSnapshot(connection.client, known)
    isReload &&= known !== undefined
    if (fresh === snapshot || isStopped) return
    snapshot = fresh
    options.onSnapshot(fresh)
  }

  async function run(): Promise<void> {
    while (!isStopped) {
      isWanted = false
      const served = waiting
      waiting = []
      const isReused = connection !== undefined
      try {
        await updateOnce()
        if (failures > 0) options.onUp()
        failures = 0
        for (const resolve of served) resolve(!isStopped)
        if (!isWanted && !isStopped) await pause(options.pollMs)
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
        if (isStopped || !options.onFailure(failure, failures)) break
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
    get label() {
      return target.label
    },
    get isDown() {
      return failures > 0
    },
    update: () => (failures > 0 ? Promise.resolve(false) : request()),
    reload() {
      isReload = true
      return request()
    },
    stop() {
      isStopped = true
      disconnect()
      endPause()
      return running
    },
  }
}
