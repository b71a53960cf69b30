/**
 * Metrics as prom-client gives them, one process's own or the sum over several, and what the status page reads of them.
 *
 * @module
 */
import type { Metric, Registry } from 'prom-client'

/** One metric with its series: the shape of prom-client's `getMetricsAsJSON`, and of its aggregation. */
export interface MetricFamily {
  readonly name: string
  readonly values: readonly {
    readonly labels: Readonly<Record<string, string | number | undefined>>
    readonly value: number
    /** In a histogram: the name of the metric with `_bucket`, `_sum` or `_count`. */
    readonly metricName?: string
  }[]
}

/** A metric as a registry tells it: with what is needed to add up those of several processes. */
export type RegisteredFamily = Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number]

/** The metrics that the status page is made of. */
export const STATUS_METRICS = [
  'auth_sidecar_requests_total',
  'auth_sidecar_request_duration_seconds',
  'auth_sidecar_requests_in_flight',
  'auth_sidecar_client_connections',
  'auth_sidecar_token_checks_total',
  'auth_sidecar_tokens_issued_total',
  'auth_sidecar_token_issue_failures_total',
  'auth_sidecar_token_cache_hits_total',
  'auth_sidecar_token_cache_misses_total',
  'auth_sidecar_token_cache_evictions_total',
  'auth_sidecar_token_cache_entries',
  'auth_sidecar_upstream_requests_total',
  'auth_sidecar_upstream_response_seconds',
  'auth_sidecar_upstream_connections',
  'auth_sidecar_upstream_queue',
  'auth_sidecar_revocations',
  'auth_sidecar_log_lines_dropped_total',
  'auth_sidecar_reloads_total',
  'auth_sidecar_reload_failing',
  'auth_sidecar_reload_last_good_timestamp_seconds',
  'auth_sidecar_jwks_age_seconds',
] as const

/** One of them. */
export type StatusMetric = (typeof STATUS_METRICS)[number]

/**
 * Reads them from the registry of this process, and only them: to collect everything would cost more, and would reset
 * prom-client's measurement of the event loop between two scrapes.
 */
export function statusMetricsOf(registry: Registry): () => Promise<RegisteredFamily[]> {
  return async () => {
    const metrics = STATUS_METRICS.map((name) => registry.getSingleMetric(name))
    return Promise.all(metrics.filter((metric) => metric !== undefined).map((metric) => metric.get()))
  }
}

/** Reads what only grows. What is measured between two scrapes is left alone. */
export function countsOf(registry: Registry): () => Promise<RegisteredFamily[]> {
  return async () => {
    const counts = registry.getMetricsAsArray().filter(onlyGrows)
    return Promise.all(counts.map(({ name }) => (registry.getSingleMetric(name) as Metric).get()))
  }
}

/** Whether the values of a metric only grow for as long as its process lives. */
export function onlyGrows({ type }: { readonly type: unknown }): boolean {
  return type === 'counter' || type === 'histogram'
}

/** The series of one metric; none when it is not there. */
export function seriesOf(families: readonly MetricFamily[], name: StatusMetric): MetricFamily['values'] {
  return families.find((family) => family.name === name)?.values ?? []
}

/** The sum of the series that have these labels; undefined when there is no such series. */
export function valueIn(
  families: readonly MetricFamily[],
  name: StatusMetric,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  const wanted = Object.entries(labels)
  return seriesOf(families, name)
    .filter((series) => wanted.every(([label, value]) => series.labels[label] === value))
    .reduce<number | undefined>((sum, { value }) => (sum ?? 0) + value, undefined)
}
