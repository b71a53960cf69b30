/**
 * A response on its way to its client, as bytes.
 *
 * In: a head whose lines are checked already, and a body in pieces or whole. Out: bytes on the connection, when it is
 * this response's turn: the answers to pipelined requests go in the order of the requests, and what is given to one of
 * them too early waits in it. Head and small body are one write, and so are head and first piece.
 *
 * @module
 */
import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { Exchange } from './exchange.ts'

/** The head of a response. */
export interface Head {
  readonly status: number
  /** Default: the usual one. */
  readonly reason?: string
  /** Field lines, each with its end; without `Connection`, `Keep-Alive`, `Transfer-Encoding`; a `Date` if there is one. */
  readonly lines: string
  /** Whether there is no `Date` among them: then ours is added (RFC 9110, section 6.6.1). */
  readonly needsDate: boolean
  /** The connection ends with this response, whatever the client would like. */
  readonly close: boolean
}

/** How the end of a body that is streamed is told to the client. */
export type BodyFraming = 'none' | 'length' | 'chunked' | 'close'

/** A body up to this size goes out with its head in one string. */
export const SMALL_BODY = 8192

/** Bytes of a response that may wait for its turn before no more are taken. */
const MOST_WAITING = 64 * 1024

/** What a response is sent on. */
export interface ResponseConnection {
  readonly socket: Socket
  /** Milliseconds for which the connection is kept when it is not used. */
  readonly keepAliveMs: number
  /**
   * Whether the connection can end with a response: no other request has been started behind its own.
   *
   * @returns `undefined` where it does end with it, whatever the response says
   */
  mayEndWith(response: ClientResponse): boolean | undefined
  /** The response has been handed to the operating system, whole. */
  onSent(): void
  /** Destroys the connection. */
  cut(): void
  /** Ends the connection in front of a response of which nothing has been sent. */
  endUnanswered(): void
}

interface Piece {
  readonly data: string | Buffer
  readonly onWritten: (() => void) | undefined
}

/** One response. */
export class ClientResponse {
  /** What it answers; http-proxy hands its passes nothing else of ours. */
  exchange: Exchange | undefined
  statusCode = 0
  /** Its head has been given. */
  headersSent = false
  /** All of it has been given. */
  ended = false
  /** All of it has been handed to the operating system. */
  sent = false
  /** The connection ends with it. */
  last = false
  /** It has begun, and the end of the connection is the end of its body. */
  framedByClose = false
  /** Its body is sent in chunks. */
  chunked = false
  /** Called when the client takes bytes again after `write` has said that it does not. */
  onDrain: (() => void) | undefined
  readonly #connection: ResponseConnection
  #hasTurn: boolean
  #hasBody: boolean
  /** Given, and not written yet. */
  #head = ''
  #trailers = ''
  /** What waits for its turn. */
  #waiting: Piece[] | undefined
  #waitingBytes = 0
  #continueWaits = false
  #brokenOff = false

  /**
   * @param connection - what it is sent on
   * @param isHead - it answers HEAD: no body is sent whatever is given
   * @param hasTurn - whether all requests before have been answered; otherwise {@link takeTurn} says when
   */
  constructor(connection: ResponseConnection, isHead: boolean, hasTurn: boolean) {
    this.#connection = connection
    this.#hasBody = !isHead
    this.#hasTurn = hasTurn
  }

  /** Whether all requests before its own have been answered. */
  get hasTurn(): boolean {
    return this.#hasTurn
  }

  /**
   * Sends a whole response.
   *
   * @param body - each character one byte; left out where the request was HEAD
   */
  sendWhole(head: Head, body: string): void {
    const text = this.#render(head, 'length')
    this.ended = true
    this.#put(this.#hasBody ? text + body : text)
    this.#settle()
  }

  /** Gives the head of a response that follows with `write` and `end`, or with `flushHead` if it has to wait. */
  startWith(head: Head, framing: BodyFraming): void {
    this.#head = this.#render(head, framing)
    this.framedByClose = framing === 'close'
    if (framing === 'none') this.#hasBody = false
    this.chunked = framing === 'chunked' && this.#hasBody
  }

  /** Sends the head that was given now. */
  flushHead(): void {
    this.#put(this.#takeHead())
  }

  /**
   * Sends a piece of the body.
   *
   * @param onWritten - called when the memory of the piece is not needed any more; never, if the connection dies before
   * @returns whether the client takes more for now; otherwise `onDrain` says when
   */
  write(piece: Buffer, onWritten?: () => void): boolean {
    if (!this.#hasBody) {
      onWritten?.()
      return true
    }
    const { socket } = this.#connection
    const head = this.#takeHead()
    socket.cork()
    if (this.chunked) this.#put(`${head}${piece.length.toString(16)}\r\n`)
    else if (head !== '') this.#put(head)
    let room = this.#put(piece, onWritten)
    if (this.chunked) room = this.#put('\r\n')
    socket.uncork()
    return room
  }

  /** The lines behind the last chunk of a body in chunks; to be called before `end`. */
  addTrailers(lines: readonly (readonly [string, string])[]): void {
    for (const [name, value] of lines) this.#trailers += `${name}: ${value}\r\n`
  }

  /** Nothing more follows. */
  end(): void {
    this.ended = true
    const rest = this.#takeHead() + (this.chunked ? `0\r\n${this.#trailers}\r\n` : '')
    if (rest !== '') this.#put(rest)
    this.#settle()
  }

  /** Says `100 Continue`, as soon as it is this response's turn and unless it has begun by then. */
  writeContinue(): void {
    if (this.#hasTurn) this.#put('HTTP/1.1 100 Continue\r\n\r\n')
    else this.#continueWaits = true
  }

  /** Says `103 Early Hints` (RFC 8297), if it is this response's turn: hints may always be left out. */
  writeEarlyHints(links: readonly string[]): void {
    if (this.#hasTurn && links.length > 0)
      this.#put(`HTTP/1.1 103 Early Hints\r\n${links.map((link) => `Link: ${link}\r\n`).join('')}\r\n`)
  }

  /** The rest of a response that has begun will not come: ends the connection with it, when it is its turn. */
  breakOff(): void {
    this.#brokenOff = true
    if (this.#hasTurn) this.#connection.cut()
  }

  /** All requests before its own have been answered: what has waited goes out. */
  takeTurn(): void {
    this.#hasTurn = true
    if (this.#brokenOff) {
      // Cut, the client might lose what it was answered before.
      this.#connection.endUnanswered()
      return
    }
    const { socket } = this.#connection
    socket.cork()
    if (this.#continueWaits && !this.headersSent) this.writeContinue()
    const waiting = this.#waiting ?? []
    this.#waiting = undefined
    for (const { data, onWritten } of waiting) this.#put(data, onWritten)
    socket.uncork()
    this.#settle()
    if (!this.ended && !socket.writableNeedDrain) this.onDrain?.()
  }

  /** Writes, or keeps it for when it is this response's turn. Says whether more is taken for now. */
  #put(data: string | Buffer, onWritten?: () => void): boolean {
    if (!this.#hasTurn) {
      this.#waiting ??= []
      this.#waiting.push({ data, onWritten })
      this.#waitingBytes += data.length
      return this.#waitingBytes < MOST_WAITING
    }
    const { socket } = this.#connection
    if (!socket.writable) return false // the client has ended its way, or is gone
    return typeof data === 'string' ? socket.write(data, 'latin1', onWritten) : socket.write(data, onWritten)
  }

  /** Tells when all of it has been handed to the operating system: now, as a rule. */
  #settle(): void {
    if (!this.ended || !this.#hasTurn) return
    const { socket } = this.#connection
    if (!socket.writable) return // it closes, and is not sent whole
    if (socket.writableLength === 0) this.#onSent()
    else socket.write('', (error) => void (error ?? this.#onSent()))
  }

  #onSent(): void {
    this.sent = true
    this.#connection.onSent()
  }

  #takeHead(): string {
    const head = this.#head
    this.#head = ''
    return head
  }

  #render({ status, reason, lines, needsDate, close }: Head, framing: BodyFraming): string {
    this.statusCode = status
    this.headersSent = true
    const mayEnd = this.#connection.mayEndWith(this)
    const wants = close || this.exchange?.admitted?.persistent !== true
    this.last = framing === 'close' || mayEnd === undefined || (mayEnd && wants)
    let text = `HTTP/1.1 ${status} ${reason ?? STATUS_CODES[status]}\r\n${lines}`
    if (needsDate) text += dateLine()
    if (framing === 'chunked') text += 'Transfer-Encoding: chunked\r\n'
    return text + (this.last ? 'Connection: close\r\n\r\n' : keepAliveLines(this.#connection.keepAliveMs))
  }
}

let keepAliveFor = -1
let keepAlive = ''

/** What promises to keep the connection for so many milliseconds. */
function keepAliveLines(timeoutMs: number): string {
  if (timeoutMs !== keepAliveFor) {
    keepAliveFor = timeoutMs
    keepAlive = `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(timeoutMs / 1000)}\r\n\r\n`
  }
  return keepAlive
}

let dateSecond = 0
let date = ''

/** The `Date` line; made once a second. */
function dateLine(): string {
  const second = Math.floor(Date.now() / 1000)
  if (second !== dateSecond) {
    dateSecond = second
    date = `Date: ${new Date(second * 1000).toUTCString()}\r\n`
  }
  return date
}
