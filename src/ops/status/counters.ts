/**
 * The counters of which the status page shows how they grow, packed so that ten minutes of them fit in little memory.
 *
 * In: metric families. Out: a row of numbers, one for each column that was ever seen. Columns come from closed sets of
 * labels, so that their number is bounded; a row that is shorter than another one has zeros at its end.
 *
 * @module
 */
import { type MetricFamily, type StatusMetric, seriesOf } from './metric-families.ts'

type Labels = MetricFamily['values'][number]['labels']

/** Counters that belong together: where their numbers come from, and what tells their columns apart. */
const GROUPS = {
  answers: ['auth_sidecar_requests_total', ({ status }) => `${String(status).slice(0, 1)}xx`],
  durations: ['auth_sidecar_request_duration_seconds', ({ route, le }) => pair(route, le)],
  checks: ['auth_sidecar_token_checks_total', ({ reason }) => String(reason)],
  issued: ['auth_sidecar_tokens_issued_total', () => ''],
  failures: ['auth_sidecar_token_issue_failures_total', ({ reason }) => String(reason)],
  hits: ['auth_sidecar_token_cache_hits_total', () => ''],
  misses: ['auth_sidecar_token_cache_misses_total', () => ''],
  outcomes: ['auth_sidecar_upstream_requests_total', ({ upstream, outcome }) => pair(upstream, outcome)],
  firstBytes: ['auth_sidecar_upstream_response_seconds', ({ upstream, le }) => pair(upstream, le)],
} as const satisfies Readonly<Record<string, readonly [StatusMetric, (labels: Labels) => string]>>

/** One of the groups. */
export type Group = keyof typeof GROUPS

/** Two labels as the name of one column: no label holds a line end. */
const pair = (first: unknown, second: unknown) => `${first}\n${second}`

/** Numbers of counters, in the order of the columns. */
export type Row = Float64Array

/** Which column stands where in a row. */
export class Columns {
  readonly #groups = new Map<string, Map<string, number>>()
  #count = 0

  /** Packs what the families say now. */
  read(families: readonly MetricFamily[]): Row {
    const row: number[] = []
    for (const [group, [metric, columnOf]] of Object.entries(GROUPS)) {
      const columns = this.#columns(group)
      for (const { labels, value, metricName = metric } of seriesOf(families, metric)) {
        // Of a histogram, its buckets are all there is to be known.
        if (metricName !== metric && !metricName.endsWith('_bucket')) continue
        const name = columnOf(labels)
        let at = columns.get(name)
        if (at === undefined) {
          at = this.#count++
          columns.set(name, at)
        }
        row[at] = (row[at] ?? 0) + value
      }
    }
    return Float64Array.from({ length: this.#count }, (_, at) => row[at] ?? 0)
  }

  /** The columns of a group: what tells them apart, and where they stand. */
  of(group: Group): ReadonlyMap<string, number> {
    return this.#columns(group)
  }

  #columns(group: string): Map<string, number> {
    let columns = this.#groups.get(group)
    if (columns === undefined) {
      columns = new Map()
      this.#groups.set(group, columns)
    }
    return columns
  }
}

/**
 * How much a counter grew from one row to a later one. A counter that fell belongs to a process that started anew, and
 * has grown from zero since (as in Prometheus' `increase`).
 */
export function growth(earlier: Row, later: Row, at: number): number {
  const from = earlier[at] ?? 0
  const to = later[at] ?? 0
  return to >= from ? to - from : to
}
