/**
 * Asks the workers how they are.
 *
 * In: workers. Out: the states of those that answer in time; nobody waits for the others.
 *
 * @module
 */
import type { Extent, WorkerState } from './messages.ts'
import type { WorkerProcess } from './worker-process.ts'

/** What is asked, and whom. */
export interface AskOptions {
  readonly workers: Iterable<WorkerProcess>
  /** A clock that never goes back, in milliseconds. */
  readonly monotonicNow: () => number
}

/** A worker and its state. */
export type Told = readonly [worker: WorkerProcess, state: WorkerState]

/** How long a worker may take to tell its state: probes wait a second, and for all that is asked of us. */
const PATIENCE_MS = 400
/** For how long an answer serves everybody who asks. */
const FRESH_MS = 100

/** Asks every worker that has something to tell. Never rejects. */
export async function ask(workers: Iterable<WorkerProcess>, extent: Extent): Promise<readonly Told[]> {
  const asked = [...workers].filter(({ made }) => made)
  const told = await Promise.all(
    asked.map(async (worker) => {
      const state = await worker.tell(extent, PATIENCE_MS).catch(() => undefined)
      return state && ([worker, state] as const)
    }),
  )
  return told.filter((entry) => entry !== undefined)
}

/** Asks for as much as the status page needs, once for all who ask at a time: whoever shows it asks for many things. */
export function createRecentStates({ workers, monotonicNow }: AskOptions): () => Promise<readonly Told[]> {
  let recent: Promise<readonly Told[]> | undefined
  let freshUntil = Number.NEGATIVE_INFINITY
  return () => {
    if (recent === undefined || monotonicNow() >= freshUntil) {
      freshUntil = Number.POSITIVE_INFINITY // for as long as they are being asked for
      recent = ask(workers, 'status').finally(() => {
        freshUntil = monotonicNow() + FRESH_MS
      })
    }
    return recent
  }
}
