/**
 * The transfer: one request to the upstream and its response back, streaming both ways.
 * In: a request that may pass. Out: the upstream's response byte for byte; or the answer that says what went wrong; or an
 * aborted connection where a part of the response has been sent, so that a truncated object is never taken for a whole one.
 * Backpressure bounds memory to a buffer each way; only idle time is bounded, never a transfer that makes progress.
 */
import { ERRORS, type PublicError } from '../errors.ts'
import {
  mustCloseAfter,
  type RequestHandler,
  type SidecarRequest,
  type SidecarResponse,
} from '../server/context.ts'
import { afterUnreadBody } from '../server/respond.ts'
import { requestTrailers } from './request-headers.ts'
import { headerValues, responseHeaders, responseTrailers } from './response-headers.ts'
import type { UpstreamHead } from './response-parser.ts'
import type { UpstreamConnection, UpstreamRequest } from './upstream-connection.ts'
import { faultError, type UpstreamFault, type UpstreamOutcome } from './upstream-errors.ts'
import type { UpstreamPool } from './upstream-pool.ts'

export interface TransferOptions {
  readonly pool: UpstreamPool
  /** Milliseconds for the response head, once the request has been sent. */
  readonly responseMs: number
  readonly isDraining: () => boolean
  /** Answers in place of the upstream. */
  readonly refuse: (
    req: SidecarRequest,
    res: SidecarResponse,
    error: PublicError,
    outcome: UpstreamOutcome,
  ) => void
  /** Counts how the transfer ended, once. */
  readonly onOutcome: (outcome: UpstreamOutcome) => void
  /** Receives the milliseconds from the request's start to the response head. */
  readonly onFirstByte: (ms: number) => void
}

/** A body of this size goes out in one write with its head, as a string; a larger one is not worth the copy. */
const MAX_STRING_BODY = 16 * 1024
/** Smaller pieces are copied; the memory of larger ones is kept until they are written. */
const COPY_THRESHOLD = 16 * 1024
/** Bytes of an upload that wait for the write of this turn. */
const MAX_PENDING = 64 * 1024
/** Servers read a body up to about this size even where they have no use for it. */
const MAX_IGNORED_BODY = 64 * 1024

/** One request on its way to the upstream, and its response on its way back. */
export class Transfer implements UpstreamRequest, RequestHandler {
  readonly requestHead: string
  readonly isHead: boolean
  readonly #req: SidecarRequest
  readonly #res: SidecarResponse
  readonly #options: TransferOptions
  readonly #chunked: boolean
  /** May be sent again if a reused connection turns out to be closed: it has no body and changes nothing. */
  #repeatable: boolean
  /** From when the request is written to when the response is whole. */
  #connection: UpstreamConnection | undefined
  /** The request has been sent whole. */
  #sent: boolean
  /** Pieces of the request body that are written in the check phase of this turn. */
  #upload: Buffer[] = []
  #uploadBytes = 0
  #isUploadEnded = false
  #upstreamFull = false
  #clientFull = false
  /** The response head that has been parsed but not sent: it goes out with the first bytes of the body. */
  #head: UpstreamHead | undefined
  #upstreamHead: UpstreamHead | undefined
  /** Pieces of the response body that have been parsed but not sent. */
  #pieces: Buffer[] = []
  /** The response says `Connection: close`: Node closes the connection as soon as it has ended. */
  #closes = false
  /** The upstream's part is over, and counted. */
  #settled = false

  /** @param requestHead - the head for the upstream */
  constructor(req: SidecarRequest, res: SidecarResponse, requestHead: string, options: TransferOptions) {
    const { method, context } = req
    const hasBody = context.admitted?.hasBody === true
    this.#req = req
    this.#res = res
    this.#options = options
    this.#chunked = context.admitted?.chunked === true
    this.#sent = !hasBody
    this.#repeatable = !hasBody && (method === 'GET' || method === 'HEAD')
    this.requestHead = requestHead
    this.isHead = method === 'HEAD'
  }

  /** Sends the request as soon as there is a connection for it. */
  start(): void {
    this.#req.context.handler = this
    this.#options.pool.acquire(this)
  }

  // The upstream's side.

  onConnected(connection: UpstreamConnection, writable: boolean): void {
    this.#connection = connection
    if (this.#sent) this.#awaitHead()
    else this.#startUpload(writable)
  }

  onDrain(): void {
    this.#upstreamFull = false
    if (!this.#sent) this.#req.resume()
  }

  onInformational(head: UpstreamHead): void {
    // Only 103 passes, with its links (RFC 8297). 100 is the sidecar's own; 102 says nothing; HTTP/1.0 knows none.
    if (head.status !== 103 || this.#res.headersSent || this.#req.httpVersionMinor === 0) return
    try {
      this.#res.writeEarlyHints({ link: headerValues(head, 'link') })
    } catch {
      // Node refuses links that are not well-formed: hints are optional.
    }
  }

  onHead(head: UpstreamHead): void {
    if (this.#connection !== undefined) this.#connection.deadline = Number.POSITIVE_INFINITY
    this.#options.onFirstByte(performance.now() - this.#req.context.startedAt)
    this.#head = head
    this.#upstreamHead = head
  }

  onBody(chunk: Buffer, complete: boolean): void {
    this.#req.context.bytesOut += chunk.length
    const head = this.#head
    if (
      head !== undefined &&
      complete &&
      this.#sent &&
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
    else if (this.#head !== undefined) {
      this.#writeHead(this.#head)
      this.#res.write(NO_BYTES) // the body may take its time
    }
  }

  onEnd(rawTrailers: readonly string[]): void {
    const head = this.#upstreamHead
    if (this.#pieces.length > 0) this.#writePieces()
    if (!this.#sent || (head !== undefined && head.status >= 400 && this.#mayLeaveUnreadBody()))
      this.#connection?.abandon()
    this.#settle('ok')
    if (this.#res.writableEnded) return
    if (this.#head !== undefined) this.#writeHead(this.#head)
    if (rawTrailers.length > 0 && head !== undefined && this.#res.chunkedEncoding)
      this.#res.addTrailers(responseTrailers(rawTrailers, head))
    this.#endResponse()
  }

  onFault(fault: UpstreamFault, stale: boolean): void {
    this.#connection = undefined
    if (stale && this.#repeatable) {
      this.#repeatable = false
      this.#options.pool.connect(this)
      return
    }
    // What was read has begun the response: the client must not take the rest for an answer of the sidecar.
    if (this.#pieces.length > 0) this.#writePieces()
    this.#fail(fault, faultError(fault))
  }

  // The client's side.

  onClosed(finished: boolean): void {
    if (finished || this.#settled) return
    this.#giveUpUpstream()
    this.#settle('client_aborted')
  }

  onMalformedBody(): void {
    if (this.#settled || this.#sent) return
    this.#giveUpUpstream()
    this.#fail('client_aborted', ERRORS.malformedRequest)
  }

  /** Nothing moved on the client's connection for the idle time. */
  onIdle(): void {
    const { headersSent } = this.#res
    if (this.#settled) {
      this.#req.context.connection.abort() // the client does not read the rest of the response
      return
    }
    if (!headersSent && (this.#sent || this.#connection === undefined)) return // other timeouts count
    this.#giveUpUpstream()
    if (headersSent)
      this.#fail(this.#clientFull ? 'client_idle' : 'connection_read_timeout', ERRORS.internalError)
    else if (this.#upstreamFull) this.#fail('connection_write_timeout', ERRORS.serviceNotReady)
    else this.#fail('client_idle', ERRORS.requestTimeout)
  }

  // The request's body.

  #startUpload(writable: boolean): void {
    const { context } = this.#req
    if (context.admitted?.expectsContinue === true) {
      context.continued = true
      this.#res.writeContinue()
    }
    this.#req.on('data', (chunk: Buffer) => this.#onUploadData(chunk))
    this.#req.once('end', () => this.#onUploadEnd())
    if (!writable) this.#pauseUpload()
  }

  #onUploadData(chunk: Buffer): void {
    if (this.#settled) return // it is dropped
    this.#req.context.bytesIn += chunk.length
    // Written in the check phase, after every socket was read: an early answer that arrived is read before a write can
    // fail on the connection that the upstream closed behind it.
    if (this.#upload.push(chunk) === 1) setImmediate(() => this.#writeUpload())
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
      for (const piece of pieces) writable = socket.write(piece)
      if (this.#chunked) writable = socket.write('\r\n', 'latin1')
    }
    if (this.#isUploadEnded) {
      const { rawTrailers, context } = this.#req
      if (this.#chunked)
        socket.write(`0\r\n${requestTrailers(rawTrailers, context.admitted?.connectionOptions)}`, 'latin1')
      this.#sent = true
      if (this.#upstreamHead === undefined) this.#awaitHead()
    }
    socket.uncork()
    if (!writable) this.#pauseUpload()
    else if (!this.#sent) this.#req.resume()
  }

  #pauseUpload(): void {
    this.#upstreamFull = true
    this.#req.pause()
  }

  // The response's body.

  /** Sends what one read brought at once: an upstream that sends chunks of one byte must not cost a write each. */
  #writePieces(): void {
    const pieces = this.#pieces
    this.#pieces = []
    if (this.#head !== undefined) this.#writeHead(this.#head)
    const [first] = pieces
    const onWritten =
      pieces.length === 1 && first !== undefined && first.length >= COPY_THRESHOLD
        ? this.#connection?.holdBuffer()
        : undefined
    const bytes = onWritten !== undefined && first !== undefined ? first : Buffer.concat(pieces)
    const writable = this.#res.write(bytes, onWritten)
    if (writable || this.#clientFull) return
    this.#clientFull = true
    this.#connection?.socket.pause()
    this.#res.once('drain', () => {
      this.#clientFull = false
      this.#connection?.socket.resume()
    })
  }

  #writeHead(head: UpstreamHead): void {
    const { context, httpVersionMinor } = this.#req
    this.#head = undefined
    const canChunk = httpVersionMinor > 0 && !this.isHead
    const headers = responseHeaders(head, context.id, canChunk && head.framing === 'chunked')
    // Framed by close, or by chunks that the client does not know: the end of the connection is the end of the body.
    context.framedByClose = head.framing === 'close' || (head.framing === 'chunked' && !canChunk)
    if (context.framedByClose) this.#res.removeHeader('Transfer-Encoding')
    // An early answer ends the connection. Its close is announced only where the client sees the end of the body by its
    // length: the end of chunks is sent by `end()`, which would close the connection with the upload unread.
    const isEarly = !this.#sent && head.framing === 'length'
    this.#closes = isEarly || context.framedByClose || this.#options.isDraining() || mustCloseAfter(this.#req)
    if (this.#closes) headers.push('Connection', 'close')
    this.#res.writeHead(head.status, head.reason, headers)
  }

  #endResponse(): void {
    const req = this.#req
    const res = this.#res
    if (this.#sent || req.complete) res.end()
    else if (this.#closes) afterUnreadBody(req, () => res.end())
    else {
      const { connection } = req.context
      connection.isEnding = true
      // Behind Node, which sets its keep-alive timeout when the response has been sent.
      res.once('close', () => {
        if (!connection.socket.destroyed) afterUnreadBody(req, () => connection.socket.destroySoon())
      })
      res.end()
    }
  }

  /** The request has been sent: its connection is closed when the response head is late. */
  #awaitHead(): void {
    if (this.#connection !== undefined)
      this.#connection.deadline = performance.now() + this.#options.responseMs
  }

  /** Whether a part of the upload may lie in the kernel, where the next request on the connection would wait behind it. */
  #mayLeaveUnreadBody(): boolean {
    return this.#req.context.bytesIn > MAX_IGNORED_BODY || (this.#chunked && !this.#isUploadEnded)
  }

  #giveUpUpstream(): void {
    if (this.#connection === undefined) this.#options.pool.cancel(this)
    else this.#connection.abandon()
    this.#connection = undefined
  }

  /** Answers, or aborts the connection where a part of the response has been sent. */
  #fail(outcome: UpstreamOutcome, error: PublicError): void {
    this.#settle(outcome)
    // Aborted once the part that has just been written is out.
    if (this.#res.headersSent) setImmediate(() => this.#req.context.connection.abort())
    else this.#options.refuse(this.#req, this.#res, error, outcome)
  }

  #settle(outcome: UpstreamOutcome): void {
    this.#connection = undefined
    if (this.#settled) return
    this.#settled = true
    if (outcome !== 'ok') this.#req.context.reason = outcome
    this.#options.onOutcome(outcome)
  }
}

const NO_BYTES = Buffer.alloc(0)
