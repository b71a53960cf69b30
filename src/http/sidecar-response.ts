/**
 * A response whose head is sent as it stands.
 *
 * Node's `writeHead` and `end` check, copy and search every header again and hand head, body and end to the socket as
 * three pieces. Ours are checked already: here head and small body are one string and one write, which saves 2 to 3
 * of some 30 microseconds a request. What stays with Node is the order of pipelined responses,
 * the chunks, and what becomes of the connection.
 *
 * The members beginning with `_` are Node's own; they have been the same from Node 8 to 26, and the tests of this file
 * compare what they do with what `writeHead` does.
 *
 * @module
 */
import { ServerResponse, STATUS_CODES } from 'node:http'
import type { Exchange } from './exchange.ts'

/** The head of a response. */
export interface Head {
  readonly status: number
  /** Default: the usual one. */
  readonly reason?: string
  /** Names and values alternating, without `Connection`, `Keep-Alive`, `Transfer-Encoding`; a `Date` if there is one. */
  readonly headers: readonly string[]
  /** Whether the list has no `Date`: then ours is added (RFC 9110, section 6.6.1). */
  readonly needsDate: boolean
  /** The connection ends with this response, whatever the client would like. */
  readonly close: boolean
}

/** How the end of a body that is streamed is told to the client. */
export type BodyFraming = 'none' | 'length' | 'chunked' | 'close'

/** A body up to this size goes out with its head in one string. */
export const SMALL_BODY = 8192

/** A response that knows its exchange: http-proxy hands its passes nothing else of ours. */
export class SidecarResponse extends ServerResponse {
  exchange: Exchange | undefined
  /** It has begun, and the end of the connection is the end of its body. */
  framedByClose = false
  declare _header: string | null
  declare _last: boolean
  declare _hasBody: boolean
  declare _keepAliveTimeout: number
  declare _send: (data: string, encoding: BufferEncoding) => boolean

  /**
   * Sends a whole response.
   *
   * @param body - each character one byte; left out where the request was HEAD
   */
  sendWhole(head: Head, body: string): void {
    const text = this.#render(head, 'length')
    this._header = this._hasBody ? text + body : text
    this._hasBody = false // it is in there already
    this.end()
  }

  /** Gives the head of a response that follows with `write` and `end`, or with `flushHeaders` if it has to wait. */
  startWith(head: Head, framing: BodyFraming): void {
    this._header = this.#render(head, framing)
    this.framedByClose = framing === 'close'
    if (framing === 'none') this._hasBody = false
    this.chunkedEncoding = framing === 'chunked' && this._hasBody
  }

  /**
   * Says `100 Continue`, as soon as it is this response's turn and unless it has been given by then. Node would put
   * it behind the head of a response that waits for others: into its body.
   */
  override writeContinue(): void {
    if (this.socket !== null) {
      super.writeContinue()
      return
    }
    this.once('socket', () => {
      if (!this.headersSent) super.writeContinue()
    })
  }

  /** Sends the head that was given now. Node's own method would send it as UTF-8: each byte above ASCII as two. */
  override flushHeaders(): void {
    this._send('', 'latin1')
  }

  #render({ status, reason, headers, needsDate, close }: Head, framing: BodyFraming): string {
    this.statusCode = status
    this._last = close || framing === 'close' || !this.shouldKeepAlive
    let text = `HTTP/1.1 ${status} ${reason ?? STATUS_CODES[status]}\r\n`
    for (let at = 0; at < headers.length; at += 2) text += `${headers[at]}: ${headers[at + 1]}\r\n`
    if (needsDate) text += dateLine()
    if (framing === 'chunked') text += 'Transfer-Encoding: chunked\r\n'
    return text + (this._last ? 'Connection: close\r\n\r\n' : keepAliveLines(this._keepAliveTimeout))
  }
}

let linesFor = -1
let lines = ''

/** What promises to keep the connection for so many milliseconds. */
function keepAliveLines(timeoutMs: number): string {
  if (timeoutMs !== linesFor) {
    linesFor = timeoutMs
    lines = `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(timeoutMs / 1000)}\r\n\r\n`
  }
  return lines
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
