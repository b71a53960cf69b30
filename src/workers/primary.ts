/**
 * A sidecar of several processes: forks workers that share the data listener, replaces those that end, and serves the
 * admin listener for all of them. Keys, credentials and requests are the workers' business.
 */
import cluster, { type Worker } from 'node:cluster'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { AggregatorRegistry, Counter, Gauge, Registry } from 'prom-client'
import type { App } from '../app.ts'
import type { Config } from '../config/schema.ts'
import { createAdminListener } from '../ops/admin.ts'
import { type DrainReport, StoppedWhileStarting } from '../ops/life-cycle.ts'
import { type Logger, listenerFaults } from '../ops/log.ts'
import type { ReadyCheck } from '../ops/status.ts'
import { UnusableTrust } from '../trust.ts'
import type { FromWorker, MetricsExtent, ToWorker, WorkerState } from './worker.ts'

/** A worker that lives shorter than this is replaced with a growing delay. */
const SETTLED_MS = 10_000
const MIN_DELAY_MS = 100
const MAX_DELAY_MS = 10_000
/** Probes wait a second for their answer. */
const STATE_TIMEOUT_MS = 400
/** Time beyond that of the drain until workers are killed. */
const STOP_MARGIN_MS = 3000

export interface PrimaryOptions {
  readonly config: Config
  readonly log: Logger
  /** How many workers to fork. */
  readonly count: number
  /** The path of the program's entry, which has the `worker` command. */
  readonly entry: string
}

/** Creates a sidecar of several processes. Its `start` rejects with the first error of a worker. */
export function createPrimary({ config, log, count, entry }: PrimaryOptions): App {
  const workers = new Map<Worker, { listening: boolean; report?: DrainReport }>()
  const answers = new Map<number, (state: WorkerState) => void>()
  const share = shareOf(config, count)
  let phase: 'starting' | 'running' | 'stopping' = 'starting'
  let delayMs = 0
  let lastId = 0
  let stopped: Promise<DrainReport> | undefined
  const listening = () => [...workers.values()].filter((worker) => worker.listening).length

  const own = new Registry()
  const gauge = (name: string, help: string, aggregator: 'sum' | 'min', read: () => number) =>
    new Gauge({ name, help, aggregator, registers: [own], collect() { this.set(read()) } }) // biome-ignore format: one line
  gauge(
    'auth_sidecar_workers',
    'Processes that share the data listener and accept connections.',
    'sum',
    listening,
  )
  gauge('auth_sidecar_ready', '1 while every worker accepts requests, else 0.', 'min', () =>
    phase === 'running' && listening() === count ? 1 : 0,
  )
  const restarts = new Counter({
    name: 'auth_sidecar_worker_restarts_total',
    help: 'Workers that ended and were replaced.',
    registers: [own],
  })

  const send = (worker: Worker, message: ToWorker): void => {
    // The end of a worker is seen by its `exit`; without a callback a failed send is an `error` event.
    if (worker.isConnected()) worker.send(message, undefined, undefined, () => {})
  }
  const kill = (): void => {
    for (const worker of workers.keys()) worker.process.kill('SIGKILL')
  }

  /** Forks a worker; resolves when it listens. */
  const fork = (): Promise<AddressInfo> =>
    new Promise((resolve, reject) => {
      const startedAt = performance.now()
      const worker = cluster.fork()
      const { pid } = worker.process
      const known: { listening: boolean; report?: DrainReport } = { listening: false }
      workers.set(worker, known)
      log.info({ pid }, 'worker started')
      worker.on('message', (message: FromWorker) => {
        if (message.type === 'ready')
          send(
            worker,
            phase === 'stopping' ? { type: 'stop', lameDuck: false } : { type: 'start', config: share },
          )
        else if (message.type === 'state') answers.get(message.id)?.(message.state)
        else if (message.type === 'stopped') known.report = message.report
        else if (message.type === 'listening') {
          known.listening = true
          resolve(message.address)
        } else {
          reject(deserializeError(message.error))
          if (!known.listening) worker.process.kill('SIGKILL')
        }
      })
      worker.on('exit', (code, signal) => {
        workers.delete(worker)
        log.info({ pid, code, signal }, 'worker ended')
        reject(phase === 'stopping' ? new StoppedWhileStarting('stopped') : new Error(`worker ${pid} ended`))
        if (phase === 'running') void replace(performance.now() - startedAt)
      })
    })
  const replace = async (livedMs: number): Promise<void> => {
    restarts.inc()
    delayMs = livedMs < SETTLED_MS ? Math.min(Math.max(MIN_DELAY_MS, 2 * delayMs), MAX_DELAY_MS) : 0
    await sleep(delayMs)
    if (phase === 'running') await fork().catch((error) => log.error({ err: error }, 'worker not started'))
  }

  /** The states of the workers that answer in time. */
  const ask = async (extent: MetricsExtent): Promise<WorkerState[]> => {
    const asked = [...workers.keys()].map((worker) => {
      const id = ++lastId
      const answer = new Promise<WorkerState>((resolve) => answers.set(id, resolve))
      send(worker, { type: 'state', id, extent })
      return Promise.race([answer, sleep(STATE_TIMEOUT_MS, undefined)]).finally(() => answers.delete(id))
    })
    return (await Promise.all(asked)).filter((state) => state !== undefined)
  }
  const aggregate = async (extent: MetricsExtent): Promise<Registry> => {
    const metrics = (await ask(extent)).map((state) => [...state.metrics])
    return AggregatorRegistry.aggregate([...metrics, await own.getMetricsAsJSON()])
  }
  const ready = async (): Promise<ReadyCheck[]> => {
    const states = await ask('status')
    const state = phase === 'stopping' ? 'draining' : `${listening()} of ${count}`
    const ok = phase === 'running' && listening() === count && states.length === count
    return [...mergeChecks(states), { name: 'workers', ok, state }]
  }
  const sources = {
    ready,
    jwks: async () => (await ask('status'))[0]?.jwks ?? { keys: [] },
    exposition: {
      contentType: Registry.PROMETHEUS_CONTENT_TYPE,
      metrics: async () => (await aggregate('all')).metrics(),
    },
    statusMetrics: async () => (await aggregate('status')).getMetricsAsJSON(),
  }
  const admin = createAdminListener(config, sources, {
    now: Date.now,
    onFault: listenerFaults(log),
    processes: count,
  })

  const start = async () => {
    // Round robin: connections last long, and every worker gets its share of them.
    cluster.schedulingPolicy = cluster.SCHED_RR
    cluster.setupPrimary({ exec: entry, args: ['worker'] })
    try {
      const where = await admin.listen()
      const data = await Promise.all([fork(), ...Array.from({ length: count - 1 }, fork)])
      phase = 'running'
      for (const [listener, { address, port }] of [
        ['data', data[0]],
        ['admin', where],
      ] as const)
        log.info({ listener, address, port }, 'listening')
      return { data: data[0], admin: where }
    } catch (error) {
      phase = 'stopping'
      kill()
      await admin.close()
      throw error
    }
  }

  const stop = async (lameDuck: boolean): Promise<DrainReport> => {
    phase = 'stopping'
    const { lameDuckSeconds, deadlineSeconds } = config.shutdown
    const killing = setTimeout(
      kill,
      ((lameDuck ? lameDuckSeconds : 0) + deadlineSeconds) * 1000 + STOP_MARGIN_MS,
    )
    const all = [...workers]
    for (const [worker] of all) send(worker, { type: 'stop', lameDuck })
    await Promise.all(all.map(([worker]) => once(worker, 'exit')))
    clearTimeout(killing)
    await admin.close()
    const total = { drained: 0, cut: 0 }
    for (const [, { listening, report }] of all) {
      total.drained += report?.drained ?? 0
      // How many requests a killed worker had is unknown: at least one, if it listened.
      total.cut += report?.cut ?? Number(listening)
    }
    log.info(total, 'stopped')
    return total
  }

  return {
    start,
    async reload() {
      for (const worker of workers.keys()) send(worker, { type: 'reload' })
    },
    stop({ lameDuck } = { lameDuck: false }) {
      stopped ??= stop(lameDuck && phase === 'running')
      return stopped
    },
  }
}

/** The settings of one of several workers: together they open as many connections as one process would. */
function shareOf(config: Config, count: number): Config {
  const limits = { ...config.limits }
  for (const name of ['connections', 'upstreamConnections', 'upstreamQueue'] as const)
    limits[name] = Math.ceil(limits[name] / count)
  return { ...config, limits }
}

/** A check holds when it holds in every worker. */
function mergeChecks(states: readonly WorkerState[]): readonly ReadyCheck[] {
  const merged = new Map<string, ReadyCheck>()
  for (const check of states.flatMap(({ checks }) => checks))
    if (merged.get(check.name)?.ok !== false) merged.set(check.name, check)
  return [...merged.values()]
}

/** The error as the caller of `start` knows it, with Node's fields such as `code` and `port`. */
function deserializeError({ name, message, ...fields }: { name: string; message: string }): Error {
  if (name === UnusableTrust.name) return new UnusableTrust(message)
  if (name === StoppedWhileStarting.name) return new StoppedWhileStarting(message)
  return Object.assign(new Error(message), fields)
}
