/**
 * Merges the metrics of several processes, one metric in each turn of the event loop: the primary hands out
 * connections meanwhile.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { AggregatorRegistry } from 'prom-client'
import type { StoredFamily } from '../ops/metrics.ts'

/** `aggregator` says how the values of a metric become one. */
export async function aggregate(processes: readonly (readonly StoredFamily[])[]): Promise<StoredFamily[]> {
  const byName = new Map<string, StoredFamily[]>()
  for (const family of processes.flat()) {
    const ofName = byName.get(family.name)
    if (ofName === undefined) {
      byName.set(family.name, [family])
    } else {
      ofName.push(family)
    }
  }
  const merged: StoredFamily[] = []
  for (const families of byName.values()) {
    merged.push(...(await AggregatorRegistry.aggregate([families]).getMetricsAsJSON()))
    await nextTurn()
  }
  return merged
}
