/**
 * Forks workers: processes of this very program that share the listeners they open (`node:cluster`).
 *
 * @module
 */
import cluster from 'node:cluster'
import { createUntakenCloser } from './untaken-connection.ts'
import type { ForkedWorker } from './worker-process.ts'

/**
 * Makes the function that forks.
 *
 * @param program - the path of the program's entry
 */
export function createFork(program: string): () => ForkedWorker {
  // Round robin, which is not the default everywhere: connections last long, so each worker has its share of them.
  cluster.schedulingPolicy = cluster.SCHED_RR
  cluster.setupPrimary({ exec: program, args: ['worker'] })
  const closeUntaken = createUntakenCloser()
  return () => {
    const worker = cluster.fork()
    closeUntaken(worker.process)
    return worker
  }
}
