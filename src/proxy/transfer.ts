/**
 * The transfer: one request to the upstream and its response back, streaming both ways (`upload.ts`, `download.ts`).
 * In: an accepted request. Out: the response of the upstream, or an error response; a reset, once a part has been sent.
 *
 * Each wait, the timer that ends it, and the failure that follows. Only a drain bounds the total duration:
 *   a free connection         `upstreamResponseSeconds`, in `upstream-pool.ts`: `connection_limit_reached`
 *   a new connection          `upstreamConnectSeconds`, in `upstream-connection.ts`: `connection_timeout`, `dns_error`
 *   the client's body         `idleSeconds`, in `onIdle`: `client_idle`
 *   the upstream's reads      `idleSeconds`: `connection_write_timeout`; `upload.ts` has paused the client's socket
 *   the response head         `upstreamResponseSeconds` after the upload, in `upstream-connection.ts`: `http_response_timeout`
 *   the upstream's body       `idleSeconds` after the upload: `connection_read_timeout`
 *   the client's reads        `idleSeconds`: `client_idle`; `download.ts` has paused the upstream's socket
 *
 * `idleSeconds` is the timer of the client's socket, which is idle, too, while the upstream does not read or send.
 * The upstream's reads show in steps of a third of the kernel's send buffer, up to 1.4 MB.
 */

import type { RequestOwner } from '../client/context.ts'
import type { Responder } from '../client/responder.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { UpstreamFailure, UpstreamOutcome } from '../failures.ts'
import type { Admitted } from '../gate/admission.ts'
import type { ServiceDecision } from '../gate/gate.ts'
import { Download, responseHeaders } from './download.ts'
import { type ForwardedRequest, type HeadOptions, requestHead } from './request-headers.ts'
import type { ResponseParser, UpstreamHead } from './response-parser.ts'
import { Tunnel, type Tunnels } from './tunnel.ts'
import { Upload } from './upload.ts'
import type { UpstreamConnection, UpstreamRequest } from './upstream-connection.ts'
import type { UpstreamPool } from './upstream-pool.ts'

export interface UpstreamEvents {
  onOutcome(outcome: UpstreamOutcome): void
  /** The head of a final response. `seconds`: since the request's start. */
  onResponse(status: number, seconds: number): void
}

export interface Upstream extends HeadOptions {
  /** Without a slash at the end. */
  readonly pathPrefix: string
  readonly pool: UpstreamPool
  readonly tunnels: Tunnels
  readonly responder: Responder
  readonly events: UpstreamEvents
  readonly onInternalError: (requestId: string, error: unknown) => void
}

/** Servers read an unused body up to about this size. */
const MAX_IGNORED_BODY = 64 * 1024

export class Transfer implements ForwardedRequest, UpstreamRequest, RequestOwner {
  readonly state = 'inFlight'
  readonly res: SidecarResponse
  readonly admitted: Admitted
  readonly decision: ServiceDecision
  readonly requestHead: string
  readonly isHeadRequest: boolean
  readonly isWebSocket: boolean
  readonly #upstream: Upstream
  readonly #upload: Upload | undefined
  readonly #download: Download
  #isRetryable: boolean
  /** Set from the write of the request head to the end of the response. */
  #connection: UpstreamConnection | undefined
  #hasResponseHead = false
  /** Set once, when the transfer is over or has become a tunnel. */
  #outcome: UpstreamOutcome | undefined

  constructor(res: SidecarResponse, admitted: Admitted, decision: ServiceDecision, upstream: Upstream) {
    const { method, hasBody } = admitted
    const { context } = res.req
    this.res = res
    this.admitted = admitted
    this.decision = decision
    this.#upstream = upstream
    this.requestHead = requestHead(context, admitted, decision, upstream)
    this.isHeadRequest = method === 'HEAD'
    this.isWebSocket = context.isDetached
    this.#upload = hasBody ? new Upload(this) : undefined
    this.#download = new Download(res)
    this.#isRetryable = !hasBody && (method === 'GET' || method === 'HEAD')
  }

  start(): void {
    this.res.req.context.changeOwner(this)
    this.#upstream.pool.acquire(this)
  }

  // Calls of the upstream connection.
  onHeadWritten(connection: UpstreamConnection, writable: boolean): void {
    this.#connection = connection
    if (this.#upload === undefined) connection.awaitHead()
    else this.#upload.start(connection, writable)
  }

  onDrain(): void {
    this.#upload?.resume()
  }

  onResponse(response: ResponseParser, connection: UpstreamConnection): void {
    try {
      this.#relay(response, connection)
    } catch (error) {
      const { context } = this.res.req
      connection.abandon()
      this.#upstream.onInternalError(context.id, error)
      if (this.#outcome === undefined) this.#fail('proxy_internal_error')
      else context.connection.abort()
    }
  }

  #relay(response: ResponseParser, connection: UpstreamConnection): void {
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
    const { context, socket } = this.res.req
    this.#hasResponseHead = true
    this.#upstream.events.onResponse(head.status, (performance.now() - context.startedAt) / 1000)
    if (head.status !== 101) {
      this.#download.writeHead(head)
      return
    }
    this.#end('ok')
    new Tunnel(this, connection, this.#upstream.tunnels).open(responseHeaders(head, context.id, false))
    this.#download.switchTo(socket)
  }

  #onResponseEnd({ status }: UpstreamHead): void {
    // After an unfinished upload, or one that the upstream refuses and may not read, the connection is not reused.
    const mayBeUnread = status >= 400 && this.res.req.context.bytesIn > MAX_IGNORED_BODY
    if (!this.#isRequestWritten || mayBeUnread) this.#connection?.abandon()
    this.#end('ok')
  }

  onFailure(failure: UpstreamFailure, isStale: boolean): void {
    if (this.#outcome !== undefined) return // it is a tunnel, which ends with either socket
    this.#connection = undefined
    const isRetried = isStale && this.#isRetryable
    this.#isRetryable = false
    if (isRetried) this.#upstream.pool.connect(this)
    else this.#fail(failure)
  }

  // Calls of the client's connection.
  onRelease(): void {
    if (this.#outcome !== undefined) return
    this.#upstream.pool.cancel(this)
    this.#end('client_aborted')
  }

  onMalformedBody(): void {
    if (this.#outcome === undefined && !this.#isRequestWritten) this.#cancel('client_aborted')
  }

  onIdle(): void {
    const { req } = this.res
    const upstream = this.#connection?.socket
    if (this.#outcome !== undefined)
      req.context.connection.abort() // the client does not read the end of the response
    else if (upstream?.isPaused() === true) this.#cancel('client_idle')
    else if (upstream !== undefined && !this.#isRequestWritten)
      this.#cancel(req.isPaused() ? 'connection_write_timeout' : 'client_idle')
    else if (this.#hasResponseHead) this.#cancel('connection_read_timeout')
  }

  get #isRequestWritten(): boolean {
    return this.#upload === undefined || this.#upload.isWritten
  }

  #cancel(failure: UpstreamFailure): void {
    this.#upstream.pool.cancel(this)
    this.#fail(failure)
  }

  #fail(failure: UpstreamFailure): void {
    const { headersSent, req } = this.res
    this.#end(failure)
    // The part that was just written is sent first.
    if (headersSent) setImmediate(() => req.context.connection.abort())
  }

  #end(outcome: UpstreamOutcome): void {
    this.#connection = undefined
    this.#upload?.stop()
    if (this.#outcome !== undefined) return
    this.#outcome = outcome
    this.#upstream.events.onOutcome(outcome)
    if (outcome !== 'ok') this.#upstream.responder.reportFailure(this.res, outcome)
  }
}
