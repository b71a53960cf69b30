/**
 * Several workers that share the data listener, run as one sidecar.
 *
 *   signals, SIGHUP -> supervisor -> workers, each a sidecar without an admin listener
 *   admin listener <-  supervisor <- their states, made one
 *
 * In: settings that have been validated, and a way to fork. Out: what starts and stops like a single sidecar. A worker
 * that ends unasked is replaced, later each time it happens at once; the others go on meanwhile.
 *
 * @module
 */
import { Registry } from 'prom-client'
import type { App } from '../app.ts'
import type { Config } from '../config/schema.ts'
import type { AdminListener, ReadyCheck } from '../ops/admin.ts'
import type { DrainReport } from '../ops/drain.ts'
import type { Addresses } from '../ops/life-cycle.ts'
import type { Logger } from '../ops/log.ts'
import { loggedMilestones } from '../ops/milestones.ts'
import type { AdminSources } from '../ops/sidecar-admin.ts'
import type { RegisteredFamily } from '../ops/status/metric-families.ts'
import { aggregate, withEnded } from './aggregate.ts'
import type { Extent, WorkerState } from './messages.ts'
import { shareOf } from './share.ts'
import { createWorkerMetrics } from './worker-metrics.ts'
import { type ForkedWorker, type Revive, type WorkerEnd, WorkerProcess } from './worker-process.ts'

/** What a supervisor works with. */
export interface SupervisorOptions {
  readonly config: Config
  /** How many workers. */
  readonly workers: number
  readonly log: Logger
  readonly fork: () => ForkedWorker
  readonly revive: Revive
  readonly createAdmin: (sources: AdminSources) => AdminListener
  /** Waits so many milliseconds. */
  readonly sleep: (ms: number) => Promise<unknown>
  /** A clock that never goes back, in milliseconds. */
  readonly monotonicNow: () => number
}

/** How long a worker may take to tell its state. */
const PATIENCE_MS = 1000
/** A worker that has lived so long did not end because of how it was started. */
const SETTLED_MS = 10_000
const MOST_DELAY_MS = 10_000
/** What a worker may take beyond its time to drain, before it is ended. */
const STOP_MARGIN_MS = 3000

/**
 * Makes a supervisor and its first worker.
 *
 * @throws what the first worker finds wrong with keys, credentials and certificates
 */
export async function createSupervisor(options: SupervisorOptions): Promise<App> {
  const { log, monotonicNow, sleep } = options
  const config = shareOf(options.config, options.workers)
  const workers = new Set<WorkerProcess>()
  let phase: 'starting' | 'running' | 'stopping' = 'starting'
  let restarts = 0
  let delayMs = 0
  const milestones = loggedMilestones(log)
  const own = new Registry()
  createWorkerMetrics({ registry: own, workers: () => listening().length, restarts: () => restarts })
  /** What workers that have ended had counted. */
  let counted: RegisteredFamily[] = []

  const add = (): WorkerProcess => {
    const worker = new WorkerProcess(options.fork(), {
      revive: options.revive,
      onNote: (note) => {
        for (const other of workers) if (other !== worker) other.learn(note)
      },
    })
    const since = monotonicNow()
    workers.add(worker)
    log.info({ pid: worker.pid }, 'worker started')
    worker.ended.then((end) => onEnd(worker, end, monotonicNow() - since))
    return worker
  }

  const onEnd = async (
    worker: WorkerProcess,
    { code, signal }: WorkerEnd,
    livedMs: number,
  ): Promise<void> => {
    workers.delete(worker)
    counted = await withEnded(counted, worker.metrics)
    if (phase !== 'running') return
    restarts++
    log.error({ pid: worker.pid, code, signal }, 'worker ended')
    const again = livedMs < SETTLED_MS
    delayMs = again ? Math.min(Math.max(100, 2 * delayMs), MOST_DELAY_MS) : 0
    await sleep(delayMs)
    if (phase === 'running') await letIn(add())
  }

  /** Makes a worker serve. One that cannot is ended, and so replaced. */
  const letIn = async (worker: WorkerProcess): Promise<void> => {
    try {
      await worker.make(config)
      await worker.listen()
    } catch (error) {
      log.error({ pid: worker.pid, err: error }, 'worker not started')
      worker.kill()
    }
  }

  const listening = (): WorkerProcess[] => [...workers].filter((worker) => worker.listening)

  /** The states of all that serve and answer. */
  const states = async (extent: Extent): Promise<WorkerState[]> => {
    const told = await Promise.all(
      listening().map((worker) => worker.tell(extent, PATIENCE_MS).catch(() => undefined)),
    )
    return told.filter((state) => state !== undefined)
  }
  /** All metrics, those of workers that do not answer as they told them last. */
  const registry = async (extent: Extent) => {
    await states(extent)
    return aggregate([...[...workers].map(({ metrics }) => metrics), counted, await own.getMetricsAsJSON()])
  }

  const admin = options.createAdmin({
    async ready() {
      const told = await states('status')
      return together(told, { name: 'accepting', ok: phase === 'running' && told.length > 0 })
    },
    keys: async () => (await states('status'))[0]?.keys ?? [],
    jwks: async () => (await states('status'))[0]?.jwks ?? { keys: [] },
    exposition: {
      contentType: Registry.PROMETHEUS_CONTENT_TYPE,
      metrics: async () => (await registry('all')).metrics(),
    },
    statusMetrics: async () => (await registry('status')).getMetricsAsJSON(),
    rssBytes: async () => (await states('status')).reduce((sum, { rssBytes }) => sum + rssBytes, 0),
  })

  const first = add()
  await first.make(config)

  const start = async (): Promise<Addresses> => {
    try {
      const where = { admin: await admin.listen(), data: await first.listen() }
      const others = Array.from({ length: options.workers - 1 }, add)
      await Promise.all(others.map((worker) => worker.make(config).then(() => worker.listen())))
      if (phase === 'starting') phase = 'running'
      milestones.onListening(where)
      return where
    } catch (error) {
      await admin.close()
      for (const worker of workers) worker.kill()
      throw error
    }
  }

  const stop = async (lameDuck: boolean): Promise<DrainReport> => {
    phase = 'stopping'
    const { lameDuckSeconds, deadlineSeconds } = config.shutdown
    const mostMs = ((lameDuck ? lameDuckSeconds : 0) + deadlineSeconds) * 1000 + STOP_MARGIN_MS
    const giveUp = setTimeout(() => {
      for (const worker of workers) worker.kill()
    }, mostMs)
    const stopping = [...workers].map(async (worker) => {
      const report = await worker.stop(lameDuck).catch(() => UNKNOWN)
      await worker.ended
      return report
    })
    const report = { drained: 0, cut: 0 }
    for (const { drained, cut } of await Promise.all(stopping)) {
      report.drained += drained
      report.cut += cut
    }
    clearTimeout(giveUp)
    await admin.close()
    milestones.onStopped(report)
    return report
  }

  let started: Promise<Addresses> | undefined
  let stopped: Promise<DrainReport> | undefined
  return {
    start() {
      started ??= start()
      return started
    },
    async reload() {
      await Promise.allSettled([...workers].map((worker) => worker.reload()))
    },
    stop({ lameDuck } = { lameDuck: false }) {
      stopped ??= stop(lameDuck && phase === 'running')
      return stopped
    },
  }
}

/** Of a worker that had to be ended nobody knows what it had in flight. */
const UNKNOWN: DrainReport = { drained: 0, cut: 1 }

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
