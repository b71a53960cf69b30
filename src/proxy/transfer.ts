/**
 * The transfer: one request to the upstream and its response back, streaming both ways.
 * In: an accepted request. Out: the upstream's response byte for byte; or an error response; or, after a part was sent,
 * a reset connection, which most clients cannot take for the end of the object.
 */
import type { Config } from '../config/config.ts'
import type { Admitted } from '../gate/admission.ts'
import type { ForwardDecision } from '../gate/decide.ts'
import type { UpstreamFault } from '../http/proxy-errors.ts'
import type { RequestHandler, SidecarResponse } from '../server/context.ts'
import type { Responder } from '../server/respond.ts'
import { Download } from './download.ts'
import { requestHead, type UpstreamHeaders } from './request-headers.ts'
import { responseHeaders } from './response-headers.ts'
import type { ResponseParser, UpstreamHead } from './response-parser.ts'
import { Upload } from './upload.ts'
import type { UpstreamConnection, UpstreamRequest } from './upstream-connection.ts'
import {
  refuseFailed,
  type UpstreamEvents,
  type UpstreamFailure,
  type UpstreamOutcome,
} from './upstream-errors.ts'
import type { UpstreamPool } from './upstream-pool.ts'
import { Tunnel, type TunnelOptions } from './websocket.ts'

/** An upstream, and what the transfers to it need. */
export interface Upstream extends TunnelOptions, UpstreamHeaders {
  readonly prefix: string
  /** The prefix without a slash at its end. */
  readonly path: string
  readonly pool: UpstreamPool
  readonly timeouts: Pick<Config['timeouts'], 'upstreamResponseSeconds'>
  readonly responder: Responder
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
export class Transfer implements UpstreamRequest, RequestHandler {
  readonly requestHead: string
  readonly isHeadRequest: boolean
  readonly isWebSocket: boolean
  readonly #res: SidecarResponse
  readonly #admitted: Admitted
  readonly #decision: ForwardDecision
  readonly #upstream: Upstream
  /** Undefined for a request without a body. */
  readonly #upload: Upload | undefined
  readonly #download: Download
  /** GET or HEAD without a body, not retried yet. */
  #isRetryable: boolean
  /** Set from the write of the request head to the end of the response. */
  #connection: UpstreamConnection | undefined
  #hasResponseHead = false
  /** Set once, when the transfer is over or has become a tunnel. */
  #outcome: UpstreamOutcome | undefined

  constructor(res: SidecarResponse, admitted: Admitted, decision: ForwardDecision, upstream: Upstream) {
    const { method, hasBody } = admitted
    this.#res = res
    this.#admitted = admitted
    this.#decision = decision
    this.#upstream = upstream
    this.requestHead = requestHead(res.req.context, admitted, decision, upstream)
    this.isHeadRequest = method === 'HEAD'
    this.isWebSocket = res.req.context.upgrade !== undefined
    this.#upload = hasBody ? new Upload(res, admitted, decision.caller, () => this.#awaitHead()) : undefined
    this.#download = new Download(res)
    this.#isRetryable = !hasBody && (method === 'GET' || method === 'HEAD')
  }

  start(): void {
    this.#res.req.context.serveBy(this)
    this.#upstream.pool.acquire(this)
  }

  // Calls of the upstream connection.

  onHeadWritten(connection: UpstreamConnection, writable: boolean): void {
    this.#connection = connection
    if (this.#upload === undefined) this.#awaitHead()
    else this.#upload.start(connection, writable)
  }

  onDrain(): void {
    this.#upload?.resume()
  }

  onResponse(response: ResponseParser, connection: UpstreamConnection): void {
    const { head } = response
    if (!this.#hasResponseHead) this.#download.writeEarlyHints(response)
    if (head === undefined) return
    if (!this.#hasResponseHead) this.#onResponseHead(head, connection)
    if (response.isDone) {
      this.#onResponseEnd(head)
      this.#download.end(response, head, connection)
    } else {
      this.#download.writeBody(response, connection)
    }
  }

  #onResponseHead(head: UpstreamHead, connection: UpstreamConnection): void {
    const { status } = head
    const { context } = this.#res.req
    this.#hasResponseHead = true
    connection.deadline = Number.POSITIVE_INFINITY
    this.#upstream.events.onResponse(status, (performance.now() - context.startedAt) / 1000)
    if (status !== 101) {
      this.#download.writeHead(head, this.#upload?.isArriving === true)
      return
    }
    this.#end('ok')
    const tunnel = new Tunnel(this.#res, connection, this.#admitted, this.#decision, this.#upstream)
    tunnel.open(responseHeaders(head, context.id, false))
    this.#download.switchTo(this.#res.req.socket)
  }

  #onResponseEnd({ status }: UpstreamHead): void {
    const upload = this.#upload
    // An upstream that refuses a request may leave its upload unread: the connection cannot be reused.
    if (upload !== undefined && (!upload.isWritten || (status >= 400 && upload.mayBeUnread)))
      this.#connection?.abandon()
    this.#end('ok')
  }

  onFault(fault: UpstreamFault, stale: boolean): void {
    if (this.#outcome !== undefined) return // a tunnel, which ends with either socket
    this.#connection = undefined
    const isRetried = stale && this.#isRetryable
    this.#isRetryable = false
    if (isRetried) this.#upstream.pool.connect(this)
    else this.#fail(fault)
  }

  // Calls of the listener.

  onRelease(): void {
    if (this.#outcome !== undefined) return
    this.#giveUpUpstream()
    this.#end('client_aborted')
  }

  onMalformedBody(): void {
    if (this.#outcome !== undefined || this.#isRequestWritten) return
    this.#giveUpUpstream()
    this.#fail('client_aborted')
  }

  onIdle(): void {
    const { headersSent, req } = this.#res
    if (this.#outcome !== undefined) {
      req.context.connection.abort() // the client does not read the response
      return
    }
    // Waiting for a connection or a response head has its own timeout.
    if (!headersSent && (this.#isRequestWritten || this.#connection === undefined)) return
    const isClientBlocked = this.#connection?.socket.isPaused() === true
    this.#giveUpUpstream()
    if (headersSent) this.#fail(isClientBlocked ? 'client_idle' : 'connection_read_timeout')
    else this.#fail(req.isPaused() ? 'connection_write_timeout' : 'client_idle')
  }

  get #isRequestWritten(): boolean {
    return this.#upload === undefined || this.#upload.isWritten
  }

  #awaitHead(): void {
    if (this.#connection !== undefined && !this.#hasResponseHead)
      this.#connection.deadline = performance.now() + this.#upstream.timeouts.upstreamResponseSeconds * 1000
  }

  #giveUpUpstream(): void {
    if (this.#connection === undefined) this.#upstream.pool.cancel(this)
    else this.#connection.abandon()
    this.#connection = undefined
  }

  #fail(failure: UpstreamFailure): void {
    this.#end(failure)
    const { headersSent, req } = this.#res
    // Later, so that the part that was just written is sent.
    if (headersSent) setImmediate(() => req.context.connection.abort())
    else refuseFailed(this.#upstream.responder, this.#res, failure)
  }

  #end(outcome: UpstreamOutcome): void {
    this.#connection = undefined
    this.#upload?.stop()
    if (this.#outcome !== undefined) return
    this.#outcome = outcome
    if (outcome !== 'ok') this.#res.req.context.reason = outcome
    this.#upstream.events.onOutcome(outcome)
  }
}
