/**
 * A response to a client, and what becomes of the connection behind it (RFC 9112, section 9):
 *
 *   keep alive   Node reads the next request
 *   close        `Connection: close`; Node closes after the last byte
 *   drain        the same before the end of an upload: what the client still sends is dropped, then the connection closes
 *   reset        the rest of the response is missing, and a close could be taken for its end
 *
 * The drain is the lingering close of nginx, within its bounds: clients that send everything before they read (Python, Java;
 * all over TLS) lose a response to a reset.
 */
import { ServerResponse, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { SidecarRequest } from './context.ts'
import { keepAfterLastResponse, sendHead, writeLastChunk } from './node-http.ts'

/** A drain ends after so many milliseconds without a byte, or in all. */
const DRAIN_IDLE_MS = 5_000
const DRAIN_TOTAL_MS = 30_000

/** What becomes of the connection, as far as the response decides: `closeDelimited` bodies have no other end. */
export type Persistence = 'keepAlive' | 'close' | 'closeDelimited'

export class SidecarResponse extends ServerResponse<SidecarRequest> {
  /** When all of it had been written, if known before its end: it counts as sent, whatever becomes of the request. */
  #writtenMonotonicMs: number | undefined
  #hasContinued = false
  #mustDrain = false
  /** The end of the connection is the end of the body. */
  #isCloseDelimited = false

  /** Called before the body is read: a client may wait to be asked for it. */
  continueIfExpected(): void {
    if (this.#hasContinued || this.req.context.admitted?.expectsContinue !== true) return
    this.#hasContinued = true
    this.writeContinue()
  }

  /** Node sends the head with the first bytes of the body. `headers`: names and values, alternating; may be changed. */
  begin(status: number, statusText: string, headers: string[], persistence: Persistence): void {
    const { req } = this
    const { connection, admitted } = req.context
    // No request can be read behind an unread body (RFC 9112, section 9.6).
    this.#mustDrain =
      !req.complete && !req.socket.readableEnded && (admitted === undefined || admitted.hasBody)
    this.#isCloseDelimited = persistence === 'closeDelimited'
    if (persistence !== 'keepAlive' || this.#mustDrain || connection.mustClose)
      headers.push('Connection', 'close')
    if (this.#isCloseDelimited) this.removeHeader('Transfer-Encoding') // Node then adds no chunks of its own
    this.writeHead(status, statusText, headers)
  }

  /** Begins and ends a short response, which counts as sent. `text`: its body, in ASCII. */
  sendWhole(status: number, headers: string[], text: string, persistence: Persistence): void {
    this.begin(status, STATUS_CODES[status] ?? '', headers, persistence)
    this.#writtenMonotonicMs = performance.now()
    this.writeEnd(text)
  }

  /** Writes the rest, and ends the response once an unread body is drained. `text`: the last bytes, in Latin-1. */
  writeEnd(text = '', trailers: readonly [name: string, value: string][] = []): void {
    if (!this.#mustDrain) {
      if (trailers.length > 0) this.addTrailers(trailers)
      this.end(text, 'latin1')
      return
    }
    sendHead(this)
    if (text !== '') this.write(text, 'latin1')
    if (this.chunkedEncoding)
      writeLastChunk(this, trailers.map(([name, value]) => `${name}: ${value}\r\n`).join(''))
    this.#writtenMonotonicMs = performance.now()
    this.#drainUnread()
  }

  /** A 101 has been written to the socket. */
  becomeTunnel(): void {
    this.statusCode = 101
    this.#writtenMonotonicMs = performance.now()
  }

  #drainUnread() {
    const { req } = this
    const { context, socket, headers } = req
    const stop = () => void this.end()
    // A client that waits for `100 Continue` sends no body, and a detached socket has no parser. HTTP/1.0 has no `Expect`.
    const mayWait = !this.#hasContinued && req.httpVersionMinor > 0
    const isAwaited = mayWait && headers.expect?.toLowerCase() === '100-continue'
    if (req.readableEnded || isAwaited || context.isDetached) return stop()
    const deadline = setTimeout(stop, DRAIN_TOTAL_MS)
    context.changeOwner({ state: 'unreadBody', onIdle: stop, onRelease: () => clearTimeout(deadline) })
    socket.setTimeout(DRAIN_IDLE_MS)
    req.once('end', stop)
    socket.once('end', stop) // a malformed body does not end
    req.resume()
  }

  /** Whether the access log shows the status: otherwise the client has not received all of the response. */
  get isSent(): boolean {
    return this.writableFinished || this.#writtenMonotonicMs !== undefined
  }

  /** When the response was over. A tunnel, or the drain of an unread body, comes after it. */
  get endedMonotonicMs(): number {
    return this.#writtenMonotonicMs ?? performance.now()
  }

  /**
   * Whether an abort must be a reset: clients that do not count bytes (Ruby's `Net::HTTP`) take a close for the end. While a
   * client sends its body, a reset could fail its writes before it reads the response: it is one only if a close is the end.
   */
  get mustReset(): boolean {
    return this.headersSent && (this.#isCloseDelimited || this.req.complete)
  }

  /** The response is not over, and only the end of the connection will show its end. */
  get endsWithConnection(): boolean {
    return this.#isCloseDelimited && !this.isSent && !this.writableEnded
  }
}

/** Ignores requests behind the last response (RFC 9112, section 9.6). */
export function dropRequests(socket: Socket, unserved: readonly SidecarResponse[]): void {
  keepAfterLastResponse(socket)
  for (const { req } of unserved) req.resume()
  dropUnread(socket)
}

/** Sends the last bytes of a connection without a response object, and drops those that still arrive. */
export function endConnection(socket: Socket, text = ''): void {
  socket.end(text, 'latin1')
  dropUnread(socket)
}

function dropUnread(socket: Socket): void {
  socket.resume()
  socket.setTimeout(DRAIN_IDLE_MS)
  const deadline = setTimeout(() => socket.destroy(), DRAIN_TOTAL_MS)
  socket.once('close', () => clearTimeout(deadline))
}
