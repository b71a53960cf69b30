/**
 * Watches workers: fetches what they have counted, for when they die, and ends those that hang.
 *
 * Silence is counted in looks and not by a clock: after a pause of the whole container, as of a machine that is moved,
 * all have been silent for as long as it took, and each answers the first question.
 *
 * @module
 */
import type { Logger } from '../ops/log.ts'
import { ask } from './ask.ts'
import type { WorkerProcess } from './worker-process.ts'

/** How often it looks: what a worker that is killed has counted since is lost. */
const LOOK_MS = 1000
/** A worker that says nothing for so many looks will never again. */
const SILENT_LOOKS = 20
/** One that reads its keys and credentials is not asked anything, and may have many to read. */
const MAKING_LOOKS = 60

/** Watches until the function that it returns is called. Does not keep the process alive. */
export function watchWorkers(workers: Iterable<WorkerProcess>, log: Logger): () => void {
  const timer = setInterval(() => {
    void ask(workers, 'counts')
    for (const worker of workers) {
      if (worker.look() !== (worker.made ? SILENT_LOOKS : MAKING_LOOKS)) continue
      log.error({ pid: worker.pid }, 'worker hangs')
      worker.kill()
    }
  }, LOOK_MS).unref()
  return () => clearInterval(timer)
}
