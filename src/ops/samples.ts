/**
 * Samples of the counters over the last ten minutes, for the status page.
 * In: metric families. Out: how much the counters grew between two samples. Memory is bounded: about 250 KB with one upstream.
 */
import type { Registry } from 'prom-client'

/** One metric with its series, as prom-client's `getMetricsAsJSON` returns it. */
export interface MetricFamily {
  readonly name: string
  readonly values: readonly {
    readonly labels: Labels
    readonly value: number
    /** In a histogram: the name of the metric with `_bucket`, `_sum` or `_count`. */
    readonly metricName?: string
  }[]
}

export type Labels = Readonly<Record<string, string | number | undefined>>

/** A family with its aggregator, for those of several processes. */
export type RegisteredFamily = Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number]

/** The metrics of the status page. Collecting all metrics costs more, and resets the event loop's measurements. */
const SHOWN = /^auth_sidecar_|^process_(?:cpu_seconds_total|resident_memory_bytes)$/

export function statusMetrics(registry: Registry): Promise<RegisteredFamily[]> {
  const names = registry.getMetricsAsArray().map(({ name }) => name)
  const metrics = names.filter((name) => SHOWN.test(name)).map((name) => registry.getSingleMetric(name))
  return Promise.all(metrics.filter((metric) => metric !== undefined).map((metric) => metric.get()))
}

/** The counters at one moment, in epoch milliseconds. A row shorter than another one has zeros at its end. */
export interface Sample {
  readonly at: number
  readonly row: Float64Array
}

/** How much the counters grew between two samples. */
export type Growth = ReturnType<Columns['growth']>

interface Column {
  readonly labels: Labels
  readonly index: number
}

/** Packs metrics into rows of numbers: a column is a series, of which closed label sets bound the number. */
export class Columns {
  readonly #byMetric = new Map<string, Map<string, Column>>()
  #count = 0

  read(families: readonly MetricFamily[], at: number): Sample {
    const row: number[] = []
    for (const { name, values } of families) {
      const columns = this.#byMetric.get(name) ?? new Map<string, Column>()
      this.#byMetric.set(name, columns)
      for (const { labels, value, metricName = name } of values) {
        if (metricName !== name && !metricName.endsWith('_bucket')) continue
        const key = JSON.stringify(labels)
        const column = columns.get(key) ?? { labels, index: this.#count++ }
        columns.set(key, column)
        row[column.index] = value
      }
    }
    return { at, row: Float64Array.from({ length: this.#count }, (_, index) => row[index] ?? 0) }
  }

  /** A counter that decreased (its worker was replaced) counts as zero. */
  growth(from: Sample, to: Sample) {
    const seconds = (to.at - from.at) / 1000
    const by = (metric: string, label: string, where: Labels = {}) => {
      const growth = new Map<string, number>()
      const matches = matcher(where)
      for (const { labels, index } of this.#byMetric.get(metric)?.values() ?? []) {
        if (!matches(labels)) continue
        const value = String(labels[label] ?? '')
        const grown = Math.max(0, (to.row[index] ?? 0) - (from.row[index] ?? 0))
        growth.set(value, (growth.get(value) ?? 0) + grown)
      }
      return growth
    }
    return {
      seconds,
      /** By the value of one label. */
      by,
      total: (metric: string, where?: Labels) => sum(by(metric, '', where)),
      /** Null if the interval is empty. */
      perSecond: (count: number) => (seconds > 0 ? rounded(count / seconds) : null),
      percentiles: (histogram: string, where?: Labels) => percentiles(by(histogram, 'le', where)),
    }
  }
}

/** Returns whether a series has these labels. */
export function matcher(where: Labels): (labels: Labels) => boolean {
  const wanted = Object.entries(where)
  return (labels) => wanted.every(([name, value]) => labels[name] === value)
}

export function sum(growth: ReadonlyMap<string, number>): number {
  return [...growth.values()].reduce((total, value) => total + value, 0)
}

/** Four digits are precise enough for a page, and keep the document small. */
export function rounded(value: number): number {
  return Number(value.toPrecision(4))
}

/**
 * Estimates percentiles in seconds from cumulative buckets by upper bound (`le`), as Prometheus' `histogram_quantile`
 * does; null where nothing was observed.
 */
function percentiles(buckets: ReadonlyMap<string, number>) {
  const ascending = [...buckets]
    .map(([le, count]) => ({ bound: le === '+Inf' ? Infinity : Number(le), count }))
    .sort((a, b) => a.bound - b.bound)
  const quantile = (q: number): number | null => {
    const rank = q * (ascending.at(-1)?.count ?? 0)
    if (rank === 0) return null
    let below = { bound: 0, count: 0 }
    for (const bucket of ascending) {
      // Above the last finite bound nothing is known but that bound.
      if (bucket.bound === Infinity) break
      if (bucket.count >= rank) {
        const share = (rank - below.count) / (bucket.count - below.count)
        return rounded(below.bound + (bucket.bound - below.bound) * share)
      }
      below = bucket
    }
    return below.bound
  }
  return { p50Seconds: quantile(0.5), p99Seconds: quantile(0.99) }
}
