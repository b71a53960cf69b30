/**
 * One client connection: serves its requests one after the other (RFC 9112, section 9), until its end (`connection-end.ts`).
 * In: requests and errors of Node's parser. Out: calls of `handle` for each request in its turn, and of `onRequestEnd`.
 *
 *   phase    response    a request or an error   the client ends its half    the socket is idle         `abort`
 *   idle                 > serving, closing      Node closes the socket      closes it (1)              destroys it
 *   serving  open        queues it (2)           Node closes the socket      `onIdle` of the owner      destroys it
 *            begun       queues it (2)           `abort`                     `onIdle` of the owner      resets it (3)
 *            ended       queues it (2)           Node closes it, once sent   `abort`                    resets it (3)
 *            discarding  is never served         ends the discard            ends the discard           resets it (3)
 *            tunnel      cannot arrive           ends the upstream's half    goes on                    destroys it
 *   closing              drops it                Node closes the socket      `abort`                    destroys it
 *
 *   A closed response leads to the next request, or to `idle`. After the last response: `closing` (`connection-end.ts`).
 *   (1) unless a head has begun to arrive, which Node or `checkHead` refuses in time
 *   (2) or drops it, if nothing can follow: `#acceptsMore`
 *   (3) if the client could take a part of the response for all of it. Otherwise destroys it
 */
import type { Socket } from 'node:net'
import { ERRORS, type PublicError } from '../base/errors.ts'
import * as nodeHttp from '../http/node-http.ts'
import type { Peer } from './client-address.ts'
import { destroyOrReset, halfClose } from './connection-end.ts'
import { NextHead } from './next-head.ts'
import type { ClientConnection, SidecarRequest } from './request.ts'
import { SidecarResponse } from './response.ts'

export interface ConnectionCallbacks {
  /** Must not throw. */
  readonly handle: (res: SidecarResponse) => void
  readonly onRequestEnd: (res: SidecarResponse) => void
  /** Called for a refusal without a request. Returns the response as text. */
  readonly onParserError: (refusal: ParserRefusal, peer: Peer) => string
  readonly isDraining: () => boolean
  /** Returns the number of requests of all connections that are handled or wait. */
  readonly inFlight: () => number
}

/** A refusal without a request: of bytes that do not parse, a late head, an `Upgrade` or CONNECT behind other requests. */
export interface ParserRefusal {
  readonly error: PublicError
  /** The code of Node's parser. */
  readonly cause?: string | undefined
  /** The bytes that hold the error. */
  readonly bytes?: Buffer | undefined
}

/** The socket is paused while this many requests wait. Node parses all that it has read: up to 2,500 requests (2 KB each). */
const MAX_WAITING = 16
/** Of all connections together. With more in flight, a connection that adds many is aborted. */
const MAX_IN_FLIGHT = 16 * 1024

export class Connection implements ClientConnection {
  readonly peer: Peer
  readonly socket: Socket
  readonly tcpSocket: Socket
  readonly isDraining: () => boolean
  readonly #callbacks: ConnectionCallbacks
  #phase: 'idle' | 'serving' | 'closing' = 'idle'
  #current: SidecarResponse | undefined
  readonly #waiting: SidecarResponse[] = []
  /** Follows the requests that wait. Nothing follows it. */
  #refusal: ParserRefusal | undefined
  readonly nextHead: NextHead
  discardEndsAtMonotonicMs: number | undefined
  #isProbing = false

  constructor(socket: Socket, tcpSocket: Socket, peer: Peer, headMs: number, callbacks: ConnectionCallbacks) {
    this.peer = peer
    this.socket = socket
    this.tcpSocket = tcpSocket
    this.isDraining = callbacks.isDraining
    this.#callbacks = callbacks
    this.nextHead = new NextHead(socket, headMs)
    socket.on('error', () => {}) // without a listener, an error would end the process; `close` follows
    nodeHttp.listenBeforeNode(socket, 'end', () => {
      // Node would end the connection after the written bytes. It does not end a detached socket.
      if (this.#current?.state === 'begun' && !this.#current.req.context.isDetached) this.abort()
    })
  }

  /** The number of requests that are handled or wait. A tunnel and the discard of an unread body do not count. */
  get inFlight(): number {
    const state = this.#current?.state
    const isInFlight = state !== undefined && state !== 'tunnel' && state !== 'discarding'
    return this.#waiting.length + Number(isInFlight)
  }

  get isServing(): boolean {
    return this.#current !== undefined
  }

  get #acceptsMore(): boolean {
    const isDetached = this.#current?.req.context.isDetached === true
    return this.#phase !== 'closing' && this.#refusal === undefined && !isDetached
  }

  /** The socket is paused, so the rest of a head cannot arrive. */
  get #isFull(): boolean {
    return this.#waiting.length >= MAX_WAITING
  }

  receive(res: SidecarResponse): void {
    // TLS still delivers decrypted requests of a destroyed socket, whose responses would never emit `close`.
    if (this.socket.destroyed || !this.#acceptsMore) return
    if (this.#current === undefined) this.#serve(res)
    else this.#queue(res)
  }

  #queue(res: SidecarResponse): void {
    const count = this.#waiting.push(res)
    if (count === MAX_WAITING) nodeHttp.pauseWhile(this.socket, () => this.#isFull)
    else if (count % MAX_WAITING === 0 && this.#callbacks.inFlight() > MAX_IN_FLIGHT) this.abort()
  }

  #serve(res: SidecarResponse, firstBytes?: Buffer): void {
    this.#phase = 'serving'
    this.#current = res
    res.req.begin(this, firstBytes)
    res.on('close', this.#onResponseClosed)
    this.#callbacks.handle(res)
  }

  readonly #onResponseClosed = (): void => {
    const res = this.#current
    if (res === undefined) return
    this.#current = undefined
    const { isDetached, owner } = res.req.context
    owner.onClosed?.()
    this.#callbacks.onRequestEnd(res)
    this.nextHead.restart()
    if (this.socket.writable && !isDetached) this.#serveNext()
    else this.#endAfterLast(isDetached)
  }

  #serveNext(): void {
    const next = this.#waiting.shift()
    if (next !== undefined) {
      this.nextHead.stop()
      this.#serve(next)
      if (this.#waiting.length === MAX_WAITING - 1) this.socket.resume()
    } else if (this.#refusal !== undefined) this.#sendRefusal(this.#refusal)
    else this.#phase = 'idle'
  }

  /** Node has ended or destroyed the socket, unless it was detached. Nothing that waits is served. */
  #endAfterLast(isDetached: boolean): void {
    this.#phase = 'closing'
    const mustHalfClose = isDetached || this.#waiting.length > 0 || this.#refusal !== undefined
    for (const { req } of this.#waiting.splice(0)) req.resume()
    if (mustHalfClose && !this.socket.destroyed) halfClose(this)
  }

  /** Receives a request whose socket Node has detached. No other request can follow. */
  receiveUpgrade(req: SidecarRequest, firstBytes: Buffer): void {
    const socket = this.socket
    if (socket.destroyed) return
    // Node has removed its own listeners of these events.
    socket.on('drain', () => this.#current?.emit('drain')).on('timeout', () => this.onTimeout())
    if (!this.#acceptsMore) return
    if (this.#current === undefined) {
      const res = new SidecarResponse(req)
      nodeHttp.assignDetachedSocket(res, socket)
      this.#serve(res, firstBytes)
    } else {
      const error = req.method === 'CONNECT' ? ERRORS.malformedRequest : ERRORS.upgradeRefused
      this.#refuseInTurn({ error })
      socket.once('end', () => socket.end())
    }
  }

  refuseUnparsed(refusal: ParserRefusal): void {
    const socket = this.socket
    if (!this.#acceptsMore || (this.#isFull && refusal.cause === 'ERR_HTTP_REQUEST_TIMEOUT')) return
    const isEnded = !socket.writable && this.#current?.state !== 'discarding' // then only the sending half may have ended
    if (isEnded || this.tcpSocket.destroyed) socket.destroy()
    else if (this.#current === undefined) this.#sendRefusal(refusal)
    else this.#refuseInTurn(refusal)
  }

  #refuseInTurn(refusal: ParserRefusal): void {
    this.#refusal = refusal
    nodeHttp.discardInput(this.socket)
    const newest = this.#waiting.at(-1) ?? this.#current
    if (newest?.req.complete !== false) return
    // The error is in the body of the newest request. If this request waits, the refusal takes its place.
    if (newest !== this.#current) this.#waiting.pop()?.req.resume()
    else newest.req.context.onMalformedBody()
  }

  #sendRefusal(refusal: ParserRefusal): void {
    this.#phase = 'closing'
    this.socket.write(this.#callbacks.onParserError(refusal, this.peer), 'latin1')
    halfClose(this)
  }

  onTimeout(): void {
    const res = this.#current
    if (this.#phase === 'idle') this.closeIfIdle()
    else if (res === undefined || res.writableEnded) this.abort()
    else {
      nodeHttp.restartTimeout(this.socket) // the owner may go on waiting, for example for an upstream connection
      res.req.context.owner.onIdle?.()
    }
  }

  /** Closes an idle connection, unless a head has begun to arrive. */
  closeIfIdle(): void {
    if (this.#phase === 'idle' && !this.nextHead.hasBegun) this.socket.destroy()
  }

  /** Called twice a second. */
  checkHead(monotonicNow: number): void {
    if (this.#phase === 'idle' && this.nextHead.isLate(monotonicNow))
      this.refuseUnparsed({ error: ERRORS.requestTimeout })
  }

  closeTunnel(): boolean {
    const isTunnel = this.#current?.state === 'tunnel' && !this.socket.destroyed
    if (isTunnel) this.socket.destroy()
    return isTunnel
  }

  detectReset(): void {
    const { complete, readableFlowing } = this.#current?.req ?? { complete: true }
    const isRead = !this.socket.isPaused() && (complete || readableFlowing)
    if (isRead || this.#isProbing) return // while the client reads nothing, the previous probe has not ended
    this.#isProbing = true
    nodeHttp.probeForReset(this.tcpSocket, () => {
      this.#isProbing = false
    })
  }

  /** Ends the connection at once, even within a response, after a timeout, a failure or the stop of the process. */
  abort(): void {
    const isCut = this.#current?.beginAbort() === true
    destroyOrReset(this, isCut ? this.#current : undefined)
  }
}
