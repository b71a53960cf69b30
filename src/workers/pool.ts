/** The workers: forks them, replaces those that end, adds up their metrics, and stops them. */
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { AggregatorRegistry } from 'prom-client'
import type { Config } from '../config/config.ts'
import type { DrainReport } from '../life-cycle.ts'
import type { LogDestination, Logger } from '../log.ts'
import type { MetricFamily, MetricGroup } from '../ops/samples.ts'
import { forkWorker, type WorkerProcess } from './worker-process.ts'

/** Delay before a worker that could not start is started again. */
const RETRY_MS = 5000
/** A worker is replaced so long after it began to serve, or later: each start takes the processor from the others. */
const MIN_SERVED_MS = 1000

export type WorkerPool = ReturnType<typeof createWorkerPool>

/** `config`: the settings of each worker. */
export function createWorkerPool(config: Config, log: Logger, destination: LogDestination) {
  const workers = new Set<WorkerProcess>()
  /** The counters of workers that have ended, so that no sum decreases. */
  let endedCounters: MetricFamily[] = []
  let keeping = Promise.resolve()
  let restarts = 0
  let isStopping = false

  const keepCounters = async (worker: WorkerProcess) => {
    const families = [...endedCounters, ...worker.metrics.values()]
    const counters = families.filter(({ type }) => String(type) !== 'gauge')
    endedCounters = await AggregatorRegistry.aggregate([counters]).getMetricsAsJSON()
    workers.delete(worker)
  }

  const onEnd = (worker: WorkerProcess) => {
    if (isStopping) return
    keeping = keeping.then(() => keepCounters(worker))
    if (worker.listeningSince === undefined) return // `fork` rejects
    const servedMs = performance.now() - worker.listeningSince
    void replace(Math.max(0, MIN_SERVED_MS - servedMs))
  }

  /** Resolves when another worker listens; rejects with its error. */
  const fork = async (): Promise<AddressInfo> => {
    const worker = await forkWorker(config, log, destination)
    workers.add(worker)
    worker.onEnd(() => onEnd(worker))
    return worker.listening
  }

  const replace = async (delayMs: number): Promise<void> => {
    await sleep(delayMs)
    if (isStopping) return
    restarts++
    try {
      await fork()
    } catch (error) {
      log.error({ err: error }, 'worker not started')
      void replace(RETRY_MS)
    }
  }

  return {
    fork,
    restarts: () => restarts,
    states: () => [...workers].flatMap(({ state }) => state ?? []),
    /** The metrics of each worker, and of all that have ended, for prom-client to aggregate. */
    metrics: () => [...Array.from(workers, ({ metrics }) => [...metrics.values()]), endedCounters],
    /** Returns how many workers listen and have sent a new state. */
    async update(group: MetricGroup): Promise<number> {
      const updates = await Promise.all(Array.from(workers, (worker) => worker.update(group)))
      return updates.filter(Boolean).length
    },
    reload(): void {
      for (const worker of workers) if (worker.isListening) worker.send({ type: 'reload' })
    },
    /** Drains the workers that listen, and kills the others at once and those after `killAfterMs`. */
    async stop(lameDuck: boolean, killAfterMs: number): Promise<DrainReport> {
      isStopping = true
      const draining = [...workers].filter(({ isListening }) => isListening)
      for (const worker of workers) {
        if (worker.isListening) worker.send({ type: 'stop', lameDuck })
        else worker.kill()
      }
      const killing = setTimeout(() => {
        for (const worker of workers) worker.kill()
      }, killAfterMs)
      await Promise.all(Array.from(workers, ({ closed }) => closed))
      clearTimeout(killing)
      const sum = { drained: 0, cut: 0, tunnels: 0 }
      for (const { drained } of draining) {
        sum.drained += drained?.drained ?? 0
        sum.tunnels += drained?.tunnels ?? 0
        sum.cut += drained?.cut ?? 1 // how many requests a killed worker had is unknown
      }
      return sum
    },
  }
}
