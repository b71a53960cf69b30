/**
 * A response to a client: writes its head, body and trailers, and decides with its head whether
 * another request may follow. `written`: Node has all of it. `sent`: the system has it.
 */
import { ServerResponse, STATUS_CODES } from 'node:http'
import type { AdmittedRequest } from '../gate/admission.ts'
import { type HeaderList, headerText } from '../http/headers.ts'
import { afterReads, CAN_DECLINE_UPGRADES, omitChunks, sendHead, writeLastChunk } from '../http/node-http.ts'
import type { SidecarRequest } from './request.ts'

/**
 * What the sender asks for. `closeDelimited`: only the end of the connection ends the body of the response.
 */
export type Persistence = 'keepAlive' | 'close' | 'closeDelimited'

/**
 * `close`: Node closes the connection after the last byte.
 * `discard`: the sidecar first discards the rest of the request.
 */
type AfterResponse = 'keepAlive' | 'close' | 'discard'

/**
 * Each state, the states that may follow, and what is written:
 *
 *   open        begun, tunnel                   nothing but a `100 Continue`
 *   begun       written, discarding, truncated  the head, and perhaps a part of the rest
 *   written     truncated                       all. Node closes the connection or keeps it
 *   discarding  truncated                       all. The response is ended once the request is discarded
 *   tunnel                                      a 101
 *   truncated                                   a part: the connection is aborted
 *
 * Node takes the canceled writes of a truncated response for finished.
 */
type State = 'open' | 'begun' | 'written' | 'discarding' | 'tunnel' | 'truncated'

export class SidecarResponse extends ServerResponse<SidecarRequest> {
  #state: State = 'open'
  #hasContinued = false
  #after: AfterResponse = 'keepAlive'
  /** Only the end of the connection ends the body. */
  isCloseDelimited = false
  #unwritten: string | undefined // the end of a short response, which waits for `flushEnd`
  /**
   * When a short response, one before a discard, or a 101 was written.
   * It counts as sent, although Node may still have bytes.
   */
  #writtenMonotonicMs: number | undefined

  /** Must be called before the body is read: the client may send the body only after a `100 Continue`. */
  continueIfExpected(): void {
    if (this.#hasContinued || !this.req.expectsContinue) {
      return
    }
    this.#hasContinued = true
    this.writeContinue()
  }

  /**
   * Sends an informational response.
   * No part of the final one may have been written. Node can only write some of them.
   */
  sendInformational(status: number, statusText: string, headers: HeaderList): void {
    this.req.socket.write(`HTTP/1.1 ${status} ${statusText}\r\n${headerText(headers)}\r\n`, 'latin1')
  }

  /**
   * Node sends the head with the first bytes of the body.
   * `headers`: all but `Connection` and those that Node adds.
   */
  begin(status: number, statusText: string, headers: string[], persistence: Persistence): void {
    this.isCloseDelimited = persistence === 'closeDelimited'
    const holdsBody = this.req.expectsContinue && !this.#hasContinued
    this.#after = afterResponse(this.req, persistence, holdsBody)
    if (this.isCloseDelimited) {
      omitChunks(this)
    }
    const list = this.#after === 'keepAlive' ? headers : [...headers, 'Connection', 'close']
    this.writeHead(status, statusText, list)
    this.#state = 'begun'
  }

  /** Writes a whole, short response, which counts as sent at once. `text`: the body, in ASCII. */
  sendWhole(status: number, headers: string[], text: string, persistence: Persistence): void {
    this.begin(status, STATUS_CODES[status] ?? '', headers, persistence)
    this.#writtenMonotonicMs = performance.now()
    this.writeEnd(text)
  }

  /**
   * Delays the end until all sockets are read: the short responses of a turn cost less if they
   * are sent together.
   */
  writeEndAfterReads(text: string): void {
    this.#unwritten = text
    afterReads(() => this.flushEnd())
  }

  /**
   * Called, too, before Node ends the socket, because the client has ended its half.
   * After that, nothing can be sent.
   */
  flushEnd(): void {
    if (this.#unwritten === undefined || this.#state !== 'begun' || !this.req.socket.writable) {
      return
    }
    this.writeEnd(this.#unwritten)
  }

  /**
   * Writes the rest of the response.
   * Ends it once an unread request body is discarded. `text`: the last bytes, in Latin-1.
   */
  writeEnd(text = '', trailers: readonly [name: string, value: string][] = []): void {
    if (this.#after !== 'discard' || this.req.readableEnded || this.req.socket.readableEnded) {
      this.#state = 'written'
      if (trailers.length > 0) {
        this.addTrailers(trailers)
      }
      this.end(text, 'latin1')
      return
    }
    sendHead(this)
    if (text !== '') {
      this.write(text, 'latin1')
    }
    if (this.chunkedEncoding) {
      writeLastChunk(this, headerText(trailers.flat()))
    }
    this.#writtenMonotonicMs = performance.now()
    this.#state = 'discarding'
    this.req.context.connection.end.discardBody(this.req, this.isCloseDelimited, () => this.end())
  }

  /**
   * Writes a 101 to the detached socket, which is a tunnel from now on.
   * `headerLines`: with `Connection` and `Upgrade`.
   */
  switchProtocols(headerLines: string): void {
    this.req.socket.write(`HTTP/1.1 101 Switching Protocols\r\n${headerLines}\r\n`, 'latin1')
    this.statusCode = 101
    this.#writtenMonotonicMs = performance.now()
    this.#state = 'tunnel'
  }

  get state(): State {
    return this.#state
  }

  /** Whether a head or a 101 is written. Node's own flag knows nothing of a 101. */
  get hasBegun(): boolean {
    return this.#state !== 'open'
  }

  /** For the access log: the whole response is sent, or counts as sent (see `#writtenMonotonicMs`). */
  get countsAsSent(): boolean {
    return this.#writtenMonotonicMs !== undefined || (this.writableFinished && this.#state !== 'truncated')
  }

  /** Called when the connection is aborted. Returns whether the client may have a part of the response. */
  truncate(): boolean {
    if (this.#state === 'open' || this.#state === 'tunnel' || this.writableFinished) {
      return false
    }
    this.#state = 'truncated'
    return !this.countsAsSent || this.req.socket.writableLength > 0
  }

  /**
   * When the closed response was over.
   * A tunnel, or the discard of an unread body, may follow and does not count.
   */
  get endedMonotonicMs(): number {
    return this.#writtenMonotonicMs ?? performance.now()
  }
}

/**
 * What follows the response (RFC 9112, sections 9.3 and 9.6).
 * `holdsBody`: the client sends the body only after a `100 Continue`.
 */
function afterResponse(req: SidecarRequest, asked: Persistence, holdsBody: boolean): AfterResponse {
  if (isBodyUnread(req)) {
    // No request can be read behind an unread body. No parser reads the body of an upgrade.
    return holdsBody || req.context.isDetached ? 'close' : 'discard'
  }
  const mayFollow = asked === 'keepAlive' && mayAnotherRequestFollow(req)
  return mayFollow ? 'keepAlive' : 'close'
}

function isBodyUnread(req: SidecarRequest): boolean {
  const { admitted } = req.context
  const hasEnded = req.complete || req.socket.readableEnded
  return !hasEnded && (admitted === undefined || admitted.hasBody)
}

function mayAnotherRequestFollow(req: SidecarRequest): boolean {
  const { admitted, isBodyMalformed, connection } = req.context
  if (admitted === undefined || isBodyMalformed || connection.isDraining()) {
    return false
  }
  if (admitted.lines.connectionOptions?.has('close')) {
    return false
  }
  if (admitted.isChunked && hasConnectionTrailer(req)) {
    return false
  }
  return !mayHaveLostNextRequest(req, admitted)
}

/** Node's parser obeys these trailers, too, and then refuses the next request. */
const hasConnectionTrailer = ({ trailers }: SidecarRequest) =>
  'connection' in trailers || 'proxy-connection' in trailers

/** Node discards the bytes that it has read behind a head that offers an upgrade. They may be a request. */
function mayHaveLostNextRequest(req: SidecarRequest, admitted: AdmittedRequest): boolean {
  const { isDetached, connection } = req.context
  if (!admitted.offersUpgrade || isDetached) {
    return false
  }
  const canKeepBytes = CAN_DECLINE_UPGRADES && !admitted.hasBody
  return !canKeepBytes || connection.nextHead.mayHaveLostBytes(req)
}
