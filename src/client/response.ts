/**
 * A response to a client: writes its head, body and trailers.
 * What follows on the connection is decided with the head, by `connection-end.ts`.
 */
import { ServerResponse, STATUS_CODES } from 'node:http'
import { headerLines } from '../http/headers.ts'
import { type AfterResponse, afterResponse, drainBody, type Persistence } from './connection-end.ts'
import type { SidecarRequest } from './context.ts'
import { omitChunks, sendHead, writeLastChunk } from './node-http.ts'

export class SidecarResponse extends ServerResponse<SidecarRequest> {
  #hasContinued = false
  #after: AfterResponse = 'keepAlive'
  /** The end of the connection is the end of the body. */
  isCloseDelimited = false
  /** When all of it was written. Undefined if only its end shows that. */
  #writtenMonotonicMs: number | undefined

  /** Called before the body is read: the client may wait to be asked for it. */
  continueIfExpected(): void {
    if (this.#hasContinued || this.req.context.admitted?.expectsContinue !== true) return
    this.#hasContinued = true
    this.writeContinue()
  }

  /** Node sends the head with the first bytes of the body. `headers`: names and values, alternating; may be changed. */
  begin(status: number, statusText: string, headers: string[], persistence: Persistence): void {
    this.isCloseDelimited = persistence === 'closeDelimited'
    this.#after = afterResponse(this.req, persistence, this.#hasContinued)
    if (this.#after !== 'keepAlive') headers.push('Connection', 'close')
    if (this.isCloseDelimited) omitChunks(this)
    this.writeHead(status, statusText, headers)
  }

  /** Begins and ends a short response. It counts as written at once. `text`: its body, in ASCII. */
  sendWhole(status: number, headers: string[], text: string, persistence: Persistence): void {
    this.begin(status, STATUS_CODES[status] ?? '', headers, persistence)
    this.#writtenMonotonicMs = performance.now()
    this.writeEnd(text)
  }

  /** Writes the rest, and ends the response once an unread body is drained. `text`: the last bytes, in Latin-1. */
  writeEnd(text = '', trailers: readonly [name: string, value: string][] = []): void {
    if (this.#after !== 'drain' || this.req.readableEnded) {
      if (trailers.length > 0) this.addTrailers(trailers)
      this.end(text, 'latin1')
      return
    }
    sendHead(this)
    if (text !== '') this.write(text, 'latin1')
    if (this.chunkedEncoding) writeLastChunk(this, headerLines(trailers.flat()))
    this.#writtenMonotonicMs = performance.now()
    drainBody(this.req, () => this.end())
  }

  /** A 101 has been written to the socket. */
  becomeTunnel(): void {
    this.statusCode = 101
    this.#writtenMonotonicMs = performance.now()
  }

  /** All of it has been written. The access log then shows its status, and else that it was aborted. */
  get isWritten(): boolean {
    return this.writableFinished || this.#writtenMonotonicMs !== undefined
  }

  /** When the response was over. A tunnel, or the drain of an unread body, comes after it. */
  get endedMonotonicMs(): number {
    return this.#writtenMonotonicMs ?? performance.now()
  }
}
