/**
 * What spans say, with the names of the semantic conventions for HTTP (1.23.0 and later), and our own.
 * In: the facts of a request. Out: its spans. The attributes are a closed set, which docs/tracing.md lists:
 * never a query, a token, or a header beyond them.
 */
import { randomUUID } from 'node:crypto'
import {
  type HrTime,
  type Link,
  type SpanContext,
  type SpanKind,
  type SpanStatus,
  SpanStatusCode,
} from '@opentelemetry/api'
import {
  defaultResource,
  detectResources,
  envDetector,
  type Resource,
  resourceFromAttributes,
} from '@opentelemetry/resources'
import type { ReadableSpan, TimedEvent } from '@opentelemetry/sdk-trace-base'
import { PROXY_NAME } from '../base/errors.ts'
import { VERSION } from '../base/version.ts'
import type { Config } from '../config/config.ts'
import { withoutFinalSlash } from '../http/request-target.ts'

export const SPAN_ATTRIBUTES = [
  'http.request.method',
  'http.response.status_code',
  'url.scheme',
  'url.path',
  'server.address',
  'server.port',
  'client.address',
  'error.type',
  'auth_sidecar.reason',
  'auth_sidecar.cache',
  'auth_sidecar.route',
  'auth_sidecar.account',
] as const
type AttributeName = (typeof SPAN_ATTRIBUTES)[number]
export type SpanAttributes = Partial<Record<AttributeName, string | number>>

/** On the CLIENT span. */
export const SPAN_EVENTS = ['connected', 'request_sent', 'first_byte'] as const
type EventName = (typeof SPAN_EVENTS)[number]

export interface Server {
  readonly scheme: 'http' | 'https'
  /** A name, an address without brackets, or the path of a unix socket. */
  readonly address: string
  readonly port: number | undefined
}

const DEFAULT_PORTS = { http: 80, https: 443 } as const

/** `authority`: a host, perhaps with a port. */
export function serverAt(scheme: Server['scheme'], authority: string): Server {
  const match = /^\[?(.*?)\]?(?::(\d*))?$/.exec(authority)
  const address = match?.[1] ?? authority
  const port = Number(match?.[2] || DEFAULT_PORTS[scheme])
  return { scheme, address, port }
}

/** The servers of the upstreams, by their path prefixes without a final slash. */
export const upstreamServers = (upstreams: Config['upstreams']): ReadonlyMap<string, Server> =>
  new Map(upstreams.map(({ prefix, url }) => [withoutFinalSlash(prefix), upstreamServer(url)]))

function upstreamServer(url: string): Server {
  if (url.startsWith('unix:')) {
    return { scheme: 'http', address: url.slice('unix:'.length), port: undefined }
  }
  const { protocol, host } = new URL(url)
  return serverAt(protocol === 'https:' ? 'https' : 'http', host)
}

/** The methods that the semantic conventions know. They call any other one `_OTHER`. */
const KNOWN_METHODS = new Set([
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'DELETE',
  'CONNECT',
  'OPTIONS',
  'TRACE',
  'PATCH',
])

export const methodAttribute = (method = ''): string => (KNOWN_METHODS.has(method) ? method : '_OTHER')

/** The name of a span must not have many values. */
const nameOf = (method: string): string => (method === '_OTHER' ? 'HTTP' : method)

/** Who sends the spans. Variables of OpenTelemetry win over the setting `name`. */
export function resourceOf(name: string): Resource {
  const own = resourceFromAttributes({
    'service.name': name === '' ? PROXY_NAME : name,
    'service.version': VERSION,
    'service.instance.id': randomUUID(),
  })
  return defaultResource()
    .merge(own)
    .merge(detectResources({ detectors: [envDetector] }))
}

/** What is known of a span when it ends. Times in epoch milliseconds. */
export interface SpanFacts {
  readonly kind: SpanKind.SERVER | SpanKind.CLIENT
  readonly context: SpanContext
  readonly parent: SpanContext | undefined
  readonly link?: SpanContext | undefined
  readonly startMs: number
  readonly endMs: number
  /** `http.request.method`. */
  readonly method: string
  readonly attributes: SpanAttributes
  readonly events?: TimedEvent[]
}

const SCOPE = { name: PROXY_NAME, version: VERSION }
const UNSET: SpanStatus = { code: SpanStatusCode.UNSET }
const FAILED: SpanStatus = { code: SpanStatusCode.ERROR }
const NO_LINKS: Link[] = []
const NO_EVENTS: TimedEvent[] = []

/**
 * A span whose `error.type` is set has failed.
 * Making, encoding and collecting objects that are built by spreads and closures takes 10 % more.
 */
export class FinishedSpan implements ReadableSpan {
  readonly name: string
  readonly kind: SpanKind
  readonly parentSpanContext?: SpanContext
  readonly startTime: HrTime
  readonly endTime: HrTime
  readonly duration: HrTime
  readonly ended = true
  readonly status: SpanStatus
  readonly attributes: SpanAttributes
  readonly links: Link[]
  readonly events: TimedEvent[]
  readonly resource: Resource
  readonly instrumentationScope = SCOPE
  readonly droppedAttributesCount = 0
  readonly droppedEventsCount = 0
  readonly droppedLinksCount = 0
  readonly #context: SpanContext

  constructor(facts: SpanFacts, resource: Resource) {
    const { kind, context, parent, link, startMs, endMs, method, attributes, events } = facts
    this.name = nameOf(method)
    this.kind = kind
    if (parent !== undefined) {
      this.parentSpanContext = parent
    }
    this.startTime = hrTime(startMs)
    this.endTime = hrTime(endMs)
    this.duration = hrTime(endMs - startMs)
    this.status = attributes['error.type'] === undefined ? UNSET : FAILED
    this.attributes = attributes
    this.links = link === undefined ? NO_LINKS : [{ context: link, attributes: {} }]
    this.events = events ?? NO_EVENTS
    this.resource = resource
    this.#context = context
  }

  spanContext(): SpanContext {
    return this.#context
  }
}

export const spanEvent = (name: EventName, atMs: number): TimedEvent => ({ name, time: hrTime(atMs) })

/** Seconds and nanoseconds. */
function hrTime(milliseconds: number): HrTime {
  const seconds = Math.floor(milliseconds / 1000)
  return [seconds, Math.floor((milliseconds - seconds * 1000) * 1e6)]
}
