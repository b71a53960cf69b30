/**
 * What comes from one client: its bytes, made requests.
 *
 * Requests are parsed as far as the connection takes them; what is behind them is held, and once that is more than a
 * little the socket is not read any more. Where the body of a request ends is said by
 * the gate, which has looked at its head; behind a head that the gate did not admit nothing is a request.
 *
 * @module
 */
import type { Socket } from 'node:net'
import { ERRORS, type PublicError } from '../errors.ts'
import { MessageFault } from '../http1/message-fault.ts'
import type { MessageLimits } from '../http1/message-reader.ts'
import {
  type RawRequestHead,
  type RequestBody,
  RequestReader,
  type RequestSink,
} from '../http1/request-reader.ts'
import type { BodySource } from './client-request.ts'
import type { Exchange } from './exchange.ts'
import type { SocketReader, SocketReading } from './socket-reading.ts'

/** Whose requests they are. */
export interface RequestTaker {
  readonly limits: MessageLimits
  /** Whether another request may be in flight now. */
  readonly mayStart: boolean
  /** No further request is taken. */
  readonly isEnding: boolean
  /** The last answer has been sent: whatever comes is dropped. */
  readonly isClosing: boolean
  /** Makes an exchange of a head, and has it worked on as far as that goes now. */
  start(head: RawRequestHead, body: BodySource): Exchange
  /** Some of a head has come, and not all of it. */
  onHeadBegun(): void
  /** No further request is taken. `byUs`: the client may still be sending, and must see the last answer all the same. */
  onLastRequest(byUs: boolean): void
  /** What came is no request. */
  refuse(error: PublicError): void
  /** What comes as the body of an exchange is none. */
  refuseBody(exchange: Exchange): void
  /** Bytes that are dropped have come. */
  onDropped(): void
  /** A fault of our own. */
  onFault(error: unknown): void
}

/** Whoever has taken a connection out of HTTP. */
export interface RawTaker {
  /** The memory of the chunk is read into again after the call. */
  onRaw(chunk: Buffer): void
  /** The client sends no more. */
  onRawEnd(): void
}

/** Bytes that are held, or dropped, before the socket is not read any more. */
const MOST_HELD = 16 * 1024

/** Makes requests of what comes. */
export class RequestIntake implements RequestSink, SocketReader, BodySource {
  readonly #taker: RequestTaker
  readonly #reading: SocketReading
  readonly #socket: Socket
  readonly #reader: RequestReader
  /** The exchange whose body is being read. */
  #receiving: Exchange | undefined
  /** Pieces of its body that have come and not been told. */
  #pieces: Buffer[] = []
  /** What came behind as many requests as are taken. */
  #held: Buffer | undefined
  /** Nobody will look at what comes. */
  #stopped = false
  #dropped = 0
  /** The last request asks for another protocol: what is behind it is for whoever speaks that. */
  #leavesHttp = false
  /** Who gets what comes, since the connection has left HTTP. */
  #raw: RawTaker | undefined

  constructor(taker: RequestTaker, reading: SocketReading) {
    this.#taker = taker
    this.#reading = reading
    this.#socket = reading.socket
    this.#reader = new RequestReader(this, taker.limits)
  }

  /** Whether some of a head has come, and not all of it. */
  get isWithinHead(): boolean {
    return this.#reader.atHead && this.#reader.isWithin
  }

  get receivesBody(): boolean {
    return this.#receiving?.req.wantsBytes === true
  }

  onBytes(chunk: Buffer): void {
    if (this.#taker.isClosing) this.#taker.onDropped()
    else if (this.#stopped) this.#drop(chunk)
    else if (this.#raw !== undefined) this.#raw.onRaw(chunk)
    else this.#parse(chunk)
  }

  /** The client sends no more. Says whether what it sent last was whole, and for us. */
  onSocketEnd(): boolean {
    if (this.#raw !== undefined) {
      this.#raw.onRawEnd()
      return false
    }
    if (this.#receiving === undefined && !this.#reader.isWithin) return true
    this.#refuse(ERRORS.malformedRequest)
    return false
  }

  /** Another request may be in flight: goes on with what is held. */
  goOn(): void {
    const held = this.#held
    if (held === undefined || !this.#taker.mayStart) return
    this.#held = undefined
    this.#parse(held)
  }

  /** What comes from now on is left unread: it is no request, and must not cost the client the answers before it. */
  stop(): void {
    this.#stopped = true
    this.#taker.onLastRequest(true)
  }

  /** No further request is taken. */
  end(): void {
    this.#held = undefined
    this.#leavesHttp = false
  }

  /** The last request that was read asks for another protocol: what comes from now on is somebody's else to read. */
  leaveHttp(taker: RawTaker): void {
    this.#raw = taker
    const held = this.#held
    this.#held = undefined
    if (held !== undefined) taker.onRaw(held)
    this.onPace()
  }

  onHead(head: RawRequestHead): RequestBody | undefined {
    const exchange = this.#taker.start(head, this)
    const { admitted } = exchange
    if (admitted === undefined || admitted.upgrade !== undefined) {
      // Nobody knows where the body of such a request ends, or it is followed by another protocol.
      this.#taker.onLastRequest(false)
      this.#leavesHttp = admitted !== undefined && !exchange.res.last
      return undefined
    }
    this.#receiving = exchange
    if (!admitted.persistent) this.#taker.onLastRequest(false)
    return admitted
  }

  onBody(chunk: Buffer): void {
    this.#pieces.push(chunk)
  }

  onEnd(rawTrailers: readonly string[]): void {
    this.#tellBody()
    const exchange = this.#receiving
    this.#receiving = undefined
    exchange?.req.onEnd(rawTrailers)
  }

  hold(): () => void {
    return this.#reading.hold()
  }

  onPace(): void {
    const mayRead = this.#taker.isClosing || this.#raw !== undefined || this.#wantsBytes()
    if (mayRead === this.#socket.isPaused()) {
      if (mayRead) this.#socket.resume()
      else this.#socket.pause()
    }
  }

  /** Tells what one read brought of a body at once: a client that sends chunks of one byte must not cost us a write each. */
  #tellBody(): void {
    const [only, ...more] = this.#pieces
    if (only === undefined) return
    const isCopy = more.length > 0
    const bytes = isCopy ? Buffer.concat(this.#pieces) : only
    this.#pieces = []
    this.#receiving?.req.onBody(this.#reading.isShared && !isCopy ? Buffer.from(bytes) : bytes)
  }

  #drop(chunk: Buffer): void {
    this.#dropped += chunk.length
    this.onPace()
  }

  #wantsBytes(): boolean {
    const { req } = this.#receiving ?? {}
    if (req !== undefined) return req.wantsBytes
    // A little is read of what nobody wants now: a client that leaves is not heard of otherwise.
    return (this.#held?.length ?? 0) < MOST_HELD && this.#dropped < MOST_HELD
  }

  #parse(chunk: Buffer): void {
    try {
      this.#parseAll(chunk)
      this.#tellBody()
    } catch (error) {
      if (error instanceof MessageFault) {
        this.#refuse(error.tooLarge ? ERRORS.headersTooLarge : ERRORS.malformedRequest)
      } else {
        this.#taker.onFault(error)
        return
      }
    }
    if (this.#taker.isClosing) return
    if (this.isWithinHead) this.#taker.onHeadBegun()
    this.onPace()
  }

  /** Parses as many requests as are taken. */
  #parseAll(chunk: Buffer): void {
    let rest = chunk
    while (rest.length > 0 && !this.#taker.isClosing) {
      if (this.#raw !== undefined) {
        this.#raw.onRaw(rest)
        return
      }
      if (this.#receiving === undefined && (this.#held !== undefined || !this.#taker.mayStart)) {
        this.#hold(rest)
        return
      }
      const taken = this.#reader.push(rest)
      if (!this.#reader.done) return
      this.#reader.next()
      rest = rest.subarray(taken)
    }
  }

  /** Keeps what cannot be parsed now. Behind the last request nothing is a request. */
  #hold(rest: Buffer): void {
    if (this.#taker.isEnding && !this.#leavesHttp) this.stop()
    else this.#held = Buffer.concat([this.#held ?? rest.subarray(0, 0), rest])
  }

  #refuse(error: PublicError): void {
    const receiving = this.#receiving
    this.#receiving = undefined
    this.#pieces = []
    if (receiving === undefined) this.#taker.refuse(error)
    else this.#taker.refuseBody(receiving)
  }
}
