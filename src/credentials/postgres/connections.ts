/**
 * Connections to the credentials database.
 *
 * In: a target. Out: a pool whose connections are made and closed in bounded time, whatever the other end does.
 * A failure is told to whoever asked, never thrown at the process.
 *
 * @module
 */
import { Socket } from 'node:net'
import pg from 'pg'
import { type PostgresTarget, tlsFileProblem } from './url.ts'

/** One connection, while somebody has it. */
export type Connection = pg.PoolClient

/** A pool of connections to one target. */
export interface Connections {
  readonly target: PostgresTarget
  /** Gives a connection, an unused one or a new one, or rejects in time. It must be released. */
  take(): Promise<Connection>
  /** Takes leave of the server where it listens, and closes everything where it does not. Never rejects. */
  close(): Promise<void>
}

/** Bounds of a pool. */
export interface ConnectionsOptions {
  /** The most connections at one time. */
  readonly max: number
  /** How long to wait for a connection, from name resolution to authentication. */
  readonly connectMs: number
}

/** A connection through which nothing goes is probed from then on, so that a silent loss is noticed. */
const KEEP_ALIVE_MS = 10_000
/** How long a server may take to end a connection that has taken leave. */
const GOODBYE_MS = 500

/** Makes a pool. Opens nothing yet. */
export function createConnections(
  target: PostgresTarget,
  { max, connectMs }: ConnectionsOptions,
): Connections {
  const sockets = new Set<Socket>()
  const pool = new pg.Pool({
    connectionString: target.url,
    fallback_application_name: 'storage-auth-sidecar',
    max,
    connectionTimeoutMillis: connectMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    // Our own sockets: pg waits for the server to close, and a server that hangs never does.
    stream: () => {
      const socket = new Socket()
      sockets.add(socket)
      socket.once('close', () => sockets.delete(socket))
      return socket
    },
  })
  // Both are events without whose listener a connection that breaks would end the process; whoever uses the
  // connection is told by a rejection.
  pool.on('error', () => {})
  pool.on('connect', (client) => client.on('error', () => {}))
  let closed: Promise<void> | undefined

  async function close(): Promise<void> {
    const cut = setTimeout(() => {
      for (const socket of sockets) socket.destroy()
    }, GOODBYE_MS)
    await pool.end() // says goodbye, and does not wait for an answer
    await Promise.all([...sockets].map((socket) => new Promise((resolve) => socket.once('close', resolve))))
    clearTimeout(cut)
  }

  return {
    target,
    async take() {
      const problem = await tlsFileProblem(target)
      if (problem !== undefined) throw new Error(`a certificate or key file that the URL names ${problem}`)
      return pool.connect()
    },
    close() {
      closed ??= close()
      return closed
    },
  }
}
