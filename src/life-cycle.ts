/**
 * The life cycle of a sidecar: start, run, drain, stop, each once. Clients are accepted only after everything that decides
 * on access is loaded. A drain: lame duck (each response closes its connection, so that load balancers move on), no new
 * connections, time for requests in flight, the end.
 */
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AuthData } from './auth-data/auth-data.ts'
import type { DataListener } from './client/listener.ts'
import type { Config } from './config/config.ts'
import { isLoopback, withoutPath } from './http/hosts.ts'
import type { Logger } from './log.ts'
import type { AdminListener } from './ops/admin.ts'
import type { ReadyCondition } from './ops/status.ts'
import type { Forwarder } from './proxy/forward.ts'
import { VERSION } from './version.ts'

/** What became of the requests in flight when the listener stopped listening. */
export interface DrainReport {
  readonly drained: number
  readonly cut: number
  /** WebSocket tunnels that the drain closed; the other counts are without tunnels. */
  readonly tunnels: number
}

export interface ListenAddresses {
  readonly data: AddressInfo
  readonly admin?: AddressInfo | undefined
}

export type RunPhase = 'starting' | 'running' | 'draining'

/** Created before the parts that read it. `LifeCycle` changes it. */
export class RunState {
  phase: RunPhase = 'starting'
  /** The drain deadline has passed. */
  isAborting = false

  get isDraining(): boolean {
    return this.phase === 'draining'
  }

  get acceptingCondition(): ReadyCondition {
    const { phase } = this
    return { name: 'accepting', ok: phase === 'running', ...(phase === 'draining' && { state: phase }) }
  }
}

interface Parts {
  readonly config: Config
  readonly log: Logger
  readonly settingsFile: string | undefined
  readonly state: RunState
  readonly authData: AuthData
  readonly listener: DataListener
  readonly forwarder: Forwarder
  /** Absent in a worker: the primary process has it, and logs start and end. */
  readonly admin: AdminListener | undefined
}

export class LifeCycle {
  readonly #parts: Parts
  #reminder: NodeJS.Timeout | undefined
  #started: Promise<ListenAddresses> | undefined
  #stopped: Promise<DrainReport> | undefined

  constructor(parts: Parts) {
    this.#parts = parts
  }

  start(): Promise<ListenAddresses> {
    this.#started ??= this.#start()
    return this.#started
  }

  stop(lameDuck: boolean): Promise<DrainReport> {
    this.#stopped ??= this.#stop(lameDuck && this.#parts.state.phase === 'running')
    return this.#stopped
  }

  async #start(): Promise<ListenAddresses> {
    const { config, log, settingsFile, state, authData, listener, admin } = this.#parts
    if (config.enforcement === 'report') this.#reminder = warnOfReportMode(log)
    authData.start()
    try {
      const adminAddress = await admin?.listen()
      if (!(await authData.whenLoaded())) throw new Error('stopped before clients were accepted')
      // Last, so that no client is accepted and dropped again if the other port is in use.
      const where = { data: await listener.listen(), admin: adminAddress }
      if (state.phase === 'starting') state.phase = 'running'
      if (admin !== undefined) logStart(log, config, settingsFile, authData.keys.ring().signing?.kid, where)
      return where
    } catch (error) {
      await admin?.close()
      await authData.stop()
      throw error
    }
  }

  async #stop(lameDuck: boolean): Promise<DrainReport> {
    const { config, log, state, authData, listener, forwarder, admin } = this.#parts
    const wasStarting = state.phase === 'starting'
    state.phase = 'draining'
    log.info({ inFlight: listener.inFlight }, 'draining')
    if (wasStarting) {
      await authData.stop() // a start that waits ends here; what has been opened is closed below
      await this.#started?.catch(() => {})
    }
    if (lameDuck) await sleep(config.shutdown.lameDuckSeconds * 1000)
    const report = await this.#drain()
    forwarder.close()
    await authData.stop()
    await admin?.close()
    clearInterval(this.#reminder)
    if (admin !== undefined) log.info(report, 'stopped')
    return report
  }

  /** Accepts no more connections, closes those that are idle or become so, and aborts the others after the deadline. */
  async #drain(): Promise<DrainReport> {
    const { config, state, listener } = this.#parts
    const { inFlight } = listener
    const deadline = performance.now() + config.shutdown.deadlineSeconds * 1000
    let isClosed = false
    let tunnels = 0
    const closed = listener.close().then(() => {
      isClosed = true
    })
    while (!isClosed && performance.now() < deadline) {
      listener.closeIdle() // also a connection whose response, begun before the drain, promised to keep it
      if (listener.inFlight === 0) tunnels += listener.closeTunnels() // tunnels have no end of their own
      await Promise.race([closed, sleep(DRAIN_STEP_MS)])
    }
    tunnels += listener.closeTunnels()
    state.isAborting = !isClosed
    const cut = isClosed ? 0 : listener.abort()
    await Promise.race([closed, sleep(ABORT_MS, undefined, { ref: false })])
    return { drained: Math.max(0, inFlight - cut), cut, tunnels }
  }
}

/** An aborted connection closes at once; nothing waits for one that does not. */
const ABORT_MS = 1000
const DRAIN_STEP_MS = 50

export function logStart(
  log: Logger,
  config: Config,
  settingsFile: string | undefined,
  signingKid: string | undefined,
  where: ListenAddresses,
): void {
  const { listen, admin, upstreams, keys, forwarded, trustedIssuers, enforcement } = config
  log.info(
    {
      version: VERSION,
      node: process.version,
      settingsFile,
      upstreams: upstreams.map(({ prefix, url }) => `${prefix} ${withoutPath(url)}`),
      signingKey: signingKid,
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
  if (listen.tls === undefined && !isLoopback(listen.host))
    log.warn(
      { host: listen.host },
      'clients connect over plain HTTP: anyone between them and this listener reads tokens and secrets',
    )
  for (const [listener, { address, port }] of Object.entries(where))
    log.info({ listener, address, port }, 'listening')
}

function warnOfReportMode(log: Logger): NodeJS.Timeout {
  const warn = () => log.warn('report mode: requests without a valid token are forwarded')
  warn()
  return setInterval(warn, 3_600_000).unref() // each hour
}
