/**
 * One sidecar, wired from its settings.
 *
 *   keys, credentials -> issue, verify (+ cache) -> gate -> header rules -> forward
 *
 * In: settings that have been validated. Out: a thing that starts and stops. Nothing listens before keys and
 * credentials are loaded.
 *
 * @module
 */
import type { AddressInfo } from 'node:net'
import type { Config } from './config/schema.ts'
import { loadFileStore } from './credentials/file-store.ts'
import { createLoginThrottle } from './credentials/login-throttle.ts'
import type { CredentialStore } from './credentials/store.ts'
import { createClientAddress, createPeers } from './forward/forwarded-lines.ts'
import { createForwarder } from './forward/forwarder.ts'
import { createGate } from './gate/decide.ts'
import { createRoutes } from './gate/routes.ts'
import type { Exchange } from './http/exchange.ts'
import { createListener } from './http/listener.ts'
import { createPipeline } from './http/pipeline.ts'
import { createResponder } from './http/respond.ts'
import { createTokenEndpoint } from './http/token-endpoint.ts'
import { publicJwks } from './keys/jwks.ts'
import { loadKeyRing } from './keys/key-directory.ts'
import type { KeyRing } from './keys/key-ring.ts'
import { createAccessLog } from './ops/access-log.ts'
import { createAdminListener } from './ops/admin.ts'
import { createDeadlines } from './ops/deadlines.ts'
import { type DrainReport, drain, sleep } from './ops/drain.ts'
import type { Logger } from './ops/log.ts'
import { createMetrics } from './ops/metrics.ts'
import { withCache } from './token/cache.ts'
import { createIssuer } from './token/issue.ts'
import { createVerifier } from './token/verify.ts'
import { VERSION } from './version.ts'

/** Keys, credentials or certificates that cannot be used. The message has a line for each problem. */
export class UnusableFiles extends Error {
  override readonly name = 'UnusableFiles'
}

/** What a sidecar is made of. */
export interface AppOptions {
  readonly config: Config
  readonly log: Logger
  /** Log lines lost so far. */
  readonly logLinesDropped?: () => number
  /** Epoch milliseconds; default `Date.now`. */
  readonly now?: () => number
}

/** One sidecar. */
export interface App {
  /** Listens on both ports; resolves with where. Rejects when one cannot be had. */
  start(): Promise<{ readonly data: AddressInfo; readonly admin: AddressInfo }>
  /** Stops taking requests and lets those in flight finish. `lameDuck`: goes on accepting for a while first. */
  stop(how?: { readonly lameDuck: boolean }): Promise<DrainReport>
}

/**
 * Makes a sidecar: reads keys and credentials, opens nothing.
 *
 * @throws UnusableFiles with every problem of keys, credentials and certificates
 */
export async function createApp({
  config,
  log,
  logLinesDropped = () => 0,
  now = Date.now,
}: AppOptions): Promise<App> {
  const { ring, store } = await loadTrust(config, log, now)
  const keys = () => ring
  const state: { value: 'starting' | 'running' | 'stopping' } = { value: 'starting' }
  const isClosing = () => state.value === 'stopping'
  const deadlines = createDeadlines()
  const { issuer, audience, lifetimeSeconds, maxLifetimeSeconds, clockToleranceSeconds } = config.token

  // Who may pass.
  const verify = withCache(
    createVerifier({
      keys,
      standing: store.standing,
      issuer,
      audience,
      maxLifetimeSeconds,
      clockToleranceSeconds,
      now,
    }),
    { ...config.cache, now },
  )
  const metrics = createMetrics({
    version: VERSION,
    upstreams: config.upstreams.map(({ prefix }) => prefix),
    sources: {
      cache: () => verify,
      inFlight: () => listener.inFlight,
      keys: () => ring.verification.values(),
      logLinesDropped,
    },
    now,
  })
  const gate = createGate({ verify, onCheck: metrics.onTokenCheck })

  // What becomes of who passes.
  const responder = createResponder(isClosing)
  const clientAddress = createClientAddress(config.forwarded.trust)
  const tokenEndpoint = createTokenEndpoint({
    responder,
    credentials: store,
    throttle: createLoginThrottle({ ...config.limits.loginFailures, now }),
    issue: createIssuer({ keys, issuer, audience, lifetimeSeconds, now }),
    clientAddress: ({ connection, req }) =>
      clientAddress(connection.peer, req.headersDistinct['x-forwarded-for'] ?? []),
    deadlines,
    idleMs: config.timeouts.idleSeconds * 1000,
    now,
    contract: config.contract,
    onIssued: metrics.onTokenIssued,
    onIssueFailure: metrics.onIssueFailure,
  })
  const forwarder = createForwarderOrExplain(config, {
    deadlines,
    isClosing,
    refuse: (exchange, error, outcome, close) =>
      responder.refuse(
        exchange,
        error,
        { error: outcome === 'client_idle' ? 'http_request_error' : outcome },
        close,
      ),
    onOutcome: metrics.onUpstreamOutcome,
    onFirstByte: (upstream, ms) => metrics.onFirstByte(upstream, ms / 1000),
    now,
  })

  // The way of a request.
  const handle = createPipeline({
    limits: config.limits,
    routeOf: createRoutes({ ...config, basePath: config.listen.basePath }),
    gate,
    tokenEndpoint,
    forward: forwarder.forward,
    responder,
    onFault: ({ requestId }, error) => log.error({ requestId, err: error }, 'fault'),
    onTwiceAuthorized: () => metrics.onTokenCheck('malformed'),
  })
  const accessLog = createAccessLog(log, config.log.access)
  const account = (exchange: Exchange, finished: boolean) => {
    const ms = deadlines.now() - exchange.startedAt
    const status = finished ? exchange.res.statusCode : exchange.switched ? 101 : CLIENT_LEFT
    metrics.onRequest(exchange.route, exchange.req.method, status, ms / 1000)
    metrics.onBytes('in', exchange.bytesIn)
    metrics.onBytes('out', exchange.bytesOut)
    accessLog(exchange, status, ms)
  }
  const onFault = (error: Error) => log.error({ err: error }, 'listener fault')
  const listener = createListener({
    host: config.listen.host,
    port: config.listen.port,
    limits: config.limits,
    upgrade: config.upgrade.enabled,
    timeouts: config.timeouts,
    peerOf: createPeers(config.forwarded.trust),
    now: deadlines.now,
    handle,
    onOver: account,
    onRefused: ({ status }, requestId, { address }) => {
      metrics.onRequest('proxy', undefined, status, 0)
      if (config.log.access !== 'off')
        log.info({ requestId, status, reason: 'parser', client: address }, 'request')
    },
    onFault,
  })
  const admin = createAdminListener({
    host: config.admin.host,
    port: config.admin.port,
    registry: metrics.registry,
    ready: () => [
      { name: 'keys', ok: true },
      { name: 'credentials', ok: true },
      { name: 'accepting', ok: state.value === 'running' },
    ],
    jwks: () => publicJwks(ring),
    onFault,
  })

  return {
    async start() {
      const data = await listener.listen()
      log.info({ listener: 'data', address: data.address, port: data.port }, 'listening')
      const adminAddress = await admin.listen().catch(async (error: unknown) => {
        await listener.close()
        throw error
      })
      log.info({ listener: 'admin', address: adminAddress.address, port: adminAddress.port }, 'listening')
      state.value = 'running'
      return { data, admin: adminAddress }
    },
    async stop({ lameDuck } = { lameDuck: false }) {
      state.value = 'stopping'
      const report = await drain(listener, {
        lameDuckMs: lameDuck ? config.shutdown.lameDuckSeconds * 1000 : 0,
        deadlineMs: config.shutdown.deadlineSeconds * 1000,
        sleep,
      })
      forwarder.close()
      await admin.close()
      deadlines.stop()
      log.info(report, 'stopped')
      return report
    },
  }
}

/** The status that counts a request whose client left before the answer was whole; nobody is sent it. */
const CLIENT_LEFT = 499

/** Loads what decides who gets in. */
async function loadTrust(
  config: Config,
  log: Logger,
  now: () => number,
): Promise<{ ring: KeyRing; store: CredentialStore }> {
  if (config.keys.directory === undefined || config.credentials.file === undefined) {
    throw new UnusableFiles('keys.directory and credentials.file are needed')
  }
  const [keys, credentials] = await Promise.all([
    loadKeyRing({ directory: config.keys.directory }),
    loadFileStore({
      file: config.credentials.file,
      now,
      onFault: (cause) => log.error({ err: cause }, 'a login could not be checked'),
    }),
  ])
  const problems = [...(keys.ok ? [] : keys.problems), ...(credentials.ok ? [] : credentials.problems)]
  if (!keys.ok || !credentials.ok) throw new UnusableFiles(problems.join('\n'))
  for (const warning of [...keys.warnings, ...credentials.warnings]) log.warn(warning)
  return { ring: keys.ring, store: credentials.store }
}

/** Makes the forwarder; what keeps an upstream from being used is said like any other unusable file. */
function createForwarderOrExplain(
  config: Config,
  rest: Omit<Parameters<typeof createForwarder>[0], keyof Config | 'forwardAuthorization'>,
): ReturnType<typeof createForwarder> {
  try {
    return createForwarder({ ...config, forwardAuthorization: config.identity.forwardAuthorization, ...rest })
  } catch (error) {
    throw new UnusableFiles(`upstreams: ${error instanceof Error ? error.message : String(error)}`)
  }
}
