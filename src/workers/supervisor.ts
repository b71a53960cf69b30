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
import { type Addresses, StoppedWhileStarting } from '../ops/life-cycle.ts'
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

/** How long a worker may take to tell its state: probes wait a second, and for all that is asked of us. */
const PATIENCE_MS = 400
/** For how long an answer serves everybody who asks. */
const FRESH_MS = 100
/** How often counts are fetched: what a worker that dies has counted since is lost. */
const WATCH_MS = 1000
/** A worker that says nothing for so long will never again. */
const SILENT_MS = 20_000
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
  let config = shareOf(options.config, options.workers)
  const workers = new Set<WorkerProcess>()
  let phase: 'starting' | 'running' | 'stopping' = 'starting'
  let restarts = 0
  let port = config.listen.port
  let delayMs = 0
  const milestones = loggedMilestones(log)
  const own = new Registry()
  createWorkerMetrics({ registry: own, workers: () => listening().length, restarts: () => restarts })
  /** What workers that have ended had counted. */
  let counted: RegisteredFamily[] = []

  const add = (): WorkerProcess => {
    const worker = new WorkerProcess(options.fork(), {
      revive: options.revive,
      monotonicNow,
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
    if (phase !== 'running') return
    // Where any port would do, those that follow share it with those that have it, and else must be told.
    if (listening().length === 0) config = { ...config, listen: { ...config.listen, port } }
    await letIn(add())
  }

  /** Makes a worker serve. One that cannot is ended, and so replaced. */
  const letIn = async (worker: WorkerProcess): Promise<void> => {
    try {
      await worker.make(config)
      await worker.listen()
    } catch (error) {
      if (phase !== 'running') return // told to stop meanwhile, it does so by itself
      log.error({ pid: worker.pid, err: error }, 'worker not started')
      worker.kill()
    }
  }

  const listening = (): WorkerProcess[] => [...workers].filter((worker) => worker.listening)

  /** Asks every worker for its state. Those that do not answer in time are left out. */
  const states = async (extent: Extent): Promise<(readonly [WorkerProcess, WorkerState])[]> => {
    const asked = [...workers].filter(({ made }) => made)
    const told = await Promise.all(
      asked.map(async (worker) => {
        const state = await worker.tell(extent, PATIENCE_MS).catch(() => undefined)
        return state && ([worker, state] as const)
      }),
    )
    return told.filter((entry) => entry !== undefined)
  }
  let recent: ReturnType<typeof states> | undefined
  let freshUntil = Number.NEGATIVE_INFINITY
  /** The states as they were a moment ago at the most: whoever shows a page asks for many things at once. */
  const recentStates = () => {
    if (recent === undefined || monotonicNow() >= freshUntil) {
      freshUntil = Number.POSITIVE_INFINITY // for as long as they are being asked for
      recent = states('status').finally(() => {
        freshUntil = monotonicNow() + FRESH_MS
      })
    }
    return recent
  }
  const firstState = async () => (await recentStates())[0]?.[1]
  /** All metrics, those of workers that do not answer as they told them last. */
  const registry = async (asked: Promise<unknown>) => {
    await asked
    return aggregate([...[...workers].map(({ metrics }) => metrics), counted, await own.getMetricsAsJSON()])
  }

  /** Fetches what has been counted, and ends workers that hang. */
  const watch = setInterval(() => {
    void states('counts')
    for (const worker of workers) {
      if (!worker.listening || monotonicNow() - worker.heardAt < SILENT_MS) continue
      log.error({ pid: worker.pid }, 'worker hangs')
      worker.kill()
    }
  }, WATCH_MS).unref()

  const admin = options.createAdmin({
    async ready() {
      const told = await recentStates()
      const accepting = phase === 'running' && told.some(([worker]) => worker.listening)
      return together(
        told.map(([, state]) => state),
        { name: 'accepting', ok: accepting },
      )
    },
    keys: async () => (await firstState())?.keys ?? [],
    jwks: async () => (await firstState())?.jwks ?? { keys: [] },
    exposition: {
      contentType: Registry.PROMETHEUS_CONTENT_TYPE,
      metrics: async () => (await registry(states('all'))).metrics(),
    },
    statusMetrics: async () => (await registry(recentStates())).getMetricsAsJSON(),
    rssBytes: async () => (await recentStates()).reduce((sum, [, { rssBytes }]) => sum + rssBytes, 0),
  })

  const first = add()
  await first.make(config)

  const start = async (): Promise<Addresses> => {
    try {
      const where = { admin: await admin.listen(), data: await first.listen() }
      port = where.data.port
      const others = Array.from({ length: options.workers - 1 }, add)
      await Promise.all(others.map((worker) => worker.make(config).then(() => worker.listen())))
      if (phase === 'starting') phase = 'running'
      milestones.onListening(where)
      return where
    } catch (error) {
      // Told to stop meanwhile: what has begun is stopped in good order.
      if (phase === 'stopping') throw new StoppedWhileStarting('stopped before anything was let in')
      clearInterval(watch)
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
    clearInterval(watch)
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
