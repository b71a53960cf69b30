/** A response to a client: writes its head, body and trailers. With the head, `afterResponse` decides what follows. */
import { ServerResponse, STATUS_CODES } from 'node:http'
import { headerText } from '../http/headers.ts'
import { CAN_DECLINE_UPGRADES, omitChunks, sendHead, writeLastChunk } from './node-http.ts'
import type { SidecarRequest } from './request.ts'

/** What the caller asks for. `closeDelimited`: only the end of the connection ends the body of the response. */
export type Persistence = 'keepAlive' | 'close' | 'closeDelimited'

/** `close`: Node closes the connection after the last byte. `discard`: the sidecar first discards the rest of the request. */
type AfterResponse = 'keepAlive' | 'close' | 'discard'

/**
 *   open        > begun, tunnel      nothing is written but a `100 Continue`
 *   begun       > ended, discarding  the head is written, and a part of the rest is missing
 *   ended                            Node has all of it, and closes the connection or keeps it
 *   discarding                       all of it is written. `end` is called once the rest of the request is discarded
 *   tunnel                           a 101 is written
 *   aborted                          the connection is aborted. Node takes the canceled writes for finished
 */
type State = 'open' | 'begun' | 'ended' | 'discarding' | 'tunnel' | 'aborted'

export class SidecarResponse extends ServerResponse<SidecarRequest> {
  #state: State = 'open'
  #hasContinued = false
  #after: AfterResponse = 'keepAlive'
  #isCloseDelimited = false
  /** When a short response, one before a discard, or a 101 was written. It counts as sent, although Node may still have bytes. */
  #writtenMonotonicMs: number | undefined

  /** Must be called before the body is read: the client may send the body only after a `100 Continue`. */
  continueIfExpected(): void {
    if (this.#hasContinued || !this.req.expectsContinue) return
    this.#hasContinued = true
    this.writeContinue()
  }

  /** Node sends the head with the first bytes of the body. `headers`: all but `Connection`. */
  begin(status: number, statusText: string, headers: string[], persistence: Persistence): void {
    this.#isCloseDelimited = persistence === 'closeDelimited'
    const { req } = this
    const waitsForContinue = req.expectsContinue && !this.#hasContinued
    this.#after = afterResponse(req, persistence === 'keepAlive', waitsForContinue)
    if (this.#isCloseDelimited) omitChunks(this)
    const isLast = this.#after !== 'keepAlive'
    this.writeHead(status, statusText, isLast ? [...headers, 'Connection', 'close'] : headers)
    this.#state = 'begun'
  }

  /** Writes a whole, short response, which counts as written at once. `text`: the body, in ASCII. */
  sendWhole(status: number, headers: string[], text: string, persistence: Persistence): void {
    this.begin(status, STATUS_CODES[status] ?? '', headers, persistence)
    this.#writtenMonotonicMs = performance.now()
    this.writeEnd(text)
  }

  /** Writes the rest of the response. Ends it once an unread request body is discarded. `text`: the last bytes, in Latin-1. */
  writeEnd(text = '', trailers: readonly [name: string, value: string][] = []): void {
    if (this.#after !== 'discard' || this.req.readableEnded) {
      this.#state = 'ended'
      if (trailers.length > 0) this.addTrailers(trailers)
      this.end(text, 'latin1')
      return
    }
    sendHead(this)
    if (text !== '') this.write(text, 'latin1')
    if (this.chunkedEncoding) writeLastChunk(this, headerText(trailers.flat()))
    this.#writtenMonotonicMs = performance.now()
    this.#state = 'discarding'
    // The client may wait for this end. Not before all is sent: an ended socket cannot reset the connection.
    if (this.#isCloseDelimited) this.req.socket.write('', () => this.req.socket.end())
    this.req.context.connection.discard.body(this.req, () => this.end()) // only the first call has an effect
  }

  /** Must be called after a 101 was written to the socket. */
  becomeTunnel(): void {
    this.statusCode = 101
    this.#writtenMonotonicMs = performance.now()
    this.#state = 'tunnel'
  }

  get state(): State {
    return this.#state
  }

  /** For the access log: the system has the whole response, or it counts as sent (see `#writtenMonotonicMs`). */
  get isWritten(): boolean {
    return this.#writtenMonotonicMs !== undefined || (this.writableFinished && this.#state !== 'aborted')
  }

  /**
   * Called when the connection is aborted. Returns how the socket must end. After a clean end, a close-delimited response would
   * look complete, and Ruby's `Net::HTTP` takes others for complete, too. But while the client sends, a reset could fail its
   * writes before it reads.
   */
  beginAbort(): 'reset' | 'destroy' {
    if (this.#state === 'open' || this.#state === 'tunnel' || this.writableFinished) return 'destroy'
    this.#state = 'aborted'
    const isSent = this.isWritten && this.req.socket.writableLength === 0
    return !isSent && (this.#isCloseDelimited || this.req.complete) ? 'reset' : 'destroy'
  }

  /** When the response was over. A tunnel, or the discard of an unread body, may follow and does not count. */
  get endedMonotonicMs(): number {
    return this.#writtenMonotonicMs ?? performance.now()
  }
}

/** RFC 9112, sections 9.3 and 9.6. */
function afterResponse(req: SidecarRequest, mayKeepAlive: boolean, waitsForContinue: boolean): AfterResponse {
  const { admitted, isBodyMalformed, isDetached, connection } = req.context
  // No request can be read behind an unread body.
  if (!req.complete && !req.socket.readableEnded && (admitted === undefined || admitted.hasBody))
    return waitsForContinue || isDetached ? 'close' : 'discard' // no parser reads the body of an upgrade
  if (!mayKeepAlive || connection.isDraining() || admitted === undefined || isBodyMalformed) return 'close'
  if (admitted.lines.connectionOptions?.has('close')) return 'close'
  // Node's parser obeys these trailers, too, and then refuses the next request.
  if (req.rawTrailers.some((name) => /^(?:proxy-)?connection$/i.test(name))) return 'close'
  if (!admitted.offersUpgrade || isDetached) return 'keepAlive'
  // Node discards the bytes that it has read behind a head that offers an upgrade. They may be a request.
  if (admitted.hasBody || connection.mayHaveLostBytes(req)) return 'close'
  return CAN_DECLINE_UPGRADES ? 'keepAlive' : 'close'
}
