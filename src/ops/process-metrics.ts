/**
 * The metrics of the process and of Node that prom-client brings.
 *
 * In: a registry. Out: they are in it, such that a scrape that adds up several processes tells the truth, and without
 * those that Prometheus' own linter objects to.
 *
 * @module
 */
import { collectDefaultMetrics, type Registry } from 'prom-client'
import type { Aggregator } from './tally.ts'

/** Gauges that call themselves counters by their `_total`; the same ones without it, by type, add up to them. */
const MISNAMED = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
] as const

/**
 * How several processes' values become one where prom-client would do otherwise. It takes the mean of what the event
 * loops were late by, which hides the one process that hangs, and leaves the time of the start out.
 */
const AGGREGATORS: Readonly<Record<string, Aggregator>> = {
  process_start_time_seconds: 'min',
  nodejs_eventloop_lag_seconds: 'max',
  nodejs_eventloop_lag_p50_seconds: 'max',
  nodejs_eventloop_lag_p90_seconds: 'max',
  nodejs_eventloop_lag_p99_seconds: 'max',
}

/** Registers them. */
export function registerProcessMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry })
  for (const name of MISNAMED) registry.removeSingleMetric(name)
  // prom-client takes an aggregator from whoever makes a metric only, but reads this property at each scrape.
  for (const metric of registry.getMetricsAsArray()) {
    const aggregator = AGGREGATORS[metric.name]
    if (aggregator !== undefined) metric.aggregator = aggregator
  }
}
