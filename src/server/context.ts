/**
 * The request context: the facts that each stage adds, and what these stages may know of the client's connection.
 * It is a property of the request class that Node's server creates, so http-proxy passes it on.
 */
import { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Admitted } from '../gate/admission.ts'
import type { Decision } from '../gate/decide.ts'
import type { OriginalRequest } from '../gate/original-request.ts'
import type { RouteLabel } from '../gate/route.ts'
import type { Identity } from '../token/caller.ts'
import type { Peer } from './client-address.ts'
import type { Reason } from './reasons.ts'

/** A client's connection, as far as its requests know it. */
export interface ClientConnection {
  readonly peer: Peer
  /** Under TLS another than the request's. */
  readonly tcpSocket: Socket
  readonly mustClose: boolean
  /**
   * Destroys it; with a reset if a response has begun and its request has arrived: clients that do not count bytes
   * (Ruby's `Net::HTTP`) take a close for its end. A response framed by close is always reset.
   */
  abort(): void
  /** The response to the current request is over. */
  finish(res: SidecarResponse): void
}

/** The component that is responsible for a request: the token endpoint, a transfer, a tunnel, the drain of an unread body. */
export interface RequestOwner {
  /** Absent while the request counts as in flight. */
  readonly state?: 'tunnel' | 'drain'
  /** The client socket was idle for `timeouts.idleSeconds`, or 5 s while an unread body is drained. */
  onIdle(): void
  onMalformedBody?(): void
  /** Called once: another component owns the request now, or its response is over. */
  onRelease?(): void
}

/** The facts of a request, grouped by the file that adds them. */
export class RequestContext {
  // connection.ts, on arrival.

  readonly connection: ClientConnection
  /** Set if Node has detached the socket for `Upgrade` or CONNECT: the bytes after the head. */
  readonly firstBytes: Buffer | undefined
  /** Monotonic milliseconds. */
  readonly startedAt = performance.now()
  isBodyMalformed = false

  // handle.ts, by the decision of the gate.

  id = ''
  /** Absent before admission, and when it refused the request. */
  admitted: Admitted | undefined
  /** Of forward auth the request that a trusted proxy names, otherwise the admitted one. */
  original: OriginalRequest | undefined
  /** `proxy` before routing, and for requests refused at admission. */
  routeLabel: RouteLabel = 'proxy'
  decision: Decision | undefined

  // token-endpoint.ts.

  /** The names of a login that exist: they prove nothing before it succeeds. */
  login: Partial<Identity> | undefined

  // respond.ts.

  /** That of the latest failure or refusal. */
  reason: Reason | undefined

  // Body bytes from and to the client, added up by the parts that read and write them.

  bytesIn = 0
  bytesOut = 0

  #owner: RequestOwner | undefined

  constructor(connection: ClientConnection, firstBytes?: Buffer) {
    this.connection = connection
    this.firstBytes = firstBytes
  }

  get owner(): RequestOwner | undefined {
    return this.#owner
  }

  /** Makes `owner` the only one, or none; the one before it lets go. */
  changeOwner(owner: RequestOwner | undefined): void {
    const previous = this.#owner
    this.#owner = owner
    previous?.onRelease?.()
  }

  /** The request has a socket that Node's parser no longer reads. */
  get isDetached(): boolean {
    return this.firstBytes !== undefined
  }

  /** For the logs: that of the caller, or the names of a login. */
  get loggedIdentity(): Partial<Identity> | undefined {
    const { decision } = this
    return decision !== undefined && 'caller' in decision ? decision.caller?.identity : this.login
  }
}

export class SidecarRequest extends IncomingMessage {
  /** Set by `Connection` when it serves the request; nothing reads it before. */
  declare context: RequestContext

  get clientAddress(): string {
    return this.context.connection.peer.clientAddress(this.headers['x-forwarded-for'])
  }
}

export class SidecarResponse extends ServerResponse<SidecarRequest> {
  isContinued = false
  /** The end of the connection is the end of the body. */
  isCloseDelimited = false
  /** All of it has been written, whatever becomes of the rest of the request. */
  isComplete = false

  /** Called before the body is read: a client may wait to be asked for it. */
  continueIfExpected(): void {
    if (this.isContinued || this.req.context.admitted?.expectsContinue !== true) return
    this.isContinued = true
    this.writeContinue()
  }
}
