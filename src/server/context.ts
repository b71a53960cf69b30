/**
 * Client connections, and the request context: the facts that each stage adds.
 * The context is a property of the request class that Node's server creates, so http-proxy passes it on.
 */
import { createServer, IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Admitted } from '../gate/admission.ts'
import type { Decision } from '../gate/decide.ts'
import type { NamedRequest } from '../gate/named-request.ts'
import type { Route } from '../gate/route.ts'
import type { ClientFailure, UpstreamFault } from '../http/proxy-errors.ts'
import type { Identity, RefusalReason } from '../token/caller.ts'
import type { Peer } from './client-address.ts'

/** A client's connection, as far as its requests know it. */
export interface ClientConnection {
  readonly peer: Peer
  /** Under TLS another than the request's. */
  readonly tcpSocket: Socket
  /** The process accepts no more: its connections end with their next responses. */
  readonly isDraining: boolean
  /**
   * Destroys it; with a reset if a response has begun and its request has arrived: clients that do not count bytes
   * (Ruby's `Net::HTTP`) take a close for its end. A response framed by close is always reset.
   */
  abort(): void
  /** The response to the current request is over. */
  finish(res: SidecarResponse): void
}

/**
 * By socket; listener.ts adds and removes them. Closed ones must be removed: collections of the young generation keep
 * values of a WeakMap alive. Measured with a connection for each request on Node 20: garbage collection took 5 % of the
 * time, now 1.5 %.
 */
export const connections = new WeakMap<Duplex, ClientConnection>()

/** A component that serves a request: the token endpoint, a transfer, a tunnel, the drain of an unread body. */
export interface RequestHandler {
  /** Absent while the request counts as in flight. */
  readonly state?: 'tunnel' | 'drain'
  /** The client socket was idle for `timeouts.idleSeconds`, or 5 s while an unread body is drained. */
  onIdle(): void
  /** Node's parser failed within the request's body. */
  onMalformedBody?(): void
  /** Called once: another handler has taken the request over, or its response is over. */
  onRelease?(): void
}

/** Why no token was issued; the label `reason` of `auth_sidecar_token_issue_failures_total`. */
export const ISSUE_FAILURES = ['invalid', 'rejected', 'throttled', 'busy', 'unavailable', 'internal'] as const

export type IssueFailure = (typeof ISSUE_FAILURES)[number]

/** Why a request failed or was refused: the field `reason` of the access log. A closed set, never client input. */
export type Reason =
  | RefusalReason
  | IssueFailure
  | UpstreamFault
  | ClientFailure
  | 'admission'
  | 'upgrade'
  | 'method'
  | 'drain_deadline'

/** The facts of a request, grouped by the file that adds them. */
export class RequestContext {
  readonly connection: ClientConnection

  // connection.ts, on arrival.

  /** Monotonic milliseconds. */
  startedAt = 0
  /** Set when Node detached the socket for `Upgrade` or CONNECT. `firstBytes`: those after the head. */
  upgrade: { readonly firstBytes: Buffer } | undefined
  /** Node's parser failed within the body. */
  isBodyMalformed = false

  // handle.ts, by the decision of the gate.

  id = ''
  /** Absent before admission, and when it refused the request. */
  admitted: Admitted | undefined
  /** Of forward auth: the request that a trusted proxy names. */
  named: NamedRequest | undefined
  /** `proxy` before routing, and for requests refused at admission. */
  route: Route = 'proxy'
  decision: Decision | undefined

  /** That of the caller or, from token-endpoint.ts, the names of a login that exist: they prove nothing. */
  loggedIdentity: Partial<Identity> | undefined
  /** Of a failure or refusal, the latest one; from the part that fails or refuses. */
  reason: Reason | undefined

  // Body bytes from and to the client, added up by the parts that read and write them.

  bytesIn = 0
  bytesOut = 0

  #handler: RequestHandler | undefined

  constructor(connection: ClientConnection) {
    this.connection = connection
  }

  get handler(): RequestHandler | undefined {
    return this.#handler
  }

  /** Makes `handler` the only one that serves the request, or none; the handler before it lets go. */
  serveBy(handler: RequestHandler | undefined): void {
    const previous = this.#handler
    this.#handler = handler
    previous?.onRelease?.()
  }

  /** Whether the connection must close after the response. */
  get mustClose(): boolean {
    const { connection, admitted, upgrade } = this
    if (admitted === undefined || this.isBodyMalformed || connection.isDraining) return true
    if (admitted.connectionOptions?.has('close') === true) return true
    return DISCARDS_AFTER_OFFER && admitted.offersUpgrade && upgrade === undefined
  }
}

/** Node before 24.9 (22.21) discards the bytes after the head of an offer to upgrade that is not served. */
const DISCARDS_AFTER_OFFER = !('shouldUpgradeCallback' in createServer())

export class SidecarRequest extends IncomingMessage {
  readonly context: RequestContext

  constructor(socket: Socket) {
    super(socket)
    const connection = connections.get(socket)
    if (connection === undefined) throw new Error('a request on an unknown connection')
    this.context = new RequestContext(connection)
  }
}

export class SidecarResponse extends ServerResponse<SidecarRequest> {
  /** `100 Continue` has been sent. */
  isContinued = false
  /** The end of the connection is the end of the body. */
  isCloseDelimited = false
  /** All of it has been written, whatever becomes of the rest of the request. */
  isComplete = false

  /** Before the body is read: asks a client for it that waits. */
  continueIfExpected(): void {
    if (this.isContinued || this.req.context.admitted?.expectsContinue !== true) return
    this.isContinued = true
    this.writeContinue()
  }
}
