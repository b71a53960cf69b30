/**
 * Stops workers, each in its own time, and adds up what they drained and cut.
 *
 * Nobody is waited for for ever: a worker that takes longer than it may, or that cannot stop, is ended.
 *
 * @module
 */
import type { DrainReport } from '../ops/life-cycle.ts'
import type { Logger } from '../ops/log.ts'
import type { WorkerPool } from './worker-pool.ts'

/** How they are stopped. */
export interface StopOptions {
  /** Whether they go on accepting for a while first. */
  readonly lameDuck: boolean
  readonly shutdown: { readonly lameDuckSeconds: number; readonly deadlineSeconds: number }
  readonly log: Logger
}

/** What a worker may take beyond its time to drain, before it is ended. */
const MARGIN_MS = 3000

/** Of a worker that had to be ended nobody knows what it had in flight; of one that had let nobody in, all do. */
const UNKNOWN: DrainReport = { drained: 0, cut: 1 }
const NOTHING: DrainReport = { drained: 0, cut: 0 }

/** Stops every worker of a pool that is not kept up any more. Never rejects. */
export async function stopWorkers(
  { workers, kill }: Pick<WorkerPool, 'workers' | 'kill'>,
  { lameDuck, shutdown, log }: StopOptions,
): Promise<DrainReport> {
  const mostSeconds = (lameDuck ? shutdown.lameDuckSeconds : 0) + shutdown.deadlineSeconds
  const giveUp = setTimeout(kill, mostSeconds * 1000 + MARGIN_MS)
  const reports = await Promise.all(
    [...workers].map(async (worker) => {
      const served = worker.listening
      const report = await worker.stop(lameDuck).catch((error: unknown) => {
        log.error({ pid: worker.pid, err: error }, 'worker not stopped')
        worker.kill()
        return served ? UNKNOWN : NOTHING
      })
      await worker.ended
      return report
    }),
  )
  clearTimeout(giveUp)
  return {
    drained: reports.reduce((sum, { drained }) => sum + drained, 0),
    cut: reports.reduce((sum, { cut }) => sum + cut, 0),
  }
}
