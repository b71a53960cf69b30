/**
 * The data listener: sockets in, exchanges out.
 *
 * Configures Node's HTTP server, with TLS in front of it or not, so that nothing about a request is decided before we see it, gives every answer
 * that the parser would make in our own words, and keeps the connections, so that stopping can wait for them.
 *
 * @module
 */
import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerOptions } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { CertificateMaterial } from '../certificates/certificate-files.ts'
import { ERRORS, type PublicError } from '../errors.ts'
import { errorAnswer, rawAnswer } from './answers.ts'
import { ClientConnection } from './client-connection.ts'
import { Exchange } from './exchange.ts'
import { lingerThenClose } from './linger.ts'
import { listenOn } from './listen-on.ts'
import type { Peer, PeerFacts } from './peer.ts'
import { createSecureServer } from './secure-server.ts'
import { SidecarResponse } from './sidecar-response.ts'

/** What the listener works with. */
export interface ListenerOptions {
  readonly host: string
  readonly port: number
  /** What clients are shown; plain HTTP without it. With authorities, clients must show a certificate of theirs. */
  readonly certificates?: CertificateMaterial | undefined
  readonly limits: {
    readonly headerBytes: number
    readonly connections: number
    readonly inFlightPerConnection: number
  }
  /** Whether requests for another protocol are handled; otherwise they are requests like any other. */
  readonly upgrade: boolean
  readonly timeouts: { readonly headersSeconds: number; readonly keepAliveSeconds: number }
  readonly peerOf: (facts: PeerFacts) => Peer
  /** A clock that never goes back, in milliseconds. */
  readonly monotonicNow: () => number
  /** Works on a request. Must not throw. */
  readonly handle: (exchange: Exchange) => void
  /** Told once for each exchange when it is over. `finished`: the response was sent whole. */
  readonly onOver: (exchange: Exchange, finished: boolean) => void
  /** Told of each request that the parser refused. */
  readonly onRefused: (error: PublicError, requestId: string, peer: Peer) => void
  /** Told of each TLS handshake that failed, with Node's code of the reason. */
  readonly onHandshakeFailed?: (code: string | undefined) => void
  /** Told of faults of the listening socket, such as running out of descriptors. */
  readonly onFault: (error: Error) => void
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
  const { limits, timeouts } = options
  const connections = new Map<Socket, ClientConnection>()
  let onLastClosed = () => {}

  const http: ServerOptions<typeof IncomingMessage, typeof SidecarResponse> = {
    ServerResponse: SidecarResponse,
    // Counted by the parser without separators and with the target; the exact bound is admission's.
    maxHeaderSize: 2 * limits.headerBytes + 1,
    headersTimeout: timeouts.headersSeconds * 1000,
    requestTimeout: 0, // a total: it would cut steady uploads
    keepAliveTimeout: timeouts.keepAliveSeconds * 1000,
    connectionsCheckingInterval: 500, // how late the head's timeout may act
    requireHostHeader: false, // admission says it in our own words
    insecureHTTPParser: false,
    noDelay: true,
  }
  const secure =
    options.certificates &&
    createSecureServer(http, {
      certificates: options.certificates,
      handshakeMs: timeouts.headersSeconds * 1000,
      monotonicNow: options.monotonicNow,
    })
  const server: Server<typeof IncomingMessage, typeof SidecarResponse> = secure?.server ?? createServer(http)
  server.maxHeadersCount = 0 // beyond a count, Node hides headers that the parser obeys; admission counts
  let open = 0
  // From Node 26 on a connection that has never sent anything is idle, too; its first request may be on its way.
  const { closeIdleConnections } = server
  server.closeIdleConnections = () => {
    const silent = [...connections.keys()].filter((socket) => socket.bytesRead === 0)
    /* c8 ignore next -- called by Node 26 alone; a test of this runs on every version */
    const stay = (socket: Socket) => () => socket
    for (const socket of silent) socket.destroy = stay(socket)
    closeIdleConnections.call(server)
    for (const socket of silent) Reflect.deleteProperty(socket, 'destroy')
  }
  let droppedConnections = 0
  // Not by `maxConnections`: one of several processes would hand the socket back and be offered it again, for ever.
  server.on('connection', (socket: Socket) => {
    open++
    socket.once('close', () => {
      open--
    })
    if (open <= limits.connections) return
    droppedConnections++
    socket.destroy()
  })

  server.on(secure ? 'secureConnection' : 'connection', (socket: Socket) => {
    if (socket.destroyed) return
    const connection = new ClientConnection({
      socket,
      peer: options.peerOf({
        remoteAddress: socket.remoteAddress,
        localPort: socket.localPort,
        tls: secure !== undefined,
      }),
      openedAt: options.monotonicNow(),
      maxInFlight: limits.inFlightPerConnection,
      start: (exchange) => {
        exchange.res.on('finish', onFinish)
        options.handle(exchange)
      },
      onOver: (exchange, finished) => {
        exchange.end(finished)
        options.onOver(exchange, finished)
      },
    })
    connections.set(socket, connection)
    socket.once('close', () => {
      connections.delete(socket)
      if (connections.size === 0) onLastClosed()
    })
  })

  const take = (req: IncomingMessage, res: SidecarResponse, expectsContinue: boolean) => {
    const connection = connections.get(req.socket)
    connection?.take(new Exchange(req, res, connection, options.monotonicNow(), expectsContinue))
  }
  server.on('request', (req, res) => take(req, res, false))
  server.on('checkContinue', (req, res) => take(req, res, true))
  server.on('checkExpectation', (req, res) => take(req, res, false)) // another expectation is the upstream's to judge

  const takeUpgrade = (req: IncomingMessage, socket: Socket, head: Buffer) => {
    const connection = connections.get(socket)
    connection?.onDetached()
    if (connection === undefined || connection.inFlight > 0) {
      refuse(socket, ERRORS.upgradeRefused) // nobody sends a handshake behind requests that are not answered
      return
    }
    // Node no longer closes for a client that ends; a tunnel passes the end on instead.
    socket.once('end', () => {
      if (connection.isTunnel) return
      socket.destroySoon()
    })
    const res = new SidecarResponse(req)
    res.shouldKeepAlive = false
    res.assignSocket(socket)
    res.on('finish', () => {
      res.detachSocket(socket)
      lingerThenClose(socket)
    })
    connection.take(new Exchange(req, res, connection, options.monotonicNow(), false, head))
  }
  // Where nobody listens, Node makes it a request like any other, which the gate refuses: it has no `upgradeHead`.
  if (options.upgrade) server.on('upgrade', (req, _socket, head) => takeUpgrade(req, req.socket, head))

  const refuse = (socket: Socket, error: PublicError) => {
    const connection = connections.get(socket)
    // Whatever comes while a connection lingers changes nothing any more: destroyed, it would take the answer with it.
    if (connection === undefined || socket.destroyed || !(socket.writable || connection.ending)) {
      socket.destroy()
      return
    }
    if (connection.malformedBody() || connection.ending) return
    const requestId = randomUUID()
    options.onRefused(error, requestId, connection.peer)
    connection.refuse(rawAnswer(errorAnswer(error, { error: 'http_request_error' }), requestId))
  }
  server.on('connect', (_req, socket) => {
    connections.get(socket as Socket)?.onDetached()
    refuse(socket as Socket, ERRORS.malformedRequest)
  })
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (secure && (!connections.has(socket as Socket) || String(error.code).startsWith('ERR_SSL_'))) {
      // Whatever is said to somebody with whom TLS does not work would not be understood.
      if (!connections.has(socket as Socket)) options.onHandshakeFailed?.(error.code)
      socket.destroy()
      return
    }
    if (error.code === 'ECONNRESET' || error.code === 'EPIPE' || error.code === 'HPE_CLOSED_CONNECTION') {
      // Gone, or bytes behind a request that said it was the last.
      if (error.code !== 'HPE_CLOSED_CONNECTION') socket.destroy()
      return
    }
    refuse(socket as Socket, PARSER_ERRORS[error.code ?? ''] ?? ERRORS.malformedRequest)
  })

  return {
    listen: () => listenOn(server, options),
    close: () =>
      new Promise((resolve) => {
        // Node reports the last connection closed before that connection does, and with it its requests.
        server.close(() => {
          if (connections.size === 0) resolve()
          else onLastClosed = resolve
        })
        server.closeIdleConnections()
      }),
    renew: (certificates) => secure?.renew(certificates),
    closeUnused: () => {
      server.closeIdleConnections()
      // To Node a connection that has never sent anything is no idle one; its first request may be on its way.
      const latest = options.monotonicNow() - FIRST_REQUEST_MS
      for (const [socket, { openedAt }] of connections) {
        if (socket.bytesRead === 0 && openedAt <= latest) socket.destroy()
      }
      secure?.closeHandshakes(latest)
    },
    closeTunnels: () => {
      for (const { socket, isTunnel } of connections.values()) if (isTunnel) socket.destroy()
    },
    cut: () => {
      const cut = inFlight()
      for (const connection of connections.values()) connection.cut()
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

  function inFlight(): number {
    let count = 0
    for (const connection of connections.values()) count += connection.inFlight
    return count
  }
}

/** How long the first request of a new connection is waited for while we are stopping, in milliseconds. */
const FIRST_REQUEST_MS = 1000

/** What the parser's refusals are to a client; any other is a malformed request. */
const PARSER_ERRORS: Readonly<Record<string, PublicError>> = {
  HPE_HEADER_OVERFLOW: ERRORS.headersTooLarge,
  ERR_HTTP_REQUEST_TIMEOUT: ERRORS.requestTimeout,
}

/** One function for all responses, so that none needs a closure of its own. */
function onFinish(this: SidecarResponse): void {
  this.exchange?.connection.responseSent(this.exchange)
}
