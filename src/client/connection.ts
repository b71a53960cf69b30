/**
 * One client connection: serves its requests one after the other (RFC 9112, section 9).
 * In: requests and errors of Node's parser. Out: calls of `handle` for each request in its turn, and of `onRequestEnd`.
 *
 * What each phase does beside `ON_ARRIVAL`, and the phase that follows (`>`):
 *
 *   phase               when the response is closed                   when the socket is idle
 *   idle                                                              closes it, or > partialHead if bytes have arrived
 *   partialHead                                                       closes it
 *   serving             serves the next request, or > idle            calls `onIdle` of the request's owner (1)
 *   servingDetached     > closing                                     calls `onIdle` of the request's owner (1)
 *   servingBeforeError  serves the next, or refuses and > closing     calls `onIdle` of the request's owner (1)
 *   closing                                                           closes it
 *
 *   (1) or `abort`, if the client does not read the end of a response
 *
 * What ends the connection, and how:
 *
 *   the last response is written (see `SidecarResponse.begin`)  Node closes it after the written bytes, > closing
 *     the body of its request is unread                         first, `discardBody`
 *     requests or an error wait behind it                       `halfClose`
 *     Node has detached the socket                              `halfClose`
 *   a refusal without a request is written                      `halfClose`, > closing
 *   no request arrives in time                                  `endIdlePhase`
 *   the client reads too slowly; the owner of a request fails   `abort`
 *   the client ends the connection                              Node closes it after the written bytes
 *     a part of the response is not written                     `abort`
 */
import type { Socket } from 'node:net'
import { ERRORS, type PublicError } from '../base/errors.ts'
import type { Peer } from './client-address.ts'
import { type ClientConnection, RequestContext, type SidecarRequest } from './context.ts'
import * as nodeHttp from './node-http.ts'
import { halfClose, SidecarResponse } from './response.ts'

export interface ConnectionEvents {
  /** Must not throw. */
  readonly handle: (res: SidecarResponse) => void
  readonly onRequestEnd: (res: SidecarResponse) => void
  /** Called for a refusal without a request. Returns the response as text. `bytes`: the bytes that hold the error. */
  readonly onParserError: (error: PublicError, peer: Peer, bytes?: Buffer) => string
  readonly isDraining: () => boolean
}

export interface Timeouts {
  readonly idleMs: number
  /** Longer than Node waits for the rest of a head. */
  readonly headMs: number
}

/** What each phase does with a request that arrives, or with an error of the parser. */
const ON_ARRIVAL = {
  idle: 'serve',
  partialHead: 'serve',
  serving: 'wait',
  servingDetached: 'drop', // a request whose socket Node has detached (`Upgrade`, CONNECT)
  servingBeforeError: 'drop', // the requests before `#pendingError` (RFC 9112, section 9.6)
  closing: 'drop',
} as const

type Phase = keyof typeof ON_ARRIVAL

/** A refusal without a request: of bytes that do not parse, a late head, an `Upgrade` or CONNECT behind other requests. */
type PendingError = { readonly error: PublicError; readonly bytes?: Buffer | undefined }

/** The socket is paused while this many requests wait. */
const MAX_WAITING = 16

export class Connection implements ClientConnection {
  readonly peer: Peer
  readonly tcpSocket: Socket
  readonly isDraining: () => boolean
  readonly #socket: Socket
  readonly #timeouts: Timeouts
  readonly #events: ConnectionEvents
  #phase: Phase = 'idle'
  #current: SidecarResponse | undefined
  readonly #waiting: SidecarResponse[] = []
  #pendingError: PendingError | undefined
  /** `socket.bytesRead` at the end of the previous response. */
  #bytesBefore: number
  #isProbing = false

  constructor(socket: Socket, tcpSocket: Socket, peer: Peer, timeouts: Timeouts, events: ConnectionEvents) {
    this.peer = peer
    this.#timeouts = timeouts
    this.#socket = socket
    this.tcpSocket = tcpSocket
    this.isDraining = events.isDraining
    this.#events = events
    this.#bytesBefore = socket.bytesRead
    socket.on('error', () => {}) // without a listener, an error would end the process; `close` follows
    nodeHttp.listenBeforeNode(socket, 'end', () => {
      // Node would end the connection after the written bytes. It does not end a detached socket.
      if (this.#current?.stage === 'partial' && this.#phase !== 'servingDetached') this.abort()
    })
  }

  /** The number of requests that are handled or wait. A tunnel and the discard of an unread body do not count. */
  get inFlight(): number {
    return this.#waiting.length + Number(this.#current?.req.context.owner.state === 'inFlight')
  }

  get isServing(): boolean {
    return this.#current !== undefined
  }

  receive(res: SidecarResponse): void {
    if (this.#socket.destroyed) return // TLS still delivers decrypted requests, whose responses would never emit `close`
    const arrival = ON_ARRIVAL[this.#phase]
    if (arrival === 'serve') this.#serve(res, 'serving')
    else if (arrival === 'wait') {
      this.#waiting.push(res)
      if (this.#waiting.length === MAX_WAITING)
        nodeHttp.pauseWhile(this.#socket, () => this.#waiting.length >= MAX_WAITING)
    }
  }

  #serve(res: SidecarResponse, phase: Phase, firstBytes?: Buffer): void {
    if (this.#phase === 'partialHead') this.#socket.setTimeout(this.#timeouts.idleMs)
    this.#phase = phase
    this.#current = res
    res.req.context = new RequestContext(this, firstBytes)
    res.on('close', this.#onResponseClosed)
    this.#events.handle(res)
  }

  readonly #onResponseClosed = (): void => {
    const res = this.#current
    if (res === undefined) return
    this.#current = undefined
    res.req.context.owner.onClosed?.()
    this.#events.onRequestEnd(res)
    this.#bytesBefore = this.#socket.bytesRead
    if (this.#socket.writable) this.#serveNext()
    else this.#endAfterLast()
  }

  #serveNext(): void {
    const next = this.#waiting.shift()
    if (next !== undefined) {
      this.#serve(next, this.#pendingError === undefined ? 'serving' : 'servingBeforeError')
      if (this.#waiting.length === MAX_WAITING - 1) this.#socket.resume()
    } else if (this.#pendingError !== undefined) this.#sendRefusal(this.#pendingError)
    else this.#phase = 'idle'
  }

  /** Node has ended or destroyed the socket, because the response was the last one. Nothing that waits is served. */
  #endAfterLast(): void {
    this.#phase = 'closing'
    const unserved = this.#waiting.splice(0)
    for (const { req } of unserved) req.resume()
    const isFollowed = unserved.length > 0 || this.#pendingError !== undefined
    if (isFollowed && !this.#socket.destroyed) halfClose(this.#socket)
  }

  /** Receives a request whose socket Node has detached. No other request can follow. */
  receiveUpgrade(req: SidecarRequest, firstBytes: Buffer): void {
    const socket = this.#socket
    if (socket.destroyed) return
    // Node has removed its own listeners of these events.
    socket.on('drain', () => this.#current?.emit('drain')).on('timeout', () => this.onTimeout())
    const arrival = ON_ARRIVAL[this.#phase]
    if (arrival === 'serve') {
      const res = new SidecarResponse(req)
      nodeHttp.assignDetachedSocket(res, socket, () => halfClose(socket))
      this.#serve(res, 'servingDetached', firstBytes)
    } else if (arrival === 'wait') {
      const isConnect = req.method === 'CONNECT'
      this.#refuseInTurn({ error: isConnect ? ERRORS.malformedRequest : ERRORS.upgradeRefused })
      socket.once('end', () => socket.end())
    }
  }

  refuse(error: PendingError): void {
    const socket = this.#socket
    const arrival = ON_ARRIVAL[this.#phase]
    if (arrival === 'drop') return
    if (!socket.writable || this.tcpSocket.destroyed) socket.destroy()
    else if (arrival === 'serve') this.#sendRefusal(error)
    else this.#refuseInTurn(error)
  }

  #refuseInTurn(error: PendingError): void {
    this.#phase = 'servingBeforeError'
    this.#pendingError = error
    nodeHttp.discardInput(this.#socket)
    const newest = this.#waiting.at(-1) ?? this.#current
    if (newest?.req.complete !== false) return
    // The error is in the body of the newest request. If this request waits, the refusal takes its place.
    if (newest !== this.#current) this.#waiting.pop()?.req.resume()
    else newest.req.context.onMalformedBody()
  }

  #sendRefusal({ error, bytes }: PendingError): void {
    this.#phase = 'closing'
    this.#socket.write(this.#events.onParserError(error, this.peer, bytes), 'latin1')
    halfClose(this.#socket)
  }

  onTimeout(): void {
    const res = this.#current
    if (this.#phase === 'idle') this.endIdlePhase()
    else if (res === undefined || res.writableEnded) this.abort()
    else {
      nodeHttp.restartTimeout(this.#socket) // the owner may go on waiting, for example for an upstream connection
      res.req.context.owner.onIdle?.()
    }
  }

  /** Closes an idle connection, or waits for the head that may have begun to arrive. */
  endIdlePhase(): void {
    if (this.#phase !== 'idle') return
    const socket = this.#socket
    if (socket.bytesRead === this.#bytesBefore) socket.destroy()
    else {
      // Node's `headersTimeout` refuses a partial head earlier, but does not start with empty lines.
      this.#phase = 'partialHead'
      socket.setTimeout(this.#timeouts.headMs)
    }
  }

  closeTunnel(): boolean {
    const isTunnel = this.#current?.req.context.owner.state === 'tunnel' && !this.#socket.destroyed
    if (isTunnel) this.#socket.destroy()
    return isTunnel
  }

  detectReset(): void {
    if (this.#isProbing) return // while the client reads nothing, the previous probe has not ended
    this.#isProbing = true
    nodeHttp.probeForReset(this.tcpSocket, () => {
      this.#isProbing = false
    })
  }

  /** Ends the connection at once, even within a response, after a timeout, a failure or the stop of the process. */
  abort(): void {
    if (this.#current?.mustReset) nodeHttp.resetOrDestroy(this.#socket, this.tcpSocket)
    else this.#socket.destroy()
  }
}
