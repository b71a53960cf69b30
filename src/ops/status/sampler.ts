/**
 * Remembers how the counters stood over the last ten minutes.
 *
 * In: a source of metrics, asked every five seconds. Out: samples, oldest first. Memory is bounded: so many samples
 * and no more. A source that fails costs a sample and nothing else.
 *
 * @module
 */
import { Columns, type Row } from './counters.ts'
import type { MetricFamily } from './metric-families.ts'

/** How late timers came, in seconds. */
export interface EventLoopLag {
  readonly p99Seconds: number
  readonly worstSeconds: number
}

/** How things stood at one moment. */
export interface Sample {
  /** Epoch milliseconds. */
  readonly at: number
  readonly row: Row
  /** Since the sample before. */
  readonly lag: EventLoopLag
}

/** A sample with everything it was taken from. */
export interface Reading {
  readonly sample: Sample
  readonly families: readonly MetricFamily[]
}

/** What a sampler works with. */
export interface SamplerOptions {
  readonly source: () => Promise<readonly MetricFamily[]>
  /** The lag since it was asked before with `reset`. */
  readonly lag: (reset: boolean) => EventLoopLag
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Told why a sample could not be taken. */
  readonly onFault: (error: Error) => void
  /** Milliseconds between two samples; default 5000. */
  readonly everyMs?: number
  /** How many samples are kept; default 121, which are ten minutes. */
  readonly capacity?: number
}

/** Takes samples. */
export interface Sampler {
  readonly everyMs: number
  readonly columns: Columns
  /** Takes the first sample, and one more every five seconds. Does not keep the process alive. */
  start(): void
  stop(): void
  /** Takes a sample and keeps it. Never rejects. */
  take(): Promise<void>
  /** Looks at how things stand now, and keeps nothing. Rejects when the source does. */
  look(): Promise<Reading>
  /** The samples that are kept, oldest first. */
  samples(): readonly Sample[]
}

/** Makes a sampler. */
export function createSampler(options: SamplerOptions): Sampler {
  const { source, lag, now, onFault, everyMs = 5000, capacity = 121 } = options
  const columns = new Columns()
  const kept: Sample[] = []
  let timer: NodeJS.Timeout | undefined
  let taking: Promise<void> | undefined

  const read = async (reset: boolean): Promise<Reading> => {
    const families = await source()
    return { sample: { at: now(), row: columns.read(families), lag: lag(reset) }, families }
  }
  const keep = ({ sample }: Reading) => {
    kept.push(sample)
    if (kept.length > capacity) kept.shift()
  }
  // A source that takes longer than the time between two samples is not asked twice at once.
  const take = () => {
    taking ??= read(true)
      .then(keep, onFault)
      .finally(() => {
        taking = undefined
      })
    return taking
  }

  return {
    everyMs,
    columns,
    start() {
      if (timer !== undefined) return
      void take()
      timer = setInterval(() => void take(), everyMs)
      timer.unref()
    },
    stop() {
      clearInterval(timer)
      timer = undefined
    },
    take,
    look: () => read(false),
    samples: () => kept,
  }
}
