/**
 * What the admin listener tells of a sidecar of several processes: their states, made one.
 *
 * A worker that has not begun to listen, such as a replacement that waits for a database, says nothing about whether the
 * sidecar is ready as long as others serve.
 *
 * @module
 */
import { Registry } from 'prom-client'
import type { AdminSources, ReadyCheck } from '../ops/admin.ts'
import { aggregate, onlyGrows } from './aggregate.ts'
import { ask, createRecentStates, type Told } from './ask.ts'
import type { WorkerState } from './messages.ts'
import { createAcceptingMetric, createWorkerMetrics } from './worker-metrics.ts'
import type { WorkerPool } from './worker-pool.ts'

/** What it is made of. */
export interface WorkersSourcesOptions {
  readonly pool: Pick<WorkerPool, 'workers' | 'listening' | 'restarts' | 'counted'>
  /** Whether the sidecar has started and is not being stopped. */
  readonly isRunning: () => boolean
  /** A clock that never goes back, in milliseconds. */
  readonly monotonicNow: () => number
}

/** Makes what the admin listener asks. */
export function adminSourcesOf({ pool, isRunning, monotonicNow }: WorkersSourcesOptions): AdminSources {
  const { workers } = pool
  const own = new Registry()
  createWorkerMetrics({
    registry: own,
    workers: () => pool.listening().length,
    restarts: () => pool.restarts,
  })
  const isAccepting = () => isRunning() && pool.listening().length > 0
  createAcceptingMetric(own, isAccepting)
  const recentStates = createRecentStates({ workers, monotonicNow })
  const decisiveStates = async () => decisive(await recentStates())

  /** All metrics, those of workers that do not answer as they told them last. */
  const registry = async (asked: Promise<unknown>): Promise<Registry> => {
    await asked
    const ownFamilies = await own.getMetricsAsJSON()
    const somebodyListens = pool.listening().length > 0
    const told = [...workers].map(({ listening, metrics }) =>
      listening || !somebodyListens ? metrics : metrics.filter(onlyGrows),
    )
    return aggregate([...told, pool.counted, ownFamilies])
  }

  return {
    async ready() {
      const told = await recentStates()
      // Where none of those that listen has answered, nobody knows whether they still do.
      const accepting = isRunning() && told.some(([{ listening }]) => listening)
      return together(decisive(told), { name: 'accepting', ok: accepting })
    },
    jwks: async () => (await decisiveStates())[0]?.jwks ?? { keys: [] },
    exposition: {
      contentType: Registry.PROMETHEUS_CONTENT_TYPE,
      metrics: async () => (await registry(ask(workers, 'all'))).metrics(),
    },
    statusMetrics: async () => (await registry(recentStates())).getMetricsAsJSON(),
  }
}

/** The states of those that listen; where nobody does, of all. */
function decisive(told: readonly Told[]): WorkerState[] {
  const serving = told.filter(([{ listening }]) => listening)
  return (serving.length > 0 ? serving : told).map(([, state]) => state)
}

/** Every condition of readiness: it holds if it holds in each worker, but for the one that is the supervisor's. */
function together(states: readonly WorkerState[], own: ReadyCheck): ReadyCheck[] {
  const checks = new Map<string, ReadyCheck>()
  for (const state of states) {
    for (const check of state.checks) {
      if (checks.get(check.name)?.ok !== false) checks.set(check.name, check)
    }
  }
  return [...checks.set(own.name, own).values()]
}
