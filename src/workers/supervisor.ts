/**
 * Several workers that share the data listener, run as one sidecar.
 *
 *   signals, SIGHUP -> supervisor -> workers, each a sidecar without an admin listener
 *   admin listener <-  supervisor <- their states, made one
 *
 * In: settings that have been validated, and a way to fork. Out: what starts and stops like a single sidecar.
 *
 * @module
 */
import type { App } from '../app.ts'
import type { AdminListener, AdminSources } from '../ops/admin.ts'
import type { DrainReport } from '../ops/life-cycle.ts'
import { type Addresses, StoppedWhileStarting } from '../ops/life-cycle.ts'
import { loggedMilestones } from '../ops/milestones.ts'
import { adminSourcesOf } from './admin-sources.ts'
import { shareOf } from './share.ts'
import { stopWorkers } from './stop-workers.ts'
import { watchWorkers } from './watch.ts'
import { createWorkerPool, type WorkerPoolOptions } from './worker-pool.ts'

/** What a supervisor works with. */
export interface SupervisorOptions extends WorkerPoolOptions {
  /** How many workers. */
  readonly workers: number
  readonly createAdmin: (sources: AdminSources) => AdminListener
}

/**
 * Makes a supervisor and its first worker.
 *
 * @throws what the first worker finds wrong with keys, credentials and certificates
 */
export async function createSupervisor(options: SupervisorOptions): Promise<App> {
  const { log, monotonicNow } = options
  const config = shareOf(options.config, options.workers)
  const pool = createWorkerPool({ ...options, config })
  const milestones = loggedMilestones(log)
  let phase: 'starting' | 'running' | 'stopping' = 'starting'

  const unwatch = watchWorkers(pool.workers, log)
  const admin = options.createAdmin(
    adminSourcesOf({ pool, isRunning: () => phase === 'running', monotonicNow }),
  )
  const abandon = async (): Promise<void> => {
    pool.dismiss()
    pool.kill()
    unwatch()
    await admin.close()
  }

  const first = pool.add()
  try {
    await first.make(config)
  } catch (error) {
    await abandon()
    throw error
  }

  const start = async (): Promise<Addresses> => {
    try {
      const where = { admin: await admin.listen(), data: await first.listen() }
      if (phase === 'starting') await letOthersIn()
      if (phase === 'starting') {
        phase = 'running'
        pool.keepUp(where.data.port)
      }
      milestones.onListening(where)
      return where
    } catch (error) {
      // Told to stop meanwhile: what has begun is stopped in good order.
      if (phase === 'stopping') throw new StoppedWhileStarting('stopped before anything was let in')
      await abandon()
      throw error
    }
  }

  /** Adds the other workers. Nobody is replaced yet: a start that loses a worker, the first included, has failed. */
  const letOthersIn = async (): Promise<void> => {
    const others = Array.from({ length: options.workers - 1 }, pool.add)
    const letIn = others.map((worker) => worker.make(config).then(() => worker.listen()))
    const lost = [...pool.workers].map(async ({ ended }) => {
      await ended
      throw new Error('a worker ended')
    })
    await Promise.race([Promise.all(letIn), ...lost])
  }

  const stop = async (lameDuck: boolean): Promise<DrainReport> => {
    phase = 'stopping'
    pool.dismiss()
    const report = await stopWorkers(pool, { lameDuck, shutdown: config.shutdown, log })
    unwatch()
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
      await Promise.allSettled([...pool.workers].map((worker) => worker.reload()))
    },
    stop({ lameDuck } = { lameDuck: false }) {
      stopped ??= stop(lameDuck && phase === 'running')
      return stopped
    },
  }
}
