/**
 * Client connections, and the request context: what the stages learn about a request on its way.
 * Both travel on the classes that Node's server is given, so that http-proxy hands them on with the request.
 */
import { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { PublicError } from '../errors.ts'
import type { Admitted } from '../gate/admission.ts'
import type { Route } from '../gate/routes.ts'
import type { Accepted, Identity } from '../token/verdict.ts'
import type { Peer } from './client-address.ts'

/** A client's connection. Pipelined requests wait in it and are handled one after the other. */
export class ClientConnection {
  readonly socket: Socket
  /** The TCP connection; under TLS another than `socket`. */
  readonly tcpSocket: Socket
  readonly peer: Peer
  /** The request being handled. */
  current: SidecarResponse | undefined
  readonly waiting: SidecarResponse[] = []
  /** No further request is accepted. */
  isEnding = false
  /** Bytes read when the response before the current request was over. */
  bytesBefore = 0
  /** What the parser could not read; answered after the requests before it. */
  parserError: PublicError | undefined

  constructor(socket: Socket, tcpSocket: Socket, peer: Peer) {
    this.socket = socket
    this.tcpSocket = tcpSocket
    this.peer = peer
    connections.set(socket, this)
  }

  /** Destroys it, with a reset where its end would be taken for the end of a response. */
  abort(): void {
    if (this.current?.req.context.framedByClose === true) this.tcpSocket.resetAndDestroy()
    else this.socket.destroy()
  }
}

const connections = new WeakMap<Duplex, ClientConnection>()

/** Returns the connection of a socket that the data listener accepted. */
export function connectionOf(socket: Duplex): ClientConnection | undefined {
  return connections.get(socket)
}

/** What serves a request beyond its first call, and must know how its connection fares. */
export interface RequestHandler {
  /** Nothing moved on the client's connection for `timeouts.idleSeconds`. */
  onIdle(): void
  /** The response is over. `finished`: it was sent whole. */
  onClosed?(finished: boolean): void
  /** Node's parser failed within the request's body. */
  onMalformedBody?(): void
}

/** Facts of one request, filled in by the stages. */
export class RequestContext {
  readonly connection: ClientConnection
  id = ''
  /** Monotonic milliseconds. */
  startedAt = 0
  /** Before routing, and for what is refused there: `proxy`. */
  route: Route = 'proxy'
  /** What admission read; absent before that, and where the request was refused. */
  admitted: Admitted | undefined
  /** The verdict on the token, once it is known to be valid. */
  caller: Accepted | undefined
  /** The identity of a token that was issued to this request. */
  issuedTo: Identity | undefined
  /** The account that a login named, if there is such an account. */
  loginAccount: string | undefined
  /** Why the request failed or was refused: a word of a closed set, never client input. */
  reason: string | undefined
  /** In report mode, why the token would have been refused. */
  wouldRefuse: string | undefined
  /** Body bytes from the client. */
  bytesIn = 0
  /** Body bytes to the client. */
  bytesOut = 0
  /** `100 Continue` has been sent. */
  continued = false
  /** It was sent before the response to another was over. */
  pipelined = false
  /** More requests were pipelined than `limits.inFlightPerConnection`. */
  overLimit = false
  /** Node's parser failed within the request's body. */
  isBodyMalformed = false
  /** The end of the connection is the end of the response. */
  framedByClose = false
  /** Set where Node gave the socket away for `Upgrade` or CONNECT: the first bytes behind the head, and a response. */
  upgrade: { readonly head: Buffer; readonly response: SidecarResponse } | undefined
  /** The answer has been written; only the rest of the request's body is awaited. */
  isAnswered = false
  /** The connection has left HTTP. */
  switched = false
  handler: RequestHandler | undefined

  constructor(connection: ClientConnection) {
    this.connection = connection
  }
}

/** A request as the listener creates it. */
export class SidecarRequest extends IncomingMessage {
  readonly context: RequestContext

  constructor(socket: Socket) {
    super(socket)
    const connection = connections.get(socket)
    if (connection === undefined) throw new Error('a request on an unknown connection')
    this.context = new RequestContext(connection)
  }
}

/**
 * Whether the connection has to end with the response: the client said so, or Node has dropped bytes. It drops what it read
 * behind the head of a request that offers an upgrade which is not served: a part of a pipelined request may be missing.
 */
export function mustCloseAfter({
  context,
  socket,
  method = '',
  url = '',
  rawHeaders,
}: SidecarRequest): boolean {
  const options = context.admitted?.connectionOptions
  if (options === undefined) return false
  if (options.has('close')) return true
  if (!options.has('upgrade') || context.upgrade !== undefined) return false
  if (context.pipelined) return true
  let headBytes = method.length + url.length + ' HTTP/1.1'.length + 5
  for (let at = 0; at < rawHeaders.length; at += 2)
    headBytes += (rawHeaders[at]?.length ?? 0) + (rawHeaders[at + 1]?.length ?? 0) + 4
  const readBytes = socket.bytesRead - context.connection.bytesBefore
  // More than the head came, or a part of it came before: then the rest of the count may be of another request. A space
  // behind each colon is optional.
  return readBytes > headBytes || readBytes < headBytes - rawHeaders.length / 2
}

/** A response as the listener creates it. */
export class SidecarResponse extends ServerResponse<SidecarRequest> {}
