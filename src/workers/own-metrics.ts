/**
 * What only a supervisor can tell: how its workers are.
 *
 * @module
 */
import { Counter, Gauge, Registry } from 'prom-client'

/** Where the values come from. */
export interface OwnSources {
  /** Workers that accept connections. */
  readonly workers: () => number
  /** Workers that ended unasked, since the start. */
  readonly restarts: () => number
}

/** Makes the metrics of a supervisor. */
export function ownMetrics({ workers, restarts }: OwnSources): Registry {
  const registers = [new Registry()] as const
  new Gauge({
    name: 'auth_sidecar_workers',
    help: 'Processes that share the data listener and accept connections.',
    registers: [...registers],
    collect() {
      this.set(workers())
    },
  })
  new Counter({
    name: 'auth_sidecar_worker_restarts_total',
    help: 'Workers that ended unasked and were replaced.',
    registers: [...registers],
    collect() {
      this.reset()
      this.inc(restarts())
    },
  })
  return registers[0]
}
