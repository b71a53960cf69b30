/**
 * Samples of the metrics over ten minutes, for the status page.
 * The labels of `metrics.ts` bound their memory.
 */
import { ByLabel } from './counts.ts'
import { eachSeries } from './exposition.ts'
import type { LabelOf, MetricName, MetricValue, PROCESS_METRICS, ReadMetrics } from './metrics.ts'
import { METRIC_PREFIX } from './metrics.ts'

type Labels = MetricValue['labels']
type Name = MetricName | (typeof PROCESS_METRICS)[number]
type Label<N extends Name> = N extends MetricName ? LabelOf<N> : never

/** Labels, each with its value, its possible values or a pattern of them. */
type Where<N extends Name> = Readonly<Partial<Record<Label<N>, Wanted>>>
type Wanted = string | readonly string[] | RegExp

/** The metrics at one moment (epoch milliseconds), a column for each series. A missing value is zero. */
type Sample = Readonly<{ at: number; row: readonly number[] }>

type Column = Readonly<{ labels: Labels; index: number }>
/** By their labels, and also by the upstream that they are of: there may be hundreds. */
interface ColumnsOfMetric {
  readonly all: Map<string, Column>
  readonly ofUpstreams: ByLabel<string, Column[]>
}
type Columns = ByLabel<string, ColumnsOfMetric>

export type Windows = Readonly<Awaited<ReturnType<Samples['windows']>>>

/** While the page is looked at. */
const STEP_MS = 5000
/**
 * While it is not: to make all series costs CPU time.
 * So the ten minutes before a look are drawn by the minute.
 */
const IDLE_STEP_MS = 60_000
/** A look lasts this long: the page asks again every 5 s. */
const LOOK_MS = 30_000
const WINDOW_MS = 600_000
const RECENT_MS = 30_000

export class Samples {
  readonly #metrics: ReadMetrics
  readonly #now: () => number
  readonly #columns: Columns = new ByLabel(() => ({ all: new Map(), ofUpstreams: new ByLabel(() => []) }))
  readonly #samples: Sample[] = []
  #columnCount = 0
  #timer: NodeJS.Timeout | undefined
  #onError: (error: unknown) => void = () => {}
  #lookedAtMonotonicMs = Number.NEGATIVE_INFINITY

  constructor(metrics: ReadMetrics, now: () => number) {
    this.#metrics = metrics
    this.#now = now
  }

  start(onError: (error: unknown) => void): void {
    this.#onError = onError
    this.sample().catch(onError)
    this.#schedule(IDLE_STEP_MS)
  }

  get #isLookedAt(): boolean {
    return performance.now() - this.#lookedAtMonotonicMs < LOOK_MS
  }

  #schedule(delayMs: number): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      this.sample().catch(this.#onError)
      this.#schedule(this.#isLookedAt ? STEP_MS : IDLE_STEP_MS)
    }, delayMs).unref()
  }

  /** Samples every five seconds from now on, until the last look is over. */
  #look(): void {
    const wasLookedAt = this.#isLookedAt
    this.#lookedAtMonotonicMs = performance.now()
    if (this.#timer !== undefined && !wasLookedAt) {
      this.#schedule(STEP_MS)
    }
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  async sample(): Promise<void> {
    const sample = await this.#current()
    this.#samples.push(sample)
    // The oldest one is the start of the window.
    while ((this.#samples[1]?.at ?? sample.at) <= sample.at - WINDOW_MS) {
      this.#samples.shift()
    }
  }

  async windows() {
    this.#look()
    const to = await this.#current()
    const all = [...this.#samples.filter(({ at }) => at <= to.at), to] // the clock may have been set back
    const growth = (from: Sample | undefined, to: Sample) => new Growth(this.#columns, from ?? to, to)
    return {
      at: to.at,
      tenMinutes: growth(all[0], to),
      recently: growth(all.findLast(({ at }) => at <= to.at - RECENT_MS) ?? all[0], to),
      steps: all.slice(1).map((sample, index) => growth(all[index], sample)),
      values: growth({ at: 0, row: [] }, to), // the growth since zero is the current value
    }
  }

  async #current(): Promise<Sample> {
    const row: number[] = []
    await eachSeries(await this.#metrics('status'), ({ labels, value }, { name, type }) => {
      if (type === 'histogram' && !('le' in labels)) {
        return // the sum and the count of a histogram
      }
      const columns = this.#columns.of(name.replace(METRIC_PREFIX, ''))
      const key = JSON.stringify(labels)
      const column = columns.all.get(key) ?? this.#addColumn(columns, key, labels)
      row[column.index] = value
    })
    return { at: this.#now(), row }
  }

  #addColumn({ all, ofUpstreams }: ColumnsOfMetric, key: string, labels: Labels): Column {
    const column = { labels, index: this.#columnCount++ }
    all.set(key, column)
    const { upstream } = labels
    if (upstream !== undefined) {
      ofUpstreams.of(String(upstream)).push(column)
    }
    return column
  }
}

function matches(value: string, wanted: Wanted | undefined): boolean {
  if (typeof wanted === 'string') {
    return value === wanted
  }
  return wanted instanceof RegExp ? wanted.test(value) : wanted?.includes(value) !== false
}

/** How counters grew between two moments. A counter that decreased (a worker was replaced) counts as zero. */
export class Growth {
  readonly at: number
  readonly seconds: number
  readonly #columns: Columns
  readonly #from: Sample['row']
  readonly #to: Sample['row']

  constructor(columns: Columns, from: Sample, to: Sample) {
    this.at = to.at
    this.seconds = (to.at - from.at) / 1000
    this.#columns = columns
    this.#from = from.row
    this.#to = to.row
  }

  /** Returns the growth of the series that `where` selects, as a sum for each value of `label`. */
  by<N extends Name>(metric: N, label: Label<N> | 'le' | '', where?: Where<N>): Map<string, number> {
    return this.#sums(metric, label, where ?? {})
  }

  /** The same for a metric of a room (`room.ts`), whose name is not in `METRICS`. */
  ofRoom(metric: string, label: string): Map<string, number> {
    return this.#sums(metric, label, {})
  }

  #sums(
    metric: string,
    label: string,
    where: Readonly<Record<string, Wanted | undefined>>,
  ): Map<string, number> {
    const growth = new Map<string, number>()
    const wanted = Object.entries(where)
    for (const { labels, index } of this.#columnsOf(metric, where['upstream'])) {
      const last = this.#to[index]
      const isWanted = wanted.every(([name, value]) => matches(String(labels[name]), value))
      if (last === undefined || !isWanted) {
        continue
      }
      const value = String(labels[label] ?? '')
      const grown = Math.max(0, last - (this.#from[index] ?? 0))
      growth.set(value, (growth.get(value) ?? 0) + grown)
    }
    return growth
  }

  #columnsOf(metric: string, upstream: Wanted | undefined): Iterable<Column> {
    const columns = this.#columns.get(metric)
    if (columns === undefined) {
      return []
    }
    return typeof upstream === 'string' ? (columns.ofUpstreams.get(upstream) ?? []) : columns.all.values()
  }

  total<N extends Name>(metric: N, where?: Where<N>): number {
    return sum(this.by(metric, '', where))
  }

  /** Per second; null if the interval is empty. */
  rate<N extends Name>(metric: N, where?: Where<N>): number | null {
    return this.seconds > 0 ? rounded(this.total(metric, where) / this.seconds) : null
  }

  /**
   * Estimates seconds like Prometheus' `histogram_quantile`, from cumulative buckets by upper bound (`le`).
   */
  percentiles<N extends MetricName>(histogram: N, where?: Where<N>) {
    const ascending = [...this.by(histogram, 'le', where)]
      .map(([le, count]) => ({ bound: le === '+Inf' ? Infinity : Number(le), count }))
      .sort((a, b) => a.bound - b.bound)
    const quantile = (q: number): number | null => {
      const rank = q * (ascending.at(-1)?.count ?? 0)
      const index = ascending.findIndex(({ count }) => count >= rank)
      const bucket = ascending[index]
      if (rank === 0 || bucket === undefined) {
        return null
      }
      const below = ascending[index - 1] ?? { bound: 0, count: 0 }
      if (bucket.bound === Infinity) {
        return below.bound
      }
      const share = (rank - below.count) / (bucket.count - below.count)
      return rounded(below.bound + (bucket.bound - below.bound) * share)
    }
    return { p50Seconds: quantile(0.5), p99Seconds: quantile(0.99) }
  }
}

export const sum = (growth: ReadonlyMap<string, number>): number =>
  [...growth.values()].reduce((total, value) => total + value, 0)

export const rounded = (value: number): number => Number(value.toPrecision(4))
