/**
 * The data listener: sockets in, exchanges out.
 *
 * Accepts connections, with TLS or without, bounds their number, and keeps them, so that stopping can wait for them.
 *
 * @module
 */
import { randomUUID } from 'node:crypto'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import type { PublicError } from '../errors.ts'
import { ReadMemory } from '../read-memory.ts'
import type { CertificateMaterial } from '../reload/certificates.ts'
import { errorAnswer, rawAnswer } from './answers.ts'
import { ClientConnection, type ClientConnectionOptions } from './client-connection.ts'
import type { Deadlines } from './deadlines.ts'
import type { Exchange } from './exchange.ts'
import { listenOn } from './listen-on.ts'
import type { Peer, PeerFacts } from './peer.ts'
import { createSecureServer } from './secure-server.ts'
import { readAsStream, readDirectly, type SocketReader, type SocketReading } from './socket-reading.ts'

/** What the listener works with. */
export interface ListenerOptions {
  readonly host: string
  readonly port: number
  /** What clients are shown; plain HTTP without it. With authorities, clients must show a certificate of theirs. */
  readonly certificates?: CertificateMaterial | undefined
  readonly limits: {
    readonly headerBytes: number
    readonly headerLines: number
    readonly connections: number
    readonly inFlightPerConnection: number
  }
  readonly timeouts: { readonly headersSeconds: number; readonly keepAliveSeconds: number }
  readonly peerOf: (facts: PeerFacts) => Peer
  readonly deadlines: Deadlines
  /** Works on a request, and sets what its admission found. Must not throw. */
  readonly handle: (exchange: Exchange) => void
  /** Told once for each exchange when it is over. `finished`: the response was sent whole. */
  readonly onOver: (exchange: Exchange, finished: boolean) => void
  /** Told of each request that the parser refused. */
  readonly onRefused: (error: PublicError, requestId: string, peer: Peer) => void
  /** Told of each TLS handshake that failed, with Node's code of the reason. */
  readonly onHandshakeFailed?: (code: string | undefined) => void
  /** Told of faults of the listening socket, such as running out of descriptors, and of our own. */
  readonly onFault: (error: unknown) => void
}

/** The data listener. */
export interface Listener {
  /** Begins to listen. Rejects when the address cannot be had. */
  listen(): Promise<AddressInfo>
  /**
   * Accepts no more connections and closes the unused ones. Resolves when the last one is closed and each of its
   * exchanges is over.
   */
  close(): Promise<void>
  /** Shows other certificates to clients that come from now on; only where there were some to begin with. */
  renew(certificates: CertificateMaterial): void
  /** Closes connections on which nothing is in flight. */
  closeUnused(): void
  /** Closes every connection that has left HTTP. */
  closeTunnels(): void
  /** Destroys every connection; returns how many requests that cut off. */
  cut(): number
  /** Requests in flight. */
  readonly inFlight: number
  /** Open connections, those in a TLS handshake included. */
  readonly connections: number
  /** Connections closed at once, because there were too many. */
  readonly droppedConnections: number
}

/** Makes the data listener. */
export function createListener(options: ListenerOptions): Listener {
  const { limits, timeouts, deadlines } = options
  const connections = new Set<ClientConnection>()
  const memory = new ReadMemory()
  /** What every connection reads into that receives no body. */
  const shared = memory.take()
  const headersMs = timeouts.headersSeconds * 1000
  let onLastClosed = () => {}
  let open = 0
  let droppedConnections = 0

  const secure =
    options.certificates &&
    createSecureServer({
      certificates: options.certificates,
      handshakeMs: headersMs,
      monotonicNow: deadlines.monotonicNow,
    })
  const server = secure?.server ?? createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true })

  const connectionOptions: ClientConnectionOptions = {
    deadlines,
    limits,
    headersMs,
    keepAliveMs: timeouts.keepAliveSeconds * 1000,
    handle: options.handle,
    onOver: (exchange, finished) => {
      exchange.end(finished)
      options.onOver(exchange, finished)
    },
    onRefused: (error, peer) => {
      const requestId = randomUUID()
      options.onRefused(error, requestId, peer)
      return rawAnswer(errorAnswer(error, { error: 'http_request_error' }), requestId)
    },
    onFault: options.onFault,
    onClosed: (connection) => {
      connections.delete(connection)
      if (connections.size === 0) onLastClosed()
    },
  }

  /** Whether there are too many connections for another; it is closed then. */
  const isTooMany = (socket: Socket): boolean => {
    if (open < limits.connections) return false
    droppedConnections++
    socket.destroy()
    return true
  }
  const count = (socket: Socket) => {
    open++
    socket.once('close', () => {
      open--
    })
  }

  const serve = (socket: Socket, read: (reader: () => SocketReader) => SocketReading) => {
    const peer = options.peerOf({
      remoteAddress: socket.remoteAddress,
      localPort: socket.localPort,
      tls: secure !== undefined,
    })
    const reading = read(() => connection.intake)
    const connection = new ClientConnection(connectionOptions, reading, peer)
    connections.add(connection)
    return reading.socket
  }

  if (secure) {
    server.on('connection', (socket: Socket) => {
      if (!isTooMany(socket)) count(socket)
    })
    server.on('secureConnection', (socket: Socket) => {
      if (!socket.destroyed) serve(socket, (reader) => readAsStream(socket, reader))
    })
    server.on('tlsClientError', (error: NodeJS.ErrnoException, socket: Socket) => {
      options.onHandshakeFailed?.(error.code)
      socket.destroy()
    })
  } else {
    server.on('connection', (accepted: Socket) => {
      if (isTooMany(accepted)) return
      count(serve(accepted, (reader) => readDirectly(accepted, reader, shared, memory)))
    })
  }

  return {
    listen: () => listenOn(server, options),
    close: () =>
      new Promise((resolve) => {
        server.close(() => {
          if (connections.size === 0) resolve()
          else onLastClosed = resolve
        })
        closeUsed()
      }),
    renew: (certificates) => secure?.renew(certificates),
    closeUnused: () => {
      closeUsed()
      const latest = deadlines.monotonicNow() - FIRST_REQUEST_MS
      for (const { socket, openedAt } of connections) {
        if (socket.bytesRead === 0 && openedAt <= latest) socket.destroy()
      }
      secure?.closeHandshakes(latest)
    },
    closeTunnels: () => {
      for (const { socket, isTunnel } of connections) if (isTunnel) socket.destroy()
    },
    cut: () => {
      const cut = inFlight()
      for (const connection of connections) connection.cut()
      secure?.closeHandshakes(Number.POSITIVE_INFINITY)
      return cut
    },
    get inFlight() {
      return inFlight()
    },
    get connections() {
      return connections.size + (secure?.handshakes ?? 0)
    },
    get droppedConnections() {
      return droppedConnections
    },
  }

  /** Closes what has been used and is not now; the first request of any other may be on its way. */
  function closeUsed(): void {
    for (const { socket, isUnused } of connections) if (isUnused && socket.bytesRead > 0) socket.destroy()
  }

  function inFlight(): number {
    let count = 0
    for (const { unanswered } of connections) count += unanswered
    return count
  }
}

/** How long the first request of a new connection is waited for while we are stopping, in milliseconds. */
const FIRST_REQUEST_MS = 1000
