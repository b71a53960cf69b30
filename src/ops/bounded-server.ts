/**
 * The http(s) server of the admin listener: above its limit it closes the oldest idle connection, so that clients that
 * hold connections never block a probe.
 */
import { once } from 'node:events'
import { createServer, type RequestListener, type ServerResponse } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net'
import { type SecureContext, TLSSocket } from 'node:tls'
import { ALPN_PROTOCOLS } from '../certificates.ts'

/** Twice Node's backlog: among many connections accepted at once, a probe is read before it is the oldest. */
const MAX_CONNECTIONS = 1024

export class BoundedServer {
  /** The open connections, each with the number of responses it awaits; the least recently used first. */
  readonly #connections = new Map<Socket, { awaited: number }>()
  readonly #tcpServer: Server

  /** `secureContext`: called for each connection; undefined without TLS. */
  constructor(secureContext: (() => SecureContext) | undefined, handle: RequestListener) {
    // It is handed its sockets, because an https server has no connection to show before the TLS handshake.
    const httpServer = createServer((req, res) => {
      this.#onRequest(req.socket, res)
      handle(req, res)
    })
    httpServer.timeout = 10_000 // closes connections of clients that do not read, and of handshakes
    httpServer.maxRequestsPerSocket = 100
    this.#tcpServer = createTcpServer((tcpSocket) => {
      const socket = secureContext ? secured(tcpSocket, secureContext()) : tcpSocket
      this.#connections.set(socket, { awaited: 0 })
      socket.once('close', () => this.#connections.delete(socket))
      httpServer.emit('connection', socket)
      if (this.#connections.size > MAX_CONNECTIONS) this.#closeOldestIdle()
    })
  }

  #onRequest(socket: Socket, res: ServerResponse): void {
    const connection = this.#connections.get(socket)
    if (connection === undefined) return
    this.#connections.delete(socket)
    this.#connections.set(socket, connection)
    connection.awaited++
    res.once('close', () => connection.awaited--)
  }

  #closeOldestIdle(): void {
    for (const [socket, { awaited }] of this.#connections) {
      if (awaited > 0) continue
      this.#connections.delete(socket)
      socket.destroy()
      return
    }
  }

  /** Rejects when the address cannot be bound. `onError`: called with errors of the listening socket from then on. */
  async listen(port: number, host: string, onError: (error: unknown) => void): Promise<AddressInfo> {
    const server = this.#tcpServer.listen(port, host)
    await once(server, 'listening')
    server.on('error', onError)
    return server.address() as AddressInfo
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#tcpServer.close(() => resolve())
      for (const socket of this.#connections.keys()) socket.destroy()
    })
  }
}

function secured(tcpSocket: Socket, secureContext: SecureContext): TLSSocket {
  return new TLSSocket(tcpSocket, { isServer: true, secureContext, ALPNProtocols: ALPN_PROTOCOLS })
}
