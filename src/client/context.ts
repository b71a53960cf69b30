/**
 * The request context: the facts that each stage adds, and what these stages may know of the client's connection.
 * A property of the request class that Node's server creates, so http-proxy passes it on.
 */
import { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { Failure } from '../failures.ts'
import type { Admitted } from '../gate/admission.ts'
import type { Decision, RoutedRequest } from '../gate/gate.ts'
import type { RouteLabel } from '../gate/route.ts'
import { newRequestId } from '../http/request-ids.ts'
import type { Identity } from '../token/caller.ts'
import type { Peer } from './client-address.ts'

/** A client's connection, as far as its requests know it. */
export interface ClientConnection {
  readonly peer: Peer
  /** Under TLS it differs from the socket of the request. */
  readonly tcpSocket: Socket
  readonly isDraining: () => boolean
  /** Drops the rest of the body of a request whose response has been written. Then it calls `end`, perhaps more than once. */
  drainBody(req: SidecarRequest, end: () => void): void
  /** Ends the connection without the rest of the response, in a way that the client notices. */
  abort(): void
}

/** The one component that a request waits for: the reader of a login, a transfer, a tunnel, the drain of an unread body. */
export interface RequestOwner {
  /** Requests in flight are waited for by a drain of the process, and counted. */
  readonly state: 'inFlight' | 'tunnel' | 'unreadBody'
  /** The client socket was idle for `timeouts.idleSeconds`, or `DRAIN_IDLE_MS` while an unread body is drained. */
  onIdle?(): void
  onMalformedBody?(): void
  /** The response is closed, written or not. The last call. */
  onClosed?(): void
}

/** The owner until another component takes over. Its waits, such as for the verification of a token, are bounded elsewhere. */
const HANDLER: RequestOwner = { state: 'inFlight' }

/** The facts of a request, grouped by the file that adds them. */
export class RequestContext {
  // connection.ts, on arrival.
  readonly connection: ClientConnection
  /** Set if Node has detached the socket for `Upgrade` or CONNECT: the bytes after the head. */
  readonly firstBytes: Buffer | undefined
  readonly startedMonotonicMs = performance.now()
  isBodyMalformed = false

  // handler.ts, by the result of the gate.
  /** The client's request id replaces it, if that is valid. */
  id: string = newRequestId()
  /** Absent if the request is not admitted. */
  routed: RoutedRequest | undefined
  /** Absent while a token is verified. */
  decision: Decision | undefined

  // handler.ts: the identity of the caller. token-endpoint.ts: the names of a login that exist, authenticated or not.
  identityForLog: Partial<Identity> | undefined

  // responder.ts.
  reason: Failure | undefined
  /** Of a failure of the upstream: the code of a network error, or a fixed text. */
  cause: string | undefined

  // Body bytes from and to the client, added up by the parts that read and write them.
  bytesIn = 0
  bytesOut = 0

  #owner: RequestOwner = HANDLER

  constructor(connection: ClientConnection, firstBytes?: Buffer) {
    this.connection = connection
    this.firstBytes = firstBytes
  }

  get admitted(): Admitted | undefined {
    return this.routed?.admitted
  }

  get routeLabel(): RouteLabel {
    return this.routed?.label ?? 'proxy'
  }

  get owner(): RequestOwner {
    return this.#owner
  }

  /** The previous owner is called no more. */
  changeOwner(owner: RequestOwner): void {
    this.#owner = owner
  }

  /** The request is an `Upgrade` or CONNECT, for which Node has detached the socket from its parser. */
  get isUpgrade(): boolean {
    return this.firstBytes !== undefined
  }
}

export class SidecarRequest extends IncomingMessage {
  /** Set by `Connection` when it serves the request; nothing reads it before. */
  declare context: RequestContext

  get clientAddress(): string {
    return this.context.connection.peer.clientAddress(this.headers['x-forwarded-for'])
  }
}
