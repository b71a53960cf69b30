/**
 * The transfer of one request to the upstream (`upload.ts`) and of its response to the client
 * (`download.ts`), both streamed. In: an allowed request.
 * Out: the response of the upstream, an error response, or a reset after a part of a response.
 *
 *   step                    Transfer      SidecarResponse          UpstreamConnection
 *   wait for a connection   waiting       open                     lookup, connecting
 *   request sent            awaitingHead  open                     established or reused, then receiving
 *   response relayed        downloading   begun                    receiving
 *   response complete       ended         written or discarding    idle or closed
 *   101                     ended         tunnel                   tunnel
 *   failure before a head   ended         written or discarding    closed
 *   failure after a head    ended         truncated                closed
 *
 * `UpstreamPool` limits the wait for a connection, `upstream/waits.ts` the waits for the upstream,
 * `onIdle` and `upload-rate.ts` those for the client.
 * While bytes pass fast enough, only the drain limits a transfer.
 * A failure before a head sends an error response, and discards the rest of the upload.
 * A failure after a head aborts the client's connection (`Connection.abort`).
 */
import type { ForwardingFailure, UpstreamOutcome } from '../base/errors.ts'
import type { RequestContext, RequestOwner } from '../client/request.ts'
import type { Responder } from '../client/responder.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Decision, RefusalDecision, ServiceDecision } from '../gate/gate.ts'
import { afterReads } from '../http/node-http.ts'
import type { PacedReader } from '../room.ts'
import type { ServingConnection, UpstreamRequest } from '../upstream/contract.ts'
import type { UpstreamPool } from '../upstream/pool.ts'
import type { PartialResponse, UpstreamHead } from '../upstream/response-parser.ts'
import { relayBody, writeInformational, writeResponseHead } from './download.ts'
import { Recheck, type RecheckSource } from './recheck.ts'
import { requestHeadText } from './request-headers.ts'
import { Tunnel } from './tunnel.ts'
import { Upload } from './upload.ts'
import type { UploadRateSettings } from './upload-rate.ts'

export interface UpstreamEvents {
  onOutcome(outcome: UpstreamOutcome): void
  /**
   * Called at the head of a final response or a 101.
   * `seconds`: since the client's connection began to serve the request.
   */
  onResponse(status: number, seconds: number): void
}

export interface Upstream extends RecheckSource {
  /** Has no slash at the end. */
  readonly pathPrefix: string
  readonly host: string
  readonly assertionAudience: string
  readonly pool: UpstreamPool
  readonly config: UploadRateSettings & { readonly limits: { readonly headerLines: number } }
  readonly responder: Responder
  readonly events: UpstreamEvents
}

/**
 * An upstream that refuses a larger upload may not read all of it.
 * The next request would wait behind the unread part.
 */
const MAX_REFUSED_BODY = 64 * 1024

/**
 * `complete`: the response is complete, or a tunnel has begun.
 * `refused`: the gate has refused the request while it waited.
 */
type TransferEnd =
  | { readonly kind: 'complete' }
  | { readonly kind: 'failed'; readonly failure: ForwardingFailure; readonly cause?: string | undefined }
  | { readonly kind: 'refused'; readonly decision: RefusalDecision }

const COMPLETE: TransferEnd = { kind: 'complete' }

type Phase = 'waiting' | 'awaitingHead' | 'downloading' | 'ended'

export class Transfer implements UpstreamRequest, RequestOwner, PacedReader {
  readonly queuedMonotonicMs = performance.now()
  readonly account: string | undefined
  readonly isHeadRequest: boolean
  readonly isWebSocket: boolean
  readonly hasBody: boolean
  readonly #res: SidecarResponse
  readonly #upstream: Upstream
  readonly #context: RequestContext
  readonly #recheck: Recheck
  #decision: ServiceDecision
  #phase: Phase = 'waiting'
  #upload: Upload | undefined
  /** The connection that was paused last. It may serve another request once the transfer has ended. */
  #pacedConnection: ServingConnection | undefined

  constructor(res: SidecarResponse, decision: ServiceDecision, upstream: Upstream) {
    this.#res = res
    this.#decision = decision
    this.#upstream = upstream
    this.#context = res.req.context
    this.#recheck = new Recheck(this.#context, decision, upstream)
    this.account = decision.caller?.identity.accountId
    this.isHeadRequest = decision.admitted.method === 'HEAD'
    this.isWebSocket = this.#context.isDetached && decision.admitted.isWebSocket
    this.hasBody = decision.admitted.hasBody
  }

  start(): void {
    this.#context.recordUpstream(this.#upstream.pool.prefix)
    for (const watcher of this.#context.watchers) {
      watcher.onForward?.(this.#upstream, this.queuedMonotonicMs)
    }
    this.#upstream.pool.acquire(this)
  }

  // Called by the pool and the upstream connection.
  onTick(): void {
    this.#context.connection.detectReset()
    if (this.#phase === 'waiting') {
      this.#recheck.ifDue((decision) => this.#onDecision(decision))
    }
    if (this.#upload?.isTooSlow()) {
      this.#fail('client_idle')
    }
  }

  #onDecision(decision: Decision | undefined): void {
    if (decision?.act === 'forward') {
      this.#decision = decision // a retry needs it, even if the request was sent meanwhile
    }
    if (this.#phase !== 'waiting') {
      return
    }
    if (decision !== undefined) {
      this.#context.recordDecision(decision)
    }
    if (decision?.act === 'refuse') {
      this.#end({ kind: 'refused', decision })
    } else if (decision?.act !== 'forward') {
      this.#fail('proxy_internal_error')
    }
  }

  takeHead(connection: ServingConnection): string {
    this.#phase = 'awaitingHead'
    this.#context.recordQueueTime(performance.now() - this.queuedMonotonicMs)
    if (!this.isHeadRequest) {
      // A response without a body is not worth a wait, but only that of HEAD is known beforehand.
      this.#pace(connection)
    }
    return requestHeadText(this.#context, this.#decision, this.#upstream)
  }

  onReadyForBody(upstreamConnection: ServingConnection): void {
    this.#upload = new Upload(this.#res.req, this.#decision, upstreamConnection, this.#upstream.config)
    if (this.#decision.admitted.isChunked) {
      this.#res.req.once('end', () => this.#checkTrailers()) // before `Upload` writes them
    }
    this.#res.continueIfExpected()
    this.#upload.start()
  }

  #checkTrailers(): void {
    const lines = this.#res.req.rawTrailers.length / 2
    if (lines > this.#upstream.config.limits.headerLines) {
      this.#fail('client_trailers')
    }
  }

  onWritable(): void {
    this.#upload?.onWritable()
  }

  onRead(response: PartialResponse, upstreamConnection: ServingConnection): void {
    const { head } = response
    if (this.#phase === 'awaitingHead') {
      writeInformational(this.#res, response)
    }
    if (head === undefined) {
      return
    }
    if (this.#phase === 'awaitingHead') {
      this.#onHead(head, response, upstreamConnection)
    }
    if (this.#phase === 'downloading') {
      this.#onBody(head, response, upstreamConnection)
    }
  }

  #onHead(head: UpstreamHead, response: PartialResponse, connection: ServingConnection): void {
    const headMs = performance.now() - this.#context.startedMonotonicMs
    this.#context.recordFirstByteTime(headMs)
    this.#upstream.events.onResponse(head.status, headMs / 1000)
    for (const watcher of this.#context.watchers) {
      watcher.onResponse?.(head.status)
    }
    if (head.status === 101) {
      this.#end(COMPLETE)
      new Tunnel(this.#res, connection, this.#recheck, this.#upstream.reportError).start(head, response)
    } else {
      this.#phase = 'downloading'
      writeResponseHead(this.#res, head)
    }
  }

  /** Writes the part of the body that has arrived, which may be empty. */
  #onBody(head: UpstreamHead, response: PartialResponse, upstreamConnection: ServingConnection): void {
    const isWritable = relayBody(this.#res, head, response)
    if (response.isDone) {
      if (head.status >= 400 && this.#context.bytesIn > MAX_REFUSED_BODY) {
        upstreamConnection.close()
      }
      this.#end(COMPLETE)
    } else {
      if (!isWritable) {
        upstreamConnection.pauseUntilDrain(this.#res)
      }
      this.#pace(upstreamConnection)
    }
  }

  /** Stops reading from the upstream until a watcher lets the response go on. */
  #pace(connection: ServingConnection): void {
    if (!this.#context.mayRead('out', this)) {
      this.#pacedConnection = connection
      connection.setPaced(true)
    }
  }

  /** Called by a watcher. */
  readOn(): void {
    if (this.#phase !== 'ended' && this.#context.mayRead('out', this)) {
      this.#pacedConnection?.setPaced(false)
    }
  }

  onFailure(failure: ForwardingFailure, cause?: string, isStale = false): void {
    const { method } = this.#decision.admitted
    if (isStale && !this.hasBody && (method === 'GET' || method === 'HEAD')) {
      this.#phase = 'waiting'
      this.#upstream.pool.retry(this) // the only retry: a new connection is never stale
    } else {
      this.#fail(failure, cause)
    }
  }

  onInternalError(error: unknown): void {
    this.#upstream.reportError(this.#context.id, error)
    if (this.#phase === 'ended') {
      this.#context.connection.abort()
    } else {
      this.#fail('proxy_internal_error')
    }
  }

  // Called by the client's connection.
  onClosed(): void {
    this.#fail('client_aborted')
  }

  onMalformedBody(): void {
    this.#fail('client_malformed')
  }

  onIdle(): void {
    // If the transfer waits for the upstream, the deadline of the upstream's connection ends the transfer.
    if (this.#upload?.waitsForClient || this.#res.socket?.writableNeedDrain) {
      this.#fail('client_idle')
    }
  }

  /** Every transfer ends here, once. */
  #end(end: TransferEnd): void {
    if (this.#phase === 'ended') {
      return
    }
    this.#phase = 'ended'
    try {
      this.#upload?.discardRest()
      this.#context.onReadEnd(this)
      this.#reportEnd(end)
      if (end.kind !== 'complete') {
        this.#upstream.pool.cancel(this)
        this.#respond(end)
      }
    } catch (error) {
      this.onInternalError(error) // aborts the client's connection, because the phase is `ended`
    }
  }

  #fail(failure: ForwardingFailure, cause?: string): void {
    this.#end({ kind: 'failed', failure, cause })
  }

  #reportEnd(end: TransferEnd): void {
    const outcome = outcomeOf(end)
    if (outcome !== 'refused') {
      this.#upstream.events.onOutcome(outcome)
    }
    for (const watcher of this.#context.watchers) {
      watcher.onForwardEnd?.(outcome)
    }
  }

  /** Within a response, only a reset says that the rest is missing. */
  #respond(end: Exclude<TransferEnd, { kind: 'complete' }>): void {
    const { responder } = this.#upstream
    if (this.#res.hasBegun) {
      const reason = end.kind === 'failed' ? end.failure : end.decision.reason
      this.#context.recordFailure(reason, end.kind === 'failed' ? end.cause : undefined)
      afterReads(() => this.#context.connection.abort()) // the written bytes are sent first
    } else if (end.kind === 'failed') {
      responder.failForwarded(this.#res, end.failure, end.cause)
    } else {
      responder.refuseAccess(this.#res, end.decision)
    }
  }
}

function outcomeOf(end: TransferEnd): UpstreamOutcome | 'refused' {
  switch (end.kind) {
    case 'complete':
      return 'ok'
    case 'failed':
      return end.failure
    case 'refused':
      return 'refused'
  }
}
