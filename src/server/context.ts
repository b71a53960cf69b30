/**
 * Client connections, and the request context: the facts that each stage adds.
 * The context is a property of the request class that Node's server creates, so http-proxy passes it on.
 */
import { createServer, IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Admitted } from '../gate/admission.ts'
import type { Decided, Passed, Route } from '../gate/decide.ts'
import type { Identity } from '../token/verify.ts'
import type { Peer } from './client-address.ts'
import type { Reason } from './reasons.ts'

/** A client's connection, as far as its requests know it. */
export interface ClientConnection {
  readonly peer: Peer
  /** Under TLS another than the request's. */
  readonly tcpSocket: Socket
  /**
   * Destroys it; with a reset if a response has begun: clients that do not count its bytes (Ruby's `Net::HTTP`) take a
   * close for its end.
   */
  abort(): void
}

/**
 * By socket. Forget closed ones: collections of the young generation keep values of a WeakMap alive. Measured with a
 * connection for each request on Node 20: garbage collection took 5 % of the time, now 1.5 %.
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

/** The facts of a request, grouped by the file that adds them. */
export class RequestContext {
  readonly connection: ClientConnection

  // connection.ts and upgrades.ts, on arrival.

  /** Monotonic milliseconds. */
  startedAt = 0
  /** Set when Node detached the socket for `Upgrade` or CONNECT. `firstBytes`: those after the head. */
  upgrade: { readonly firstBytes: Buffer; readonly response: SidecarResponse } | undefined
  /** Node's parser failed within the body. */
  isBodyMalformed = false

  // handle.ts, by the decision of the gate.

  id = ''
  decided: Decided | undefined
  passed: Passed | undefined
  /** Of a valid token that does not allow the request. */
  deniedTo: Identity | undefined

  // token-endpoint.ts.

  issuedTo: Identity | undefined
  /** The account that a login named, if there is such an account. */
  loginAccount: string | undefined
  /** The access key that a login named, if its credential is active. */
  loginAccessKey: string | undefined

  #handler: RequestHandler | undefined
  #reason: Reason | undefined
  #bytesIn = 0
  #bytesOut = 0

  constructor(connection: ClientConnection) {
    this.connection = connection
  }

  /** Absent before admission, and when it refused the request. */
  get admitted(): Admitted | undefined {
    return this.decided?.request
  }

  /** `proxy` before routing, and for requests refused at admission. */
  get route(): Route {
    return this.decided?.route ?? 'proxy'
  }

  get handler(): RequestHandler | undefined {
    return this.#handler
  }

  /** Makes `handler` the only one that serves the request; the handler before it lets go. */
  handOver(handler: RequestHandler): void {
    const previous = this.#handler
    this.#handler = handler
    previous?.onRelease?.()
  }

  /** The handler lets go, and none takes over. */
  release(): void {
    const previous = this.#handler
    this.#handler = undefined
    previous?.onRelease?.()
  }

  /** The reason of a failure or refusal, the latest one. */
  get reason(): Reason | undefined {
    return this.#reason
  }

  fail(reason: Reason): void {
    this.#reason = reason
  }

  /** Body bytes from the client. */
  get bytesIn(): number {
    return this.#bytesIn
  }

  /** Body bytes to the client. */
  get bytesOut(): number {
    return this.#bytesOut
  }

  countIn(bytes: number): void {
    this.#bytesIn += bytes
  }

  countOut(bytes: number): void {
    this.#bytesOut += bytes
  }
}

export class SidecarRequest extends IncomingMessage {
  readonly context: RequestContext

  constructor(socket: Socket) {
    super(socket)
    const connection = connections.get(socket)
    if (connection === undefined) throw new Error('a request on an unknown connection')
    this.context = new RequestContext(connection)
  }
}

/** Node before 24.9 (22.21) discards the bytes after the head of an offer to upgrade that is not served. */
const DISCARDS_AFTER_OFFER = !('shouldUpgradeCallback' in createServer())

/** Whether the connection must close after the response, because of the request. */
export function mustCloseAfter({ context: { admitted, upgrade } }: SidecarRequest): boolean {
  if (admitted === undefined) return false
  if (admitted.connectionOptions?.has('close') === true) return true
  return DISCARDS_AFTER_OFFER && admitted.offersUpgrade && upgrade === undefined
}

export class SidecarResponse extends ServerResponse<SidecarRequest> {
  #isContinued = false
  #isCloseDelimited = false
  #isComplete = false

  /** `100 Continue` has been sent. */
  get isContinued(): boolean {
    return this.#isContinued
  }

  /** The end of the connection is the end of the body. */
  get isCloseDelimited(): boolean {
    return this.#isCloseDelimited
  }

  /** All of it has been written, whatever becomes of the rest of the request. */
  get isComplete(): boolean {
    return this.#isComplete
  }

  complete(): void {
    this.#isComplete = true
  }

  /** Before the body is read: asks a client for it that waits. */
  continueIfExpected(): void {
    if (this.#isContinued || this.req.context.admitted?.expectsContinue !== true) return
    this.#isContinued = true
    this.writeContinue()
  }

  /** Writes the head of an upstream's response. */
  writeForwardedHead(status: number, reason: string, headers: string[], closeDelimited: boolean): void {
    this.#isCloseDelimited = closeDelimited
    if (closeDelimited) this.removeHeader('Transfer-Encoding') // Node then adds no chunks of its own
    this.writeHead(status, reason, headers)
  }
}
