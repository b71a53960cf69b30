/**
 * One connection from a client, and the requests in flight on it.
 *
 * HTTP/1.1 lets a client send the next request before the last one is answered. A connection has its share of requests
 * in flight and no more, and their responses go in order. It ends with the first request that cannot be understood, once
 * those before it are answered, and never so that the client loses an answer or takes a part of one for the whole.
 *
 * @module
 */
import type { Socket } from 'node:net'
import { ERRORS, type PublicError } from '../errors.ts'
import type { LastAdmitted } from '../gate/admission.ts'
import { NO_LINES } from '../http1/field-lines.ts'
import type { MessageLimits } from '../http1/message-reader.ts'
import type { RawRequestHead } from '../http1/request-reader.ts'
import type { Identity } from '../token/verdict.ts'
import { type BodySource, ClientRequest } from './client-request.ts'
import { ClientResponse, type ResponseConnection } from './client-response.ts'
import type { Deadlines, Waiting } from './deadlines.ts'
import { Exchange } from './exchange.ts'
import { closeWritten, LINGER_BYTES, LINGER_MS } from './linger.ts'
import type { Peer } from './peer.ts'
import { RequestIntake, type RequestTaker } from './request-intake.ts'
import { resetConnection } from './secure-server.ts'
import type { SocketReading } from './socket-reading.ts'

/** What all connections of a listener work with. */
export interface ClientConnectionOptions {
  readonly deadlines: Deadlines
  readonly limits: {
    readonly headerBytes: number
    readonly headerLines: number
    readonly inFlightPerConnection: number
  }
  /** Milliseconds for a head, from its first byte on; for the first head of a connection, from its beginning on. */
  readonly headersMs: number
  /** Milliseconds for which an unused connection is kept. */
  readonly keepAliveMs: number
  /** Works on a request, and sets what its admission found. Must not throw. */
  readonly handle: (exchange: Exchange) => void
  /** Told once for each request that was started. `finished`: its response was sent whole. */
  readonly onOver: (exchange: Exchange, finished: boolean) => void
  /** Told of what is no request; returns the bytes of its answer, each character one byte. */
  readonly onRefused: (error: PublicError, peer: Peer) => string
  /** Told of faults of our own; the connection is cut. */
  readonly onFault: (error: unknown) => void
  /** The connection is closed. */
  readonly onClosed: (connection: ClientConnection) => void
}

/** What is kept of the header lines that were forwarded last: the same lines of the same caller become the same. */
export interface LastForwarded {
  rawHeaders: readonly string[] | undefined
  identity: Identity | undefined
  /** What they became, but for a request id of ours. */
  lines: string
  /** Whether the text is in one piece. */
  isFlat: boolean
}

/** A client's connection. */
export class ClientConnection implements RequestTaker, ResponseConnection, Waiting {
  deadline: number
  place = -1
  readonly socket: Socket
  readonly peer: Peer
  readonly limits: MessageLimits
  readonly lastAdmitted: LastAdmitted = { rawHeaders: NO_LINES, fields: undefined }
  readonly lastForwarded: LastForwarded = {
    rawHeaders: undefined,
    identity: undefined,
    lines: '',
    isFlat: false,
  }
  readonly openedAt: number
  readonly keepAliveMs: number
  /** What comes. */
  readonly intake: RequestIntake
  readonly #options: ClientConnectionOptions
  /** In order: the response of the first one is being sent. */
  readonly #inFlight: Exchange[] = []
  #isAdvancing = false
  /** A head has begun to come, or none ever has: one has to come in time. */
  #awaitsHead = true
  #isEnding = false
  /** It ends by our doing: the client may still be sending, and must see the last answer all the same. */
  #lingers = false
  #isClosing = false
  #dropFrom = 0
  /** What is written when everything before it has been answered. */
  #last: string | undefined

  constructor(options: ClientConnectionOptions, reading: SocketReading, peer: Peer) {
    const { deadlines, limits, headersMs, keepAliveMs } = options
    this.#options = options
    this.socket = reading.socket
    this.peer = peer
    this.limits = limits
    this.intake = new RequestIntake(this, reading)
    this.openedAt = deadlines.monotonicNow()
    this.deadline = this.openedAt + headersMs
    this.keepAliveMs = keepAliveMs
    deadlines.add(this)
    this.socket.on('end', () => this.#onEnd())
    this.socket.on('drain', () => this.#inFlight[0]?.res.onDrain?.())
    this.socket.on('error', () => this.socket.destroy()) // an error of TLS alone closes nothing
    this.socket.once('close', () => this.#onClose())
  }

  /** Requests that have been started and not answered yet; a tunnel is none. */
  get unanswered(): number {
    return this.isTunnel ? 0 : this.#inFlight.length
  }

  /** Whether it has left HTTP. */
  get isTunnel(): boolean {
    return this.#inFlight[0]?.switched === true
  }

  /** Whether nothing is in flight and nothing has begun to come. */
  get isUnused(): boolean {
    return this.#inFlight.length === 0 && !this.#isEnding && !this.intake.isWithinHead
  }

  get isEnding(): boolean {
    return this.#isEnding
  }

  get isClosing(): boolean {
    return this.#isClosing
  }

  get mayStart(): boolean {
    return (
      !this.#isEnding &&
      !this.socket.destroyed &&
      this.#inFlight.length < this.#options.limits.inFlightPerConnection
    )
  }

  /**
   * The connection ends with a response, and not because the client asked for it: no request that has not been
   * started yet ever is (RFC 9112, section 9.6), and what the client sends until it sees that costs it no answer.
   */
  end(): void {
    this.onLastRequest(true)
    this.intake.end()
    this.#last = undefined
  }

  /** Destroys it, whatever is in flight on it, such that nobody takes what was sent for all of it. */
  cut(): void {
    const [current] = this.#inFlight
    if (current?.res.framedByClose === true) resetConnection(this.socket)
    else this.socket.destroy()
  }

  mayEndWith(response: ClientResponse): boolean | undefined {
    if (this.#inFlight.at(-1)?.res !== response) return false
    // What was said before the requests behind it were answered; what is no request has an answer of its own.
    return this.#isEnding && this.#last === undefined ? undefined : true
  }

  endUnanswered(): void {
    this.onLastRequest(true)
    this.#close()
  }

  // What comes.

  start(head: RawRequestHead, body: BodySource): Exchange {
    const { deadlines, handle } = this.#options
    this.#awaitsHead = false
    this.deadline = Number.POSITIVE_INFINITY
    const req = new ClientRequest(head, body)
    const res = new ClientResponse(this, head.method === 'HEAD', this.#inFlight.length === 0)
    const exchange = new Exchange(req, res, this, deadlines.monotonicNow())
    this.#inFlight.push(exchange)
    handle(exchange)
    return exchange
  }

  onHeadBegun(): void {
    if (this.#awaitsHead) return
    this.#awaitsHead = true
    this.deadline = this.#options.deadlines.monotonicNow() + this.#options.headersMs
  }

  onLastRequest(byUs: boolean): void {
    this.#isEnding = true
    this.#lingers ||= byUs
  }

  refuseBody(exchange: Exchange): void {
    this.intake.stop()
    exchange.malformedBody()
    // It may have been answered before its body had come whole.
    if (this.#inFlight.length === 0 && !this.#isClosing) this.#close()
  }

  refuse(error: PublicError): void {
    const wasEnding = this.#isEnding
    this.intake.stop()
    if (wasEnding) return
    const last = this.#options.onRefused(error, this.peer)
    if (this.#inFlight.length === 0) this.#writeLast(last)
    else this.#last = last
  }

  onDropped(): void {
    if (this.socket.bytesRead - this.#dropFrom <= LINGER_BYTES) return
    this.socket.pause()
    this.deadline = this.#options.deadlines.monotonicNow()
  }

  onFault(error: unknown): void {
    this.#options.onFault(error)
    this.cut()
  }

  // What goes.

  onSent(): void {
    if (this.#isAdvancing) return
    this.#isAdvancing = true
    this.#advance()
    this.#isAdvancing = false
    if (!this.#isClosing) this.intake.goOn()
  }

  /** Lets responses go that waited for those before them. */
  #advance(): void {
    for (let first = this.#inFlight[0]; first?.res.sent === true; first = this.#inFlight[0]) {
      this.#inFlight.shift()
      this.#options.onOver(first, true)
      if (first.res.last) {
        this.#close()
        return
      }
      this.#inFlight[0]?.res.takeTurn()
    }
    if (this.#inFlight.length > 0) return
    if (this.#last !== undefined) this.#writeLast(this.#last)
    else if (this.#isEnding)
      this.#close() // the last response had begun before that was known
    else if (!this.#awaitsHead) this.deadline = this.#options.deadlines.monotonicNow() + this.keepAliveMs
  }

  #writeLast(last: string): void {
    this.socket.write(last, 'latin1')
    this.#close()
  }

  /**
   * Ends our side behind the last answer. What comes is dropped for a moment, where the client may still be sending:
   * unread, it would reset the connection and take the answer away.
   */
  #close(): void {
    this.#isEnding = true
    this.#isClosing = true
    this.#dropFrom = this.socket.bytesRead
    const lingers = this.#lingers && !this.socket.readableEnded
    // Even the end has to be written: under TLS it is a record, which a client that reads nothing never lets go.
    this.deadline = this.#options.deadlines.monotonicNow() + (lingers ? LINGER_MS : this.keepAliveMs)
    if (!lingers) {
      closeWritten(this.socket)
      return
    }
    this.socket.end()
    this.intake.onPace()
  }

  /** No head has come in time, or nothing at all, or nothing that ends. */
  expire(): void {
    this.deadline = Number.POSITIVE_INFINITY
    if (this.#isClosing) this.socket.destroy()
    else if (this.#awaitsHead) this.refuse(ERRORS.requestTimeout)
    else if (this.#inFlight.length === 0) this.socket.destroy()
  }

  #onEnd(): void {
    if (this.#isClosing) {
      closeWritten(this.socket)
    } else if (this.intake.onSocketEnd()) {
      // Our end must not be taken for the end of a body that has no other.
      if (this.#inFlight[0]?.res.framedByClose === true) this.cut()
      else this.socket.end()
    }
  }

  #onClose(): void {
    this.#isEnding = true
    this.intake.end()
    this.#options.deadlines.delete(this)
    for (const exchange of this.#inFlight.splice(0)) this.#options.onOver(exchange, false)
    this.#options.onClosed(this)
  }
}
