/**
 * Tracing: spans of requests for OpenTelemetry, without its instrumentations.
 * In: each request whose head was read. Out: of a sampled request, its spans and the `traceparent`
 * that the upstream receives. Sampling is parent-based (W3C Trace Context, section 3.2.2.5).
 *
 *   request-trace.ts    follows a sampled request
 *   spans.ts            what its spans say: a closed set of attributes
 *   span-queue.ts       the spans that wait for the collector
 *   environment.ts      the variables of OpenTelemetry that are obeyed
 *   status.ts           the status page
 */
import { RandomIdGenerator } from '@opentelemetry/sdk-trace-base'
import type { Logger } from '../base/log.ts'
import { type Loaded, loaded } from '../base/result.ts'
import type { SidecarRequest } from '../client/request.ts'
import type { Config, Problem } from '../config/config.ts'
import { readTraceparent, TRACE_FLAGS, type TraceParent } from '../ops/traceparent.ts'
import type { RequestWatcher, Room, RoomMetric } from '../room.ts'
import { type Environment, isDisabled, sampleRatioOf } from './environment.ts'
import { TRACING_METRICS } from './metrics.ts'
import { PARENT_HEADERS, RequestTrace, type TraceOptions } from './request-trace.ts'
import { SpanQueue } from './span-queue.ts'
import { resourceOf, upstreamServers } from './spans.ts'

export interface TracingOptions {
  readonly config: Pick<Config, 'listen' | 'name' | 'tracing' | 'upstreams'>
  readonly log: Pick<Logger, 'warn'>
  /** Epoch milliseconds. */
  readonly now: () => number
}

/** @param env - the packages read other variables of OpenTelemetry from the environment of the process */
export function openTracing(options: TracingOptions, env: Environment = process.env): Loaded<Room, Problem> {
  const { config, log, now } = options
  if (isDisabled(env)) {
    return loaded({}, ['tracing is off, because OTEL_SDK_DISABLED is true'])
  }
  const { ratio, warnings } = sampleRatioOf(config.tracing, env)
  const { endpoint, trustIncoming } = config.tracing
  const queue = new SpanQueue({ endpoint, log, monotonicNow: () => performance.now() })
  return loaded(new Tracing({ config, now, ratio, trustIncoming, queue }), warnings)
}

/** An upstream must not take the header for the trace of this request. */
const WITHOUT_PARENT: RequestWatcher = { upstreamHeaders: { removed: PARENT_HEADERS, addedLines: '' } }

interface Parts extends Pick<TracingOptions, 'config' | 'now'> {
  readonly ratio: number
  readonly trustIncoming: boolean
  readonly queue: Pick<SpanQueue, 'add' | 'dropped' | 'stop'>
}

export class Tracing implements Room {
  readonly #ratio: number
  readonly #trustIncoming: boolean
  readonly #queue: Parts['queue']
  readonly #ids = new RandomIdGenerator()
  readonly #traceOptions: TraceOptions

  constructor({ config, now, ratio, trustIncoming, queue }: Parts) {
    this.#ratio = ratio
    this.#trustIncoming = trustIncoming
    this.#queue = queue
    this.#traceOptions = {
      now,
      queue,
      resource: resourceOf(config.name),
      scheme: config.listen.tls === undefined ? 'http' : 'https',
      servers: upstreamServers(config.upstreams),
      namesAccount: config.tracing.accountAttribute,
      newSpanId: this.#ids.generateSpanId,
    }
  }

  onRequest(req: SidecarRequest): void {
    const { traceparent } = req.headers
    if (traceparent === undefined) {
      if (this.#samples()) {
        this.#begin(req, undefined, undefined)
      }
      return
    }
    const named = readTraceparent(traceparent)
    if (named !== undefined && this.#trustIncoming) {
      if ((named.flags & TRACE_FLAGS.sampled) !== 0) {
        this.#begin(req, named, undefined)
      }
    } else if (this.#samples()) {
      this.#begin(req, undefined, named)
    } else {
      req.context.addWatcher(WITHOUT_PARENT)
    }
  }

  #samples(): boolean {
    return Math.random() < this.#ratio
  }

  #begin(req: SidecarRequest, parent: TraceParent | undefined, linked: TraceParent | undefined): void {
    const traceId = parent?.traceId ?? this.#ids.generateTraceId()
    req.context.addWatcher(new RequestTrace(req, { traceId, parent, linked }, this.#traceOptions))
  }

  metrics(): readonly RoomMetric[] {
    const name = 'spans_dropped_total'
    const values = [{ labels: {}, value: this.#queue.dropped }]
    return [{ name, ...TRACING_METRICS[name], aggregator: 'sum', values }]
  }

  stop(): Promise<void> {
    return this.#queue.stop()
  }
}
