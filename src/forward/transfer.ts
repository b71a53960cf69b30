/**
 * The transfer: one request to the upstream and its response back, streaming both ways.
 *
 * In: an exchange whose request may pass. Out: the upstream's response, byte for byte, or the answer that says
 * what went wrong, or a destroyed connection where a part of the response has gone already: a cut object must
 * never be taken for a whole one. Memory is bounded by one buffer each way, whatever the size of the object; only
 * idleness is bounded in time, never a transfer that makes progress.
 *
 * @module
 */
import type { Socket } from 'node:net'
import { ERRORS, type PublicError } from '../errors.ts'
import type { BodyTaker } from '../http/client-request.ts'
import { type BodyFraming, type Head, SMALL_BODY } from '../http/client-response.ts'
import type { Deadlines, Waiting } from '../http/deadlines.ts'
import type { Answerer, Exchange } from '../http/exchange.ts'
import { WORTH_HOLDING } from '../read-memory.ts'
import { earlyHints } from './early-hints.ts'
import type { ResponseHead } from './response-parser.ts'
import type { SendQueue } from './send-queue.ts'
import { LOOKS, StallWatch } from './stall-watch.ts'
import { clientResponseLines, clientTrailers } from './towards-client.ts'
import { upstreamTrailers } from './towards-upstream.ts'
import type { ConnectionUser, UpstreamConnection } from './upstream-connection.ts'
import { faultError, type UpstreamFault, type UpstreamOutcome } from './upstream-fault.ts'
import type { UpstreamPool } from './upstream-pool.ts'

/** What every transfer to one upstream works with. */
export interface TransferContext {
  readonly pool: UpstreamPool
  readonly deadlines: Deadlines
  /** Milliseconds without progress of a body, in either direction. */
  readonly idleMs: number
  /** Milliseconds for the response head, once the request has been sent. */
  readonly responseMs: number
  /** Whether connections to clients end with their response, because we are stopping. */
  readonly isClosing: () => boolean
  /** Answers in place of the upstream. `close`: the connection cannot be used any further. */
  readonly refuse: (exchange: Exchange, error: PublicError, outcome: UpstreamOutcome, close: boolean) => void
  readonly sendQueue: SendQueue
  /** Told once how the transfer ended. */
  readonly onOutcome: (outcome: UpstreamOutcome) => void
  /** Told the milliseconds from the request's start to the response head. */
  readonly onFirstByte: (ms: number) => void
}

/** One request on its way to the upstream and its response on its way back. */
export class Transfer implements ConnectionUser, Answerer, BodyTaker, Waiting {
  deadline: number
  place = -1
  readonly requestHead: string
  readonly isHead: boolean
  readonly #context: TransferContext
  readonly #exchange: Exchange
  readonly #chunked: boolean
  /** The connection is not to be shared with other requests, before or after. */
  readonly #ownConnection: boolean
  /** May be sent again if a used connection turns out to be closed: it has no body and changes nothing. */
  #repeatable: boolean
  /** The connection in use, from when the request is written to when the response is whole. */
  #connection: UpstreamConnection | undefined
  /** The request has been sent whole. */
  #sent: boolean
  /** The upstream takes no more of the request for now. */
  #upstreamFull = false
  /** The client takes no more of the response for now. */
  #clientFull = false
  /** The response head that has been read but not sent yet: it goes out with the first bytes of the body. */
  #head: Head | undefined
  #framing: BodyFraming = 'none'
  /** Pieces of the response body that have been read and not sent yet. */
  #pieces: Buffer[] = []
  /** The upstream said no. */
  #refused = false
  /** The upstream's part is over, and counted. */
  #settled = false
  readonly #watch: StallWatch

  /**
   * @param exchange - an exchange whose request may pass
   * @param requestHead - the head for the upstream
   * @param body - whether bytes follow it, and whether in chunks
   */
  constructor(
    exchange: Exchange,
    requestHead: string,
    body: { readonly hasBody: boolean; readonly chunked: boolean; readonly ownConnection?: boolean },
    context: TransferContext,
  ) {
    const { method } = exchange.req
    this.#exchange = exchange
    this.#context = context
    this.#chunked = body.chunked
    this.#ownConnection = body.ownConnection ?? false
    this.#sent = !body.hasBody
    this.#repeatable = !body.hasBody && (method === 'GET' || method === 'HEAD')
    this.requestHead = requestHead
    this.isHead = method === 'HEAD'
    this.#watch = new StallWatch(context.sendQueue)
    this.deadline = context.deadlines.monotonicNow() + context.responseMs
  }

  /** Sends the request as soon as there is a connection for it. */
  start(): void {
    this.#context.deadlines.add(this)
    this.#exchange.attach(this)
    if (this.#settled) return
    if (this.#ownConnection) this.#context.pool.requestOwn(this)
    else this.#context.pool.request(this)
  }

  // The upstream's side.

  onConnection(connection: UpstreamConnection, room: boolean): void {
    this.#connection = connection
    if (this.#sent) this.#awaitHead()
    else this.#upload(room)
  }

  onDrain(): void {
    const { req, res } = this.#exchange
    this.#upstreamFull = false
    if (this.#sent && !res.headersSent)
      this.#awaitHead() // only now has it taken the last of the request
    else this.#progress()
    if (!this.#sent) req.resume()
  }

  onInformational(head: ResponseHead): void {
    earlyHints(this.#exchange, head)
  }

  onHead(head: ResponseHead): void {
    const { req, requestId, startedAt } = this.#exchange
    this.#refused = head.status >= 400
    this.#progress()
    this.#context.onFirstByte(this.#context.deadlines.monotonicNow() - startedAt)
    const chunks = !this.isHead && req.httpVersion !== '1.0'
    this.#framing =
      head.framing === 'length' || head.framing === 'none' ? head.framing : chunks ? 'chunked' : 'close'
    // Answered before the request was read: what is left of it makes the connection useless.
    const close = !this.#sent || this.#ownConnection || this.#context.isClosing()
    if (close) this.#exchange.connection.end()
    const { lines, hasDate } = clientResponseLines(head, { requestId, chunks })
    this.#head = { status: head.status, reason: head.reason, lines, needsDate: !hasDate, close }
  }

  onBody(chunk: Buffer, last: boolean): void {
    const { res } = this.#exchange
    this.#exchange.bytesOut += chunk.length
    this.#progress()
    const head = this.#head
    const isWhole = last && this.#sent && this.#pieces.length === 0
    if (head !== undefined && isWhole && chunk.length <= SMALL_BODY) {
      this.#head = undefined
      res.sendWhole(head, chunk.toString('latin1'))
    } else {
      this.#pieces.push(chunk)
    }
  }

  onRead(): void {
    if (!this.#tellBody()) this.#pauseResponse()
    if (this.#head === undefined) return
    this.#startResponse()
    this.#exchange.res.flushHead() // the body may take its time
  }

  onEnd(rawTrailers: readonly string[]): void {
    const { req, res } = this.#exchange
    this.#tellBody()
    if (!this.#sent) {
      // The upstream has said all it had to say: the rest of the upload is for nobody.
      this.#connection?.abandon()
      req.leaveUnread()
    } else if (this.#ownConnection || (this.#refused && this.#mayLieUnread())) {
      this.#connection?.abandon()
    }
    this.#settle('ok')
    this.#progress()
    if (res.ended) return
    this.#startResponse()
    if (rawTrailers.length > 0 && res.chunked) res.addTrailers(clientTrailers(rawTrailers))
    res.end()
  }

  onFault(fault: UpstreamFault, stale: boolean): void {
    // What broke off has begun: its client must not take what is left of it for an answer of ours.
    this.#tellBody()
    this.#connection = undefined
    if (stale && this.#repeatable) {
      this.#repeatable = false
      this.#context.pool.requestFresh(this)
    } else {
      this.#fail(fault, faultError(fault))
    }
  }

  /** The connection has left HTTP: nothing more is waited for here. */
  leaveHttp(): void {
    this.#settle('ok')
    this.#context.deadlines.delete(this)
  }

  // The client's side.

  onFinished(): void {
    this.#context.deadlines.delete(this)
  }

  onClientGone(): void {
    this.#giveUpUpstream()
    this.#settle('client_aborted')
    this.#context.deadlines.delete(this)
  }

  onMalformedBody(): void {
    if (this.#settled) return // nobody reads it any more
    this.#giveUpUpstream()
    this.#fail('client_aborted', ERRORS.malformedRequest)
  }

  /** Nothing moved for too long, or it is time to look closer. */
  expire(): void {
    const { res } = this.#exchange
    if (res.headersSent && !res.hasTurn) {
      this.#progress() // the responses before this one on its connection are not through
      return
    }
    const slow = this.#slowSocket()
    if (slow === undefined) this.#giveUp()
    else void this.#look(slow)
  }

  /** The socket that takes no more bytes for now, if it is that which is waited for. */
  #slowSocket(): Socket | undefined {
    const { res, connection } = this.#exchange
    if (res.headersSent && (this.#clientFull || this.#settled)) return connection.socket
    return this.#upstreamFull ? this.#connection?.socket : undefined
  }

  /** A side that takes nothing may still be reading what it was sent: only the kernel knows. */
  async #look(socket: Socket): Promise<void> {
    this.deadline = Number.POSITIVE_INFINITY
    const sight = await this.#watch.look(socket)
    if (sight === 'moved' || this.#exchange.over) return
    if (sight === 'stalled') this.#giveUp()
    else this.deadline = this.#context.deadlines.monotonicNow() + this.#context.idleMs / LOOKS
  }

  /** Nothing moved for too long: says whose turn it was. */
  #giveUp(): void {
    const { res } = this.#exchange
    const unconnected = this.#giveUpUpstream()
    if (res.headersSent)
      this.#fail(this.#clientFull ? 'client_idle' : 'connection_read_timeout', ERRORS.internalError)
    else if (unconnected !== undefined) this.#fail(unconnected, ERRORS.serviceNotReady)
    else if (this.#sent) this.#fail('http_response_timeout', ERRORS.serviceNotReady)
    else if (this.#upstreamFull) this.#fail('connection_write_timeout', ERRORS.serviceNotReady)
    else this.#fail('client_idle', ERRORS.requestTimeout)
  }

  /** Streams the request's body. */
  #upload(room: boolean): void {
    const { req, res, admitted } = this.#exchange
    this.#progress()
    if (admitted?.expectsContinue) res.writeContinue()
    if (!room) this.#pauseRequest()
    req.giveTo(this)
  }

  onRequestBody(chunk: Buffer): void {
    const { req } = this.#exchange
    const socket = this.#connection?.socket
    if (socket === undefined) return // it has been given up
    this.#exchange.bytesIn += chunk.length
    this.#progress()
    const worthHolding = chunk.length >= WORTH_HOLDING
    const bytes = worthHolding ? chunk : Buffer.from(chunk)
    const onWritten = worthHolding ? req.hold() : undefined
    let room: boolean
    if (this.#chunked) {
      socket.cork()
      socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1')
      socket.write(bytes, onWritten)
      room = socket.write('\r\n', 'latin1')
      socket.uncork()
    } else {
      room = socket.write(bytes, onWritten)
    }
    if (!room) this.#pauseRequest()
  }

  onRequestEnd(rawTrailers: readonly string[]): void {
    if (this.#chunked) this.#connection?.socket.write(`0\r\n${upstreamTrailers(rawTrailers)}`, 'latin1')
    this.#sent = true
    if (!this.#exchange.res.headersSent) this.#awaitHead()
  }

  /**
   * Sends what one read brought of the body at once: an upstream that sends chunks of one byte must not cost us a write
   * each.
   *
   * @returns whether the client takes more for now
   */
  #tellBody(): boolean {
    const [only, ...more] = this.#pieces
    if (only === undefined) return true
    this.#startResponse()
    const { res } = this.#exchange
    const bytes = more.length > 0 ? Buffer.concat(this.#pieces) : only
    this.#pieces = []
    if (bytes !== only) return res.write(bytes)
    return bytes.length < WORTH_HOLDING
      ? res.write(Buffer.from(bytes))
      : res.write(bytes, this.#connection?.hold())
  }

  /** Sends the response head, if that has not been done. */
  #startResponse(): void {
    if (this.#head === undefined) return
    this.#exchange.res.startWith(this.#head, this.#framing)
    this.#head = undefined
  }

  #pauseRequest(): void {
    this.#upstreamFull = true
    this.#exchange.req.pause()
    this.#progress()
  }

  #pauseResponse(): void {
    this.#clientFull = true
    this.#connection?.socket.pause()
    this.#progress()
    this.#exchange.res.onDrain = () => {
      this.#clientFull = false
      this.#progress()
      this.#connection?.socket.resume()
    }
  }

  /**
   * Whether some of the request may still lie in the kernel's buffers, where nobody sees it: an upstream that refuses
   * an upload may read no more of it, and the next request on the connection would wait behind the rest.
   */
  #mayLieUnread(): boolean {
    return this.#chunked || this.#exchange.bytesIn > MOST_READ_ANYWAY
  }

  #progress(): void {
    const { deadlines, idleMs } = this.#context
    this.#watch.reset()
    // A side that takes nothing is looked at more often.
    const slow = this.#clientFull || this.#upstreamFull || this.#settled
    this.deadline = deadlines.monotonicNow() + (slow ? idleMs / LOOKS : idleMs)
  }

  #awaitHead(): void {
    this.deadline = this.#context.deadlines.monotonicNow() + this.#context.responseMs
  }

  /** Closes the connection to the upstream, or gives up waiting for one. Says what it waited for in vain. */
  #giveUpUpstream(): UpstreamFault | undefined {
    if (this.#connection === undefined) return this.#context.pool.cancel(this)
    this.#connection.abandon()
    this.#connection = undefined
    return undefined
  }

  /** Answers, or cuts the connection where a part of the response has gone already. */
  #fail(outcome: UpstreamOutcome, error: PublicError): void {
    this.#settle(outcome)
    this.#progress() // the client has its time to take the answer
    const { res } = this.#exchange
    if (res.headersSent) res.breakOff()
    else this.#context.refuse(this.#exchange, error, outcome, !this.#sent)
  }

  #settle(outcome: UpstreamOutcome): void {
    this.#connection = undefined
    if (this.#settled) return
    this.#settled = true
    if (outcome !== 'ok') this.#exchange.reason = outcome
    this.#context.onOutcome(outcome)
  }
}

/** Servers read a body up to about this size even where they have no use for it, in bytes. */
const MOST_READ_ANYWAY = 64 * 1024
