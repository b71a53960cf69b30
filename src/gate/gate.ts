/**
 * The gate routes an admitted request, and decides whether it may take its route.
 * `handler.ts` carries out the decision. The stages of a request, in their order:
 *   stage      type             made by         contains
 *   admitted   AdmittedRequest  `admit`         the facts of the head, which has only one meaning
 *   routed     RoutedRequest    `Gate.route`    the route, and the RequestedAccess that is judged
 *   decided    Decision         `Gate.decide`   what the handler does, and for which caller
 *   forwarded  Transfer         `Forwarder`     both directions, after a ServiceDecision to forward
 */
import { ACCESS_ERRORS, type AccessFailure, type PublicError } from '../base/errors.ts'
import type { Config } from '../config/config.ts'
import type { HeaderList } from '../http/headers.ts'
import type { RequestedAccess } from '../http/request-target.ts'
import type { TokenCache } from '../token/cache.ts'
import type { Caller, Identity } from '../token/caller.ts'
import { linkFailure, type PresentedLink, presentedLink } from '../token/links.ts'
import type { ScopeHosts } from '../token/scope-hosts.ts'
import { type Scope, scopeAllows } from '../token/scopes.ts'
import type { Verdict } from '../token/verify.ts'
import type { AdmittedRequest } from './admission.ts'
import type { BasicLogins, BasicVerdict } from './basic-logins.ts'
import { originalRequest, VARY_BY_TOKEN } from './forward-auth.ts'
import type { CallerRoute, EndpointPlace, OpenRoute, Route, RouteSetting, ServiceRoute } from './route.ts'
import { createRouter, FORWARD_LINK } from './route.ts'

export interface RoutedRequest {
  readonly admitted: AdmittedRequest
  readonly route: Route
  /** The admitted request, or in forward auth the one that a proxy names (`originalRequest`). */
  readonly requested: RequestedAccess | undefined
  /** The link in the target of `requested`, if the route takes links. */
  readonly link: PresentedLink | undefined
  /** `Gate.changes` before the decision. */
  readonly changesBefore: number
}

/** `act`: what the handler does. */
export type Decision = RefusalDecision | ServiceDecision | CallerDecision | OpenDecision

export interface DecisionRecord {
  /** The caller that a valid token proves, even if the token does not allow the request. */
  readonly caller?: Caller | undefined
  /** What an expired or revoked token proved while it was good, for the log. */
  readonly formerIdentity?: Identity | undefined
  /** The reason for a refusal that report mode ignores. */
  readonly wouldRefuse?: AccessFailure | undefined
}

export interface RefusalDecision extends DecisionRecord {
  readonly act: 'refuse'
  readonly reason: AccessFailure
  readonly error: PublicError
  readonly headers: HeaderList
  readonly retryAfterSeconds?: number | undefined
  /** For the access log. */
  readonly cause?: string | undefined
}

/** The request passes to a service, behind the sidecar or behind the proxy of forward auth. */
export interface ServiceDecision extends DecisionRecord {
  readonly act: 'forward' | 'approve'
  readonly admitted: AdmittedRequest
  /** Absent on a public route, and where report mode ignores a refused token. */
  readonly caller: Caller | undefined
  readonly forwardsAuthorization: boolean
  /** A scope, a link or a public route allows this request, but perhaps no other one. */
  readonly isRestricted: boolean
  /** The target without the parameter of a link. Absent if the upstream receives the admitted target. */
  readonly target?: string | undefined
}

/** An endpoint serves the caller of a valid token. */
type CallerDecision = DecisionRecord & Readonly<{ act: CallerRoute['act']; path: string; caller: Caller }>

/** An endpoint serves any client. */
type OpenDecision = OpenRoute & DecisionRecord

/** The login of the request is not remembered. The handler makes it, and calls `Gate.decideOnLogin`. */
export interface LoginNeeded {
  readonly act: 'authenticate'
  readonly request: BasicRequest
}

/** A request to a service that is judged by HTTP Basic: its scheme is not Bearer. */
export interface BasicRequest extends RoutedRequest {
  readonly admitted: AdmittedRequest & { readonly authorization: string }
  readonly route: ServiceRoute
}

type GateConfig = Pick<Config, RouteSetting | 'basic' | 'enforcement' | 'identity'>

interface GateOptions {
  /** Whether there is a database for the revocations of links. */
  readonly canEndLinks: boolean
  readonly tokenCache: TokenCache
  readonly scopeHosts: ScopeHosts
  /** Undefined unless HTTP Basic is on. */
  readonly basic: BasicLogins | undefined
  /** Those of rooms. */
  readonly endpoints: readonly EndpointPlace[]
}

/** RFC 6750, section 3: `Bearer` needs at least one parameter. */
const CHALLENGE = 'Bearer realm="storage"'

export class Gate {
  #changes = 0
  readonly #config: GateConfig
  readonly #routeOf: (request: AdmittedRequest) => Route
  readonly #tokenCache: TokenCache
  readonly #scopeHosts: ScopeHosts
  readonly #basic: BasicLogins | undefined
  readonly #basicChallenge: string

  constructor(config: GateConfig, options: GateOptions) {
    const { canEndLinks, tokenCache, scopeHosts, basic, endpoints } = options
    this.#config = config
    this.#routeOf = createRouter(config, canEndLinks, endpoints)
    this.#tokenCache = tokenCache
    this.#scopeHosts = scopeHosts
    this.#basic = basic
    this.#basicChallenge = `Basic realm="${config.basic.realm}", charset="UTF-8"`
  }

  /**
   * How often keys, credentials or revocations have changed.
   * After a change, the decision on a request may differ.
   */
  readonly changes = (): number => this.#changes

  /** Must be called after each such change. Waiting requests and tunnels are then checked again. */
  onAuthDataChange(subject: 'keys' | 'credentials' | 'revocations', issuer?: string): void {
    // The cache checks revocations at each hit, but keys and credentials only when it verifies a token.
    if (issuer !== undefined) {
      this.#tokenCache.removeTokensOf(issuer)
    } else if (subject !== 'revocations') {
      this.#tokenCache.clear()
      this.#basic?.clear()
    }
    this.#changes++
  }

  /** @param isPeerTrusted - whether the client is a proxy of `forwarded.trust` */
  route(admitted: AdmittedRequest, isPeerTrusted: boolean): RoutedRequest {
    const found = this.#routeOf(admitted)
    const requested = found.act === 'approve' ? originalRequest(admitted, isPeerTrusted) : admitted
    const takesLinks = this.#config.links.enabled && found.to === 'service'
    const link = takesLinks && requested !== undefined ? presentedLink(requested) : undefined
    const route = link !== undefined && found.act === 'forward' && found.needsToken ? FORWARD_LINK : found
    return { admitted, route, requested, link, changesBefore: this.#changes }
  }

  /** Returns a promise only if a token must be verified. The promise rejects only on an internal error. */
  decide(routed: RoutedRequest): Decision | LoginNeeded | Promise<Decision> {
    if (this.#basic === undefined || !usesBasic(routed)) {
      return this.#decideByToken(routed)
    }
    const verdict = this.#basic.find(routed.admitted.authorization)
    return verdict === undefined
      ? { act: 'authenticate', request: routed }
      : this.decideOnLogin(routed, verdict)
  }

  /**
   * Decides again on a request that waits, or on a tunnel. A login by HTTP Basic is not made again:
   * the secret need not be hashed, and a refusal in report mode is no other failed login.
   */
  decideAgain(routed: RoutedRequest, former: ServiceDecision): Decision | Promise<Decision> {
    if (this.#basic === undefined || !usesBasic(routed)) {
      return this.#decideByToken(routed)
    }
    if (former.caller === undefined) {
      return former
    }
    const checked = this.#basic.checkAgain(former.caller)
    return checked.then((verdict) => this.decideOnLogin(routed, verdict))
  }

  decideOnLogin(request: BasicRequest, verdict: BasicVerdict): Decision {
    if (verdict.ok) {
      return this.#decideFor(request.route, request, verdict.value)
    }
    const { reason, cause, retryAfterSeconds } = verdict.error
    const decision = this.#refuseOrReport(request, reason)
    return decision.act === 'refuse' ? { ...decision, cause, retryAfterSeconds } : decision
  }

  #decideByToken(routed: RoutedRequest): Decision | Promise<Decision> {
    const { admitted, route, link } = routed
    if (route.act === 'respond') {
      return route
    }
    // A service might read the other token, so public routes and report mode refuse the request, too.
    if (admitted.hasTwoAuthorizations) {
      return this.#refuse(routed, 'malformed')
    }
    if (route.to === 'openEndpoint') {
      return route // it needs no caller, so the route is the decision
    }
    if (route.to === 'service' && !route.needsToken) {
      return this.#pass(route, routed)
    }
    const token = presentedToken(routed)
    if (token === undefined) {
      const isMissing = admitted.authorization === undefined && link === undefined
      return this.#refuseOrReport(routed, isMissing ? 'missing' : 'malformed')
    }
    const verdict = this.#tokenCache.check(token)
    return verdict instanceof Promise
      ? verdict.then((late) => this.#decideOnToken(route, routed, late))
      : this.#decideOnToken(route, routed, verdict)
  }

  #decideOnToken(
    route: ServiceRoute | CallerRoute,
    routed: RoutedRequest,
    verdict: Verdict<Caller>,
  ): Decision {
    if (verdict.ok) {
      return this.#decideFor(route, routed, verdict.value)
    }
    const { reason, identity } = verdict.error
    return { ...this.#refuseOrReport(routed, reason), formerIdentity: identity }
  }

  #decideFor(route: ServiceRoute | CallerRoute, routed: RoutedRequest, caller: Caller): Decision {
    const failure = accessFailure(routed, caller, this.#scopeHosts)
    // A token whose scope is too narrow proves the caller. The link of another request (`claims`) does not.
    if (failure !== undefined) {
      return this.#refuseOrReport(routed, failure, failure === 'claims' ? undefined : caller)
    }
    if (route.to === 'service') {
      return this.#pass(route, routed, caller)
    }
    return { act: route.act, path: routed.admitted.path, caller }
  }

  /** In report mode, a refused request passes if its route leads to a service. */
  #refuseOrReport(routed: RoutedRequest, reason: AccessFailure, caller?: Caller): Decision {
    const { route } = routed
    if (this.#config.enforcement === 'enforce' || route.to !== 'service') {
      return this.#refuse(routed, reason, caller)
    }
    // Most services read an empty X-Authenticated-Scope like a missing one, which means unrestricted.
    const hasEmptyScope = caller?.identity.scope?.text === ''
    const isLink = caller?.link !== undefined // a link proves the caller of its own request only
    const proven = hasEmptyScope || isLink ? undefined : caller
    return this.#pass(route, routed, proven, reason)
  }

  #refuse({ admitted, route }: RoutedRequest, reason: AccessFailure, caller?: Caller): Decision {
    const asksForBasic = this.#basic !== undefined && route.to === 'service'
    const challenge =
      reason === 'credentials' || (reason === 'missing' && asksForBasic)
        ? this.#basicChallenge
        : bearerChallenge(reason, admitted.authorization)
    const error = this.#errorOf(reason, asksForBasic)
    const headers = error.status === 401 ? ['WWW-Authenticate', challenge] : []
    if (route.act === 'approve') {
      headers.push(...VARY_BY_TOKEN)
    }
    return { act: 'refuse', reason, caller, error, headers }
  }

  #errorOf(reason: AccessFailure, asksForBasic: boolean): PublicError {
    const { authenticationFailedCode, refusedTokenStatus } = this.#config.contract
    const documented: PublicError = ACCESS_ERRORS[reason]
    if (reason === 'credentials') {
      return { ...documented, code: authenticationFailedCode }
    }
    // Most clients of HTTP Basic send their name only after a 401.
    if (reason === 'missing' && asksForBasic) {
      return { ...documented, status: 401 }
    }
    // The setting is for refused tokens: a 403 (scope) and a 503 (no keys yet) stay.
    return documented.status === 400 ? { ...documented, status: refusedTokenStatus } : documented
  }

  /** Makes every decision that lets a request pass to a service. */
  #pass(route: ServiceRoute, routed: RoutedRequest, caller?: Caller, wouldRefuse?: AccessFailure): Decision {
    const { admitted, link } = routed
    const isPublic = !route.needsToken
    const isRestricted = isPublic || caller?.identity.scope !== undefined || caller?.link !== undefined
    // A public service receives no token. In report mode without a caller, the service checks the token.
    const forwardsAuthorization = caller ? this.#forwardsToken(admitted) : !isPublic
    // In report mode, a refused link stays in the target.
    const target = wouldRefuse === undefined ? link?.target : undefined
    return { act: route.act, admitted, caller, forwardsAuthorization, isRestricted, target, wouldRefuse }
  }

  /** A secret that is a login is never forwarded: unlike a token, it does not end by itself. */
  #forwardsToken({ authorization }: AdmittedRequest): boolean {
    return this.#config.identity.forwardAuthorization && isBearer(authorization)
  }
}

/** With two `Authorization` lines, or with a link, no request uses HTTP Basic. */
function usesBasic(routed: RoutedRequest): routed is BasicRequest {
  const { admitted, route, link } = routed
  if (admitted.authorization === undefined || admitted.hasTwoAuthorizations || link !== undefined) {
    return false
  }
  return route.to === 'service' && route.needsToken && !isBearer(admitted.authorization)
}

/** RFC 6750, section 3.1: without a token, or with another scheme, the challenge has no error code. */
function bearerChallenge(reason: AccessFailure, authorization: string | undefined): string {
  const lacksToken = authorization !== undefined && bearerToken(authorization) === undefined
  return reason === 'missing' || lacksToken ? CHALLENGE : `${CHALLENGE}, error="invalid_token"`
}

/**
 * Returns the token of the link or of `Authorization`. With both, returns none: they may name two callers.
 */
function presentedToken({ link, admitted: { authorization } }: RoutedRequest): string | undefined {
  if (link === undefined) {
    return bearerToken(authorization)
  }
  return authorization === undefined ? link.token : undefined
}

/**
 * Returns the token after `Bearer`,
 * which may be in any case and be followed by several spaces (RFC 6750, section 2.1).
 */
export function bearerToken(authorization: string | undefined): string | undefined {
  if (authorization === undefined || authorization.charCodeAt(6) !== SPACE || !isBearer(authorization)) {
    return undefined
  }
  let start = 7
  while (authorization.charCodeAt(start) === SPACE) {
    start++
  }
  return start < authorization.length ? authorization.slice(start) : undefined
}

const SPACE = 0x20
const TAB = 0x09

/** Whether the scheme is Bearer, with or without a token behind it. */
function isBearer(authorization = ''): boolean {
  const scheme = authorization.slice(0, 6)
  if (scheme !== 'Bearer' && scheme.toLowerCase() !== 'bearer') {
    return false
  }
  const next = authorization.charCodeAt(6)
  return authorization.length === 6 || next === SPACE || next === TAB
}

/** Returns why a valid token or link does not allow its request. */
function accessFailure(routed: RoutedRequest, caller: Caller, hosts: ScopeHosts): AccessFailure | undefined {
  const { admitted, requested, link } = routed
  const { scope } = caller.identity
  const isLinked = caller.link !== undefined || link !== undefined
  if (!isLinked && scope === undefined) {
    return undefined
  }
  const { host, lines } = requested ?? admitted
  if (isBoundToHosts(routed, caller) && !hosts.includes(host)) {
    return 'host'
  }
  const asksForMore = isLinked && (admitted.isWebSocket || lines.addAccess)
  const failure = isLinked ? linkFailure(caller.link, link, hosts.boundName(host), asksForMore) : undefined
  return failure ?? scopeFailure(scope, routed)
}

/** Whether a link or a scope names an object, which may be another one at another host. */
function isBoundToHosts({ route, link }: RoutedRequest, caller: Caller): boolean {
  const isLink = caller.link !== undefined && link !== undefined
  const usesScope = route.to === 'service' || route.act === 'createLink'
  return isLink || (usesScope && caller.identity.scope !== undefined)
}

function scopeFailure(scope: Scope | undefined, { route, requested, link }: RoutedRequest) {
  if (scope === undefined || route.to !== 'service') {
    return undefined
  }
  if (requested === undefined) {
    return 'scope'
  }
  // The parameter of a link is not a query of its request.
  const judged = link === undefined ? requested : { ...requested, target: link.target }
  return scopeAllows(scope, judged) ? undefined : 'scope'
}
