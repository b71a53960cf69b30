/**
 * The transfer: one request to the upstream and its response back, streaming both ways.
 * In: an accepted request. Out: the upstream's response byte for byte; or an error response; or, after a part was sent,
 * an aborted connection, so that a truncated object never looks complete. Memory: a buffer each way, by backpressure.
 */
import { MessageChannel } from 'node:worker_threads'
import { ERRORS, type PublicError } from '../errors.ts'
import {
  mustCloseAfter,
  type RequestHandler,
  type SidecarRequest,
  type SidecarResponse,
} from '../server/context.ts'
import { endAfterBody } from '../server/unread-body.ts'
import { requestTrailers } from './request-headers.ts'
import { headerValues, responseHeaders, responseTrailers } from './response-headers.ts'
import type { UpstreamHead } from './response-parser.ts'
import type { UpstreamConnection, UpstreamRequest } from './upstream-connection.ts'
import { faultError, type UpstreamFault, type UpstreamOutcome } from './upstream-errors.ts'
import type { UpstreamPool } from './upstream-pool.ts'

export interface UpstreamEvents {
  onOutcome(outcome: UpstreamOutcome): void
  /** The head of a final response. `seconds`: since the request's start. */
  onResponse(status: number, seconds: number): void
}

export interface TransferOptions {
  readonly pool: UpstreamPool
  readonly timeouts: { readonly upstreamResponseSeconds: number }
  readonly isDraining: () => boolean
  readonly refuse: (
    req: SidecarRequest,
    res: SidecarResponse,
    error: PublicError,
    outcome: UpstreamOutcome,
  ) => void
  readonly events: UpstreamEvents
}

/** A complete body up to this size is sent as a string, in one write with its head. */
const MAX_STRING_BODY = 16 * 1024
/** Download: larger chunks hold their read buffer, others are copied. Upload: larger ones are freed when written. */
const COPY_THRESHOLD = 16 * 1024
/** Maximum upload bytes buffered before the next `setImmediate` write. */
const MAX_PENDING = 64 * 1024
/** Servers read an unused body up to about this size. */
const MAX_IGNORED_BODY = 64 * 1024

/**
 * What a transfer waits for, and what ends the wait. Only a drain bounds its total duration.
 *
 *   a connection                 the pool: `upstreamConnectSeconds`, in the queue `upstreamResponseSeconds`
 *   the response head            the pool: `upstreamResponseSeconds`, from the end of the upload on
 *   bytes of the upload          `onIdle`: `idleSeconds` of the client's socket (`server.timeout`, `listener.ts`)
 *   the upstream to read them    `onIdle`: backpressure pauses the client's socket, which is then idle
 *   bytes of the response        `onIdle`: the client's socket is idle, too
 *   the client to read them      `onIdle`
 *   the end of an unread upload  `endAfterBody`: 5 s without a byte, 30 s in all
 */
export class Transfer implements UpstreamRequest, RequestHandler {
  readonly requestHead: string
  readonly isHeadRequest: boolean
  readonly #req: SidecarRequest
  readonly #res: SidecarResponse
  readonly #options: TransferOptions
  readonly #chunked: boolean
  /** GET or HEAD without a body, not retried yet. */
  #isRetryable: boolean
  /** Set from the write of the request to the end of the response. */
  #connection: UpstreamConnection | undefined
  #isRequestWritten: boolean
  #upload: Buffer[] = []
  #uploadBytes = 0
  #isUploadEnded = false
  #isUpstreamBlocked = false
  #isClientBlocked = false
  /** A parsed response head that is sent with the first bytes of the body. */
  #unsentHead: UpstreamHead | undefined
  #responseHead: UpstreamHead | undefined
  /** Parsed chunks of the response body that have not been sent. */
  #pieces: Buffer[] = []
  /** The response began before the end of the upload: it closes the connection. */
  #isEarly = false
  #settled = false

  constructor(req: SidecarRequest, res: SidecarResponse, requestHead: string, options: TransferOptions) {
    const { method, context } = req
    const hasBody = context.admitted?.hasBody === true
    this.#req = req
    this.#res = res
    this.#options = options
    this.#chunked = context.admitted?.chunked === true
    this.#isRequestWritten = !hasBody
    this.#isRetryable = !hasBody && (method === 'GET' || method === 'HEAD')
    this.requestHead = requestHead
    this.isHeadRequest = method === 'HEAD'
  }

  start(): void {
    this.#req.context.handOver(this)
    this.#options.pool.acquire(this)
  }

  // Calls of the upstream connection.

  onHeadWritten(connection: UpstreamConnection, writable: boolean): void {
    this.#connection = connection
    if (this.#isRequestWritten) this.#awaitHead()
    else this.#startUpload(writable)
  }

  onDrain(): void {
    this.#isUpstreamBlocked = false
    if (!this.#isRequestWritten) this.#req.resume()
  }

  onInformational(head: UpstreamHead): void {
    // Only 103 is forwarded, with its links (RFC 8297). The sidecar sends its own 100; HTTP/1.0 has no 1xx.
    if (head.status !== 103 || this.#res.headersSent || this.#req.httpVersionMinor === 0) return
    try {
      this.#res.writeEarlyHints({ link: headerValues(head, 'link') })
    } catch {
      // Node refuses malformed links; hints are optional.
    }
  }

  onHead(head: UpstreamHead): void {
    if (this.#connection !== undefined) this.#connection.deadline = Number.POSITIVE_INFINITY
    this.#options.events.onResponse(head.status, (performance.now() - this.#req.context.startedAt) / 1000)
    this.#unsentHead = head
    this.#responseHead = head
  }

  onBody(chunk: Buffer, complete: boolean): void {
    this.#req.context.countOut(chunk.length)
    const head = this.#unsentHead
    if (
      head !== undefined &&
      complete &&
      this.#isRequestWritten &&
      chunk.length <= MAX_STRING_BODY &&
      this.#pieces.length === 0
    ) {
      this.#writeHead(head)
      this.#res.end(chunk.toString('latin1'), 'latin1')
    } else if (chunk.length > 0) {
      this.#pieces.push(chunk)
    }
  }

  onRead(): void {
    if (this.#settled && this.#res.writableEnded) return
    if (this.#pieces.length > 0) this.#writePieces()
    else if (this.#unsentHead !== undefined) {
      this.#writeHead(this.#unsentHead)
      // Sends the head now; `flushHeaders` would write header bytes above 0x7F as UTF-8.
      this.#res.write(NO_BYTES)
    }
  }

  onEnd(rawTrailers: readonly string[]): void {
    const head = this.#responseHead
    if (this.#pieces.length > 0) this.#writePieces()
    // An upstream that refuses a request may leave its upload unread: the connection cannot be reused.
    if (!this.#isRequestWritten || (head !== undefined && head.status >= 400 && this.#mayLeaveUnreadBody()))
      this.#connection?.abandon()
    this.#settle('ok')
    if (this.#res.writableEnded) return
    if (this.#unsentHead !== undefined) this.#writeHead(this.#unsentHead)
    const hasTrailers = rawTrailers.length > 0 && head !== undefined && this.#res.chunkedEncoding
    const trailers = hasTrailers ? responseTrailers(rawTrailers, head) : undefined
    if (this.#isEarly) {
      if (head?.framing === 'none') this.#res.flushHeaders()
      else this.#res.write(NO_BYTES)
      endAfterBody(this.#req, this.#res, trailers)
    } else {
      if (trailers !== undefined) this.#res.addTrailers(trailers)
      this.#res.end()
    }
  }

  onFault(fault: UpstreamFault, stale: boolean): void {
    this.#connection = undefined
    if (stale && this.#isRetryable) {
      this.#isRetryable = false
      this.#options.pool.connect(this) // the retry, on a new connection
      return
    }
    // Begins the response, so that it is aborted and not replaced by an error response.
    if (this.#pieces.length > 0) this.#writePieces()
    this.#fail(fault, faultError(fault))
  }

  // Calls of the listener.

  onRelease(): void {
    if (this.#settled) return
    this.#giveUpUpstream()
    this.#settle('client_aborted')
  }

  onMalformedBody(): void {
    if (this.#settled || this.#isRequestWritten) return
    this.#giveUpUpstream()
    this.#fail('client_aborted', ERRORS.malformedRequest)
  }

  onIdle(): void {
    const { headersSent } = this.#res
    if (this.#settled) {
      this.#req.context.connection.abort() // the client does not read the response
      return
    }
    // Waiting for a connection or a response head has its own timeout.
    if (!headersSent && (this.#isRequestWritten || this.#connection === undefined)) return
    this.#giveUpUpstream()
    if (headersSent)
      this.#fail(this.#isClientBlocked ? 'client_idle' : 'connection_read_timeout', ERRORS.internalError)
    else if (this.#isUpstreamBlocked) this.#fail('connection_write_timeout', ERRORS.serviceNotReady)
    else this.#fail('client_idle', ERRORS.requestTimeout)
  }

  #startUpload(writable: boolean): void {
    this.#res.continueIfExpected()
    this.#req.on('data', (chunk: Buffer) => this.#onUploadData(chunk))
    this.#req.once('end', () => this.#onUploadEnd())
    if (!writable) this.#pauseUpload()
  }

  #onUploadData(chunk: Buffer): void {
    if (this.#settled) return
    this.#req.context.countIn(chunk.length)
    // Written right after a read of all sockets: a failed write would discard the response of an upstream that refuses
    // the upload and closes. Measured with such an upstream: 42 % of its responses lost -> 3 %.
    if (this.#upload.push(chunk) === 1) setImmediate(() => setImmediate(() => this.#writeUpload()))
    this.#uploadBytes += chunk.length
    if (this.#uploadBytes >= MAX_PENDING) this.#req.pause()
  }

  #onUploadEnd(): void {
    this.#isUploadEnded = true
    if (this.#upload.length === 0) this.#writeUpload()
  }

  #writeUpload(): void {
    const socket = this.#connection?.socket
    const pieces = this.#upload
    const bytes = this.#uploadBytes
    this.#upload = []
    this.#uploadBytes = 0
    if (socket === undefined || this.#settled) return
    let writable = true
    if (bytes > 0) {
      socket.cork()
      if (this.#chunked) socket.write(`${bytes.toString(16)}\r\n`, 'latin1')
      for (const piece of pieces) writable = socket.write(piece, freeWhenWritten(piece))
      if (this.#chunked) writable = socket.write('\r\n', 'latin1')
    }
    if (this.#isUploadEnded) {
      const { rawTrailers, context } = this.#req
      if (this.#chunked)
        socket.write(`0\r\n${requestTrailers(rawTrailers, context.admitted?.connectionOptions)}`, 'latin1')
      this.#isRequestWritten = true
      if (this.#responseHead === undefined) this.#awaitHead()
    }
    socket.uncork()
    if (!writable) this.#pauseUpload()
    else if (!this.#isRequestWritten) this.#req.resume()
  }

  #pauseUpload(): void {
    this.#isUpstreamBlocked = true
    this.#req.pause()
  }

  /** Sends all chunks of one read at once, so that tiny upstream chunks do not cost one write each. */
  #writePieces(): void {
    const pieces = this.#pieces
    this.#pieces = []
    if (this.#unsentHead !== undefined) this.#writeHead(this.#unsentHead)
    const [first] = pieces
    const onWritten =
      pieces.length === 1 && first !== undefined && first.length >= COPY_THRESHOLD
        ? this.#connection?.holdBuffer()
        : undefined
    const bytes = onWritten !== undefined && first !== undefined ? first : Buffer.concat(pieces)
    const writable = this.#res.write(bytes, onWritten)
    if (writable || this.#isClientBlocked) return
    this.#isClientBlocked = true
    this.#connection?.socket.pause()
    this.#res.once('drain', () => {
      this.#isClientBlocked = false
      this.#connection?.socket.resume()
    })
  }

  #writeHead(head: UpstreamHead): void {
    const { context, httpVersionMinor } = this.#req
    this.#unsentHead = undefined
    const canChunk = httpVersionMinor > 0 && !this.isHeadRequest
    const headers = responseHeaders(head, context.id, canChunk && head.framing === 'chunked')
    // Framed by close, or by chunks that an HTTP/1.0 client cannot read.
    const closeDelimited = head.framing === 'close' || (head.framing === 'chunked' && !canChunk)
    // The rest of an upload follows an early response: no further request is read (RFC 9112, section 9.6).
    this.#isEarly = !this.#isRequestWritten && !this.#req.complete
    if (this.#isEarly || closeDelimited || this.#options.isDraining() || mustCloseAfter(this.#req))
      headers.push('Connection', 'close')
    this.#res.writeForwardedHead(head.status, head.statusText, headers, closeDelimited)
  }

  #awaitHead(): void {
    if (this.#connection !== undefined)
      this.#connection.deadline = performance.now() + this.#options.timeouts.upstreamResponseSeconds * 1000
  }

  /** Whether the upstream may have unread upload bytes: the next request on the connection would queue behind them. */
  #mayLeaveUnreadBody(): boolean {
    return this.#req.context.bytesIn > MAX_IGNORED_BODY || (this.#chunked && !this.#isUploadEnded)
  }

  #giveUpUpstream(): void {
    if (this.#connection === undefined) this.#options.pool.cancel(this)
    else this.#connection.abandon()
    this.#connection = undefined
  }

  #fail(outcome: UpstreamOutcome, error: PublicError): void {
    this.#settle(outcome)
    // Later, so that the part that was just written is sent.
    if (this.#res.headersSent) setImmediate(() => this.#req.context.connection.abort())
    else this.#options.refuse(this.#req, this.#res, error, outcome)
  }

  #settle(outcome: UpstreamOutcome): void {
    this.#connection = undefined
    if (this.#settled) return
    this.#settled = true
    if (outcome !== 'ok') this.#req.context.fail(outcome)
    this.#options.events.onOutcome(outcome)
  }
}

const NO_BYTES = Buffer.alloc(0)

const { port1: closedPort, port2 } = new MessageChannel()
port2.close()

/**
 * Returns a callback for `write` that frees an upload chunk, or undefined if it is small or shared. Each 64 MB of
 * memory outside V8's heap starts a garbage collection. A transfer to a port takes memory from its owner, and a closed
 * port drops it. Node 20: 1,200 -> 600 ms of CPU per GB.
 */
function freeWhenWritten({ buffer, byteLength }: Buffer) {
  const isShared = byteLength !== buffer.byteLength || !(buffer instanceof ArrayBuffer)
  if (byteLength < COPY_THRESHOLD || isShared) return undefined
  return (error?: Error | null) => {
    if (!error) closedPort.postMessage(null, [buffer])
  }
}
