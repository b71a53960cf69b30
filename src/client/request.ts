/** A request of a client, and its context, which is a property of Node's request object. */
import { randomUUID } from 'node:crypto'
import type { Socket } from 'node:net'
import type { AccessFailure, Failure } from '../base/errors.ts'
import type { AdmittedRequest } from '../gate/admission.ts'
import type { DecisionRecord, RoutedRequest } from '../gate/gate.ts'
import type { RouteLabel } from '../gate/route.ts'
import { MergedChunksMessage } from '../http/node-http.ts'
import type { Direction, LogFields, PacedReader, RequestWatcher } from '../room.ts'
import type { Identity } from '../token/caller.ts'
import type { Peer } from './client-address.ts'
import type { TransferTurns } from './transfer-turns.ts'

/** The part of a client's connection that its requests may use. */
export interface ClientConnection {
  readonly peer: Peer
  readonly socket: Socket
  /** Under TLS, not the `socket`. */
  readonly tcpSocket: Socket
  /**
   * Closes the connection if the client has reset it, which Node does not notice while it
   * does not read the socket.
   */
  detectReset(): void
  readonly isDraining: () => boolean
  readonly transferTurns: TransferTurns
  readonly nextHead: { mayHaveLostBytes(req: SidecarRequest): boolean }
  readonly end: { discardBody(req: SidecarRequest, isCloseDelimited: boolean, end: () => void): void }
  /** Ends the connection within a response, so that the client notices that the rest is missing. */
  abort(): void
}

/**
 * The one component that a request waits for: the reader of a login, a transfer, a tunnel,
 * the discard of an unread body.
 */
export interface RequestOwner {
  /** The client socket was idle for `timeouts.idleSeconds`. */
  onIdle?(): void
  onMalformedBody?(): void
  /** The last call: the response is closed, whether it was written or not. */
  onClosed?(): void
}

/**
 * The socket of an `Upgrade` or CONNECT, which Node has detached from its parser.
 * `firstBytes`: those behind the head.
 */
export interface DetachedSocket {
  readonly firstBytes: Buffer
}

/** Until a component takes over, the request waits for the sidecar itself: an idle client does not matter. */
const NO_OWNER: RequestOwner = {}

const NO_WATCHERS: readonly RequestWatcher[] = []

/** What logs, metrics and the connection need to know of a request. Only the methods write it. */
export type RequestContext = Readonly<Context>

class Context {
  readonly connection: ClientConnection
  readonly detached: DetachedSocket | undefined
  readonly startedMonotonicMs = performance.now()
  owner: RequestOwner = NO_OWNER
  id: string = randomUUID()
  /** Absent if the request is not admitted. */
  routed: RoutedRequest | undefined
  /** Why report mode has let the request pass that it would else refuse. */
  wouldRefuse: AccessFailure | undefined
  identityForLog: Partial<Identity> | undefined
  /**
   * Whether a token proves the identity, or proved it before it ended.
   * A login names one that it may not prove.
   */
  isCallerProven = false
  /** A token of the request had to be verified, because the cache did not have it. */
  isCacheMiss = false
  /** The id of the link that lets the request pass. */
  linkId: string | undefined
  /** The prefix of the upstream that the request is forwarded to. */
  upstream: string | undefined
  /** Milliseconds until a connection of the upstream took the request. */
  queueMs: number | undefined
  /** Milliseconds from the request head to the response head of the upstream. */
  firstByteMs: number | undefined
  isBodyMalformed = false
  /** The first failure. `cause`: what lies behind the reason, the code of a network error or a fixed text. */
  failure: Readonly<{ reason: Failure; cause: string | undefined }> | undefined
  /** Body bytes from and to the client. */
  bytesIn = 0
  bytesOut = 0
  watchers = NO_WATCHERS

  constructor(connection: ClientConnection, detached?: DetachedSocket) {
    this.connection = connection
    this.detached = detached
  }

  /** `requestId`: a valid request id of the client. */
  recordHead(routed: RoutedRequest | undefined, requestId = this.id): void {
    this.routed = routed
    this.id = requestId
  }

  recordCacheMiss(): void {
    this.isCacheMiss = true
  }

  recordDecision(decision: DecisionRecord): void {
    const { caller, formerIdentity, wouldRefuse } = decision
    this.wouldRefuse = wouldRefuse
    this.identityForLog = caller?.identity ?? formerIdentity
    this.isCallerProven = this.identityForLog !== undefined
    this.linkId = caller?.link && caller.identity.tokenId
    for (const watcher of this.watchers) {
      watcher.onDecision?.(decision)
    }
  }

  /** `identity`: the names of a login that exist, authenticated or not. */
  recordIdentity(identity: Partial<Identity>): void {
    this.identityForLog = identity
  }

  recordUpstream(prefix: string): void {
    this.upstream = prefix
  }

  recordQueueTime(milliseconds: number): void {
    this.queueMs = milliseconds
  }

  recordFirstByteTime(milliseconds: number): void {
    this.firstByteMs = milliseconds
  }

  recordFailure(reason: Failure, cause?: string): void {
    this.failure ??= { reason, cause }
  }

  /** The watcher follows the request from now on. */
  addWatcher(watcher: RequestWatcher): void {
    this.watchers = [...this.watchers, watcher]
  }

  count(direction: Direction, bytes: number): void {
    if (direction === 'in') {
      this.bytesIn += bytes
    } else {
      this.bytesOut += bytes
    }
    this.connection.transferTurns.onBytes(bytes)
    for (const watcher of this.watchers) {
      watcher.onBytes?.(direction, bytes)
    }
  }

  /** Those of the watchers. Later watchers win. */
  get logFields(): LogFields {
    return Object.assign({}, ...this.watchers.map(({ logFields }) => logFields))
  }

  /** If false, `reader.readOn` is called later. */
  mayRead(direction: Direction, reader: PacedReader): boolean {
    for (const watcher of this.watchers) {
      if (watcher.mayRead?.(direction, reader) === false) {
        return false
      }
    }
    const bytes = direction === 'in' ? this.bytesIn : this.bytesOut
    return this.connection.transferTurns.mayRead(reader, bytes)
  }

  onReadEnd(reader: PacedReader): void {
    this.connection.transferTurns.onReadEnd(reader)
    for (const watcher of this.watchers) {
      watcher.onReadEnd?.(reader)
    }
  }

  /** The previous owner is called no more. */
  changeOwner(owner: RequestOwner): void {
    this.owner = owner
  }

  onMalformedBody(): void {
    this.isBodyMalformed = true
    this.owner.onMalformedBody?.()
  }

  get admitted(): AdmittedRequest | undefined {
    return this.routed?.admitted
  }

  get routeLabel(): RouteLabel {
    return this.routed?.route.label ?? 'proxy'
  }

  get isDetached(): boolean {
    return this.detached !== undefined
  }
}

export class SidecarRequest extends MergedChunksMessage {
  #context: Context | undefined

  /** Called when a connection begins to serve the request. */
  createContext(connection: ClientConnection, detached?: DetachedSocket): void {
    this.#context = new Context(connection, detached)
  }

  /** @throws while the request waits for its turn */
  get context(): RequestContext {
    if (this.#context === undefined) {
      throw new Error('the request is not served yet')
    }
    return this.#context
  }

  /** The client waits for a `100 Continue` before it sends the body (RFC 9110, section 10.1.1). */
  get expectsContinue(): boolean {
    return this.httpVersionMinor > 0 && this.headers.expect?.toLowerCase().startsWith('100-continue') === true
  }

  get clientAddress(): string {
    return this.context.connection.peer.clientAddress(this.headers)
  }
}
