/**
 * The workers that there are, kept up in number.
 *
 * In: a way to fork. Out: the workers that live, and what those that have ended had counted. Once it is told where the
 * first ones listen, one that ends unasked, or could not be made at all, is replaced, later each time it happens soon
 * after a start; the others go on meanwhile.
 *
 * @module
 */
import type { Config } from '../config/schema.ts'
import type { Logger } from '../ops/log.ts'
import type { RegisteredFamily } from '../ops/samples.ts'
import { withEnded } from './aggregate.ts'
import { createBackOff } from './back-off.ts'
import { type ForkedWorker, type Revive, type WorkerEnd, WorkerProcess } from './worker-process.ts'

/** What a pool works with. */
export interface WorkerPoolOptions {
  /** The settings of each worker. */
  readonly config: Config
  readonly log: Logger
  readonly fork: () => ForkedWorker
  readonly revive: Revive
  /** Waits so many milliseconds. */
  readonly sleep: (ms: number) => Promise<unknown>
  /** A clock that never goes back, in milliseconds. */
  readonly monotonicNow: () => number
}

/** Workers. */
export interface WorkerPool {
  /** Those that live, in the order in which they were started. */
  readonly workers: ReadonlySet<WorkerProcess>
  /** Those of them that accept connections. */
  listening(): WorkerProcess[]
  /** How many have ended unasked. */
  readonly restarts: number
  /** What those that have ended had counted. */
  readonly counted: readonly RegisteredFamily[]
  /** Adds one, which does nothing yet. */
  add(): WorkerProcess
  /** From now on whoever ends is replaced. `port`: where those that there are listen. */
  keepUp(port: number): void
  /** From now on nobody is replaced. */
  dismiss(): void
  /** Ends all of them at once. */
  kill(): void
}

/** Makes a pool without workers. */
export function createWorkerPool({ log, monotonicNow, sleep, ...options }: WorkerPoolOptions): WorkerPool {
  const workers = new Set<WorkerProcess>()
  const delayAfter = createBackOff()
  let { config } = options
  let phase: 'gathering' | 'kept up' | 'dismissed' = 'gathering'
  let port = config.listen.port
  let restarts = 0
  let counted: readonly RegisteredFamily[] = []

  const listening = () => [...workers].filter((worker) => worker.listening)

  const add = (): WorkerProcess => {
    const worker = new WorkerProcess(options.fork(), { revive: options.revive })
    const since = monotonicNow()
    workers.add(worker)
    log.info({ pid: worker.pid }, 'worker started')
    worker.ended.then((end) => onEnd(worker, end, monotonicNow() - since))
    return worker
  }

  const onEnd = (worker: WorkerProcess, { code, signal, error }: WorkerEnd, livedMs: number): void => {
    workers.delete(worker)
    counted = withEnded(counted, worker.metrics)
    if (phase === 'dismissed') return
    log.error({ pid: worker.pid, code, signal, ...(error && { err: error }) }, 'worker ended')
    if (phase !== 'kept up') return
    restarts++
    void replace(livedMs)
  }

  /** Adds another worker and makes it serve. Never rejects. One that cannot is ended, and so replaced. */
  const replace = async (livedMs: number): Promise<void> => {
    await sleep(delayAfter(livedMs))
    if (phase !== 'kept up') return
    // Where any port would do, those that follow share it with those that have it, and else must be told.
    if (listening().length === 0) config = { ...config, listen: { ...config.listen, port } }
    let worker: WorkerProcess | undefined
    try {
      worker = add()
      await worker.make(config)
      await worker.listen()
    } catch (error) {
      if (phase !== 'kept up') return // told to stop meanwhile, it does so by itself
      log.error({ pid: worker?.pid, err: error }, 'worker not started')
      if (worker === undefined) void replace(0)
      else worker.kill()
    }
  }

  return {
    workers,
    listening,
    get restarts() {
      return restarts
    },
    get counted() {
      return counted
    },
    add,
    keepUp(where) {
      port = where
      phase = 'kept up'
    },
    dismiss() {
      phase = 'dismissed'
    },
    kill() {
      for (const worker of workers) worker.kill()
    },
  }
}
