/**
 * The spans that wait for the collector. In: finished spans. Out: OTLP over HTTP (protobuf), in batches.
 * A collector that is slow or away costs the memory of `MAX_WAITING` spans. What exceeds it is dropped and
 * counted, as is what the collector refuses. No request waits for it, and the drain at most `STOP_MS`.
 */
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from '@opentelemetry/sdk-trace-base'
import { codeOf } from '../base/errors.ts'
import { type Logger, loggable } from '../base/log.ts'
import { withoutPath } from '../http/hosts.ts'

/** Spans that wait or are being sent. */
const MAX_WAITING = 2048
/**
 * Encoding and sending a batch takes two milliseconds, in which no request is served. Smaller batches cost
 * more in all.
 */
const BATCH_SPANS = 512
/** How long a span waits for others, at most. */
const BATCH_MS = 1000
/** For one batch, with the attempts after a 429 or 503. */
const EXPORT_MS = 10_000
const STOP_MS = 1000
const LOG_EVERY_MS = 60_000
/** `ExportResultCode.SUCCESS`. */
const SUCCESS = 0

type OnExported = Parameters<SpanExporter['export']>[1]
type ExportResult = Parameters<OnExported>[0]

export interface SpanQueueOptions {
  readonly endpoint: string
  readonly log: Pick<Logger, 'warn'>
  /** Monotonic milliseconds. */
  readonly monotonicNow: () => number
}

export class SpanQueue {
  /** The number of spans that the collector did not take. */
  dropped = 0
  readonly #options: SpanQueueOptions
  readonly #exporter: SpanExporter
  readonly #processor: BatchSpanProcessor
  #waiting = 0
  #loggedDropped = 0
  #loggedMonotonicMs = Number.NEGATIVE_INFINITY

  constructor(options: SpanQueueOptions) {
    this.#options = options
    // Each option is set, or a variable of the environment would set it.
    this.#exporter = new OTLPTraceExporter({
      url: options.endpoint,
      timeoutMillis: EXPORT_MS,
      concurrencyLimit: 1 + MAX_WAITING / BATCH_SPANS,
    })
    const counting: SpanExporter = {
      export: (spans, onExported) => this.#export(spans, onExported),
      shutdown: () => this.#exporter.shutdown(),
    }
    this.#processor = new BatchSpanProcessor(counting, {
      maxQueueSize: MAX_WAITING,
      maxExportBatchSize: BATCH_SPANS,
      scheduledDelayMillis: BATCH_MS,
      exportTimeoutMillis: EXPORT_MS,
    })
  }

  /** Takes all spans of a request, or none. */
  add(spans: readonly ReadableSpan[]): void {
    if (this.#waiting + spans.length > MAX_WAITING) {
      this.#drop(spans.length, 'too many wait')
      return
    }
    this.#waiting += spans.length
    for (const span of spans) {
      this.#processor.onEnd(span)
    }
  }

  #export(spans: ReadableSpan[], onExported: OnExported): void {
    this.#exporter.export(spans, (result) => {
      this.#waiting -= spans.length
      if (result.code !== SUCCESS) {
        this.#drop(spans.length, causeOf(result))
      }
      onExported(result)
    })
  }

  #drop(count: number, cause: string): void {
    this.dropped += count
    const now = this.#options.monotonicNow()
    if (now - this.#loggedMonotonicMs >= LOG_EVERY_MS) {
      this.#loggedMonotonicMs = now
      this.#log(cause)
    }
  }

  #log(cause: string): void {
    const dropped = this.dropped - this.#loggedDropped
    this.#loggedDropped = this.dropped
    const collector = withoutPath(this.#options.endpoint)
    this.#options.log.warn({ collector, cause, dropped }, 'spans were dropped')
  }

  /** Sends what waits. What is left after this time is dropped. */
  async stop(maxMs = STOP_MS): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const deadline = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, maxMs)
    })
    const sent = this.#processor.shutdown().catch(() => {}) // `#export` has counted what was not sent
    await Promise.race([sent, deadline])
    clearTimeout(timer)
    if (this.#waiting > 0) {
      this.dropped += this.#waiting
      this.#log('the sidecar stops')
    }
  }
}

/** A network code, a status, or a text of the exporter. What the collector says stays out of the log. */
function causeOf({ error }: ExportResult): string {
  if (error !== undefined && 'code' in error && typeof error.code === 'number') {
    return `status ${error.code}`
  }
  return codeOf(error) ?? loggable(error?.message ?? 'unknown')
}
