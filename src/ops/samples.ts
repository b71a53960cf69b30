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

/** A family with what is needed to add up those of several processes. */
export type RegisteredFamily = Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number]

/** What the status page shows. Collecting everything costs more, and resets the measurement of the event loop. */
const SHOWN = /^auth_sidecar_|^process_(?:cpu_seconds_total|resident_memory_bytes)$/

/** Reads the metrics of the status page from a registry. */
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

/** Packs metrics into rows of numbers: a column is a series, of which closed label sets bound the number. */
export class Columns {
  readonly #columns = new Map<string, { readonly metric: string; readonly labels: Labels }>()
  readonly #indexes = new Map<string, number>()

  read(families: readonly MetricFamily[], at: number): Sample {
    const row: number[] = []
    for (const { name, values } of families) {
      for (const { labels, value, metricName = name } of values) {
        if (metricName !== name && !metricName.endsWith('_bucket')) continue
        const key = `${name} ${JSON.stringify(labels)}`
        let index = this.#indexes.get(key)
        if (index === undefined) {
          index = this.#indexes.size
          this.#indexes.set(key, index)
          this.#columns.set(key, { metric: name, labels })
        }
        row[index] = value
      }
    }
    return { at, row: Float64Array.from({ length: this.#indexes.size }, (_, index) => row[index] ?? 0) }
  }

  /**
   * How much a metric grew between two samples, by the value of one label, of the series that have the labels `where`.
   * A counter that fell belongs to a worker that was replaced, and counts as zero.
   */
  growthBy(from: Sample, to: Sample, metric: string, label: string, where: Labels = {}): Map<string, number> {
    const growth = new Map<string, number>()
    const wanted = Object.entries(where)
    for (const [key, index] of this.#indexes) {
      const column = this.#columns.get(key)
      if (column?.metric !== metric || !wanted.every(([name, value]) => column.labels[name] === value))
        continue
      const value = String(column.labels[label] ?? '')
      const grown = Math.max(0, (to.row[index] ?? 0) - (from.row[index] ?? 0))
      growth.set(value, (growth.get(value) ?? 0) + grown)
    }
    return growth
  }
}

/** The sum of all values. */
export function total(growth: ReadonlyMap<string, number>): number {
  return [...growth.values()].reduce((sum, value) => sum + value, 0)
}

/** Four digits are precise enough for a page, and keep the document small. */
export function rounded(value: number): number {
  return Number(value.toPrecision(4))
}

/** Percentiles of a duration in seconds; null where nothing was observed. */
export interface Percentiles {
  readonly p50Seconds: number | null
  readonly p99Seconds: number | null
}

/** Estimates percentiles from cumulative buckets by upper bound (`le`), as Prometheus' `histogram_quantile` does. */
export function percentiles(buckets: ReadonlyMap<string, number>): Percentiles {
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
