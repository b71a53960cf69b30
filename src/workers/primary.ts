/**
 * A sidecar of several processes: forks workers that share the data listener, replaces those that end, and serves the
 * admin listener for all of them. Workers load keys and credentials and serve requests.
 */
import cluster, { type Worker } from 'node:cluster'
import { EventEmitter, once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { AggregatorRegistry, Gauge, Registry } from 'prom-client'
import type { App } from '../app.ts'
import { type AuthDataEvents, InvalidAuthData, openAdminCertificates } from '../auth-data.ts'
import type { Config } from '../config/config.ts'
import { createAdminListener } from '../ops/admin.ts'
import type { Addresses, DrainReport } from '../ops/life-cycle.ts'
import { type LogDestination, type Logger, logListenerErrors } from '../ops/log.ts'
import { fullName, metricsIn } from '../ops/metrics.ts'
import type { MetricFamily } from '../ops/samples.ts'
import { logStart } from '../ops/start-line.ts'
import type { ReadyCheck } from '../ops/status.ts'
import type { FromWorker, MetricsScope, SerializedError, ToWorker, WorkerState } from './worker.ts'

/** Delay before a worker that could not start is started again. */
const RETRY_MS = 5000
/** Below the one-second timeout of a kubelet probe. */
const STATE_TIMEOUT_MS = 400
/** Time after the drain deadline until workers are killed. */
const STOP_MARGIN_MS = 3000

type LastMessages = { [Message in FromWorker as Message['type']]?: Message['value'] }

export interface PrimaryOptions {
  readonly config: Config
  readonly settingsFile: string | undefined
  readonly log: Logger
  readonly destination: LogDestination
  /** How many to run. */
  readonly workers: number
}

/**
 * Creates a sidecar of several workers. Its `start` rejects with the first error of a worker.
 * @throws InvalidAuthData with every problem of the admin listener's certificates
 */
export async function createPrimary({
  config,
  settingsFile,
  log,
  destination,
  workers: count,
}: PrimaryOptions): Promise<App> {
  const init: ToWorker = { type: 'init', config: shareOf(config, count) }
  const { connections } = init.config.limits
  if (connections < Math.ceil(config.limits.connections / count)) {
    log.warn(
      { connections, workers: count },
      'the limit of open files is low: each worker takes fewer connections',
    )
  }
  /** The last message of each type, of workers that have their settings. */
  const lastMessages = new Map<Worker, LastMessages>()
  /** Workers that accept connections. */
  const listening = new Set<Worker>()
  let jwks: unknown
  let phase: 'starting' | 'running' | 'draining' = 'starting'
  let stopped: Promise<DrainReport> | undefined
  const isReady = (responding: number) => phase === 'running' && responding === count

  const own = new Registry()
  /** How many workers responded last. */
  let responded = 0
  const { series, value } = metricsIn(own)
  const restarts = series('worker_restarts_total')()
  value('workers', () => responded)
  value('ready', () => Number(isReady(responded)))
  value('log_lines_dropped_total', () => destination.dropped)
  new Gauge({
    name: 'process_start_time_seconds', // those of the workers differ, and prom-client omits them
    help: 'Start time of the process since unix epoch in seconds.',
    aggregator: 'first',
    registers: [own],
  }).set(Math.round(performance.timeOrigin / 1000))
  /** The counters of workers that ended, so that no sum decreases. */
  const ended: Record<MetricsScope, readonly MetricFamily[]> = { all: [], status: [] }
  const keepCounters = async (worker: Worker, last: LastMessages) => {
    const withCountersOf = (scope: MetricsScope) => {
      const families = [...ended[scope], ...(last[scope]?.metrics ?? [])]
      const counters = families.filter(({ type }) => String(type) !== 'gauge')
      return AggregatorRegistry.aggregate([counters]).getMetricsAsJSON()
    }
    const [all, status] = await Promise.all([withCountersOf('all'), withCountersOf('status')])
    Object.assign(ended, { all, status })
    lastMessages.delete(worker)
  }
  let keeping = Promise.resolve()

  // A worker that has ended emits `exit`; without a callback a failed send is an `error` event.
  const send = (worker: Worker, message: ToWorker) => worker.send(message, () => {})
  const kill = (worker: Worker) => worker.process.kill('SIGKILL')
  const workers = () =>
    Object.values(cluster.workers ?? {}).filter((worker): worker is Worker => worker?.isDead() === false)

  /** Forks a worker; resolves when it listens. */
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
    const { stdout, stderr } = worker.process
    if (stdout) createInterface(stdout).on('line', (line) => destination.write(`${line}\n`))
    stderr?.on('data', (text) => process.stderr.write(text))
    const last: LastMessages = {}
    worker.on('message', ({ type, value }: FromWorker) => {
      Object.assign(last, { [type]: value })
      worker.emit(type, value)
    })
    worker.on('error', (error) => log.error({ err: error, pid }, 'worker channel error'))
    worker.on('init', () => {
      send(worker, init)
      lastMessages.set(worker, last)
    })
    worker.on('exit', (code, signal) => {
      log.info({ pid, code, signal }, 'worker ended')
      if (phase === 'draining') return
      keeping = keeping.then(() => keepCounters(worker, last))
      if (listening.delete(worker)) void replace()
    })
    const failed = once(worker, 'failed').then(([error]) => {
      throw deserializeError(error)
    })
    const exited = once(worker, 'exit').then(() => {
      throw new Error(`worker ${pid} ended`)
    })
    const [{ address, port, addressType }] = await Promise.race([once(worker, 'listening'), failed, exited])
    listening.add(worker)
    return { address, port, family: `IPv${addressType}` }
  }
  const replace = async (): Promise<void> => {
    restarts.value++
    try {
      await fork()
    } catch (error) {
      log.error({ err: error }, 'worker not started')
      await sleep(RETRY_MS)
      if (phase !== 'draining') void replace()
    }
  }

  /** Returns the states of the workers, the last ones of those that do not respond, and how many listen and respond. */
  const ask = async (scope: MetricsScope) => {
    const signal = AbortSignal.timeout(STATE_TIMEOUT_MS)
    const answers = [...lastMessages.keys()].map(async (worker): Promise<WorkerState[]> => {
      send(worker, { type: scope })
      const answer = await once(worker, scope, { signal }).catch(() => [])
      return listening.has(worker) ? answer : []
    })
    const current = (await Promise.all(answers)).flat()
    jwks = current[0]?.jwks ?? jwks
    const states = [...lastMessages.values()].flatMap((last) => last[scope] ?? [])
    return { states, past: ended[scope], responding: current.length }
  }
  const aggregate = async (scope: MetricsScope): Promise<Registry> => {
    const { states, past, responding } = await ask(scope)
    responded = responding
    const metrics = states.map((state) => [...state.metrics])
    // Its own first: `process_start_time_seconds` of the first is used.
    return AggregatorRegistry.aggregate([await own.getMetricsAsJSON(), ...metrics, [...past]])
  }
  const signingKey = async (): Promise<string | undefined> => {
    const [state] = (await ask('status')).states
    const age = state?.metrics.find(({ name }) => name === fullName('signing_key_age_seconds'))
    const kid = age?.values[0]?.labels['kid']
    return kid === undefined ? undefined : String(kid)
  }
  const sources = {
    async ready(): Promise<ReadyCheck[]> {
      const { states, responding } = await ask('status')
      const state = phase === 'draining' ? 'draining' : `${responding} of ${count}`
      // The checks of a worker that is not ready, if any.
      const { checks = [] } = states.find((one) => one.checks.some(({ ok }) => !ok)) ?? states[0] ?? {}
      return [...checks, { name: 'workers', ok: isReady(responding), state }]
    },
    async jwks() {
      await ask('status')
      return jwks
    },
    exposition: {
      contentType: Registry.PROMETHEUS_CONTENT_TYPE,
      metrics: async () => (await aggregate('all')).metrics(),
    },
    statusMetrics: async () => (await aggregate('status')).getMetricsAsJSON(),
  }
  const onError = logListenerErrors(log)
  const cache = { ...config.cache, maxTokens: config.cache.maxTokens * count } // each worker has its own
  // Workers open these files too, and count their reloads.
  const events = new EventEmitter<AuthDataEvents>()
  const certificates = await openAdminCertificates(config, { log, now: Date.now, events })
  const admin = createAdminListener({ ...config, cache }, sources, {
    certificates: certificates?.current().material,
    now: Date.now,
    onError,
  })

  events.on('certificates', (_name, material) => admin.setCertificates(material))

  const start = async (): Promise<Addresses> => {
    // Round robin: connections last long, and every worker gets its share of them.
    cluster.schedulingPolicy = cluster.SCHED_RR
    // A worker that inherited standard output would make a pipe blocking, also for this process.
    cluster.setupPrimary({ args: ['worker'], stdio: ['ignore', 'pipe', 'pipe', 'ipc'] })
    certificates?.start()
    try {
      const adminAddress = await admin.listen()
      const [data] = await Promise.all([fork(), ...Array.from({ length: count - 1 }, fork)])
      if (phase === 'starting') phase = 'running'
      const where = { data, admin: adminAddress }
      logStart(log, config, { settingsFile, signingKey: await signingKey(), where })
      return where
    } catch (error) {
      if (phase !== 'draining') workers().forEach(kill)
      phase = 'draining'
      certificates?.stop()
      await admin.close()
      throw error
    }
  }

  const stop = async (lameDuck: boolean): Promise<DrainReport> => {
    phase = 'draining'
    const { lameDuckSeconds, deadlineSeconds } = config.shutdown
    const drainMs = ((lameDuck ? lameDuckSeconds : 0) + deadlineSeconds) * 1000
    const killing = setTimeout(() => workers().forEach(kill), drainMs + STOP_MARGIN_MS)
    const closed = workers().map((worker) => {
      if (listening.has(worker)) send(worker, { type: 'stop', lameDuck })
      else kill(worker)
      return new Promise((resolve) => worker.process.once('close', resolve)) // after its last line
    })
    await Promise.all(closed)
    clearTimeout(killing)
    certificates?.stop()
    await admin.close()
    const sum = { drained: 0, cut: 0, tunnels: 0 }
    for (const worker of listening) {
      const report = lastMessages.get(worker)?.stopped
      sum.drained += report?.drained ?? 0
      sum.tunnels += report?.tunnels ?? 0
      sum.cut += report?.cut ?? 1 // how many requests a killed worker had is unknown
    }
    log.info(sum, 'stopped')
    return sum
  }

  return {
    start,
    async reload() {
      for (const worker of listening) send(worker, { type: 'reload' })
      await certificates?.reload()
    },
    stop({ lameDuck } = { lameDuck: false }) {
      stopped ??= stop(lameDuck && phase === 'running')
      return stopped
    },
  }
}

/** The files that a worker opens beside its connections. */
const OWN_FILES = 40

/**
 * The settings of one worker: together the workers open as many connections as one process would.
 * A worker must not run out of file descriptors: `node:cluster` never gives it another connection then. Each connection
 * of a client may need one to an upstream.
 */
function shareOf(config: Config, count: number): Config {
  const limits = { ...config.limits }
  for (const name of ['connections', 'upstreamConnections', 'upstreamQueue'] as const)
    limits[name] = Math.ceil(limits[name] / count)
  limits.connections = Math.min(limits.connections, Math.max(1, Math.floor((maxOpenFiles() - OWN_FILES) / 2)))
  return { ...config, limits }
}

/** `ulimit -n`; infinite where it is unlimited or not known. */
function maxOpenFiles(): number {
  const report: { userLimits?: { open_files?: { soft?: unknown } } } = process.report.getReport()
  const soft = report.userLimits?.open_files?.soft
  return typeof soft === 'number' ? soft : Number.POSITIVE_INFINITY
}

/** The error as the caller of `start` knows it, with Node's fields such as `code` and `port`. */
function deserializeError({ name, message, problems = [], ...fields }: SerializedError): Error {
  return name === InvalidAuthData.name
    ? new InvalidAuthData(problems)
    : Object.assign(new Error(message), fields)
}
