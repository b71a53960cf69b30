/**
 * The upload half of a transfer: streams the body of the client's request to the upstream's connection.
 * In: a request with a body. Out: the bytes and the trailers of the body, in new chunks if the request
 * is chunked. Memory: `#pending` holds less than `MAX_PENDING` plus one read. The upstream's socket
 * holds about as much, which it frees once it is sent. A paused request fills Node's own buffer (64 KiB,
 * on Node 20 16 KiB); Node then stops. If the upstream stops reading: `#write` pauses the request.
 * Once no byte has moved for `idleSeconds`, `UpstreamConnection.tick` reports a failure.
 * `Transfer.#end` sends a 503, and `discardBody` discards the rest. After a response head, it aborts instead.
 */
import type { SidecarRequest } from '../client/request.ts'
import type { ServiceDecision } from '../gate/gate.ts'
import { afterNextReads, restartTimeout } from '../http/node-http.ts'
import type { PacedReader } from '../room.ts'
import type { ServingConnection } from '../upstream/contract.ts'
import { requestTrailerLines } from './request-headers.ts'
import { UploadRate, type UploadRateSettings } from './upload-rate.ts'

/** The request is paused while at least this many bytes wait for the next write. */
const MAX_PENDING = 64 * 1024

export class Upload implements PacedReader {
  readonly #req: SidecarRequest
  readonly #decision: ServiceDecision
  /** Undefined once the body is written, or the transfer has ended. */
  #writer: Pick<ServingConnection, 'writeBody'> | undefined
  #pending: Buffer[] = []
  #pendingBytes = 0
  readonly #rate: UploadRate
  /** The connection waits for `onWritable`. */
  #isUpstreamFull = false

  /** The head of the request must have been written. */
  constructor(
    req: SidecarRequest,
    decision: ServiceDecision,
    writer: Pick<ServingConnection, 'writeBody'>,
    settings: UploadRateSettings,
  ) {
    this.#req = req
    this.#decision = decision
    this.#writer = writer
    this.#rate = new UploadRate(settings, performance.now())
  }

  start(): void {
    // As in `resume`: Node may have read nothing while the request was queued.
    restartTimeout(this.#req.socket)
    this.#takeArrived()
    this.#write() // begins to read the rest if the upstream accepts bytes
    if (this.#writer !== undefined) {
      this.#req.on('data', (chunk: Buffer) => this.#onData(chunk))
      this.#req.once('end', () => {
        if (this.#pending.length === 0) {
          this.#write()
        }
      })
    }
  }

  /** Takes the part of the body that has arrived. It leaves with the head. */
  #takeArrived(): void {
    if (!this.#req.context.mayRead('in', this)) {
      return
    }
    let chunk: Buffer | null = this.#req.read()
    while (chunk !== null) {
      this.#add(chunk)
      chunk = this.#req.read()
    }
  }

  #add(chunk: Buffer): void {
    this.#req.context.count('in', chunk.length)
    this.#pending.push(chunk)
    this.#pendingBytes += chunk.length
  }

  get waitsForClient(): boolean {
    return this.#writer !== undefined && !this.#req.isPaused()
  }

  /** Must be called several times a second. True: the client sends too slowly. */
  isTooSlow(): boolean {
    return this.#rate.isTooSlow(this.waitsForClient, this.#req.context.bytesIn, performance.now())
  }

  discardRest(): void {
    this.#end()
    this.#resume()
  }

  #end(): void {
    if (this.#writer !== undefined) {
      this.#writer = undefined
      this.#req.context.onReadEnd(this)
    }
  }

  onWritable(): void {
    this.#isUpstreamFull = false
    this.readOn()
  }

  readOn(): void {
    const isFull = this.#isUpstreamFull || this.#pendingBytes >= MAX_PENDING
    if (this.#writer === undefined || isFull || !this.#req.context.mayRead('in', this)) {
      return
    }
    this.#resume()
  }

  #resume(): void {
    if (this.#req.readableEnded || !this.#req.isPaused()) {
      return
    }
    restartTimeout(this.#req.socket) // it has run during the pause, and may be due before the next read
    this.#req.resume()
  }

  #onData(chunk: Buffer): void {
    if (this.#writer === undefined) {
      return
    }
    this.#add(chunk)
    // An upstream may refuse an upload and close.
    // A write to the closed connection would fail and discard the response.
    // The wait lets Node read the response first: without the wait, nearly half of these responses are lost.
    if (this.#pending.length === 1) {
      afterNextReads(() => this.#write())
    }
    if (this.#pendingBytes >= MAX_PENDING || !this.#req.context.mayRead('in', this)) {
      this.#req.pause()
    }
  }

  /**
   * All of the body has been read. The end of a chunked body is known only once its trailers are checked.
   */
  get #isWhole(): boolean {
    const { complete, readableEnded, readableLength } = this.#req
    const isLengthRead = complete && readableLength === 0 && !this.#decision.admitted.isChunked
    return isLengthRead || readableEnded
  }

  #write(): void {
    const writer = this.#writer
    const { isChunked } = this.#decision.admitted
    const pending = this.#pending
    const bytes = this.#pendingBytes
    this.#pending = []
    this.#pendingBytes = 0
    if (writer === undefined) {
      return
    }
    const isLast = this.#isWhole
    const isChunk = isChunked && bytes > 0
    const pieces: (string | Buffer)[] = isChunk ? [`${bytes.toString(16)}\r\n`, ...pending, '\r\n'] : pending
    if (isChunked && isLast) {
      pieces.push(`0\r\n${requestTrailerLines(this.#req, this.#decision)}\r\n`)
    }
    if (isLast) {
      this.#end()
    }
    this.#isUpstreamFull = !writer.writeBody(pieces, isLast)
    if (isLast) {
      return
    }
    if (this.#isUpstreamFull || !this.#req.context.mayRead('in', this)) {
      this.#req.pause()
    } else {
      this.#resume()
    }
  }
}
