/** A worker as the primary process sees it: its start and its end, the messages both ways, and its newest state. */
import cluster, { type Worker } from 'node:cluster'
import { EventEmitter, once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { InvalidAuthData } from '../auth-data.ts'
import type { Config } from '../config/config.ts'
import type { DrainReport } from '../life-cycle.ts'
import type { LogDestination, Logger } from '../log.ts'
import type { MetricFamily, MetricGroup } from '../ops/samples.ts'
import type { FromWorker, SerializedError, ToWorker, WorkerState } from './worker.ts'

/** Below the one-second timeout of a kubelet probe. */
const STATE_TIMEOUT_MS = 400

/** @throws the error of the system if it creates no process */
export async function forkWorker(
  config: Config,
  log: Logger,
  destination: LogDestination,
): Promise<WorkerProcess> {
  const worker = cluster.fork()
  if (worker.process.pid === undefined) {
    const [error] = await once(worker, 'error') // such as EMFILE or EAGAIN; no `exit` follows
    throw error
  }
  return new WorkerProcess(worker, config, log, destination)
}

export class WorkerProcess {
  /** Resolves when the worker accepts connections. Rejects with its error, or when it ends before. */
  readonly listening: Promise<AddressInfo>
  /** When it began to accept connections, in monotonic milliseconds. */
  listeningSince: number | undefined
  /** Resolves after its end, and the last line of its log. */
  readonly closed: Promise<void>
  state: WorkerState | undefined
  /** The newest values of all metrics by name: a state may hold only some of them. */
  readonly metrics = new Map<string, MetricFamily>()
  drained: DrainReport | undefined
  readonly #worker: Worker
  readonly #states = new EventEmitter<Record<MetricGroup, []>>()

  constructor(worker: Worker, config: Config, log: Logger, destination: LogDestination) {
    this.#worker = worker
    const { pid, stdout, stderr } = worker.process
    log.info({ pid }, 'worker started')
    if (stdout) createInterface(stdout).on('line', (line) => destination.write(`${line}\n`))
    stderr?.on('data', (text) => process.stderr.write(text))
    worker.on('error', (error) => log.error({ err: error, pid }, 'worker channel error'))
    worker.once('exit', (code, signal) => log.info({ pid, code, signal }, 'worker ended'))
    this.closed = new Promise((resolve) => worker.process.once('close', () => resolve()))
    this.listening = new Promise((resolve, reject) => {
      worker.once('listening', ({ address, port, addressType }) => {
        this.listeningSince = performance.now()
        resolve({ address, port, family: `IPv${addressType}` })
      })
      worker.once('exit', () => reject(new Error(`worker ${pid} ended`)))
      worker.on('message', (message: FromWorker) => {
        if (message.type === 'awaitsSettings') this.send({ type: 'settings', config })
        else if (message.type === 'startFailed') reject(deserializeError(message.error))
        else if (message.type === 'stopped') this.drained = message.report
        else this.#receive(message)
      })
    })
  }

  get isListening(): boolean {
    return this.listeningSince !== undefined && !this.#worker.isDead()
  }

  #receive({ group, state }: Extract<FromWorker, { type: 'state' }>): void {
    this.state = state
    for (const family of state.metrics) this.metrics.set(family.name, family)
    this.#states.emit(group)
  }

  /** Waits for a new state; if none comes in time, the last one stays. Returns whether one came and the worker listens. */
  async update(group: MetricGroup): Promise<boolean> {
    this.send({ type: 'report', group })
    const signal = AbortSignal.timeout(STATE_TIMEOUT_MS)
    const response = await once(this.#states, group, { signal }).catch(() => undefined)
    return response !== undefined && this.isListening
  }

  send(message: ToWorker): void {
    this.#worker.send(message, () => {}) // without a callback, that of a worker that has ended is an `error` event
  }

  onEnd(callback: () => void): void {
    this.#worker.once('exit', callback)
  }

  kill(): void {
    this.#worker.process.kill('SIGKILL')
  }
}

function deserializeError({ name, message, problems = [], ...fields }: SerializedError): Error {
  return name === InvalidAuthData.name
    ? new InvalidAuthData(problems)
    : Object.assign(new Error(message), fields)
}
