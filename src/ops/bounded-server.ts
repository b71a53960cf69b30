/**
 * An HTTP server that serves new clients however many connections others hold, as a port for probes must.
 * Above the limit, the least recently used connection makes room, if possible one that awaits no response.
 * Node's own limit, maxConnections, would close the new connection, which may be that of a probe.
 */
import { once } from 'node:events'
import {
  createServer as createHttpServer,
  type Server as HttpServer,
  type RequestListener,
  type ServerResponse,
} from 'node:http'
import {
  type AddressInfo,
  createServer as createTcpServer,
  type Socket,
  type Server as TcpServer,
} from 'node:net'
import { type SecureContext, TLSSocket } from 'node:tls'
import { ALPN_PROTOCOLS } from '../tls/listener-tls.ts'

/**
 * Node accepts one connection per turn of the event loop:
 * a new connection is read long before so many others follow it.
 */
const MAX_CONNECTIONS = 1024

const MAX_REQUESTS_PER_CONNECTION = 1000

/** Maximum time for a request to arrive, and for a connection to be silent. */
const TIMEOUT_MS = 10_000

/** A full backlog drops the SYN of a probe, which comes again after 1 s. */
const BACKLOG = 4096

interface BoundedConnection {
  awaitedResponses: number
}

export class BoundedServer {
  readonly #secureContext: (() => SecureContext) | undefined
  readonly #handle: RequestListener
  /** Accepts connections. An https server has no socket to close before the TLS handshake. */
  readonly #tcpServer: TcpServer
  /** Serves the connections, which it is given by its documented event `connection`. It never listens. */
  readonly #httpServer: HttpServer
  /** The least recently used first. */
  readonly #bounded = new Map<Socket, BoundedConnection>()
  /** Neither counted nor timed out. */
  readonly #exempted = new Set<Socket>()

  /** `secureContext`: called for each connection. Undefined without TLS. */
  constructor(secureContext: (() => SecureContext) | undefined, handle: RequestListener) {
    this.#secureContext = secureContext
    this.#handle = handle
    this.#tcpServer = createTcpServer((tcpSocket) => this.#accept(tcpSocket))
    const limits = { requestTimeout: TIMEOUT_MS, connectionsCheckingInterval: TIMEOUT_MS / 2 }
    this.#httpServer = createHttpServer(limits, (req, res) => {
      this.#countUse(res)
      this.#handle(req, res)
    })
    // This also closes connections of clients that do not read, or leave a handshake unfinished.
    this.#httpServer.timeout = TIMEOUT_MS
    this.#httpServer.maxRequestsPerSocket = MAX_REQUESTS_PER_CONNECTION
  }

  /** `onError`: called with later faults of the listening socket. Rejects if it cannot listen. */
  async listen(host: string, port: number, onError: (error: Error) => void): Promise<AddressInfo> {
    // As an argument, the host `127.1` would be taken for a backlog.
    this.#tcpServer.listen({ host, port, backlog: BACKLOG })
    await once(this.#tcpServer, 'listening')
    this.#tcpServer.on('error', onError)
    // This event starts the timer by which Node looks for late requests.
    this.#httpServer.emit('listening')
    return this.#tcpServer.address() as AddressInfo
  }

  /** Accepts no more connections, and destroys those that are open. */
  async close(): Promise<void> {
    const closed = once(this.#tcpServer, 'close')
    this.#tcpServer.close()
    for (const socket of [...this.#bounded.keys(), ...this.#exempted]) {
      socket.destroy()
    }
    await closed
    this.#httpServer.close()
  }

  /** Until the response is closed, its connection neither counts nor times out. */
  exempt(res: ServerResponse): void {
    const { socket } = res.req
    const connection = this.#bounded.get(socket)
    if (connection === undefined) {
      return
    }
    this.#bounded.delete(socket)
    this.#exempted.add(socket)
    socket.setTimeout(0)
    res.once('close', () => {
      this.#exempted.delete(socket)
      if (!socket.destroyed) {
        this.#bounded.set(socket, connection)
        socket.setTimeout(TIMEOUT_MS)
      }
    })
  }

  #accept(tcpSocket: Socket): void {
    if (this.#bounded.size >= MAX_CONNECTIONS) {
      this.#makeRoom()
    }
    const socket = this.#secured(tcpSocket)
    this.#bounded.set(socket, { awaitedResponses: 0 })
    socket.once('close', () => {
      this.#bounded.delete(socket)
      this.#exempted.delete(socket)
    })
    this.#httpServer.emit('connection', socket)
  }

  /** Returns the socket itself without TLS. */
  #secured(tcpSocket: Socket): Socket {
    if (this.#secureContext === undefined) {
      return tcpSocket
    }
    return new TLSSocket(tcpSocket, {
      isServer: true,
      secureContext: this.#secureContext(),
      ALPNProtocols: ALPN_PROTOCOLS,
    })
  }

  #makeRoom(): void {
    const [leastRecentlyUsed] = this.#bounded.keys()
    const socket = this.#oldestIdle() ?? leastRecentlyUsed
    if (socket !== undefined) {
      this.#bounded.delete(socket)
      socket.destroy()
    }
  }

  /** The least recently used connection that awaits no response. */
  #oldestIdle(): Socket | undefined {
    for (const [socket, { awaitedResponses }] of this.#bounded) {
      if (awaitedResponses === 0) {
        return socket
      }
    }
    return undefined
  }

  #countUse(res: ServerResponse): void {
    const { socket } = res.req
    const connection = this.#bounded.get(socket)
    if (connection === undefined) {
      return
    }
    this.#bounded.delete(socket)
    this.#bounded.set(socket, connection) // the most recently used is the last
    connection.awaitedResponses++
    res.once('close', () => {
      connection.awaitedResponses--
    })
  }
}
