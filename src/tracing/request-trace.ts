/**
 * Follows one sampled request: notes when it is forwarded and how that ends, and makes its spans at its end.
 * In: the calls of a watcher. Out: a SERVER span and, if it was forwarded, a CLIENT span below it;
 * the `traceparent` that the upstream receives; the ids for log lines.
 */
import { type SpanContext, SpanKind, TraceFlags } from '@opentelemetry/api'
import type { Resource } from '@opentelemetry/resources'
import type { TimedEvent } from '@opentelemetry/sdk-trace-base'
import type { UpstreamOutcome } from '../base/errors.ts'
import { loggable } from '../base/log.ts'
import type { RequestContext, SidecarRequest } from '../client/request.ts'
import { flatCopy } from '../http/headers.ts'
import { pathOf } from '../http/request-target.ts'
import { TRACE_FLAGS, type TraceParent } from '../ops/traceparent.ts'
import type { RequestEnd, RequestWatcher, UpstreamHeaders } from '../room.ts'
import type { SpanQueue } from './span-queue.ts'
import {
  FinishedSpan,
  methodAttribute,
  type Server,
  type SpanAttributes,
  type SpanFacts,
  serverAt,
  spanEvent,
} from './spans.ts'

export interface TraceOptions {
  /** Epoch milliseconds. */
  readonly now: () => number
  readonly queue: Pick<SpanQueue, 'add'>
  readonly resource: Resource
  readonly scheme: 'http' | 'https'
  /** By the path prefixes of the upstreams. */
  readonly servers: ReadonlyMap<string, Server>
  readonly namesAccount: boolean
  readonly newSpanId: () => string
}

/** The trace of a request. */
export interface Origin {
  readonly traceId: string
  /** The span of the caller, which the request continues. */
  readonly parent: TraceParent | undefined
  /** The span of a caller that is not trusted to decide: a trace of its own. */
  readonly linked: TraceParent | undefined
}

/** What the upstream has received and sent. Times in monotonic milliseconds. */
interface Forwarding {
  readonly context: SpanContext
  readonly server: Server | undefined
  readonly startMs: number
  sentMs: number | undefined
  endMs: number | undefined
  status: number | undefined
  outcome: UpstreamOutcome | 'refused' | undefined
}

export const PARENT_HEADERS: ReadonlySet<string> = new Set(['traceparent', 'tracestate'])
/** `tracestate` belongs to the trace and passes with it. */
const CONTINUED_HEADERS: ReadonlySet<string> = new Set(['traceparent'])
const MAX_PATH = 1024
const MAX_HOST = 256

export class RequestTrace implements RequestWatcher {
  readonly logFields: { readonly traceId: string; readonly spanId: string }
  upstreamHeaders: UpstreamHeaders | undefined
  readonly #req: SidecarRequest
  readonly #origin: Origin
  readonly #options: TraceOptions
  /** Of the SERVER span. */
  readonly #context: SpanContext
  /** Epoch milliseconds minus monotonic milliseconds. */
  readonly #epochOffsetMs: number
  #forwarding: Forwarding | undefined

  constructor(req: SidecarRequest, origin: Origin, options: TraceOptions) {
    this.#req = req
    this.#origin = origin
    this.#options = options
    this.#epochOffsetMs = options.now() - performance.now()
    const { traceId } = origin
    const spanId = options.newSpanId()
    this.#context = { traceId, spanId, traceFlags: TraceFlags.SAMPLED }
    this.logFields = { traceId, spanId }
  }

  onForward({ pathPrefix }: { readonly pathPrefix: string }, queuedMonotonicMs: number): void {
    const { servers, newSpanId } = this.#options
    const { traceId, parent } = this.#origin
    const spanId = newSpanId()
    const forwarding: Forwarding = {
      context: { traceId, spanId, traceFlags: TraceFlags.SAMPLED },
      server: servers.get(pathPrefix),
      startMs: queuedMonotonicMs,
      sentMs: undefined,
      endMs: undefined,
      status: undefined,
      outcome: undefined,
    }
    this.#forwarding = forwarding
    // Sampled (01), and random (02) if the parent is.
    const isRandom = parent !== undefined && (parent.flags & TRACE_FLAGS.random) !== 0
    this.upstreamHeaders = {
      removed: parent === undefined ? PARENT_HEADERS : CONTINUED_HEADERS,
      addedLines: `traceparent: 00-${traceId}-${spanId}-${isRandom ? '03' : '01'}\r\n`,
    }
    if (this.#req.context.admitted?.hasBody) {
      this.#req.once('end', () => {
        // After the end, the rest of the body is discarded.
        if (forwarding.endMs === undefined) {
          forwarding.sentMs = performance.now()
        }
      })
    }
  }

  onResponse(status: number): void {
    if (this.#forwarding !== undefined) {
      this.#forwarding.status = status
    }
  }

  onForwardEnd(outcome: UpstreamOutcome | 'refused'): void {
    if (this.#forwarding !== undefined) {
      this.#forwarding.outcome = outcome
      this.#forwarding.endMs = performance.now()
    }
  }

  onEnd(end: RequestEnd): void {
    const { queue, resource } = this.#options
    const path = this.#path()
    const server = new FinishedSpan(this.#serverFacts(end, path), resource)
    const forwarding = this.#forwarding
    if (forwarding === undefined) {
      queue.add([server])
    } else {
      queue.add([new FinishedSpan(this.#clientFacts(forwarding, path, end), resource), server])
    }
  }

  #serverFacts({ status, reason }: RequestEnd, path: string | undefined): SpanFacts {
    const { scheme, namesAccount } = this.#options
    const { parent, linked } = this.#origin
    const { context, method, clientAddress } = this.#req
    const knownMethod = methodAttribute(method)
    const attributes: SpanAttributes = {
      'http.request.method': knownMethod,
      'http.response.status_code': status,
      'url.scheme': scheme,
      'client.address': clientAddress,
      'auth_sidecar.route': context.routeLabel,
    }
    addServer(attributes, hostOf(context, scheme), path)
    const account = namesAccount ? context.identityForLog?.accountId : undefined
    if (account !== undefined) {
      attributes['auth_sidecar.account'] = loggable(account)
    }
    if (reason !== undefined) {
      attributes['auth_sidecar.reason'] = reason
    }
    if (status >= 499) {
      attributes['error.type'] = reason ?? String(status) // 499: the client has not received all
    }
    const cacheResult = this.#cacheResult()
    if (cacheResult !== undefined) {
      attributes['auth_sidecar.cache'] = cacheResult
    }
    return {
      kind: SpanKind.SERVER,
      context: this.#context,
      parent: parent && remote(parent),
      link: linked && remote(linked),
      startMs: context.startedMonotonicMs + this.#epochOffsetMs,
      endMs: performance.now() + this.#epochOffsetMs,
      method: knownMethod,
      attributes,
    }
  }

  #clientFacts(forwarding: Forwarding, path: string | undefined, { reason }: RequestEnd): SpanFacts {
    const { method } = this.#req
    const { server, startMs, status, outcome } = forwarding
    const endMs = forwarding.endMs ?? performance.now()
    const knownMethod = methodAttribute(method)
    const attributes: SpanAttributes = { 'http.request.method': knownMethod }
    if (status !== undefined) {
      attributes['http.response.status_code'] = status
    }
    if (server !== undefined) {
      attributes['url.scheme'] = server.scheme
    }
    addServer(attributes, server, path)
    const isCutByDrain = outcome === 'client_aborted' && reason === 'drain_deadline'
    const error = isCutByDrain ? reason : forwardingError(outcome, status)
    if (error !== undefined) {
      attributes['error.type'] = error
    }
    return {
      kind: SpanKind.CLIENT,
      context: forwarding.context,
      parent: this.#context,
      startMs: startMs + this.#epochOffsetMs,
      endMs: endMs + this.#epochOffsetMs,
      method: knownMethod,
      attributes,
      events: this.#events(forwarding),
    }
  }

  #events({ startMs, sentMs }: Forwarding): TimedEvent[] {
    const { queueMs, firstByteMs, startedMonotonicMs } = this.#req.context
    const events: TimedEvent[] = []
    if (queueMs !== undefined) {
      events.push(spanEvent('connected', startMs + queueMs + this.#epochOffsetMs))
    }
    if (sentMs !== undefined) {
      events.push(spanEvent('request_sent', sentMs + this.#epochOffsetMs))
    }
    if (firstByteMs !== undefined) {
      events.push(spanEvent('first_byte', startedMonotonicMs + firstByteMs + this.#epochOffsetMs))
    }
    return events
  }

  /** Without the query, which may hold a secret. */
  #path(): string | undefined {
    const { context, url = '' } = this.#req
    // A refused target may be an absolute URL with a password.
    const path = context.admitted?.path ?? (url.startsWith('/') ? pathOf(url).replace(/#.*/s, '') : undefined)
    return path && loggable(flatCopy(path.slice(0, MAX_PATH)), MAX_PATH)
  }

  #cacheResult(): 'hit' | 'miss' | undefined {
    const { isCacheMiss, isCallerProven } = this.#req.context
    if (isCacheMiss) {
      return 'miss'
    }
    return isCallerProven ? 'hit' : undefined
  }
}

/** The host that the client has asked for: only that of an admitted request is known. */
function hostOf({ admitted }: RequestContext, scheme: Server['scheme']): Server | undefined {
  const host = admitted?.host
  return host === undefined ? undefined : serverAt(scheme, flatCopy(host.slice(0, MAX_HOST)))
}

function addServer(attributes: SpanAttributes, server: Server | undefined, path: string | undefined): void {
  if (path !== undefined) {
    attributes['url.path'] = path
  }
  if (server === undefined) {
    return
  }
  attributes['server.address'] = server.address
  if (server.port !== undefined) {
    attributes['server.port'] = server.port
  }
}

const remote = ({ traceId, spanId, flags }: TraceParent): SpanContext => ({
  traceId,
  spanId,
  traceFlags: flags & TRACE_FLAGS.sampled,
  isRemote: true,
})

/** For a client, a 4xx is an error, too. */
function forwardingError(outcome: Forwarding['outcome'], status: number | undefined): string | undefined {
  if (outcome !== undefined && outcome !== 'ok') {
    return outcome
  }
  return status !== undefined && status >= 400 ? String(status) : undefined
}
