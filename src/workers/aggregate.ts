/**
 * The metrics of all workers as one.
 *
 * In: the metrics of each, those of workers that have ended included. Out: one registry. What was counted stays
 * counted when a worker ends: a total that falls looks like a restart, and every rate over it would jump.
 *
 * @module
 */
import { AggregatorRegistry, type Registry } from 'prom-client'
import type { RegisteredFamily } from '../ops/samples.ts'

/** Whether the values of a metric only grow for as long as its process lives. */
export function onlyGrows({ type }: { readonly type: unknown }): boolean {
  return type === 'counter' || type === 'histogram'
}

/** Adds up the metrics of several processes, each metric in its own way. */
export function aggregate(processes: readonly (readonly RegisteredFamily[])[]): Registry {
  return AggregatorRegistry.aggregate(processes.map((families) => [...families]))
}

/**
 * What is left of ended workers: their counts, without what they held. At once: were two that end together added while
 * the other one is, what one of them had counted would be lost.
 */
export function withEnded(
  before: readonly RegisteredFamily[],
  ended: readonly RegisteredFamily[],
): RegisteredFamily[] {
  return aggregate([before, ended.filter(onlyGrows)])
    .getMetricsAsArray()
    .filter((metric): metric is RegisteredFamily => 'values' in metric)
}
