/**
 * One client connection: serves its requests one after the other (RFC 9112, section 9).
 * In: requests and errors of Node's parser. Out: a call of `handle` for each request in its turn, and of `onRequestEnd`.
 *
 * How it ends, and what decides:
 *   after a response       `mustClose`, and `request/response.ts` for a body that is unread or has no other end
 *   after a last refusal   `onParserError`, and `receiveDetached` behind other requests
 *   idle                   `onTimeout`; while the process drains, `closeIfIdle`
 *   within a response      `abort`: with a reset where a close could be taken for the end
 */
import type { Socket } from 'node:net'
import { ERRORS, type PublicError } from '../errors.ts'
import type { Peer } from '../request/client-address.ts'
import { type ClientConnection, RequestContext, type SidecarRequest } from '../request/context.ts'
import { assignDetachedSocket, keepAfterLastResponse, keepPausedWhile } from '../request/node-http.ts'
import { dropUnread, endConnection, SidecarResponse } from '../request/response.ts'

export interface ConnectionEvents {
  /** Must not throw. */
  readonly handle: (res: SidecarResponse) => void
  readonly onRequestEnd: (res: SidecarResponse) => void
  /** Called for bytes that are not a request; returns the response as text. `bytes`: the last of them. */
  readonly onParserError: (error: PublicError, peer: Peer, bytes?: Buffer) => string
  readonly isDraining: () => boolean
}

export interface ConnectionSettings {
  readonly idleMs: number
  /** Longer than Node waits for the rest of a head. */
  readonly headMs: number
  /** Of this version of Node: see `request/node-http.ts`. */
  readonly discardsAfterOffer: boolean
}

/** `rawPacket`: the bytes in which Node's parser found the error. */
export type ParserError = NodeJS.ErrnoException & { readonly rawPacket?: Buffer }

/** Refuses bytes that are not a request: sent after the responses to earlier requests. */
interface FinalError {
  readonly error: PublicError
  readonly bytes?: Buffer | undefined
}

/** Requests behind the one being served; while there are so many, nothing is read. */
const MAX_WAITING_REQUESTS = 16

export class Connection implements ClientConnection {
  readonly peer: Peer
  readonly tcpSocket: Socket
  readonly #socket: Socket
  readonly #settings: ConnectionSettings
  readonly #events: ConnectionEvents
  #current: SidecarResponse | undefined
  readonly #waiting: SidecarResponse[] = []
  #hasPauseListener = false
  /** Set when no further request is accepted: the response being sent is the last, or a refusal follows it. */
  #lastMessage: 'response' | FinalError | undefined
  /** `socket.bytesRead` at the end of the previous response. */
  #bytesBefore: number
  /** Bytes of the next head have arrived, and the socket's timer gives it `headMs`. */
  #hasHeadGrace = false

  /** @param tcpSocket - the same socket, or the one under a TLS socket */
  constructor(
    socket: Socket,
    tcpSocket: Socket,
    peer: Peer,
    settings: ConnectionSettings,
    events: ConnectionEvents,
  ) {
    this.peer = peer
    this.#settings = settings
    this.#socket = socket
    this.tcpSocket = tcpSocket
    this.#events = events
    this.#bytesBefore = socket.bytesRead
    socket.on('error', ignoreError)
    socket.once('end', () => this.#onEnd())
  }

  get inFlight(): number {
    const { state = 'inFlight' } = this.#current?.req.context.owner ?? {}
    const isServed = this.#current !== undefined && state === 'inFlight'
    return this.#waiting.length + Number(isServed)
  }

  get isServing(): boolean {
    return this.#current !== undefined
  }

  get mustClose(): boolean {
    const { admitted, isBodyMalformed, isDetached } = this.#current?.req.context ?? {}
    if (admitted === undefined || isBodyMalformed || this.#events.isDraining()) return true
    if (admitted.connectionOptions?.has('close')) return true
    return this.#settings.discardsAfterOffer && admitted.offersUpgrade && !isDetached
  }

  get #isFull(): boolean {
    return this.#waiting.length >= MAX_WAITING_REQUESTS
  }

  receive(res: SidecarResponse): void {
    const socket = this.#socket
    if (socket.destroyed) return // TLS delivers what it had decrypted; no `close` would follow
    if (this.#lastMessage !== undefined) {
      socket.pause()
    } else if (this.#current === undefined) {
      this.#serve(res)
    } else {
      this.#waiting.push(res)
      if (this.#isFull) this.#pauseWhileFull()
    }
  }

  #pauseWhileFull(): void {
    this.#socket.pause()
    if (!this.#hasPauseListener) keepPausedWhile(this.#socket, () => this.#isFull)
    this.#hasPauseListener = true
  }

  #serve(res: SidecarResponse, firstBytes?: Buffer): void {
    this.#current = res
    res.req.context = new RequestContext(this, firstBytes)
    if (this.#hasHeadGrace) this.#socket.setTimeout(this.#settings.idleMs)
    this.#hasHeadGrace = false
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
    const next = socket.writable ? this.#waiting.shift() : undefined
    if (!socket.writable) this.#dropWaiting()
    else if (next === undefined) this.#sendFinalError()
    else this.#serve(next)
    if (next !== undefined && this.#hasPauseListener && !this.#isFull) socket.resume()
  }

  /** Requests received after the last response are ignored (RFC 9112, section 9.6). */
  #dropWaiting(): void {
    const socket = this.#socket
    this.#lastMessage ??= 'response'
    const unserved = this.#waiting.splice(0)
    if (unserved.length === 0 || socket.destroyed) return
    keepAfterLastResponse(socket)
    for (const response of unserved) response.req.resume()
    dropUnread(socket)
  }

  /** Node has detached the socket for `Upgrade` or CONNECT: the connection ends with the response. */
  receiveDetached(req: SidecarRequest, firstBytes: Buffer): void {
    const socket = this.#socket
    const wasEnding = this.#lastMessage !== undefined
    this.#lastMessage ??= 'response'
    if (socket.destroyed) return
    // Node has removed its listeners.
    socket.on('drain', () => this.#current?.emit('drain'))
    socket.on('timeout', () => this.onTimeout())
    if (this.#current !== undefined) {
      const isConnect = req.method === 'CONNECT'
      this.#lastMessage = { error: isConnect ? ERRORS.malformedRequest : ERRORS.upgradeRefused }
      socket.once('end', () => socket.end())
      socket.resume()
    } else if (wasEnding) {
      endConnection(socket) // it was sent after the last response
    } else {
      const res = new SidecarResponse(req)
      assignDetachedSocket(res, socket, () => endConnection(socket))
      this.#serve(res, firstBytes)
    }
  }

  /** Node's parser has found an error in what the client sent, or a head is late. */
  onParserError(error: ParserError): void {
    const socket = this.#socket
    if (typeof this.#lastMessage === 'object') return // errors of the bytes that the parser discards
    if (!socket.writable || isLost(error)) {
      socket.destroy()
      return
    }
    const refusal = PARSER_ERRORS.get(error.code) ?? ERRORS.malformedRequest
    this.#lastMessage = { error: refusal, bytes: error.rawPacket }
    const newest = this.#waiting.at(-1) ?? this.#current
    // The error is in its body. If it waits, the refusal takes its place.
    if (newest?.req.complete === false && this.#waiting.pop() === undefined) {
      newest.req.context.isBodyMalformed = true
      newest.req.context.owner?.onMalformedBody?.()
    }
    this.#sendFinalError()
  }

  #sendFinalError(): void {
    if (typeof this.#lastMessage !== 'object' || this.#current !== undefined) return
    const { error, bytes } = this.#lastMessage
    endConnection(this.#socket, this.#events.onParserError(error, this.peer, bytes))
  }

  onTimeout(): void {
    const socket = this.#socket
    const res = this.#current
    if (res !== undefined && !res.writableEnded) {
      // Re-arms Node's one-shot timer: a request that waits for a connection is not idle yet.
      socket.setTimeout(socket.timeout ?? 0)
      res.req.context.owner?.onIdle()
    } else if (res === undefined && this.#mayAwaitHead && !this.#hasHeadGrace) {
      this.#grantHeadTime()
    } else {
      this.abort()
    }
  }

  /** If a part of a head has arrived, Node refuses it. Of empty lines Node does not count the time. */
  #grantHeadTime(): void {
    this.#hasHeadGrace = true
    this.#socket.setTimeout(this.#settings.headMs)
  }

  closeIfIdle(): void {
    if (this.#current !== undefined || this.#lastMessage !== undefined) return
    if (!this.#mayAwaitHead) this.#socket.destroy()
    else if (!this.#hasHeadGrace) this.#grantHeadTime()
  }

  /** Whether bytes have arrived since the previous response. */
  get #mayAwaitHead(): boolean {
    return this.#lastMessage === undefined && this.#socket.bytesRead !== this.#bytesBefore
  }

  closeTunnel(): boolean {
    const isTunnel = this.#current?.req.context.owner?.state === 'tunnel' && !this.#socket.destroyed
    if (isTunnel) this.#socket.destroy()
    return isTunnel
  }

  /** Node closes a half-closed connection after this. */
  #onEnd(): void {
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

function isLost({ code = '' }: NodeJS.ErrnoException): boolean {
  return code === 'ECONNRESET' || code === 'EPIPE' || code.startsWith('ERR_SSL_')
}

const PARSER_ERRORS: ReadonlyMap<string | undefined, PublicError> = new Map<string, PublicError>([
  ['HPE_HEADER_OVERFLOW', ERRORS.headersTooLarge],
  ['ERR_HTTP_REQUEST_TIMEOUT', ERRORS.requestTimeout],
])
