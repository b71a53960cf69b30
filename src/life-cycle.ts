/**
 * The life cycle of a sidecar, and of each worker: start, run, drain, stop, each once, and reloads.
 * The listener accepts clients only after the auth data is loaded.
 * In a drain, each response closes its connection, so that load balancers use other sidecars.
 * First is the lame duck, if any. Then the listener stops listening.
 * Requests in flight may finish until the deadline, which aborts the rest.
 */
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AuthData } from './auth/auth-data.ts'
import type { Logger } from './base/log.ts'
import { VERSION } from './base/version.ts'
import type { DataListener } from './client/listener.ts'
import type { Config } from './config/config.ts'
import { isLoopback, withoutPath } from './http/hosts.ts'
import type { AdminData, AdminListener } from './ops/admin.ts'
import type { ReadyCondition } from './ops/status.ts'
import type { VerboseLog } from './ops/verbose-log.ts'

/** The requests that were in flight when the listener stopped listening, by outcome. */
export interface DrainReport {
  readonly drained: number
  readonly cut: number
  /** WebSocket tunnels that the drain closed. The other counts exclude tunnels. */
  readonly tunnels: number
}

export type ListenAddresses = Readonly<{ data: AddressInfo; admin?: AddressInfo | undefined }>

export interface App {
  /**
   * `/readyz` reports not ready until clients are accepted.
   * If a port is in use, the promise rejects and nothing listens.
   */
  start(): Promise<ListenAddresses>
  /** Loads all sources again, even if nothing has changed. Never rejects. */
  reload(): Promise<unknown>
  readonly verboseLog: Pick<VerboseLog, 'toggle' | 'set'>
  /**
   * `lameDuck`: a running listener accepts for `lameDuckSeconds` more.
   * A second call returns the promise of the first.
   */
  stop(how?: { readonly lameDuck: boolean }): Promise<DrainReport>
}

/** What serves clients: the listener of this process, or workers. */
export interface DataService {
  /**
   * Resolves once the auth data is loaded and clients are accepted. Rejects if a drain begins before that.
   */
  listen(): Promise<AddressInfo>
  /** Lets workers load their sources again. */
  reload?(): void
  drain(how: Drain): Promise<DrainReport>
}

interface Drain {
  readonly lameDuck: boolean
  /** The start that the drain interrupts. It resolves once the start has succeeded or failed. */
  readonly pendingStart: Promise<unknown> | undefined
  /** Called before the requests that are still in flight are aborted. */
  readonly onDeadline: () => void
}

interface LifeCycleParts {
  readonly config: Config
  readonly log: Logger
  readonly settingsFile: string | undefined
  /** The sources that this process itself polls. */
  readonly sources: { start(): void; reload(): Promise<unknown>; stop(): unknown } | undefined
  readonly service: DataService
  readonly adminData: AdminData
  /** Absent in a worker. Only the process with the admin listener logs the start and the stop. */
  readonly admin: AdminListener | undefined
}

interface Source {
  start?(): void
  reload?(): Promise<unknown>
  stop?(): Promise<unknown> | unknown
}

/** What the life cycle starts, reloads and stops, such as the sources of auth data, and the rooms. */
export function startedTogether(all: readonly Source[]) {
  return {
    start() {
      for (const one of all) {
        one.start?.()
      }
    },
    reload: () => Promise.all(all.map((one) => one.reload?.())),
    stop: () => Promise.all(all.map((one) => one.stop?.())),
  }
}

/**
 * The state of the life cycle, for parts that are created before those that it starts and stops (`appOf`).
 */
export class LifeCycle {
  #phase: 'starting' | 'running' | 'draining' = 'starting'
  #isAborting = false
  #started: Promise<ListenAddresses> | undefined
  #stopped: Promise<DrainReport> | undefined

  readonly isRunning = () => this.#phase === 'running'
  readonly isDraining = () => this.#phase === 'draining'
  /** Whether the drain deadline has passed. */
  readonly isAborting = () => this.#isAborting

  acceptingCondition(): ReadyCondition {
    const condition: ReadyCondition = { name: 'accepting', ok: this.isRunning() }
    return this.isDraining() ? { ...condition, state: 'draining' } : condition
  }

  appOf(parts: LifeCycleParts): Omit<App, 'verboseLog'> {
    return {
      start: () => (this.#started ??= this.#start(parts)),
      async reload() {
        parts.service.reload?.()
        await parts.sources?.reload()
      },
      stop: ({ lameDuck } = { lameDuck: false }) =>
        (this.#stopped ??= this.#stop(parts, lameDuck && this.isRunning())),
    }
  }

  async #start(parts: LifeCycleParts): Promise<ListenAddresses> {
    const { sources, service, admin } = parts
    sources?.start()
    try {
      const adminAddress = admin && (await listen('admin', admin))
      // The data listener is last: if the admin port is in use, no client is accepted and then dropped.
      const where = { data: await service.listen(), admin: adminAddress }
      if (this.#phase === 'starting') {
        this.#phase = 'running'
      }
      if (admin !== undefined) {
        await logStart(parts, where)
      }
      return where
    } catch (error) {
      await end(parts)
      throw error
    }
  }

  async #stop(parts: LifeCycleParts, lameDuck: boolean): Promise<DrainReport> {
    const pendingStart = this.#phase === 'starting' ? this.#started?.catch(() => {}) : undefined
    this.#phase = 'draining'
    const onDeadline = () => (this.#isAborting = true)
    const report = await parts.service.drain({ lameDuck, pendingStart, onDeadline })
    await end(parts)
    if (parts.admin !== undefined) {
      parts.log.info(report, 'stopped')
    }
    return report
  }
}

async function end({ sources, admin }: LifeCycleParts): Promise<void> {
  await sources?.stop()
  await admin?.close()
}

export function createDataService(
  { config, log, flushLogs }: Pick<LifeCycleParts, 'config' | 'log'> & { flushLogs(): void },
  authData: Pick<AuthData, 'whenLoaded' | 'stop'>,
  listener: DataListener,
  forwarder: { close(): void },
): DataService {
  let reminder: NodeJS.Timeout | undefined
  return {
    async listen() {
      if (config.enforcement === 'report') {
        const warn = () => log.warn('report mode: requests without a valid token are forwarded')
        warn()
        reminder = setInterval(warn, 3_600_000).unref() // each hour
      }
      if (!(await authData.whenLoaded())) {
        throw new Error('stopped before clients were accepted')
      }
      return listen('listen', listener)
    },
    async drain({ lameDuck, pendingStart, onDeadline }) {
      clearInterval(reminder)
      log.info({ inFlight: listener.inFlight }, 'draining')
      if (pendingStart) {
        await authData.stop() // ends a start that waits for keys or the database
      }
      await pendingStart
      if (lameDuck) {
        await sleep(config.shutdown.lameDuckSeconds * 1000)
      }
      const onWaiting = (secondsLeft: number) =>
        log.info({ inFlight: listener.inFlight, secondsLeft }, 'waiting for requests in flight')
      const { deadlineSeconds } = config.shutdown
      const report = await drainListener(listener, { deadlineSeconds, onWaiting, onDeadline })
      forwarder.close()
      flushLogs()
      return report
    },
  }
}

/** The error of a listener that cannot start names its settings. */
async function listen(settings: 'admin' | 'listen', listener: Pick<DataListener | AdminListener, 'listen'>) {
  return listener.listen().catch((error: NodeJS.ErrnoException & { readonly port?: number }) => {
    const inUse = `port ${error.port} is in use (${settings}.port)`
    const other = `cannot listen (${settings}.host, ${settings}.port): ${error.message}`
    throw Object.assign(error, { message: error.code === 'EADDRINUSE' ? inUse : other })
  })
}

/** An aborted connection closes at once. If one stays open, the drain ends after this time. */
const ABORT_MS = 1000
const DRAIN_STEP_MS = 50
/** A process that is killed while it waits has said so shortly before. */
const WAITING_LINE_MS = 5000

interface DrainOptions {
  readonly deadlineSeconds: number
  /** Called at once if requests are in flight, and every few seconds until they have ended. */
  readonly onWaiting: (secondsLeft: number) => void
  readonly onDeadline: () => void
}

/** Stops listening, closes each connection once it is idle, and aborts the others after the deadline. */
async function drainListener(
  listener: DataListener,
  { deadlineSeconds, onWaiting, onDeadline }: DrainOptions,
) {
  const { inFlight } = listener
  const deadline = performance.now() + deadlineSeconds * 1000
  let isClosed = false
  let tunnels = 0
  let nextLineAt = 0
  const closed = listener.close().then(() => (isClosed = true))
  while (!isClosed && performance.now() < deadline) {
    if (listener.inFlight > 0 && performance.now() >= nextLineAt) {
      onWaiting(Math.round((deadline - performance.now()) / 1000))
      nextLineAt = performance.now() + WAITING_LINE_MS
    }
    listener.closeIdle() // a response that began before the drain may have promised keep-alive
    if (listener.inFlight === 0) {
      tunnels += listener.closeTunnels() // a tunnel does not end by itself
    }
    await Promise.race([closed, sleep(DRAIN_STEP_MS)])
  }
  tunnels += listener.closeTunnels()
  if (!isClosed) {
    onDeadline()
  }
  const cut = isClosed ? 0 : listener.abort()
  await Promise.race([closed, sleep(ABORT_MS, undefined, { ref: false })])
  return { drained: Math.max(0, inFlight - cut), cut, tunnels }
}

async function logStart({ config, log, settingsFile, adminData }: LifeCycleParts, where: ListenAddresses) {
  const { listen, admin, upstreams, keys, forwarded, trustedIssuers, enforcement } = config
  log.info(
    {
      version: VERSION,
      node: process.version,
      settingsFile,
      upstreams: upstreams.map(({ prefix, url }) => `${prefix} ${withoutPath(url)}`),
      signingKey: await adminData.signingKid(),
      keysFrom: keys.jwksUrl && withoutPath(keys.jwksUrl),
      tls: listen.tls !== undefined,
      adminTls: admin.tls !== undefined,
      enforcement,
      trustedProxies: forwarded.trust,
      trustedIssuers: trustedIssuers.map(({ issuer }) => issuer),
      forwardAuth: config.forwardAuth.path || undefined,
      links: config.links.enabled,
      workers: config.workers,
    },
    'started',
  )
  if (listen.tls === undefined && !isLoopback(listen.host)) {
    log.warn(
      { host: listen.host },
      'clients connect over plain HTTP: anyone between them and this listener reads tokens and secrets',
    )
  }
  for (const [listener, bound] of Object.entries(where)) {
    log.info({ listener, address: bound?.address, port: bound?.port }, 'listening')
  }
}
