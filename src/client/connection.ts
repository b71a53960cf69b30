/**
 * One client connection: serves its requests one after the other (RFC 9112, section 9).
 * In: requests and errors of Node's parser. Out: a call of `handle` for each request in its turn, and of `onRequestEnd`.
 *
 * What each event does in each `Phase`, and (`>`) the phase that follows:
 *
 *                      idle          awaitingHead  serving         refusing        detached    ended
 *   receive            > serving     > serving     waits           is not read     -           is not read
 *   receiveDetached    > detached    > detached    > refusing      is refused      -           is dropped
 *   refuse             > ended       > ended       > refusing      -               -           -
 *   onResponseClosed   -             -             next, > idle    next, > ended   > ended     -
 *     of the last one  -             -             > ended         > ended         > ended     -
 *   onTimeout          closes (1)    closes        onIdle (2)      onIdle (2)      onIdle (2)  closes
 *   closeIfIdle        closes (1)    -             -               -               -           -
 *   #onClientEnd       -             -             aborts (3)      aborts (3)      aborts (3)  -
 *   abort              closes        closes        aborts (4)      aborts (4)      aborts (4)  closes
 *
 *   (1) or > awaitingHead, if bytes have arrived since the previous response
 *   (2) of the request's owner; aborts if only the client has still to read
 *   (3) if the response has no other end than that of the connection; else Node ends the connection after what is written
 *   (4) closes, with a reset where a close could be taken for the end of the response (`mustReset`)
 *
 * The refusal is sent at the transition to `ended`, after the requests before it.
 * A response is the last one by `mustClose`, and by `client/response.ts` for a body that is unread or has no other end.
 */
import type { Socket } from 'node:net'
import { ERRORS, type PublicError } from '../errors.ts'
import type { Peer } from './client-address.ts'
import { type ClientConnection, RequestContext, type SidecarRequest } from './context.ts'
import { assignDetachedSocket, DISCARDS_AFTER_OFFER, pauseWhile } from './node-http.ts'
import { dropRequests, endConnection, SidecarResponse } from './response.ts'

export interface ConnectionEvents {
  /** Must not throw. */
  readonly handle: (res: SidecarResponse) => void
  readonly onRequestEnd: (res: SidecarResponse) => void
  /** Called for a refusal without a request; returns the response as text. `bytes`: those with the error. */
  readonly onParserError: (error: PublicError, peer: Peer, bytes?: Buffer) => string
  readonly isDraining: () => boolean
}

export interface Timeouts {
  readonly idleMs: number
  /** Longer than Node waits for the rest of a head. */
  readonly headMs: number
}

type Phase =
  /** Between requests, or before the first. */
  | 'idle'
  /** The same beyond the idle time: a part of a head may have arrived. */
  | 'awaitingHead'
  | 'serving'
  /** Serves the requests before `#pendingError`. */
  | 'refusing'
  /** Serves the last request, whose socket Node has detached for `Upgrade` or CONNECT. */
  | 'detached'
  /** The last response or the refusal has been sent; what still arrives is dropped (RFC 9112, section 9.6). */
  | 'ended'

/** What is refused without a request: bytes that do not parse, a late head, an `Upgrade` or CONNECT behind other requests. */
interface PendingError {
  readonly error: PublicError
  readonly bytes?: Buffer | undefined
}

/** Requests behind the one being served; while there are so many, nothing is read. */
const MAX_WAITING = 16

export class Connection implements ClientConnection {
  readonly peer: Peer
  readonly tcpSocket: Socket
  readonly #socket: Socket
  readonly #timeouts: Timeouts
  readonly #events: ConnectionEvents
  #phase: Phase = 'idle'
  /** The response to the request that is being served. */
  #current: SidecarResponse | undefined
  readonly #waiting: SidecarResponse[] = []
  /** Set in the phase `refusing`. */
  #pendingError: PendingError | undefined
  /** `socket.bytesRead` at the end of the previous response. */
  #bytesBefore: number

  /** @param tcpSocket - the same socket, or the one under a TLS socket */
  constructor(socket: Socket, tcpSocket: Socket, peer: Peer, timeouts: Timeouts, events: ConnectionEvents) {
    this.peer = peer
    this.#timeouts = timeouts
    this.#socket = socket
    this.tcpSocket = tcpSocket
    this.#events = events
    this.#bytesBefore = socket.bytesRead
    socket.on('error', ignoreError)
    socket.once('end', () => this.#onClientEnd())
  }

  get inFlight(): number {
    const { state = 'inFlight' } = this.#current?.req.context.owner ?? {}
    return this.#waiting.length + Number(this.isServing && state === 'inFlight')
  }

  get isServing(): boolean {
    return this.#current !== undefined
  }

  get mustClose(): boolean {
    const { admitted, isBodyMalformed, isDetached } = this.#current?.req.context ?? {}
    if (admitted === undefined || isBodyMalformed || this.#events.isDraining()) return true
    if (admitted.lines.connectionOptions?.has('close')) return true
    return DISCARDS_AFTER_OFFER && admitted.offersUpgrade && !isDetached
  }

  receive(res: SidecarResponse): void {
    const socket = this.#socket
    if (socket.destroyed) return // TLS delivers what it had decrypted; no `close` would follow
    const phase = this.#phase
    if (phase === 'idle' || phase === 'awaitingHead') {
      this.#serve(res, 'serving')
    } else if (phase === 'serving') {
      this.#waiting.push(res)
      if (this.#waiting.length === MAX_WAITING) pauseWhile(socket, () => this.#waiting.length >= MAX_WAITING)
    } else {
      socket.pause()
    }
  }

  #serve(res: SidecarResponse, phase: Phase, firstBytes?: Buffer): void {
    if (this.#phase === 'awaitingHead') this.#socket.setTimeout(this.#timeouts.idleMs)
    this.#phase = phase
    this.#current = res
    res.req.context = new RequestContext(this, firstBytes)
    res.on('close', onResponseClosed)
    this.#events.handle(res)
  }

  onResponseClosed(): void {
    const socket = this.#socket
    const res = this.#current
    if (res === undefined) return
    this.#current = undefined
    res.req.context.changeOwner(undefined)
    this.#events.onRequestEnd(res)
    this.#bytesBefore = socket.bytesRead
    if (!socket.writable) {
      this.#phase = 'ended'
      const unserved = this.#waiting.splice(0)
      if (unserved.length > 0 && !socket.destroyed) dropRequests(socket, unserved)
      return
    }
    const next = this.#waiting.shift()
    if (next !== undefined) {
      this.#serve(next, this.#phase)
      if (this.#waiting.length === MAX_WAITING - 1) socket.resume()
    } else if (this.#pendingError !== undefined) this.#sendRefusal(this.#pendingError)
    else this.#phase = 'idle'
  }

  /** Node has detached the socket for `Upgrade` or CONNECT: no other request can follow. */
  receiveDetached(req: SidecarRequest, firstBytes: Buffer): void {
    const socket = this.#socket
    if (socket.destroyed) return
    // Node has removed its listeners.
    socket.on('drain', () => this.#current?.emit('drain'))
    socket.on('timeout', () => this.onTimeout())
    const phase = this.#phase
    if (phase === 'idle' || phase === 'awaitingHead') {
      const res = new SidecarResponse(req)
      assignDetachedSocket(res, socket, () => endConnection(socket))
      this.#serve(res, 'detached', firstBytes)
    } else if (phase === 'serving' || phase === 'refusing') {
      const isConnect = req.method === 'CONNECT'
      this.#refuseInTurn({ error: isConnect ? ERRORS.malformedRequest : ERRORS.upgradeRefused })
      socket.once('end', () => socket.end())
      socket.resume()
    } else {
      endConnection(socket)
    }
  }

  refuse(error: PendingError): void {
    const socket = this.#socket
    const phase = this.#phase
    if (phase === 'refusing' || phase === 'detached' || phase === 'ended') return // it is in bytes that are dropped
    if (!socket.writable) socket.destroy()
    else if (phase === 'serving') this.#refuseInTurn(error)
    else this.#sendRefusal(error)
  }

  #refuseInTurn(error: PendingError): void {
    this.#phase = 'refusing'
    this.#pendingError = error
    const newest = this.#waiting.at(-1) ?? this.#current
    if (newest?.req.complete !== false) return
    // The error is in its body. If the request waits, the refusal takes its place.
    if (newest === this.#current) {
      newest.req.context.isBodyMalformed = true
      newest.req.context.owner?.onMalformedBody?.()
    } else {
      this.#waiting.pop()
    }
  }

  #sendRefusal({ error, bytes }: PendingError): void {
    this.#phase = 'ended'
    endConnection(this.#socket, this.#events.onParserError(error, this.peer, bytes))
  }

  onTimeout(): void {
    const socket = this.#socket
    const res = this.#current
    if (this.#phase === 'idle') {
      this.closeIfIdle()
    } else if (res === undefined || res.writableEnded) {
      this.abort()
    } else {
      // Re-arms Node's one-shot timer: a request that waits for a connection is not idle yet.
      socket.setTimeout(socket.timeout ?? 0)
      res.req.context.owner?.onIdle()
    }
  }

  closeIfIdle(): void {
    if (this.#phase !== 'idle') return
    const socket = this.#socket
    if (socket.bytesRead === this.#bytesBefore) {
      socket.destroy()
    } else {
      // Node refuses a part of a head earlier. Of empty lines it does not count the time.
      this.#phase = 'awaitingHead'
      socket.setTimeout(this.#timeouts.headMs)
    }
  }

  closeTunnel(): boolean {
    const isTunnel = this.#current?.req.context.owner?.state === 'tunnel' && !this.#socket.destroyed
    if (isTunnel) this.#socket.destroy()
    return isTunnel
  }

  #onClientEnd(): void {
    if (this.#current?.endsWithConnection === true) this.abort()
  }

  abort(): void {
    const socket = this.#socket
    // After `end`, as when the client half-closes, libuv refuses the reset, and `close` would never come.
    if (this.#current?.mustReset === true && !socket.writableEnded) this.tcpSocket.resetAndDestroy()
    else socket.destroy()
  }
}

/** Without a listener an error would end the process; `close` follows in any case. */
function ignoreError(): void {}

function onResponseClosed(this: SidecarResponse): void {
  this.req.context.connection.onResponseClosed()
}
