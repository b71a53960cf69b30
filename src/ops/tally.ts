/**
 * Counters and histograms that cost an addition.
 *
 * prom-client hashes the labels of every observation, which is more work than some of the requests it would count.
 * These count in plain arrays and put the result in prom-client's shape when somebody scrapes.
 *
 * @module
 */
import type { Registry } from 'prom-client'

/** One time series as prom-client renders it. */
interface Series {
  readonly labels: Readonly<Record<string, string | number>>
  readonly value: number
  readonly metricName?: string
}

/**
 * What becomes of the values that several processes have for one series. Counters and histograms are summed; of a
 * gauge its sum may be nonsense (twice the age of a key).
 */
export type Aggregator = 'sum' | 'min' | 'max'

/** A metric, but for its series. */
export type Metric = { readonly name: string; readonly help: string } & (
  | { readonly type: 'counter' | 'histogram'; readonly aggregator?: Aggregator }
  | { readonly type: 'gauge'; readonly aggregator: Aggregator }
)

/** Hands series to a registry, which asks for them at each scrape. */
export function registerSeries(registry: Registry, metric: Metric, series: () => readonly Series[]): void {
  const source = { ...metric, get: async () => ({ aggregator: 'sum', ...metric, values: series() }) }
  // prom-client asks a metric for nothing but `name` and `get`; its types ask for its own classes.
  registry.registerMetric(source as never)
}

/** A histogram of seconds for one value of its label. */
export class SecondsTally {
  readonly #bounds: readonly number[]
  readonly #counts: Float64Array
  #sum = 0
  #count = 0

  /** @param bounds - upper bounds in seconds, ascending */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds
    this.#counts = new Float64Array(bounds.length)
  }

  /** Counts one observation. */
  observe(seconds: number): void {
    const bounds = this.#bounds
    let at = 0
    while (at < bounds.length && seconds > (bounds[at] as number)) at++
    if (at < bounds.length) this.#counts[at] = (this.#counts[at] as number) + 1
    this.#sum += seconds
    this.#count++
  }

  /** The histogram's series, cumulative as Prometheus wants them. */
  series(name: string, labels: Readonly<Record<string, string>>): Series[] {
    let cumulative = 0
    const buckets = this.#bounds.map((le, at): Series => {
      cumulative += this.#counts[at] as number
      return { metricName: `${name}_bucket`, labels: { ...labels, le }, value: cumulative }
    })
    return [
      ...buckets,
      { metricName: `${name}_bucket`, labels: { ...labels, le: '+Inf' }, value: this.#count },
      { metricName: `${name}_sum`, labels, value: this.#sum },
      { metricName: `${name}_count`, labels, value: this.#count },
    ]
  }
}

/** A counter for each of a closed set of words. */
export class WordTally<Word extends string> {
  readonly #counts = new Map<Word, number>()

  /** @param words - every word, so that each is there, at zero, from the first scrape on */
  constructor(words: readonly Word[]) {
    for (const word of words) this.#counts.set(word, 0)
  }

  /** Counts one. */
  add(word: Word, amount = 1): void {
    this.#counts.set(word, (this.#counts.get(word) as number) + amount)
  }

  /** The words with their counts. */
  entries(): IterableIterator<[Word, number]> {
    return this.#counts.entries()
  }
}
