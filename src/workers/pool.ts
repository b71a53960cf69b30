/** The worker processes: forks them, replaces those that end, collects their states and metrics, and stops them. */
import cluster, { type Worker } from 'node:cluster'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { AggregatorRegistry } from 'prom-client'
import { InvalidAuthData } from '../auth-data.ts'
import type { Config } from '../config/config.ts'
import type { DrainReport } from '../life-cycle.ts'
import type { LogDestination, Logger } from '../log.ts'
import type { MetricFamily, MetricsScope } from '../ops/samples.ts'
import type { FromWorker, SerializedError, ToWorker, WorkerState } from './worker.ts'

/** Delay before a worker that could not start is started again. */
const RETRY_MS = 5000
/** A worker is replaced so long after it began to serve, or later: each start takes the processor from the others. */
const MIN_SERVED_MS = 1000
/** Below the one-second timeout of a kubelet probe. */
const STATE_TIMEOUT_MS = 400

/** `config`: the settings of each worker. */
export function createWorkerPool(config: Config, log: Logger, destination: LogDestination) {
  /** The newest states of the workers that have their settings, with the newest values of all metrics. */
  const states = new Map<Worker, { newest?: WorkerState; readonly metrics: Map<string, MetricFamily> }>()
  /** Workers that accept connections, and since when, in monotonic milliseconds. */
  const listening = new Map<Worker, number>()
  const drained = new Map<Worker, DrainReport>()
  /** The counters of workers that have ended, so that no sum decreases. */
  let ended: MetricFamily[] = []
  let keeping = Promise.resolve()
  let restarts = 0
  let isStopping = false

  const keepCounters = async (worker: Worker) => {
    const families = [...ended, ...(states.get(worker)?.metrics.values() ?? [])]
    const counters = families.filter(({ type }) => String(type) !== 'gauge')
    ended = await AggregatorRegistry.aggregate([counters]).getMetricsAsJSON()
    states.delete(worker)
  }

  const follow = (worker: Worker) => {
    const { pid, stdout, stderr } = worker.process
    if (stdout) createInterface(stdout).on('line', (line) => destination.write(`${line}\n`))
    stderr?.on('data', (text) => process.stderr.write(text))
    worker.on('message', ({ type, value }: FromWorker) => worker.emit(type, value))
    worker.on('error', (error) => log.error({ err: error, pid }, 'worker channel error'))
    worker.on('init', () => {
      states.set(worker, { metrics: new Map() })
      sendTo(worker, { type: 'init', config })
    })
    const onState = (state: WorkerState) => {
      const known = states.get(worker)
      if (known) known.newest = state
      for (const family of state.metrics) known?.metrics.set(family.name, family)
    }
    worker.on('all', onState).on('status', onState)
    worker.on('stopped', (report) => drained.set(worker, report))
    worker.on('exit', (code, signal) => {
      log.info({ pid, code, signal }, 'worker ended')
      if (isStopping) return
      keeping = keeping.then(() => keepCounters(worker))
      const servedMs = performance.now() - (listening.get(worker) ?? 0)
      if (listening.delete(worker)) void replace(Math.max(0, MIN_SERVED_MS - servedMs))
    })
  }

  /** Forks a worker; resolves when it listens, and rejects with its error. */
  const fork = async (): Promise<AddressInfo> => {
    const worker = cluster.fork()
    const { pid } = worker.process
    if (pid === undefined) {
      // No process could be created (EMFILE, EAGAIN): an `error` follows, but no `exit`.
      delete cluster.workers?.[worker.id]
      const [error] = await once(worker, 'error')
      throw error
    }
    log.info({ pid }, 'worker started')
    follow(worker)
    const failure = new Promise<never>((_, reject) => {
      worker.once('failed', (error) => reject(deserializeError(error)))
      worker.once('exit', () => reject(new Error(`worker ${pid} ended`)))
    })
    const [{ address, port, addressType }] = await Promise.race([once(worker, 'listening'), failure])
    listening.set(worker, performance.now())
    return { address, port, family: `IPv${addressType}` }
  }

  const replace = async (delayMs: number): Promise<void> => {
    await sleep(delayMs)
    if (isStopping) return
    restarts++
    try {
      await fork()
    } catch (error) {
      log.error({ err: error }, 'worker not started')
      void replace(RETRY_MS)
    }
  }

  return {
    fork,
    restarts: () => restarts,
    states: () => [...states.values()].flatMap(({ newest }) => newest ?? []),
    /** Asks for new states; one that does not come leaves the last one. Returns how many workers listen and respond. */
    async update(scope: MetricsScope): Promise<number> {
      const signal = AbortSignal.timeout(STATE_TIMEOUT_MS)
      const responses = [...states.keys()].map(async (worker) => {
        sendTo(worker, { type: scope })
        const response = await once(worker, scope, { signal }).catch(() => undefined)
        return response !== undefined && listening.has(worker)
      })
      return (await Promise.all(responses)).filter(Boolean).length
    },
    /** The metrics of each worker, and of all that have ended, for prom-client to aggregate. */
    metrics: () => [...Array.from(states.values(), ({ metrics }) => [...metrics.values()]), ended],
    reload(): void {
      for (const worker of listening.keys()) sendTo(worker, { type: 'reload' })
    },
    /** Drains the workers that listen, and kills the others at once and those after `killAfterMs`. */
    async stop(lameDuck: boolean, killAfterMs: number): Promise<DrainReport> {
      isStopping = true
      const closed = living().map((worker) => {
        if (listening.has(worker)) sendTo(worker, { type: 'stop', lameDuck })
        else kill(worker)
        return new Promise((resolve) => worker.process.once('close', resolve)) // after its last line
      })
      const killing = setTimeout(() => living().forEach(kill), killAfterMs)
      await Promise.all(closed)
      clearTimeout(killing)
      const sum = { drained: 0, cut: 0, tunnels: 0 }
      for (const worker of listening.keys()) {
        const report = drained.get(worker)
        sum.drained += report?.drained ?? 0
        sum.tunnels += report?.tunnels ?? 0
        sum.cut += report?.cut ?? 1 // how many requests a killed worker had is unknown
      }
      return sum
    },
  }
}

const living = () =>
  Object.values(cluster.workers ?? {}).filter((worker): worker is Worker => worker?.isDead() === false)

const kill = (worker: Worker) => worker.process.kill('SIGKILL')

// A worker that has ended emits `exit`; without a callback a failed send is an `error` event.
const sendTo = (worker: Worker, message: ToWorker) => worker.send(message, () => {})

function deserializeError({ name, message, problems = [], ...fields }: SerializedError): Error {
  return name === InvalidAuthData.name
    ? new InvalidAuthData(problems)
    : Object.assign(new Error(message), fields)
}
