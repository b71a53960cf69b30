/** Forks the worker processes, replaces those that end, collects their states and metrics, and stops them. */
import cluster, { type Worker } from 'node:cluster'
import { EventEmitter, once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { InvalidAuthData } from '../auth/auth-data.ts'
import type { LogDestination, Logger } from '../base/log.ts'
import type { Config } from '../config/config.ts'
import type { DataService, DrainReport } from '../life-cycle.ts'
import type { MetricGroup, StoredFamily } from '../ops/metrics.ts'
import { aggregate } from './aggregate.ts'
import type { FromWorker, SerializedError, ToWorker, WorkerState } from './worker.ts'

const KILL_AFTER_DEADLINE_MS = 3000
const START_RETRY_MS = 5000
/**
 * A worker that ends sooner is replaced only after this time,
 * because a start takes CPU time from the other workers.
 */
const MIN_SERVED_MS = 1000
/** Must be below the one-second timeout of a kubelet probe. */
const STATE_TIMEOUT_MS = 400

type PoolOptions = Readonly<{ config: Config; log: Logger; destination: LogDestination }>

export class WorkerPool implements DataService {
  readonly count: number
  restarts = 0
  readonly #options: PoolOptions
  readonly #workers = new Set<WorkerProcess>()
  /**
   * The counts of ended workers. Without these counts, sums would fall, which Prometheus takes for a restart.
   */
  #endedCounts: Promise<readonly StoredFamily[]> = Promise.resolve([])
  #isStopping = false
  #isVerbose = false

  constructor(count: number, options: PoolOptions) {
    this.count = count
    this.#options = options
  }

  /**
   * Resolves when all workers listen. Rejects with the first error of a worker, after all workers have ended.
   */
  async listen(): Promise<AddressInfo> {
    // Connections last long. Round robin gives every worker its share of them.
    cluster.schedulingPolicy = cluster.SCHED_RR
    // If a worker inherited standard output, it would make a pipe blocking, for the primary as well.
    cluster.setupPrimary({ args: ['worker'], stdio: ['ignore', 'pipe', 'pipe', 'ipc'] })
    try {
      const others = Array.from({ length: this.count - 1 }, () => this.#fork())
      const [address] = await Promise.all([this.#fork(), ...others])
      return address
    } catch (error) {
      if (!this.#isStopping) {
        await this.#stop({})
      }
      throw error
    }
  }

  states(): readonly WorkerState[] {
    return [...this.#workers].flatMap(({ state }) => state ?? [])
  }

  async metrics(): Promise<readonly (readonly StoredFamily[])[]> {
    return [await this.#endedCounts, ...Array.from(this.#workers, ({ metrics }) => [...metrics.values()])]
  }

  /**
   * Asks all workers for their states.
   * Resolves with the number of workers that listen and have sent a new state.
   */
  async update(group: MetricGroup): Promise<number> {
    const updates = await Promise.all(Array.from(this.#workers, (worker) => worker.update(group)))
    return updates.filter(Boolean).length
  }

  reload(): void {
    for (const worker of this.#workers) {
      if (worker.isListening) {
        worker.send({ type: 'reload' })
      }
    }
  }

  /** Also for workers that start later. */
  setVerbose(isOn: boolean): void {
    this.#isVerbose = isOn
    for (const worker of this.#workers) {
      if (worker.isListening) {
        worker.send({ type: 'verbose', isOn })
      }
    }
  }

  drain({ lameDuck }: { readonly lameDuck: boolean }): Promise<DrainReport> {
    const { lameDuckSeconds, deadlineSeconds } = this.#options.config.shutdown
    const drainMs = ((lameDuck ? lameDuckSeconds : 0) + deadlineSeconds) * 1000
    // A longer delay than Node's timers hold would end at once.
    return this.#stop({ lameDuck, killAfterMs: Math.min(drainMs + KILL_AFTER_DEADLINE_MS, 2 ** 31 - 1) })
  }

  async #fork(): Promise<AddressInfo> {
    const forked = cluster.fork()
    // A failed fork (EMFILE, EAGAIN) emits no `exit`.
    if (forked.process.pid === undefined) {
      const [error] = await once(forked, 'error')
      throw Object.assign(error, { message: `cannot start a worker: ${error.message}` })
    }
    const worker = new WorkerProcess(forked, this.#options)
    this.#workers.add(worker)
    forked.once('exit', () => this.#onExit(worker))
    const address = await worker.listening
    if (this.#isVerbose) {
      worker.send({ type: 'verbose', isOn: true })
    }
    return address
  }

  #onExit(worker: WorkerProcess): void {
    if (this.#isStopping) {
      return
    }
    this.#workers.delete(worker)
    if (worker.listeningMonotonicMs === undefined) {
      return // `#fork` rejects
    }
    const counts = [...worker.metrics.values()].filter(({ type }) => type !== 'gauge')
    this.#endedCounts = this.#endedCounts.then((sum) => aggregate([sum, counts]))
    const servedMs = performance.now() - worker.listeningMonotonicMs
    this.#replace(Math.max(0, MIN_SERVED_MS - servedMs))
  }

  async #replace(delayMs: number): Promise<void> {
    await sleep(delayMs)
    if (this.#isStopping) {
      return
    }
    const replaced = this.#fork().then(() => this.restarts++)
    await replaced.catch((error: unknown) => {
      this.#options.log.error({ err: error }, 'worker not started')
      this.#replace(START_RETRY_MS)
    })
  }

  /** Drains the workers that listen, and kills them after `killAfterMs`. Kills the others at once. */
  async #stop({ lameDuck = false, killAfterMs = 0 }): Promise<DrainReport> {
    this.#isStopping = true
    const all = [...this.#workers]
    const draining = all.filter(({ isListening }) => isListening)
    for (const worker of all) {
      if (worker.isListening) {
        worker.send({ type: 'stop', lameDuck })
      } else {
        worker.kill()
      }
    }
    const killing = setTimeout(() => {
      for (const worker of all) {
        worker.kill()
      }
    }, killAfterMs)
    await Promise.all(all.map(({ closed }) => closed))
    clearTimeout(killing)
    return sumOf(draining.map(({ drainReport }) => drainReport))
  }
}

/** A killed worker has no report. The number of requests that it aborted is unknown, and counts as one. */
function sumOf(reports: readonly (DrainReport | undefined)[]): DrainReport {
  const sum = (name: keyof DrainReport, ofKilled: number) =>
    reports.reduce((total, report) => total + (report?.[name] ?? ofKilled), 0)
  return { drained: sum('drained', 0), cut: sum('cut', 1), tunnels: sum('tunnels', 0) }
}

class WorkerProcess {
  /** Rejects with the error of the worker, or when the worker ends before it accepts connections. */
  readonly listening: Promise<AddressInfo>
  listeningMonotonicMs: number | undefined
  /** Resolves after the last line of the worker's log. */
  readonly closed: Promise<void>
  state: WorkerState | undefined
  /** The newest values of all metrics by name: a state may hold only some of them. */
  readonly metrics = new Map<string, StoredFamily>()
  drainReport: DrainReport | undefined
  readonly #worker: Worker
  readonly #states = new EventEmitter<Record<MetricGroup, []>>()

  constructor(worker: Worker, { config, log, destination }: PoolOptions) {
    this.#worker = worker
    const { pid, stdout, stderr } = worker.process
    log.info({ pid }, 'worker started')
    let partial = ''
    stdout?.setEncoding('utf8').on('data', (text: string) => {
      const lines = (partial + text).split('\n') // readline would split at U+2028, too
      partial = lines.pop() ?? ''
      for (const line of lines) {
        destination.write(`${line}\n`)
      }
    })
    stderr?.on('data', (text) => process.stderr.write(text))
    worker.on('error', (error) => log.error({ err: error, pid }, 'worker channel error'))
    worker.once('exit', (code, signal) => log.info({ pid, code, signal }, 'worker ended'))
    this.closed = new Promise((resolve) => worker.process.once('close', () => resolve()))
    this.listening = new Promise((resolve, reject) => {
      worker.once('listening', ({ address, port, addressType }) => {
        this.listeningMonotonicMs = performance.now()
        resolve({ address, port, family: `IPv${addressType}` })
      })
      worker.once('exit', () => reject(new Error(`worker ${pid} ended`)))
      worker.on('message', (message: FromWorker) => {
        switch (message.type) {
          case 'awaitsConfig':
            this.send({ type: 'config', config })
            break
          case 'startFailed':
            reject(deserializeError(message.error))
            break
          case 'stopped':
            this.drainReport = message.report
            break
          case 'state':
            this.#setState(message.state)
            this.#states.emit(message.group)
            break
        }
      })
    })
  }

  #setState(state: WorkerState): void {
    this.state = state
    for (const family of state.metrics) {
      this.metrics.set(family.name, family)
    }
  }

  get isListening(): boolean {
    return this.listeningMonotonicMs !== undefined && !this.#worker.isDead()
  }

  /**
   * Resolves with whether the worker listens and has sent a new state in time.
   * Otherwise, the former state stays.
   */
  async update(group: MetricGroup): Promise<boolean> {
    this.send({ type: 'report', group })
    const signal = AbortSignal.timeout(STATE_TIMEOUT_MS)
    const response = await once(this.#states, group, { signal }).catch(() => undefined)
    return response !== undefined && this.isListening
  }

  send(message: ToWorker): void {
    this.#worker.send(message, () => {}) // without a callback, a failure (the worker has ended) emits `error`
  }

  kill(): void {
    this.#worker.process.kill('SIGKILL')
  }
}

const deserializeError = ({ name, message, problems = [], ...fields }: SerializedError): Error =>
  name === InvalidAuthData.name ? new InvalidAuthData(problems) : Object.assign(new Error(message), fields)
