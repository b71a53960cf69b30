/**
 * The data listener: one Node http(s) server, and the only place that knows its options and events.
 * In: client connections. Out: calls of `handle`, one request at a time per connection; a documented response to bytes
 * that Node's parser refuses.
 */
import { constants } from 'node:crypto'
import { createServer, type Server, type ServerOptions } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import { type AddressInfo, Server as NetServer, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { SecureContextOptions } from 'node:tls'
import { ERRORS, type PublicError } from '../errors.ts'
import type { Peer } from './client-address.ts'
import {
  ClientConnection,
  connectionOf,
  forgetConnection,
  SidecarRequest,
  SidecarResponse,
} from './context.ts'
import { parserErrorResponse } from './respond.ts'
import { UNREAD_BODY_IDLE_MS, UNREAD_BODY_MS } from './unread-body.ts'

/** With `ca`, clients must present a certificate. */
export type ListenerCertificates = Pick<SecureContextOptions, 'cert' | 'key' | 'ca'>

export interface ListenerOptions {
  readonly host: string
  readonly port: number
  readonly certificates: ListenerCertificates | undefined
  readonly limits: {
    readonly headerBytes: number
    readonly connections: number
    readonly inFlightPerConnection: number
  }
  readonly timeouts: {
    readonly headersSeconds: number
    readonly idleSeconds: number
    readonly keepAliveSeconds: number
  }
  readonly upgrade: boolean
  readonly peerOf: (socket: Socket, tls: boolean) => Peer
  /** Must not throw. */
  readonly handle: (req: SidecarRequest, res: SidecarResponse) => void
  /** Called once for each handled request. `finished`: its response was sent completely. */
  readonly onRequestEnd: (req: SidecarRequest, res: SidecarResponse, finished: boolean) => void
  /** Called for bytes that are not a request; returns the request id of the response. */
  readonly onParserError: (error: PublicError, peer: Peer) => string
  readonly onHandshakeFailed: (code: string | undefined) => void
  /** Faults of the listening socket, such as running out of descriptors. */
  readonly onListenError: (error: Error) => void
}

export interface Listener {
  /** Rejects when the address is not available. */
  listen(): Promise<AddressInfo>
  /** Accepts no more connections; resolves when the last one is closed. */
  close(): Promise<void>
  closeIdle(): void
  closeTunnels(): void
  /** Returns the number of aborted requests. */
  abort(): number
  setCertificates(certificates: ListenerCertificates): void
  /** Requests being handled or waiting, without tunnels and requests whose unread body is drained. */
  readonly inFlight: number
  readonly connections: number
  readonly droppedConnections: number
}

export function createListener(options: ListenerOptions): Listener {
  const { limits, timeouts } = options
  const open = new Set<ClientConnection>()
  const handshaking = new Set<Socket>()
  const tls = options.certificates !== undefined
  /** Longer than Node waits for the rest of a head, in milliseconds. */
  const headMs = timeouts.headersSeconds * 1000 + 2 * CHECK_MS
  let droppedConnections = 0

  const httpOptions: ServerOptions<typeof SidecarRequest, typeof SidecarResponse> & {
    // Since Node 24.9 and 22.21: a declined request is served as if it offered no upgrade (RFC 9110, section 7.8).
    shouldUpgradeCallback: (req: SidecarRequest) => boolean
  } = {
    IncomingMessage: SidecarRequest,
    ServerResponse: SidecarResponse,
    maxHeaderSize: limits.headerBytes,
    headersTimeout: timeouts.headersSeconds * 1000,
    requestTimeout: 0,
    keepAliveTimeout: timeouts.keepAliveSeconds * 1000,
    connectionsCheckingInterval: CHECK_MS,
    // Admission refuses a missing `Host` in the documented form.
    requireHostHeader: false,
    shouldUpgradeCallback: (req) =>
      options.upgrade &&
      req.headers.upgrade?.toLowerCase() === 'websocket' &&
      req.method === 'GET' &&
      req.httpVersionMinor === 1 &&
      req.headers['content-length'] === undefined &&
      req.headers['transfer-encoding'] === undefined &&
      req.context.connection.current === undefined,
  }
  const server: Server<typeof SidecarRequest, typeof SidecarResponse> & {
    setSecureContext?: (context: SecureContextOptions) => void
  } = tls ? createSecureServer({ ...httpOptions, ...tlsOptions(options) }) : createServer(httpOptions)
  server.timeout = timeouts.idleSeconds * 1000 // the idle timer of transfers, too: `onTimeout` passes it on
  // Node's default drops lines beyond 1,000 from `rawHeaders`, but its parser obeys them. Admission enforces the limit.
  server.maxHeadersCount = 0

  /** In place of `maxConnections`, with which full workers before Node 22.12 pass a connection on endlessly. */
  const hasRoom = (socket: Socket): boolean => {
    if (open.size + handshaking.size < limits.connections) return true
    droppedConnections++
    socket.destroy()
    return false
  }
  const onConnection = (socket: Socket, tcpSocket: Socket) => {
    open.add(new ClientConnection(socket, tcpSocket, options.peerOf(tcpSocket, tls)))
    socket.on('error', ignoreError)
    socket.once('close', onSocketClosed)
    socket.once('end', onSocketEnded)
  }
  function onSocketClosed(this: Socket): void {
    const connection = forgetConnection(this)
    if (connection !== undefined) open.delete(connection)
  }
  /** Runs before Node ends a half-closed connection, which would make a response framed by close look complete. */
  function onSocketEnded(this: Socket): void {
    const connection = connectionOf(this)
    const { current } = connection ?? {}
    if (current?.isCloseDelimited === true && !current.writableEnded) connection?.abort()
  }
  if (tls) {
    // A reset needs the TCP socket: a TLS socket has none.
    const tcpSockets = new Map<string, Socket>()
    server.on('connection', (tcpSocket: Socket) => {
      if (!hasRoom(tcpSocket)) return
      const key = addressesOf(tcpSocket)
      tcpSockets.set(key, tcpSocket)
      handshaking.add(tcpSocket)
      tcpSocket.once('close', () => {
        if (tcpSockets.get(key) === tcpSocket) tcpSockets.delete(key)
        handshaking.delete(tcpSocket)
      })
    })
    server.prependListener('secureConnection', (socket: Socket) => {
      // A socket that the client has reset has no addresses any more.
      const tcpSocket = tcpSockets.get(addressesOf(socket))
      if (tcpSocket === undefined) socket.destroy()
      else handshaking.delete(tcpSocket)
      if (tcpSocket !== undefined && !socket.destroyed) onConnection(socket, tcpSocket)
    })
    server.on('tlsClientError', (error: NodeJS.ErrnoException) => options.onHandshakeFailed(error.code))
  } else {
    server.prependListener('connection', (socket: Socket) => {
      if (hasRoom(socket)) onConnection(socket, socket)
    })
  }

  const onRequest = (req: SidecarRequest, res: SidecarResponse) => {
    const { connection } = req.context
    if (connection.socket.destroyed) return // TLS delivers what it had decrypted; no `close` would follow
    if (connection.isEnding) {
      connection.socket.pause()
      return
    }
    if (connection.current === undefined) {
      serve(connection, res)
      return
    }
    req.context.pipelined = true
    connection.waiting.push(res)
    if (connection.waiting.length <= limits.inFlightPerConnection) return
    req.context.overLimit = true
    connection.isEnding = true
    connection.socket.pause()
  }

  const serve = (connection: ClientConnection, res: SidecarResponse) => {
    connection.current = res
    res.req.context.startedAt = performance.now()
    res.on('close', onResponseClosed)
    options.handle(res.req, res)
  }

  function onResponseClosed(this: SidecarResponse): void {
    const { req } = this
    const { connection } = req.context
    const finished = this.writableFinished
    connection.current = undefined
    req.context.release()
    options.onRequestEnd(req, this, finished)
    const { socket } = connection
    connection.bytesBefore = socket.bytesRead
    if (!socket.writable) {
      connection.isEnding = true // requests received after this are ignored (RFC 9112, section 9.6)
      const unserved = connection.waiting.splice(0)
      if (unserved.length > 0 && !socket.destroyed) {
        socket.removeListener('finish', socket.destroy) // which Node's `destroySoon` has added
        for (const response of unserved) response.req.resume()
        dropUnread(socket)
      }
      return
    }
    const next = connection.waiting.shift()
    if (next !== undefined) serve(connection, next)
    else if (connection.finalRefusal !== undefined) respondToParserError(connection, connection.finalRefusal)
  }

  server.on('request', onRequest)
  server.on('checkContinue', onRequest)
  server.on('checkExpectation', onRequest)

  /** Node has detached the socket: a response is attached by hand, and the connection ends with it. */
  const onUpgrade = (req: SidecarRequest, _socket: Duplex, firstBytes: Buffer) => {
    const { context, socket } = req
    const { connection } = context
    const { isEnding } = connection
    connection.isEnding = true
    if (socket.destroyed) return
    socket.on('error', () => socket.destroy())
    // In place of the listeners that Node has removed.
    socket.on('drain', () => connection.current?.emit('drain'))
    socket.on('timeout', () => onTimeout(socket))
    if (connection.current !== undefined) {
      // Refused after the pending responses, unless the client closes.
      connection.finalRefusal = req.method === 'CONNECT' ? ERRORS.malformedRequest : ERRORS.upgradeRefused
      socket.once('end', () => socket.end())
      socket.resume()
      return
    }
    if (isEnding) {
      endConnection(socket) // it was sent after the last response
      return
    }
    const res = new SidecarResponse(req)
    context.upgrade = { firstBytes, response: res }
    res.shouldKeepAlive = false
    res.assignSocket(socket)
    res.once('finish', () => {
      res.detachSocket(socket)
      endConnection(socket)
      res.emit('close')
    })
    serve(connection, res)
  }
  server.on('connect', onUpgrade)
  if (options.upgrade) server.on('upgrade', onUpgrade)

  function onTimeout(socket: Socket): void {
    const connection = connectionOf(socket)
    const res = connection?.current
    if (res !== undefined && !res.writableEnded) {
      // Re-arms Node's one-shot timer: a request that waits for a connection is not idle yet.
      socket.setTimeout(socket.timeout ?? 0)
      res.req.context.handler?.onIdle()
    } else if (
      connection !== undefined &&
      res === undefined &&
      !connection.isEnding &&
      isHeadBegun(connection)
    ) {
      // A late head gets its response at `headersTimeout`, which does not count for empty lines.
      connection.bytesBefore = socket.bytesRead
      socket.setTimeout(headMs)
    } else {
      connection?.abort()
      socket.destroy()
    }
  }
  server.on('timeout', onTimeout)

  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    const connection = connectionOf(socket)
    if (connection?.finalRefusal !== undefined) return // errors of the bytes that the parser discards
    if (connection === undefined || !socket.writable || isLost(error)) {
      socket.destroy()
      return
    }
    connection.finalRefusal = PARSER_ERRORS.get(error.code) ?? ERRORS.malformedRequest
    connection.isEnding = true
    const newest = connection.waiting.at(-1) ?? connection.current
    if (newest !== undefined && !newest.req.complete) {
      // The error is in its body. If it waits, the refusal takes its place.
      const waited = connection.waiting.pop()
      if (waited === undefined) {
        newest.req.context.isBodyMalformed = true
        newest.req.context.handler?.onMalformedBody?.()
      }
    }
    if (connection.current === undefined) respondToParserError(connection, connection.finalRefusal)
  })

  function respondToParserError({ socket, peer }: ClientConnection, error: PublicError): void {
    endConnection(socket, parserErrorResponse(error, options.onParserError(error, peer)))
  }

  return {
    listen: () =>
      new Promise((resolve, reject) => {
        server.once('error', reject)
        server.listen(options.port, options.host, () => {
          server.removeListener('error', reject)
          server.on('error', options.onListenError)
          resolve(server.address() as AddressInfo)
        })
      }),
    async close() {
      // The HTTP server's `close` destroys connections with unflushed responses, and ends the check of late heads.
      await new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()))
      // Node calls back before the last sockets emit `close`, which completes their requests.
      while (open.size > 0) await new Promise(setImmediate)
    },
    closeIdle() {
      for (const connection of open) {
        const { current, isEnding, socket } = connection
        if (current !== undefined || isEnding) continue
        if (!isHeadBegun(connection)) socket.destroy()
        else if (socket.timeout !== headMs) socket.setTimeout(headMs) // perhaps empty lines: see `onTimeout`
      }
      for (const tcpSocket of handshaking) tcpSocket.destroy()
    },
    closeTunnels() {
      for (const { current, socket } of open)
        if (current?.req.context.handler?.state === 'tunnel') socket.destroy()
    },
    abort() {
      const { inFlight } = this
      for (const connection of open) connection.abort()
      for (const tcpSocket of handshaking) tcpSocket.destroy()
      server.closeAllConnections()
      return inFlight
    },
    setCertificates: (certificates) => server.setSecureContext?.(secureContext(certificates)),
    get inFlight() {
      let count = 0
      for (const { current, waiting } of open) {
        const isInFlight = current !== undefined && current.req.context.handler?.state === undefined
        count += waiting.length + Number(isInFlight)
      }
      return count
    },
    get connections() {
      return open.size + handshaking.size
    },
    get droppedConnections() {
      return droppedConnections
    },
  }
}

/** How often Node looks for late heads, in milliseconds. */
const CHECK_MS = 500

/** Whether bytes have arrived since the previous response. */
const isHeadBegun = ({ socket, bytesBefore }: ClientConnection) => socket.bytesRead !== bytesBefore

/** Without a listener an error would end the process; `close` follows in any case. */
function ignoreError(): void {}

function endConnection(socket: Socket, text = ''): void {
  socket.end(text, 'latin1')
  dropUnread(socket)
}

/** Drops bytes that still arrive for a time after the last response, because a reset could discard it. */
function dropUnread(socket: Socket): void {
  socket.resume()
  socket.setTimeout(UNREAD_BODY_IDLE_MS)
  const deadline = setTimeout(() => socket.destroy(), UNREAD_BODY_MS)
  socket.once('close', () => clearTimeout(deadline))
}

function isLost({ code = '' }: NodeJS.ErrnoException): boolean {
  return code === 'ECONNRESET' || code === 'EPIPE' || code.startsWith('ERR_SSL_')
}

const PARSER_ERRORS: ReadonlyMap<string | undefined, PublicError> = new Map<string, PublicError>([
  ['HPE_HEADER_OVERFLOW', ERRORS.headersTooLarge],
  ['ERR_HTTP_REQUEST_TIMEOUT', ERRORS.requestTimeout],
])

function addressesOf({ localAddress, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${remoteAddress} ${remotePort}`
}

function tlsOptions({ certificates = {}, timeouts }: ListenerOptions) {
  const requiresCertificate = certificates.ca !== undefined
  return {
    ...secureContext(certificates),
    ALPNProtocols: ['http/1.1'],
    handshakeTimeout: timeouts.headersSeconds * 1000,
    requestCert: requiresCertificate,
    rejectUnauthorized: requiresCertificate,
  }
}

function secureContext(certificates: ListenerCertificates): SecureContextOptions {
  return {
    ...certificates,
    minVersion: 'TLSv1.2', // RFC 8996
    secureOptions: constants.SSL_OP_NO_RENEGOTIATION, // a client could ask for one expensive handshake after another
  }
}
