/**
 * The data listener: one Node http(s) server. Only this file sets its options and handles its events.
 * In: client connections. Out: calls of each `Connection`. Waits for upstreams: `upstream/waits.ts`.
 *
 * Each wait for a client, its limit, and what measures it:
 *
 *   the TLS handshake                          headersSeconds      `handshakeTimeout`
 *   the first head; the rest of a later head   headersSeconds      `headersTimeout`
 *   a later head that begins with empty lines  headersSeconds      `checkHead`
 *   the start of the first head, if shorter    idleSeconds         the socket's timeout
 *   the start of a later head                  keepAliveSeconds    the socket's timeout
 *   more of a body; reads of a response        idleSeconds         the socket's timeout (`onIdle`)
 *   the whole body of a login or link          headersSeconds (1)  `request-body.ts`
 *   bytes after the last response              `DISCARD_IDLE_MS`   `connection-end.ts`
 *   all of these bytes                         `DISCARD_MS`        `connection-end.ts`
 *   the last reads of an ended tunnel          `CLOSE_MS`          `proxy/tunnel.ts`
 *
 *   (1) or idleSeconds, if shorter
 *
 * A late head (`refuseUnparsed`) or body gets a 408, unless nothing of a head has arrived.
 * The other waits end with the end of the connection.
 */
import { once } from 'node:events'
import { createServer, type Server, type ServerOptions } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { ERRORS, type PublicError } from '../base/errors.ts'
import type { Config } from '../config/config.ts'
import { listenBeforeNode, releaseListeners, stopListening } from '../http/node-http.ts'
import type { Reloadable } from '../reload/reloadable.ts'
import type { CertificateSet } from '../tls/certificates.ts'
import { TlsSockets, tlsOptions } from '../tls/listener-tls.ts'
import { createPeers, type Peer } from './client-address.ts'
import { Connection, type ConnectionCallbacks } from './connection.ts'
import { ConnectionLimits } from './connection-limits.ts'
import { SidecarRequest } from './request.ts'
import { SidecarResponse } from './response.ts'
import { TransferTurns } from './transfer-turns.ts'
import { Turns } from './turns.ts'

interface ListenerCallbacks extends Omit<ConnectionCallbacks, 'inFlight' | 'turns' | 'transferTurns'> {
  readonly opensWebSocket: (req: SidecarRequest) => boolean
  readonly onTlsError: (code: string | undefined) => void
  /** Faults of the listening socket, such as running out of descriptors. */
  readonly onListenError: (error: Error) => void
}

type Certificates = Reloadable<CertificateSet> | undefined
type ListenerConfig = Pick<Config, 'listen' | 'limits' | 'timeouts' | 'upgrade' | 'forwarded'>

const CONNECTION = Symbol('connection')

/** A socket has no connection until its TLS handshake is done. */
declare module 'node:net' {
  interface Socket {
    [CONNECTION]?: Connection
  }
}

/** Maximum connections that wait to be accepted: more than come at once. The system caps it (`somaxconn`). */
const BACKLOG = 4096
const CHECK_MS = 500 // the interval at which Node and `checkHead` look for late heads

export class DataListener {
  readonly #config: ListenerConfig
  readonly #isSecure: boolean
  readonly #peerOf: (socket: Socket, tls: boolean, port: number) => Peer
  #port = 0
  readonly #callbacks: ListenerCallbacks & ConnectionCallbacks
  readonly #server: Server<typeof SidecarRequest, typeof SidecarResponse>
  /** An array: as a `Set` grows, V8 keeps its former tables, and with them closed connections, in memory. */
  readonly #open: Connection[] = []
  readonly #tlsSockets = new TlsSockets()
  readonly #limits: ConnectionLimits

  /** `certificates`: undefined without TLS. A new certificate is for new connections. */
  constructor(config: ListenerConfig, certificates: Certificates, callbacks: ListenerCallbacks) {
    const { limits, timeouts } = config
    this.#config = config
    this.#limits = new ConnectionLimits(limits, this.#tlsSockets)
    this.#isSecure = certificates !== undefined
    this.#peerOf = createPeers(config.forwarded.trust)
    this.#callbacks = {
      ...callbacks,
      inFlight: () => this.inFlight,
      turns: new Turns(),
      transferTurns: new TransferTurns(),
    }
    const httpOptions = httpOptionsOf(config, callbacks)
    if (certificates === undefined) {
      this.#server = createServer(httpOptions)
    } else {
      const tls = tlsOptions(certificates.current().options, timeouts.headersSeconds)
      const secure = createSecureServer({ ...httpOptions, ...tls })
      certificates.subscribe(({ options }) => secure.setSecureContext(options))
      this.#server = secure
    }
    const server = this.#server
    server.timeout = timeouts.idleSeconds * 1000
    // By default, Node's parser obeys the lines beyond 1,000, but `rawHeaders` lacks them.
    // Admission enforces the limit.
    server.maxHeadersCount = 0
    this.#acceptConnections()
    this.#serveConnections()
  }

  #acceptConnections(): void {
    const server = this.#server
    const accept = (tcpSocket: Socket) => {
      this.#callbacks.turns.onAccepted()
      const peer = this.#peerAt(tcpSocket)
      // Not Node's own limit of connections:
      // before Node 22.12, full workers pass a connection to each other endlessly.
      if (!this.#limits.tryAccept(tcpSocket, peer, this.#open, this.connections)) {
        tcpSocket.destroy()
      } else if (this.#isSecure) {
        this.#tlsSockets.add(tcpSocket)
      } else {
        this.#addConnection(tcpSocket, tcpSocket, peer)
      }
    }
    // Under TLS, Node reads no requests from the TCP socket, so the order of the listeners does not matter.
    if (this.#isSecure) {
      server.on('connection', accept)
    } else {
      listenBeforeNode(server, 'connection', accept)
    }
    listenBeforeNode(server, 'secureConnection', (socket) => {
      const tcpSocket = this.#tlsSockets.take(socket)
      if (tcpSocket === undefined) {
        socket.destroy()
      } else if (!socket.destroyed) {
        this.#addConnection(socket, tcpSocket, this.#peerAt(tcpSocket))
      }
    })
    server.on('tlsClientError', ({ code }: NodeJS.ErrnoException, socket) => this.#onTlsError(code, socket))
  }

  #onTlsError(code: string | undefined, socket: Socket): void {
    this.#callbacks.onTlsError(code)
    if (code !== 'ERR_SSL_HTTP_REQUEST') {
      return
    }
    // Node has destroyed the TLS socket, but not the TCP socket below it.
    const tcpSocket = this.#tlsSockets.take(socket)
    if (tcpSocket !== undefined) {
      const refusal = { error: ERRORS.plainHttp, cause: code }
      const response = this.#callbacks.onUnparsed(refusal, this.#peerAt(tcpSocket))
      tcpSocket.end(response, 'latin1', () => tcpSocket.destroy())
    }
  }

  #serveConnections(): void {
    const server = this.#server
    const onRequest = (req: SidecarRequest, res: SidecarResponse) => req.socket[CONNECTION]?.receive(res)
    for (const event of ['request', 'checkContinue', 'checkExpectation']) {
      server.on(event, onRequest)
    }
    const onUpgrade = (req: SidecarRequest, _socket: Duplex, firstBytes: Buffer) =>
      req.socket[CONNECTION]?.receiveUpgrade(req, firstBytes)
    server.on('connect', onUpgrade)
    if (this.#config.upgrade.enabled) {
      server.on('upgrade', onUpgrade)
    }
    server.on('timeout', (socket: Socket) => socket[CONNECTION]?.onTimeout())
    server.on('clientError', (error: ClientError, socket: Socket) => {
      const connection = socket[CONNECTION]
      // After a TLS error, no response can be sent.
      if (connection === undefined || error.code?.startsWith('ERR_SSL_')) {
        socket.destroy()
      } else {
        connection.refuseUnparsed({ error: refusalOf(error), cause: error.code, bytes: error.rawPacket })
      }
    })
  }

  #peerAt(tcpSocket: Socket): Peer {
    // Not read at `listening`: `node:cluster` passes connections to a worker before.
    // Read once, because it is a system call.
    this.#port ||= tcpSocket.localPort ?? 0
    return this.#peerOf(tcpSocket, this.#isSecure, this.#port)
  }

  #addConnection(socket: Socket, tcpSocket: Socket, peer: Peer): void {
    const connection = new Connection(socket, tcpSocket, peer, this.#server.headersTimeout, this.#callbacks)
    this.#open.push(connection)
    socket[CONNECTION] = connection
    socket.on('close', () => {
      // Most connections that close are among the newest.
      this.#open.splice(this.#open.lastIndexOf(connection), 1)
      releaseListeners(socket)
    })
  }

  async listen(): Promise<AddressInfo> {
    const { host, port } = this.#config.listen
    // As an argument, the host `127.1` would be taken for a backlog.
    await once(this.#server.listen({ port, host, backlog: BACKLOG }), 'listening')
    const timer = setInterval(() => {
      const now = performance.now()
      for (const connection of this.#open) {
        connection.checkHead(now)
      }
    }, CHECK_MS).unref()
    this.#server.once('close', () => clearInterval(timer))
    this.#server.on('error', this.#callbacks.onListenError)
    return this.#server.address() as AddressInfo
  }

  /** Accepts no more connections; resolves when the last one is closed. */
  close(): Promise<void> {
    return stopListening(this.#server, this.#open)
  }

  closeIdle(): void {
    for (const connection of this.#open) {
      connection.closeIfIdle()
    }
    this.#tlsSockets.destroyPending()
  }

  closeTunnels(): number {
    return this.#open.filter((connection) => connection.closeTunnel()).length
  }

  abort(): number {
    const { inFlight } = this
    for (const connection of this.#open) {
      connection.abort()
    }
    this.#tlsSockets.destroyPending()
    this.#server.closeAllConnections()
    return inFlight
  }

  /** Requests being handled or waiting, without tunnels and requests whose unread body is discarded. */
  get inFlight(): number {
    return this.#open.reduce((count, connection) => count + connection.inFlight, 0)
  }

  get connectionCounts(): ConnectionLimits['counts'] {
    return this.#limits.counts
  }

  get connections(): number {
    return this.#open.length + this.#tlsSockets.pending
  }
}

type HttpOptions = ServerOptions<typeof SidecarRequest, typeof SidecarResponse> & {
  /**
   * An option of Node 22.21, 24.9 and later. Node calls it before it emits an event for the request.
   * An offer that it declines is ignored (RFC 9110, section 7.8).
   */
  readonly shouldUpgradeCallback: (req: SidecarRequest) => boolean
}

function httpOptionsOf(
  { limits, timeouts, upgrade }: ListenerConfig,
  { opensWebSocket }: Pick<ListenerCallbacks, 'opensWebSocket'>,
): HttpOptions {
  return {
    IncomingMessage: SidecarRequest,
    ServerResponse: SidecarResponse,
    maxHeaderSize: limits.headerBytes,
    headersTimeout: Math.round(timeouts.headersSeconds * 1000), // Node refuses fractions
    requestTimeout: 0,
    keepAliveTimeout: Math.round(timeouts.keepAliveSeconds * 1000),
    connectionsCheckingInterval: CHECK_MS,
    requireHostHeader: false, // admission refuses a missing `Host`, in the documented form
    shouldUpgradeCallback: (req) =>
      upgrade.enabled && req.socket[CONNECTION]?.isIdle === true && opensWebSocket(req),
  }
}

/** `rawPacket`: the bytes in which Node's parser found the error. */
type ClientError = NodeJS.ErrnoException & { readonly rawPacket?: Buffer }

function refusalOf({ code }: ClientError): PublicError {
  if (code === 'HPE_HEADER_OVERFLOW') {
    return ERRORS.headersTooLarge
  }
  return code === 'ERR_HTTP_REQUEST_TIMEOUT' ? ERRORS.requestTimeout : ERRORS.malformedRequest
}
