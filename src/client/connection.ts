/**
 * One client connection: serves its requests one after the other (RFC 9112, section 9).
 * In: requests and errors of Node's parser.
 * Out: calls of `handle` for each request in its turn, and of `onRequestEnd`. `connection-end.ts` ends it.
 *
 * What happens to the connection depends on the state of the current response:
 *
 *   response         another request    the client ends      the socket is idle     `abort`
 *   none, before it  is served (1)      Node closes          is closed (2)          destroys
 *   open             waits              Node closes          owner's `onIdle`       destroys
 *   begun            waits              `abort`              owner's `onIdle`       resets (3)
 *   written          waits              Node closes, later   `abort`                resets (3)
 *   discarding       waits, dropped     ends the discard     ends the discard       resets (3)
 *   tunnel           cannot arrive      ends upstream half   goes on                destroys
 *   the last one     is dropped         Node closes          `abort`                destroys
 *
 *   (1) once a turn of the event loop has room for it (`turns.ts`)
 *   (2) unless a head has begun to arrive, which Node or `checkHead` refuses in time
 *   (3) if the client could take a part of the response for all of it. Otherwise destroys
 *
 * A parse error waits and is refused like a request. Once `#input` is not open, all that arrives is dropped.
 */
import type { Socket } from 'node:net'
import { ERRORS, type PublicError } from '../base/errors.ts'
import * as nodeHttp from '../http/node-http.ts'
import type { Peer } from './client-address.ts'
import { ConnectionEnd } from './connection-end.ts'
import { NextHead } from './next-head.ts'
import type { ClientConnection, DetachedSocket, SidecarRequest } from './request.ts'
import { SidecarResponse } from './response.ts'
import type { TransferTurns } from './transfer-turns.ts'
import type { Priority, Turns } from './turns.ts'

export interface ConnectionCallbacks {
  /** Must not throw. */
  readonly handle: (res: SidecarResponse) => void
  readonly onRequestEnd: (res: SidecarResponse) => void
  /** Called for a refusal without a request. Returns the response as text. */
  readonly onUnparsed: (refusal: UnparsedRefusal, peer: Peer) => string
  readonly isDraining: () => boolean
  /** Returns the number of requests of all connections that are handled or wait. */
  readonly inFlight: () => number
  readonly turns: Turns
  readonly transferTurns: TransferTurns
}

/**
 * A refusal without a request:
 * of bytes that do not parse, a late head, an `Upgrade` or CONNECT behind other requests.
 */
export interface UnparsedRefusal {
  readonly error: PublicError
  /** The code of Node's parser. */
  readonly cause?: string | undefined
  /** The bytes that hold the error. */
  readonly bytes?: Buffer | undefined
  /** The connection has received no byte at all. */
  readonly isSilent?: boolean
}

/**
 * The socket is paused while this many requests wait.
 * Node parses all that it has read: up to 2,500 requests (2 KB each).
 */
const MAX_WAITING = 16
/** Of all connections together. With more in flight, a connection that adds many is aborted. */
const MAX_IN_FLIGHT = 16 * 1024

export class Connection implements ClientConnection {
  readonly peer: Peer
  readonly socket: Socket
  readonly tcpSocket: Socket
  readonly isDraining: () => boolean
  readonly transferTurns: TransferTurns
  readonly #callbacks: ConnectionCallbacks
  /**
   * `open`: requests are received.
   * Others, none: behind a refusal, a detached request, or after the last response.
   */
  #input: 'open' | 'refused' | 'detached' | 'ended' = 'open'
  /** Set with the input `detached`. */
  #detached: DetachedSocket | undefined
  /** `low` after a request that was refused or has failed. */
  #priority: Priority = 'normal'
  /** The next request has waited for its turn before it was read. */
  #hasWaitedUnread = false
  #current: SidecarResponse | undefined
  readonly #waiting: SidecarResponse[] = []
  /** Follows the requests that wait. Nothing follows it. */
  #refusal: UnparsedRefusal | undefined
  #lastUsedMonotonicMs = performance.now()
  readonly nextHead: NextHead
  readonly end: ConnectionEnd
  #isProbing = false

  constructor(socket: Socket, tcpSocket: Socket, peer: Peer, headMs: number, callbacks: ConnectionCallbacks) {
    this.peer = peer
    this.socket = socket
    this.tcpSocket = tcpSocket
    this.isDraining = callbacks.isDraining
    this.transferTurns = callbacks.transferTurns
    this.#callbacks = callbacks
    this.nextHead = new NextHead(socket, headMs)
    this.end = new ConnectionEnd(socket, callbacks.turns)
    socket.on('error', () => {}) // without a listener, an error would end the process; `close` follows
    nodeHttp.listenBeforeNode(socket, 'end', () => {
      this.#current?.flushEnd()
      // Node would end the connection after the written bytes. It does not end a detached socket.
      if (this.#current?.state === 'begun' && !this.#current.req.context.isDetached) {
        this.abort()
      }
    })
  }

  /**
   * The number of requests that are handled or wait. A tunnel and the discard of an unread body do not count.
   */
  get inFlight(): number {
    const state = this.#current?.state
    const isInFlight = state !== undefined && state !== 'tunnel' && state !== 'discarding'
    return this.#waiting.length + Number(isInFlight)
  }

  get isIdle(): boolean {
    return this.#servesNothing && this.#input === 'open'
  }

  /**
   * Since when the connection serves no request: it is idle, or discards what follows its last response.
   * Undefined while it serves one or receives a head.
   */
  get idleSinceMonotonicMs(): number | undefined {
    if (this.socket.destroyed) {
      return undefined
    }
    const isIdle = this.isIdle && !this.nextHead.hasBegun
    return isIdle ? this.#lastUsedMonotonicMs : this.end.discardsSinceMonotonicMs
  }

  /** Closes the connection in favor of a new one, while `idleSinceMonotonicMs` is defined. */
  evict(): void {
    this.socket.destroy()
  }

  get #servesNothing(): boolean {
    return this.#current === undefined && this.#waiting.length === 0
  }

  /** The socket is paused, so the rest of a head cannot arrive. */
  get #isFull(): boolean {
    return this.#waiting.length >= MAX_WAITING
  }

  receive(res: SidecarResponse): void {
    // TLS still delivers decrypted requests of a destroyed socket, whose responses would never emit `close`.
    if (this.socket.destroyed || this.#input !== 'open') {
      return
    }
    const isNext = this.#servesNothing
    const count = this.#waiting.push(res)
    if (isNext) {
      this.#awaitTurn()
    } else if (count === MAX_WAITING) {
      nodeHttp.pauseWhile(this.socket, () => this.#isFull)
    } else if (count % MAX_WAITING === 0 && this.#callbacks.inFlight() > MAX_IN_FLIGHT) {
      this.abort()
    }
  }

  /** Serves what waits: at once if this turn of the event loop has room for it. */
  #awaitTurn(): void {
    const hasWaited = this.#hasWaitedUnread
    this.#hasWaitedUnread = false
    this.#callbacks.turns.run(this.#serveNext, this.#priority, hasWaited)
    if (this.#waiting.length > 0) {
      this.nextHead.stop()
    }
  }

  readonly #serveNext = (): void => {
    if (!this.socket.writable) {
      this.#endAfterLast() // the client has left meanwhile
      return
    }
    const next = this.#waiting.shift()
    if (next !== undefined) {
      this.#serve(next)
    } else if (this.#refusal !== undefined) {
      this.#sendRefusal(this.#refusal)
    }
  }

  #serve(res: SidecarResponse): void {
    this.#current = res
    res.req.createContext(this, this.#detached)
    res.on('close', this.#onResponseClosed)
    this.#callbacks.handle(res)
    if (this.#waiting.length === MAX_WAITING - 1) {
      this.socket.resume()
    }
  }

  readonly #onResponseClosed = (): void => {
    const res = this.#current
    if (res === undefined) {
      return
    }
    this.#current = undefined
    const { isDetached, owner, failure } = res.req.context
    owner.onClosed?.()
    this.#callbacks.onRequestEnd(res)
    this.#priority = failure === undefined ? 'normal' : 'low'
    this.#lastUsedMonotonicMs = performance.now()
    this.nextHead.restart()
    if (!this.socket.writable || isDetached) {
      this.#endAfterLast()
    } else if (this.#waiting.length > 0) {
      this.nextHead.stop()
      this.#awaitTurn()
    } else if (this.#refusal !== undefined) {
      this.#awaitTurn()
    } else if (this.#callbacks.turns.isCrowded) {
      this.socket.pause()
      this.#callbacks.turns.defer(this.#readOn, this.#priority)
    }
  }

  readonly #readOn = (): void => {
    this.#hasWaitedUnread = true
    this.socket.resume()
  }

  /** Node has ended or destroyed the socket, unless it was detached. Nothing that waits is served. */
  #endAfterLast(): void {
    const mayMoreArrive = this.#input !== 'open' || this.#waiting.length > 0
    this.#input = 'ended'
    for (const { req } of this.#waiting.splice(0)) {
      req.resume()
    }
    if (mayMoreArrive && !this.socket.destroyed) {
      this.end.halfClose()
    }
  }

  /** Receives a request whose socket Node has detached. No other request can follow. */
  receiveUpgrade(req: SidecarRequest, firstBytes: Buffer): void {
    const socket = this.socket
    if (socket.destroyed) {
      return
    }
    // Node has removed its own listeners of these events.
    socket.on('drain', () => this.#current?.emit('drain')).on('timeout', () => this.onTimeout())
    if (this.#input !== 'open') {
      return
    }
    if (this.#servesNothing) {
      const res = new SidecarResponse(req)
      nodeHttp.assignDetachedSocket(res, socket)
      this.#input = 'detached'
      this.#detached = { firstBytes }
      this.#waiting.push(res)
      this.#awaitTurn()
    } else {
      const error = req.method === 'CONNECT' ? ERRORS.malformedRequest : ERRORS.upgradeRefused
      this.#refuseInTurn({ error })
      socket.once('end', () => socket.end())
    }
  }

  refuseUnparsed(refusal: UnparsedRefusal): void {
    const socket = this.socket
    if (this.#input !== 'open' || (this.#isFull && refusal.cause === 'ERR_HTTP_REQUEST_TIMEOUT')) {
      return
    }
    // Then only the sending half may have ended.
    const isEnded = !socket.writable && this.#current?.state !== 'discarding'
    if (isEnded || this.tcpSocket.destroyed) {
      socket.destroy()
    } else {
      this.#refuseInTurn(refusal)
    }
  }

  #refuseInTurn(refusal: UnparsedRefusal): void {
    this.#refusal = refusal
    this.#input = 'refused'
    this.end.discardInput()
    if (this.#servesNothing) {
      this.#awaitTurn()
      return
    }
    const newest = this.#waiting.at(-1) ?? this.#current
    if (newest?.req.complete !== false) {
      return
    }
    // The error is in the body of the newest request. If this request waits, the refusal takes its place.
    if (newest !== this.#current) {
      this.#waiting.pop()?.req.resume()
    } else {
      newest.req.context.onMalformedBody()
    }
  }

  #sendRefusal(refusal: UnparsedRefusal): void {
    this.#input = 'ended'
    const isSilent = this.socket.bytesRead === 0
    this.socket.write(this.#callbacks.onUnparsed({ ...refusal, isSilent }, this.peer), 'latin1')
    this.end.halfClose()
  }

  onTimeout(): void {
    const res = this.#current
    if (this.isIdle) {
      this.closeIfIdle()
    } else if (res === undefined && this.#waiting.length > 0) {
      nodeHttp.restartTimeout(this.socket) // it waits for a turn of the event loop
    } else if (res === undefined || res.writableEnded) {
      this.abort()
    } else {
      // The owner may go on waiting, for example for an upstream connection.
      nodeHttp.restartTimeout(this.socket)
      res.req.context.owner.onIdle?.()
    }
  }

  /** Closes an idle connection, unless a head has begun to arrive. */
  closeIfIdle(): void {
    if (this.isIdle && !this.nextHead.hasBegun) {
      this.socket.destroy()
    }
  }

  /** Called twice a second. */
  checkHead(monotonicNow: number): void {
    if (this.isIdle && this.nextHead.isLate(monotonicNow)) {
      this.refuseUnparsed({ error: ERRORS.requestTimeout })
    }
  }

  closeTunnel(): boolean {
    const isTunnel = this.#current?.state === 'tunnel' && !this.socket.destroyed
    if (isTunnel) {
      this.socket.destroy()
    }
    return isTunnel
  }

  detectReset(): void {
    const { complete, readableFlowing } = this.#current?.req ?? { complete: true }
    const isRead = !this.socket.isPaused() && (complete || readableFlowing)
    if (isRead || this.#isProbing) {
      return // while the client reads nothing, the previous probe has not ended
    }
    this.#isProbing = true
    nodeHttp.probeForReset(this.tcpSocket, () => {
      this.#isProbing = false
    })
  }

  /**
   * Ends the connection at once, even within a response, after a timeout, a failure or the stop of the
   * process. After a clean end, a close-delimited response would look complete, and Ruby's `Net::HTTP` takes
   * others for complete, too. But while the client sends, a reset could fail its writes before it reads.
   */
  abort(): void {
    const res = this.#current
    const mustReset = res?.truncate() === true && (res.isCloseDelimited || res.req.complete)
    // `uv_tcp_close_reset` refuses an ended socket, and `close` would never be emitted.
    if (mustReset && !this.socket.writableEnded) {
      this.tcpSocket.resetAndDestroy()
    } else {
      this.socket.destroy()
    }
  }
}
