/**
 * The database that the URL file names, whatever it names today.
 *
 * In: the file. Out: a way to use a connection. When something fails the file is read again, and if it holds
 * another URL, as after the change of a password, the connections are made anew and it is tried once more.
 *
 * @module
 */

import { type Connection, type Connections, createConnections } from './connections.ts'
import { postgresFailure } from './failure.ts'
import { createListener, type Listener } from './listener.ts'
import { type PostgresTarget, readUrlFile } from './url.ts'
import { withinTime } from './within-time.ts'

/** What a session works with. */
export interface SessionOptions {
  readonly urlFile: string
  /** What the file holds at the beginning. */
  readonly target: PostgresTarget
  /** The most connections at one time. From 2 on, one of them hears notifications. */
  readonly poolSize: number
  readonly connectMs: number
  readonly pingMs: number
  /** The longest pause between two tries to hear notifications. */
  readonly longestDeafMs: number
  /** Something may have changed in the database. */
  readonly onNotify: () => void
  /** Told once when notifications cannot be heard, until they can. */
  readonly onDeaf: (cause: unknown) => void
}

/** A way to use the database. */
export interface Session {
  /** `host:port/database`. */
  readonly label: string
  /** Uses a connection, and if that fails, another one. Rejects when both failed, or the first one hung. */
  use<T>(work: (connection: Connection) => Promise<T>): Promise<T>
  /** Hears notifications from now on. */
  listen(): void
  /**
   * Reads the URL file, and says whether it named another URL, which is used from now on. Ends in time, whatever is in
   * the place of the file. Never rejects.
   */
  move(): Promise<boolean>
  /** Never rejects. */
  close(): Promise<void>
}

/** Makes a session. Connects when it is used. */
export function createSession(options: SessionOptions): Session {
  const { urlFile, poolSize } = options
  let connections = createConnections(options.target, { ...options, max: poolSize })
  let listener: Listener | undefined
  let listens = false
  let closed = false

  async function useOnce<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    const connection = await connections.take()
    try {
      const result = await work(connection)
      connection.release()
      return result
    } catch (cause) {
      connection.release(true) // who knows what it is in the middle of
      throw cause
    }
  }

  function listen(): void {
    listens = true
    // With one connection alone nothing could be asked while it listens.
    if (poolSize > 1) listener = createListener({ ...options, connections })
  }

  async function move(): Promise<boolean> {
    const read = await withinTime(readUrlFile(urlFile), options.connectMs)
    if (closed || read?.ok !== true || read.target.url === connections.target.url) return false
    void leave(connections)
    connections = createConnections(read.target, { ...options, max: poolSize })
    if (listens) listen()
    return true
  }

  function leave(former: Connections): Promise<void> {
    listener?.stop()
    return former.close()
  }

  return {
    get label() {
      return connections.target.label
    },
    async use(work) {
      try {
        return await useOnce(work)
      } catch (cause) {
        const moved = await move()
        // A connection that was closed while it lay idle does not mean that the database is away. But whoever has
        // waited for an answer in vain does not wait again.
        if (closed || (!moved && postgresFailure(cause).kind === 'timeout')) throw cause
        return useOnce(work)
      }
    },
    listen,
    move,
    async close() {
      closed = true
      await leave(connections)
    },
  }
}
