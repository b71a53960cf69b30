/**
 * The transfer: one request to the upstream and its response back, streaming both ways.
 * In: an accepted request. Out: the upstream's response byte for byte; or an error response; or, after a part was sent,
 * a reset connection, which most clients cannot take for the end of the object.
 */
import type { Socket } from 'node:net'
import { ERRORS, type PublicError } from '../errors.ts'
import type { RequestHandler, SidecarRequest, SidecarResponse } from '../server/context.ts'
import { Download, type DownloadOwner } from './download.ts'
import type { UpstreamHead } from './response-parser.ts'
import { Upload } from './upload.ts'
import type { UpstreamConnection, UpstreamRequest } from './upstream-connection.ts'
import {
  faultError,
  ResponseSyntaxError,
  type UpstreamFailure,
  type UpstreamFault,
  type UpstreamOutcome,
} from './upstream-errors.ts'
import type { UpstreamPool } from './upstream-pool.ts'
import { openTunnel, switchesToWebSocket, type TunnelOptions } from './websocket.ts'

export interface UpstreamEvents {
  onOutcome(outcome: UpstreamOutcome): void
  /** The head of a final response. `seconds`: since the request's start. */
  onResponse(status: number, seconds: number): void
}

export interface TransferOptions extends TunnelOptions {
  readonly pool: UpstreamPool
  readonly timeouts: { readonly upstreamResponseSeconds: number }
  readonly refuse: (
    req: SidecarRequest,
    res: SidecarResponse,
    error: PublicError,
    outcome: UpstreamFailure,
  ) => void
  readonly events: UpstreamEvents
}

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
export class Transfer implements UpstreamRequest, RequestHandler, DownloadOwner {
  readonly requestHead: string
  readonly isHeadRequest: boolean
  readonly isHandshake: boolean
  readonly response: Download
  readonly #req: SidecarRequest
  readonly #res: SidecarResponse
  readonly #options: TransferOptions
  /** Undefined for a request without a body. */
  readonly #upload: Upload | undefined
  /** GET or HEAD without a body, not retried yet. */
  #isRetryable: boolean
  /** Set from the write of the request head to the end of the response. */
  #connection: UpstreamConnection | undefined
  #settled = false

  constructor(req: SidecarRequest, res: SidecarResponse, requestHead: string, options: TransferOptions) {
    const { method, context } = req
    const { hasBody = false, chunked = false } = context.admitted ?? {}
    this.#req = req
    this.#res = res
    this.#options = options
    this.requestHead = requestHead
    this.isHeadRequest = method === 'HEAD'
    this.isHandshake = context.upgrade !== undefined
    this.response = new Download(req, res, this)
    this.#upload = hasBody ? new Upload(req, chunked, () => this.#awaitHead()) : undefined
    this.#isRetryable = !hasBody && (method === 'GET' || method === 'HEAD')
  }

  start(): void {
    this.#req.context.serveBy(this)
    this.#options.pool.acquire(this)
  }

  // Calls of the upstream connection.

  onHeadWritten(connection: UpstreamConnection, writable: boolean): void {
    this.#connection = connection
    if (this.#upload === undefined) this.#awaitHead()
    else this.#upload.start(this.#res, connection, writable)
  }

  onDrain(): void {
    this.#upload?.onDrain()
  }

  onFault(fault: UpstreamFault, stale: boolean): void {
    if (this.#settled) return // a tunnel, which ends with either socket
    const connection = this.#connection
    this.#connection = undefined
    if (stale && this.#isRetryable) {
      this.#isRetryable = false
      this.#options.pool.connect(this) // the retry, on a new connection
      return
    }
    // Begins the response, so that it is aborted and not replaced by an error response.
    if (connection !== undefined && !this.response.isEnded) this.response.onRead(connection)
    this.#fail(fault, faultError(fault))
  }

  // Calls of the download.

  get isUploading(): boolean {
    return this.#upload?.isArriving === true
  }

  onResponseHead(head: UpstreamHead): void {
    const { status } = head
    if (status === 101 && !(this.isHandshake && switchesToWebSocket(head)))
      throw new ResponseSyntaxError('101 without an upgrade')
    if (this.#connection !== undefined) this.#connection.deadline = Number.POSITIVE_INFINITY
    this.#options.events.onResponse(status, (performance.now() - this.#req.context.startedAt) / 1000)
  }

  onSwitch(headers: readonly string[], connection: UpstreamConnection): Socket {
    this.#settle('ok')
    this.#res.statusCode = 101 // written by the tunnel, but counted by the access log
    return openTunnel(this.#req, headers, connection, this.#options)
  }

  onResponseEnd({ status }: UpstreamHead): void {
    const upload = this.#upload
    // An upstream that refuses a request may leave its upload unread: the connection cannot be reused.
    if (upload !== undefined && (!upload.isWritten || (status >= 400 && upload.mayBeUnread)))
      this.#connection?.abandon()
    this.#settle('ok')
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
    const isClientBlocked = this.#connection?.socket.isPaused() === true
    this.#giveUpUpstream()
    if (headersSent)
      this.#fail(isClientBlocked ? 'client_idle' : 'connection_read_timeout', ERRORS.internalError)
    else if (this.#req.isPaused()) this.#fail('connection_write_timeout', ERRORS.serviceNotReady)
    else this.#fail('client_idle', ERRORS.requestTimeout)
  }

  get #isRequestWritten(): boolean {
    return this.#upload === undefined || this.#upload.isWritten
  }

  #awaitHead(): void {
    if (this.#connection !== undefined && !this.response.hasHead)
      this.#connection.deadline = performance.now() + this.#options.timeouts.upstreamResponseSeconds * 1000
  }

  #giveUpUpstream(): void {
    if (this.#connection === undefined) this.#options.pool.cancel(this)
    else this.#connection.abandon()
    this.#connection = undefined
  }

  #fail(outcome: UpstreamFailure, error: PublicError): void {
    this.#settle(outcome)
    // Later, so that the part that was just written is sent.
    if (this.#res.headersSent) setImmediate(() => this.#req.context.connection.abort())
    else this.#options.refuse(this.#req, this.#res, error, outcome)
  }

  #settle(outcome: UpstreamOutcome): void {
    this.#connection = undefined
    this.#upload?.stop()
    if (this.#settled) return
    this.#settled = true
    if (outcome !== 'ok') this.#req.context.reason = outcome
    this.#options.events.onOutcome(outcome)
  }
}
