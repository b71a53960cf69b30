/**
 * The composition root: creates the parts of one sidecar from validated settings, each after those it uses.
 * A request passes: listener -> connection -> handler -> admission -> gate (route, token)
 * -> forwarder | Account API | responder.
 * The folders are layers, each above the next: cli, workers, app and life-cycle, ops, proxy, handler and
 * endpoints, client, gate, auth, tls, config, credentials, token, keys, reload, files, upstream, http, base
 * (docs/architecture.md). Tests compare the layers with the imports, and names in comments with the code.
 * `base/errors.ts` has a glossary.
 */
import { type AuthData, openAuthData } from './auth/auth-data.ts'
import type { Logger, ReportError } from './base/log.ts'
import { DataListener } from './client/listener.ts'
import { Responder } from './client/responder.ts'
import type { Config } from './config/config.ts'
import type { CredentialLookups } from './credentials/credential-checks.ts'
import { createLoginThrottle } from './credentials/login-throttle.ts'
import { AccountApi } from './endpoints/account-api.ts'
import type { RecordEvent } from './endpoints/api-events.ts'
import { LoginService } from './endpoints/login-service.ts'
import { admit } from './gate/admission.ts'
import { Gate } from './gate/gate.ts'
import { Handler } from './handler.ts'
import { type App, createDataService, LifeCycle, startedTogether } from './life-cycle.ts'
import { createAccessLog } from './ops/access-log.ts'
import { type AdminData, createAdminListener } from './ops/admin.ts'
import { type Auditor, createAuditor } from './ops/audit-log.ts'
import { BusiestAccounts } from './ops/busiest-accounts.ts'
import { Metrics, type ProcessCounts } from './ops/metrics.ts'
import { OpenFiles } from './ops/open-files.ts'
import { areAllMet } from './ops/status.ts'
import { VerboseLog } from './ops/verbose-log.ts'
import { Forwarder } from './proxy/forward.ts'
import type { Room } from './room.ts'
import { openAdminRooms, openBasic, openEndpoints, openRooms } from './rooms.ts'
import { activeContextOf, upstreamSetName } from './tls/certificates.ts'
import { TokenCache } from './token/cache.ts'
import type { Identity } from './token/caller.ts'
import { TokenSigner } from './token/issue.ts'
import { ScopeHosts } from './token/scope-hosts.ts'
import { createVerifier } from './token/verify.ts'

export interface AppOptions {
  readonly config: Config
  readonly log: Logger
  readonly processCounts: ProcessCounts
  readonly now?: () => number
  readonly settingsFile?: string | undefined
  /** A worker has no admin listener. The primary process serves it. */
  readonly worker?: boolean
}

export type ServingApp = App & Readonly<{ adminData: AdminData; abort(): void }>

/**
 * Opens the sources of auth data. The app listens and polls only after `start` is called.
 * @throws InvalidAuthData with every problem of keys, credentials, revocations and certificates
 */
export async function createApp(options: AppOptions): Promise<ServingApp> {
  const { config, log, processCounts, now = Date.now, settingsFile, worker = false } = options
  const basis: Basis = { config, log, now }
  const lifeCycle = new LifeCycle()
  const metrics = new Metrics(now)
  const audit = createAuditor(metrics, log, config.log.audit)
  const { authData, rooms } = await openSources(basis, audit.recordReload)
  const responder = new Responder(config.cors)
  const { gate, forwarder, handler, tokenCache } = await createHandling(
    { ...basis, metrics, responder, recordEvent: audit.recordEvent },
    authData,
    rooms,
  )

  const verboseLog = new VerboseLog(log)
  const busiestAccounts = new BusiestAccounts()
  const accessLog = createAccessLog({
    metrics,
    log,
    settings: config.log,
    isVerbose: () => verboseLog.isOn,
    isAborting: lifeCycle.isAborting,
    onRequestEnd: [audit.recordLinkUse, busiestAccounts.onRequestEnd],
  })
  const flushLogs = () => {
    accessLog.flush()
    audit.flush()
  }
  const { certificateSets } = authData
  const listener = new DataListener(config, certificateSets.get('listener'), {
    handle: (res) => handler.handle(res),
    onRequestEnd: accessLog.onRequestEnd,
    onUnparsed: (refusal, peer) => responder.unparsedResponse(refusal, accessLog.onUnparsed(refusal, peer)),
    isDraining: lifeCycle.isDraining,
    opensWebSocket(req) {
      const admission = admit(req, config.limits)
      return admission.ok && admission.value.isWebSocket
    },
    onTlsError: (code) => log.debug({ code }, 'TLS handshake failed'),
    onListenError: (error) => log.error({ err: error }, 'listener error'),
  })

  const openFiles = new OpenFiles(log)
  const conditions = () => [...authData.conditions(), lifeCycle.acceptingCondition()]
  const counted = { tokenCache, listener, openFiles, forwarder, processCounts }
  const isReady = () => areAllMet(conditions())
  const adminData: AdminData = {
    conditions,
    jwks: authData.keys.publicJwks,
    signingKid: () => authData.keys.ring().signing?.kid,
    metrics: metrics.readFrom({ config, authData, ...counted, isReady, rooms }),
    accounts: () => busiestAccounts.counts(),
  }
  const admin = worker ? undefined : await createAdmin(basis, authData, adminData)

  authData.subscribe((subject, issuer) => {
    gate.onAuthDataChange(subject, issuer)
    for (const room of rooms) {
      room.onAuthDataChange?.(subject)
    }
  })
  const service = createDataService({ config, log, flushLogs }, authData, listener, forwarder)
  const sources = startedTogether([authData, openFiles, ...rooms])
  return {
    ...lifeCycle.appOf({ config, log, settingsFile, service, adminData, admin, sources }),
    adminData,
    verboseLog,
    abort: () => {
      listener.abort()
    },
  }
}

/** What most parts are created from. */
interface Basis {
  readonly config: Config
  readonly log: Logger
  readonly now: () => number
}

/** @throws InvalidAuthData */
async function openSources(basis: Basis, onReload: Auditor['recordReload']) {
  // The rooms are opened first, so that problems of their files are reported with all others.
  let loadedCredentials: () => CredentialLookups | undefined = () => undefined
  const hasCredentials = (accountId: string) => loadedCredentials()?.hasAccount(accountId)
  const { rooms, problems, warnings } = await openRooms({ ...basis, hasCredentials, onReload })
  const authData = await openAuthData({ ...basis, onReload }, problems)
  const areCredentialsLoaded = () =>
    authData.conditions().every(({ name, ok }) => name !== 'credentials' || ok)
  loadedCredentials = () => (areCredentialsLoaded() ? authData.lookups : undefined)
  for (const warning of warnings) {
    basis.log.warn(warning)
  }
  return { authData, rooms }
}

interface HandlingOptions extends Basis {
  readonly metrics: Metrics
  readonly responder: Responder
  readonly recordEvent: RecordEvent
}

/** Creates what decides on a request, and carries the decision out. */
async function createHandling(options: HandlingOptions, authData: AuthData, rooms: readonly Room[]) {
  const { config, log, now, metrics, responder, recordEvent } = options
  const { keys, credentials, certificateSets, issuers } = authData
  const { isRevoked, endToken } = authData.revocations
  const signer = new TokenSigner(keys.ring, config.token, now)
  const signAssertions = assertionSigning(config, signer)
  const { clockToleranceSeconds } = config.token
  const isUnavailable = authData.feed?.isTooOld
  const verify = createVerifier({ issuers, isRevoked, isUnavailable, clockToleranceSeconds, now })
  const { maxTokens, maxAgeSeconds } = config.cache
  const tokenCache = new TokenCache({ verify, isRevoked, signAssertions, maxTokens, maxAgeSeconds, now })

  const throttle = createLoginThrottle(config.limits.loginFailures)
  const logins = credentials && new LoginService({ credentials, throttle, recordEvent })
  const forBasic = { logins, credentials, isRevoked, signAssertions, now }
  const basic = await openBasic(config, forBasic)
  const { publicJwks } = keys
  const forEndpoints = { config, responder, signer, logins, verify, endToken, recordEvent, publicJwks }
  const endpoints = await openEndpoints(forEndpoints)

  const scopeHosts = new ScopeHosts(config.scopes.hosts)
  const canEndLinks = endToken !== undefined
  const gate = new Gate(config, { canEndLinks, tokenCache, scopeHosts, basic, endpoints })
  const secureContextOf = (prefix: string) => activeContextOf(certificateSets.get(upstreamSetName(prefix)))
  const events = (prefix: string) => metrics.ofUpstream(prefix)
  const reportError: ReportError = (requestId, error) =>
    log.error({ requestId, err: error }, 'request failed with an internal error')
  const forwarder = new Forwarder(config, { secureContextOf, responder, events, gate, now, reportError })
  const api = new AccountApi({ config, responder, signer, logins, endToken, recordEvent, scopeHosts, now })
  const carriesOut = { forwarder, api, endpoints, responder }
  const handler = new Handler({ config, gate, basic, ...carriesOut, metrics, rooms, now, reportError })
  return { gate, forwarder, handler, tokenCache }
}

async function createAdmin(basis: Basis, authData: AuthData, adminData: AdminData) {
  const rooms = await openAdminRooms({ ...basis, authData })
  const secureContext = activeContextOf(authData.certificateSets.get('admin'))
  return createAdminListener({ ...basis, adminData, secureContext, rooms })
}

/** Undefined if upstreams receive no assertions. */
function assertionSigning({ identity, upstreams }: Config, signer: TokenSigner) {
  const { enabled, audience, lifetimeSeconds } = identity.assertion
  const audiences = [audience, ...upstreams.flatMap(({ assertionAudience }) => assertionAudience ?? [])]
  const signAssertions = (caller: Identity) => signer.signAssertions(caller, audiences, lifetimeSeconds)
  return enabled ? signAssertions : undefined
}
