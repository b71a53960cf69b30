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
import type { AddressInfo } from 'node:net'
import type { Config } from '../config/schema.ts'
import type { AdminListener, AdminSources, ReadyCheck } from '../ops/admin.ts'
import type { DrainReport } from '../ops/drain.ts'
import { type Addresses, StoppedWhileStarting } from '../ops/life-cycle.ts'
import type { Logger } from '../ops/log.ts'
import { aggregate, withEnded } from './aggregate.ts'
import type { MetricFamily, WorkerState } from './messages.ts'
import { shareOf } from './share.ts'
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

/** Several workers as one sidecar. */
export interface Supervisor {
  start(): Promise<Addresses>
  reload(): Promise<void>
  stop(how?: { readonly lameDuck: boolean }): Promise<DrainReport>
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
export async function createSupervisor(options: SupervisorOptions): Promise<Supervisor> {
  const { log, monotonicNow, sleep } = options
  const config = shareOf(options.config, options.workers)
  const workers = new Set<WorkerProcess>()
  let phase: 'starting' | 'running' | 'stopping' = 'starting'
  let restarts = 0
  let delayMs = 0
  /** What workers that have ended had counted. */
  let counted: MetricFamily[] = []

  const add = (): WorkerProcess => {
    const worker = new WorkerProcess(options.fork(), {
      revive: options.revive,
      onNote: (note) => {
        for (const other of workers) if (other !== worker) other.learn(note)
      },
    })
    const since = monotonicNow()
    workers.add(worker)
    worker.ended.then((end) => onEnd(worker, end, monotonicNow() - since))
    return worker
  }

  const onEnd = async (worker: WorkerProcess, { code, signal }: WorkerEnd, livedMs: number): Promise<void> => {
    workers.delete(worker)
    counted = await withEnded(counted, worker.lastState?.metrics ?? [])
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

  let asking: Promise<WorkerState[]> | undefined
  /** The states of all that serve and answer. */
  const states = (): Promise<WorkerState[]> => {
    asking ??= ask().finally(() => {
      asking = undefined
    })
    return asking
  }
  const ask = async (): Promise<WorkerState[]> => {
    const told = await Promise.all([...workers].map((worker) => worker.tell(PATIENCE_MS).catch(() => undefined)))
    return told.filter((state) => state !== undefined)
  }

  const admin = options.createAdmin({
    async ready() {
      const told = await states()
      return [...together(told), { name: 'accepting', ok: phase === 'running' && listening().length > 0 }]
    },
    keys: async () => (await states())[0]?.keys ?? [],
    jwks: async () => (await states())[0]?.jwks ?? { keys: [] },
    async metrics() {
      await states()
      const all = [...workers].map(({ lastState }) => lastState?.metrics ?? [])
      return aggregate([...all, counted, ownMetrics(listening().length, restarts)])
    },
  })

  const first = add()
  await first.make(config)

  const start = async (): Promise<Addresses> => {
    try {
      const adminAddress = await admin.listen()
      const data = await first.listen()
      const others = Array.from({ length: options.workers - 1 }, add)
      await Promise.all(others.map((worker) => worker.make(config).then(() => worker.listen())))
      if (phase !== 'starting') throw new StoppedWhileStarting('stopped before anything was let in')
      phase = 'running'
      return { data, admin: adminAddress }
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
    const reports = await Promise.all(
      // Of one that has to be ended nobody knows what it had in flight.
      [...workers].map((worker) => worker.stop(lameDuck).catch(() => ({ drained: 0, cut: 1 }))),
    )
    clearTimeout(giveUp)
    await admin.close()
    return reports.reduce((sum, { drained, cut }) => ({ drained: sum.drained + drained, cut: sum.cut + cut }))
  }

  return { start, stop, reload: async () => void (await Promise.allSettled([...workers].map((w) => w.reload()))) }
}

/** Every condition of readiness: it holds if it holds in each worker. */
function together(states: readonly WorkerState[]): ReadyCheck[] {
  const checks = new Map<string, ReadyCheck>()
  for (const state of states) {
    for (const check of state.checks) {
      if (checks.get(check.name)?.ok !== false) checks.set(check.name, check)
    }
  }
  return [...checks.values()]
}
