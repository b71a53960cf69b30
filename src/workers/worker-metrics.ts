/**
 * What only a supervisor can tell: how its workers are.
 *
 * @module
 */
import { Counter, Gauge, type Registry } from 'prom-client'

/** What the metrics are made of. */
export interface WorkerMetricsOptions {
  readonly registry: Registry
  /** Workers that accept connections. */
  readonly workers: () => number
  /** Workers that ended unasked, since the start. */
  readonly restarts: () => number
}

/** Puts them into a registry. */
export function createWorkerMetrics({ registry, workers, restarts }: WorkerMetricsOptions): void {
  new Gauge({
    name: 'auth_sidecar_workers',
    help: 'Processes that share the data listener and accept connections.',
    registers: [registry],
    collect() {
      this.set(workers())
    },
  })
  new Counter({
    name: 'auth_sidecar_worker_restarts_total',
    help: 'Workers that ended unasked and were replaced.',
    registers: [registry],
    collect() {
      this.reset()
      this.inc(restarts())
    },
  })
}

/** Puts in whether requests are let in; made one with what the workers say of it, the least counts. */
export function createAcceptingMetric(registry: Registry, isAccepting: () => boolean): void {
  new Gauge({
    name: 'auth_sidecar_ready',
    help: '1 while requests are let in and everything they need is loaded, else 0.',
    aggregator: 'min',
    registers: [registry],
    collect() {
      this.set(isAccepting() ? 1 : 0)
    },
  })
}
