/**
 * The gate decides on a request: admission -> route -> token or link -> the act of the route, or a refusal.
 * In: the head of a request. Out: a decision, which `handler.ts` carries out.
 */

import type { IncomingMessage } from 'node:http'
import { ERRORS, type PublicError } from '../base/errors.ts'
import type { AccessFailure } from '../base/failures.ts'
import { failed } from '../base/result.ts'
import type { Config } from '../config/config.ts'
import type { CallerResult, TokenCache } from '../token/cache.ts'
import type { Caller } from '../token/caller.ts'
import { linkFailure, type PresentedLink, presentedLink } from '../token/links.ts'
import { type JudgedRequest, scopeAllows } from '../token/scopes.ts'
import { type AdmittedRequest, admit } from './admission.ts'
import { originalRequest } from './forward-auth.ts'
import type { CallerRoute, OpenEndpoint, Route, RouteLabel, ServiceRoute, TokenEndpoint } from './route.ts'
import { createRouter, FORWARD } from './route.ts'

export type Decision = (Refusal | ServiceDecision | EndpointDecision) & {
  /** The caller that a valid token proves, even if the token does not allow the request. */
  readonly caller?: Caller | undefined
  /** The reason for a refusal that report mode ignores. */
  readonly wouldRefuse?: AccessFailure | undefined
}

export interface Refusal {
  readonly act: 'refuse'
  readonly error: PublicError
  readonly reason: AccessFailure | 'admission'
}

/** The request passes to a service, behind the sidecar or behind the proxy of forward auth. */
export interface ServiceDecision {
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

/** The sidecar itself responds: the route of one of its endpoints, with the caller if it needs one. */
type EndpointDecision = OpenEndpoint | (TokenEndpoint & { readonly caller: Caller })

export interface RoutedRequest {
  readonly admitted: AdmittedRequest
  /** The request to allow: the admitted one, or in forward auth the one that a proxy names (`originalRequest`). */
  readonly judged: JudgedRequest | undefined
  /** The link in the target of `judged`, if the route takes links. */
  readonly link: PresentedLink | undefined
  readonly label: RouteLabel
}

interface GateResult {
  readonly routed: RoutedRequest | undefined
  /** A promise if a token must be verified. The promise rejects only on an internal error. */
  readonly decision: Decision | Promise<Decision>
}

export class Gate {
  readonly #config: Config
  readonly #routeOf: (request: AdmittedRequest) => Route
  readonly #errorOf: Readonly<Record<AccessFailure, PublicError>>
  readonly #tokenCache: Pick<TokenCache, 'check'>

  constructor(config: Config, canEndLinks: boolean, tokenCache: Pick<TokenCache, 'check'>) {
    this.#config = config
    this.#routeOf = createRouter(config, canEndLinks)
    this.#errorOf = refusedTokenErrors(config.contract.refusedTokenStatus)
    this.#tokenCache = tokenCache
  }

  /** @param isPeerTrusted - whether the client is a proxy of `forwarded.trust` */
  decide(head: IncomingMessage, isPeerTrusted: boolean): GateResult {
    const admission = admit(head, this.#config.limits)
    if (!admission.ok)
      return { routed: undefined, decision: { act: 'refuse', reason: 'admission', error: admission.error } }
    const admitted = admission.value
    const route = this.#routeOf(admitted)
    const judged = route.act === 'approve' ? originalRequest(admitted, isPeerTrusted) : admitted
    const link = this.#linkOf(route, judged)
    const label = route === FORWARD && link !== undefined ? 'link' : route.label
    const routed = { admitted, judged, link, label }
    return { routed, decision: this.#decideOnRoute(route, routed) }
  }

  /** The endpoints of the sidecar take no links. */
  #linkOf({ act }: Route, judged: JudgedRequest | undefined): PresentedLink | undefined {
    const takesLinks = this.#config.links.enabled && (act === 'forward' || act === 'approve')
    return takesLinks && judged !== undefined ? presentedLink(judged) : undefined
  }

  #decideOnRoute(route: Route, request: RoutedRequest): Decision | Promise<Decision> {
    // A service might read the other token, so public routes and report mode refuse the request, too.
    if (request.admitted.hasTwoAuthorizations) return this.#refuse('malformed')
    if (route.needs !== 'nothing') return this.#decideByToken(route, request)
    return route.act === 'forward' ? this.#letPass(route, request) : route
  }

  /** Returns a promise only if a token must be verified. */
  #decideByToken(route: CallerRoute, request: RoutedRequest): Decision | Promise<Decision> {
    const presented = presentedToken(request)
    if (typeof presented !== 'string') return this.#refuseOrReport(route, request, presented.error)
    const verdict = this.#tokenCache.check(presented)
    return verdict instanceof Promise
      ? verdict.then((late) => this.#decideByVerdict(route, request, late))
      : this.#decideByVerdict(route, request, verdict)
  }

  #decideByVerdict(route: CallerRoute, request: RoutedRequest, verdict: CallerResult): Decision {
    if (!verdict.ok) return this.#refuseOrReport(route, request, verdict.error.reason)
    const caller = verdict.value
    const reason = accessFailure(route, request, caller)
    // A token that lacks a scope proves the caller. The link of another request (`claims`) does not.
    if (reason !== undefined)
      return this.#refuseOrReport(route, request, reason, reason === 'scope' ? caller : undefined)
    return route.needs === 'token' ? { ...route, caller } : this.#letPass(route, request, caller)
  }

  /** In report mode, a refused request passes if its route leads to a service. */
  #refuseOrReport(route: CallerRoute, request: RoutedRequest, reason: AccessFailure, caller?: Caller) {
    if (this.#config.enforcement === 'enforce' || route.needs === 'token') return this.#refuse(reason, caller)
    // Most services read an empty X-Authenticated-Scope like a missing one, which means unrestricted.
    const hasEmptyScope = caller?.identity.scope?.text === ''
    const isLink = caller?.link !== undefined // a link proves the caller of its own request only
    const proven = hasEmptyScope || isLink ? undefined : caller
    return this.#letPass(route, request, proven, reason)
  }

  #refuse(reason: AccessFailure, caller?: Caller): Decision {
    return { act: 'refuse', reason, error: this.#errorOf[reason], caller }
  }

  #letPass(route: ServiceRoute, request: RoutedRequest, caller?: Caller, wouldRefuse?: AccessFailure) {
    const { admitted, link } = request
    const isPublic = route.needs === 'nothing'
    const isRestricted = isPublic || caller?.identity.scope !== undefined || caller?.link !== undefined
    // A public service receives no token. In report mode without a caller, the service judges the token.
    const forwardsAuthorization = caller ? this.#config.identity.forwardAuthorization : !isPublic
    // In report mode, a refused link stays in the target.
    const target = wouldRefuse === undefined ? link?.target : undefined
    return { act: route.act, admitted, caller, forwardsAuthorization, isRestricted, target, wouldRefuse }
  }

  /** Checks the caller of an open tunnel again. Undefined if the gate would refuse now. Rejects only on an internal error. */
  async callerStillAllowed(admitted: AdmittedRequest): Promise<Caller | undefined> {
    const token = bearerToken(admitted.authorization) // no link opens a tunnel
    const verdict = token === undefined ? MISSING : await this.#tokenCache.check(token)
    if (!verdict.ok) return undefined
    const request = { admitted, judged: admitted, link: undefined }
    return accessFailure(FORWARD, request, verdict.value) === undefined ? verdict.value : undefined
  }
}

/** The result of the token check behind a decision, or undefined if there was none. */
export function tokenCheckOf(decision: Decision): 'ok' | AccessFailure | undefined {
  if (decision.act === 'refuse') return decision.reason === 'admission' ? undefined : decision.reason
  return decision.wouldRefuse ?? (decision.caller && 'ok')
}

const MISSING = failed('missing')
const MALFORMED = failed('malformed')

/** Returns the token of the link or of `Authorization`. With both, the request is refused: they may name two callers. */
function presentedToken({ link, admitted: { authorization } }: RoutedRequest) {
  if (link === undefined && authorization === undefined) return MISSING
  if (link !== undefined && authorization !== undefined) return MALFORMED
  return (link === undefined ? bearerToken(authorization) : link.token) ?? MALFORMED
}

/** Returns the token after `Bearer`, which may be in any case and be followed by several spaces (RFC 6750, section 2.1). */
export function bearerToken(authorization: string | undefined): string | undefined {
  if (authorization === undefined || authorization.charCodeAt(6) !== 0x20) return undefined
  const scheme = authorization.slice(0, 6)
  if (scheme !== 'Bearer' && scheme.toLowerCase() !== 'bearer') return undefined
  let start = 7
  while (authorization.charCodeAt(start) === 0x20) start++
  return start < authorization.length ? authorization.slice(start) : undefined
}

function accessFailure(route: CallerRoute, request: Omit<RoutedRequest, 'label'>, caller: Caller) {
  const { admitted, judged, link } = request
  const failure = linkFailure(caller.link, link, admitted)
  if (failure !== undefined) return failure
  const { scope } = caller.identity
  if (scope === undefined || route.needs === 'token') return undefined
  return judged !== undefined && scopeAllows(scope, judged) ? undefined : 'scope'
}

function refusedTokenErrors(status: 400 | 401): Readonly<Record<AccessFailure, PublicError>> {
  const invalid = { ...ERRORS.invalidToken, status }
  return {
    unavailable: ERRORS.serviceNotReady,
    scope: ERRORS.accessDenied,
    expired: { ...ERRORS.expiredToken, status }, // only a token with a valid signature is called expired
    missing: invalid,
    malformed: invalid,
    signature: invalid,
    unknown_key: invalid,
    algorithm: invalid,
    claims: invalid,
    revoked: invalid,
  }
}
