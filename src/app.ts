/**
 * The composition root: wires one sidecar from validated settings. It listens after keys and credentials are loaded.
 *   listener -> handle -> gate (admission, route, token check) -> forward | token endpoint | responder
 */
import { EventEmitter } from 'node:events'
import type { Registry } from 'prom-client'
import { type AuthData, type AuthDataEvents, openAuthData } from './auth-data.ts'
import { expiriesOf, secureContextOf } from './certificates.ts'
import type { Config } from './config/config.ts'
import { createLoginThrottle } from './credentials/throttles.ts'
import { checkBearer, createDecide } from './gate/decide.ts'
import { publicJwks, tokenLifetimes } from './keys/key-ring.ts'
import {
  createLifeCycle,
  type DrainReport,
  type ListenAddresses,
  logStart,
  type Phase,
  warnOfReportMode,
} from './life-cycle.ts'
import { type Logger, logListenerErrors } from './log.ts'
import { type AdminSources, createAdminListener, NO_ADMIN } from './ops/admin.ts'
import { Audit } from './ops/audit.ts'
import { Metrics } from './ops/metrics.ts'
import { statusMetrics } from './ops/samples.ts'
import { Forwarder } from './proxy/forward.ts'
import { createAccessLog } from './server/access-log.ts'
import { createPeers } from './server/client-address.ts'
import type { SidecarRequest } from './server/context.ts'
import type { EndpointOptions } from './server/endpoint.ts'
import { createHandle } from './server/handle.ts'
import { LinkEndpoint } from './server/link-endpoint.ts'
import { DataListener } from './server/listener.ts'
import { Responder } from './server/respond.ts'
import { TokenEndpoint } from './server/token-endpoint.ts'
import { TokenCache } from './token/cache.ts'
import { TokenSigner } from './token/issue.ts'
import { createVerifier } from './token/verify.ts'

export interface AppOptions {
  readonly config: Config
  readonly log: Logger
  readonly logLinesDropped?: () => number
  /** Epoch milliseconds. */
  readonly now?: () => number
  /** Of the settings, for the start line. */
  readonly settingsFile?: string | undefined
  /** One of several processes that share the data listener: without an admin listener. */
  readonly worker?: boolean
}

export interface App {
  /** The admin listener responds, not ready, while this waits. Rejects if a port is taken, and listens on neither. */
  start(): Promise<ListenAddresses>
  /** Loads everything again, changed or not. */
  reload(): Promise<void>
  /** `lameDuck`: continues to accept for a while first, if it was running. A second call waits for the same end. */
  stop(how?: { readonly lameDuck: boolean }): Promise<DrainReport>
}

/** A sidecar that serves requests in this process. */
export interface ServingApp extends App {
  readonly sources: AdminSources
  readonly registry: Registry
  /** For a process that ends without a drain. */
  abort(): void
}

/** What every part is made of. */
interface Base {
  readonly config: Config
  readonly log: Logger
  readonly now: () => number
  readonly authData: AuthData
  readonly metrics: Metrics
  readonly signer: TokenSigner
}

/** @throws InvalidAuthData with every problem of keys, credentials and certificates */
export async function createApp({
  config,
  log,
  logLinesDropped = () => 0,
  now = Date.now,
  settingsFile,
  worker = false,
}: AppOptions): Promise<ServingApp> {
  const events = new EventEmitter<AuthDataEvents>()
  const authData = await openAuthData(config, { log, now, events })
  const { keys, certificates } = authData
  const metrics = new Metrics({
    upstreams: config.upstreams.map(({ prefix }) => prefix),
    subjects: authData.subjects,
    enforcing: config.enforcement === 'enforce',
    issuers: authData.keySets.map(({ issuer }) => issuer),
    now,
  })
  const { registry } = metrics
  const signer = new TokenSigner(keys, config.token, now)
  const base: Base = { config, log, now, authData, metrics, signer }
  const tokenCache = createTokenCache(base)
  const { handle, forwarder, responder, peers, clientAddress, audit } = createResponses(base, tokenCache)

  events.on('change', (revokedTokens) => {
    // A cached token's credential may be disabled, its key removed, or itself revoked: the next request verifies it anew.
    tokenCache.invalidate(revokedTokens)
    forwarder.recheckTunnels()
  })
  events.on('reload', (subject, result, part) => {
    metrics.onReload(subject, result, part)
    audit.reload(subject, result)
  })
  events.on('fetch', metrics.onFetch)

  const phase: Phase = { name: 'starting', isAborting: false }
  const isDraining = () => phase.name === 'draining'
  const isAborting = () => phase.isAborting
  const accessLog = createAccessLog(metrics, log, config.log.access, clientAddress, isAborting)
  const onListenError = logListenerErrors(log)
  const listener = new DataListener(config, certificates.get('listener')?.current().material, peers.peerOf, {
    handle,
    onRequestEnd: accessLog.onRequestEnd,
    onParserError: (error, peer, bytes) =>
      responder.parserErrorResponse(error, accessLog.onParserError(error, peer), bytes),
    isDraining,
    onTlsError: (code) => log.debug({ code }, 'TLS handshake failed'),
    onListenError,
  })
  const ready = () => {
    const accepting = { name: 'accepting', ok: phase.name === 'running' }
    return [...authData.checks(), isDraining() ? { ...accepting, state: 'draining' as const } : accepting]
  }
  const sources: AdminSources = {
    ready,
    jwks: () => (authData.keysReady() ? publicJwks(keys()) : undefined),
    exposition: registry,
    statusMetrics: () => statusMetrics(registry),
  }
  const admin = worker
    ? NO_ADMIN
    : createAdminListener(config, sources, {
        certificates: certificates.get('admin')?.current().material,
        now,
        onError: onListenError,
      })
  events.on('certificates', (name, material) => {
    if (name === 'listener') listener.setCertificates(material)
    if (name === 'admin') admin.setCertificates(material)
  })
  const { maxLifetimeSeconds, clockToleranceSeconds } = config.token
  metrics.readFrom({
    cache: tokenCache,
    listener,
    signingKey: () => keys().signing,
    tokenLifetimes: () => tokenLifetimes(keys(), maxLifetimeSeconds + clockToleranceSeconds, now()),
    revocations: authData.revocations,
    pools: () => forwarder.pools(),
    certificates: () => expiriesOf(certificates),
    keySets: () => authData.keySets.map(({ issuer, state }) => ({ issuer, ...state() })),
    ready: () => ready().every(({ ok }) => ok),
    logLinesDropped,
  })

  authData.start()
  const reminder = config.enforcement === 'report' ? warnOfReportMode(log) : undefined
  const lifeCycle = createLifeCycle({
    phase,
    listener,
    admin,
    authData,
    forwarder,
    shutdown: config.shutdown,
    onListening(where) {
      // The primary process reports for its workers.
      if (!worker) logStart(log, config, settingsFile, keys().signing?.kid, where)
    },
    onDraining: (inFlight) => log.info({ inFlight }, 'draining'),
    onStopped(report) {
      clearInterval(reminder)
      if (!worker) log.info(report, 'stopped')
    },
  })
  return {
    start: lifeCycle.start,
    reload: authData.reload,
    stop: lifeCycle.stop,
    sources,
    registry,
    abort: () => void listener.abort(),
  }
}

/** Verifies tokens and caches those that are accepted. */
function createTokenCache({ config, now, authData, signer }: Base) {
  const { issuers, isRevoked } = authData
  const { assertion } = config.identity
  const { clockToleranceSeconds } = config.token
  const audiences = config.upstreams.flatMap(({ assertionAudience }) => assertionAudience ?? [])
  return new TokenCache({
    ...config.cache,
    verifyUncached: createVerifier({ issuers, clockToleranceSeconds, isRevoked, now }),
    ...(assertion.enabled && {
      signAssertions: (identity) =>
        signer.signAssertions(identity, [assertion.audience, ...audiences], assertion.lifetimeSeconds),
    }),
    now,
  })
}

/** Decides on requests, and responds to them: token and link endpoint, refusals, forwarding. */
function createResponses(base: Base, tokenCache: TokenCache) {
  const { config, log, now, authData, metrics, signer } = base
  const canEndLinks = authData.revokeToken !== undefined
  const decide = createDecide(config, canEndLinks, tokenCache.verify, metrics.onTokenCheck)
  const responder = new Responder(config.cors.allowedOrigins)
  const peers = createPeers(config.forwarded.trust)
  const clientAddress = ({ context, headers }: SidecarRequest) =>
    peers.clientAddress(context.connection.peer, headers['x-forwarded-for'])
  const audit = new Audit(log, config.log.audit, clientAddress)
  const endpoint: EndpointOptions = {
    responder,
    signer,
    revokeToken: authData.revokeToken,
    contract: config.contract,
    audit,
    now,
  }
  const tokenEndpoint = new TokenEndpoint({
    ...endpoint,
    credentials: authData.credentials,
    throttle: createLoginThrottle(config.limits.loginFailures),
    clientAddress,
    onIssued: metrics.onTokenIssued,
    onIssueFailure: metrics.onIssueFailure,
  })
  const linkEndpoint = new LinkEndpoint({
    ...endpoint,
    maxLifetimeSeconds: config.links.maxLifetimeSeconds,
    onIssued: metrics.onLinkIssued,
  })
  const onInternalError = (requestId: string, error: unknown) =>
    log.error({ requestId, err: error }, 'request failed with an internal error')
  const forwarder = new Forwarder(config, {
    secureContextOf: (prefix) => secureContextOf(authData.certificates, `upstream:${prefix}`),
    recheck: (authorization) => checkBearer(authorization, tokenCache.verify),
    responder,
    events: metrics.ofUpstream,
    now,
    onInternalError,
  })
  const handle = createHandle({
    decide: (req) => decide(req, req.context.connection.peer.trusted),
    tokenEndpoint,
    linkEndpoint,
    forward: (req, res) => forwarder.forward(req, res),
    responder,
    assertionAudience: config.identity.assertion.audience,
    maxAgeSeconds: config.forwardAuth.maxAgeSeconds,
    now,
    onInternalError,
  })
  return { handle, forwarder, responder, peers, clientAddress, audit }
}
