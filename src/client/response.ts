/**
 * A response to a client: writes its head, body and trailers. With the head it decides whether it is the last one on the
 * connection (RFC 9112, sections 9.3 and 9.6).
 */
import { ServerResponse, STATUS_CODES } from 'node:http'
import { DISCARDS_AFTER_OFFER, omitChunks } from './node-http.ts'
import type { SidecarRequest } from './request.ts'

/** What the caller asks for. `closeDelimited`: only the end of the connection ends the body of the response. */
export type Persistence = 'keepAlive' | 'close' | 'closeDelimited'

/** `begun`: the head is written. `ended`: all of it is written. `tunnel`: a 101 is written. */
type State = 'open' | 'begun' | 'ended' | 'tunnel'

export class SidecarResponse extends ServerResponse<SidecarRequest> {
  #state: State = 'open'
  #hasContinued = false
  #isCloseDelimited = false
  /** When a short response or a 101 was written. It counts as sent, although Node may still have bytes. */
  #writtenMonotonicMs: number | undefined

  /** Must be called before the body is read: the client may send the body only after a `100 Continue`. */
  continueIfExpected(): void {
    if (this.#hasContinued || !this.req.expectsContinue) return
    this.#hasContinued = true
    this.writeContinue()
  }

  /** Node sends the head with the first bytes of the body. `headers`: names and values, alternating. `begin` adds to them. */
  begin(status: number, statusText: string, headers: string[], persistence: Persistence): void {
    this.#isCloseDelimited = persistence === 'closeDelimited'
    if (persistence !== 'keepAlive' || this.#isLast()) headers.push('Connection', 'close')
    if (this.#isCloseDelimited) omitChunks(this)
    this.writeHead(status, statusText, headers)
    this.#state = 'begun'
  }

  /** Writes a whole, short response, which counts as written at once. `text`: the body, in ASCII. */
  sendWhole(status: number, headers: string[], text: string, persistence: Persistence): void {
    this.begin(status, STATUS_CODES[status] ?? '', headers, persistence)
    this.#writtenMonotonicMs = performance.now()
    this.writeEnd(text)
  }

  /** Writes the rest of the response. `text`: the last bytes, in Latin-1. */
  writeEnd(text = '', trailers: readonly [name: string, value: string][] = []): void {
    if (trailers.length > 0) this.addTrailers(trailers)
    this.#state = 'ended'
    this.end(text, 'latin1')
  }

  #isLast(): boolean {
    const { admitted, isBodyMalformed, isDetached, client } = this.req.context
    if (client.isDraining() || admitted === undefined || isBodyMalformed) return true
    if (admitted.hasBody && !this.req.complete) return true // no request can be read behind an unread body
    if (admitted.lines.connectionOptions?.has('close')) return true
    // The bytes that Node discards behind an offer to upgrade may be a request.
    return DISCARDS_AFTER_OFFER && admitted.offersUpgrade && !isDetached
  }

  /** Must be called after a 101 was written to the socket. */
  becomeTunnel(): void {
    this.statusCode = 101
    this.#writtenMonotonicMs = performance.now()
    this.#state = 'tunnel'
  }

  get isPartial(): boolean {
    return this.#state === 'begun'
  }

  /** For the access log: the system has the whole response, or it counts as sent (see `#writtenMonotonicMs`). */
  get isWritten(): boolean {
    return this.#writtenMonotonicMs !== undefined || this.writableFinished
  }

  /**
   * Whether an abort must reset the connection. After a clean end, a close-delimited response would look complete, and Ruby's
   * `Net::HTTP` takes others for complete, too. But while the client sends, a reset could fail its writes before it reads.
   */
  get mustReset(): boolean {
    const isBegun = this.#state === 'begun' || this.#state === 'ended'
    return isBegun && !this.writableFinished && (this.#isCloseDelimited || this.req.complete)
  }

  /** When the response was over. A tunnel may follow, and does not count. */
  get endedMonotonicMs(): number {
    return this.#writtenMonotonicMs ?? performance.now()
  }
}
