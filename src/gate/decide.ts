/**
 * The gate decides on a request: admission -> route -> proof of the caller -> forward | respond | refuse.
 * In: the head of a request. Out: a value, whose effects are left to `server/handle.ts`.
 */
import type { Config } from '../config/config.ts'
import { ERRORS, type PublicError } from '../errors.ts'
import type { Caller, RefusalReason, Verdict, Verify } from '../token/caller.ts'
import { allowsRequest, type LinkParameter, takeLinkParameter } from '../token/links.ts'
import { allows } from '../token/scopes.ts'
import { type Admitted, admit, type RequestHead } from './admission.ts'
import type { EffectiveRequest, Route, Routing } from './route.ts'
import { createRouter, originalRequest, ROUTE_OF } from './route.ts'

export type Decision =
  /**
   * `caller` is absent on a public route and where report mode ignores a refused token; `wouldRefuse` says why.
   * `forwardAuth`: 200 with the identity headers. `target`: that of the upstream's request, without a link's parameter.
   */
  | {
      readonly act: ForUpstream['act']
      readonly caller: Caller | undefined
      readonly wouldRefuse?: RefusalReason
      readonly target?: string | undefined
    }
  | { readonly act: 'timeLeft' | 'logout' | 'issueLink'; readonly caller: Caller }
  | { readonly act: 'endLink'; readonly caller: Caller; readonly linkId: string }
  | { readonly act: 'issueToken' }
  | { readonly act: 'otherMethod'; readonly allowed: string }
  | {
      readonly act: 'refuse'
      readonly error: PublicError
      readonly reason: RefusalReason | 'admission'
      /** Of a valid token that does not allow the request. */
      readonly caller?: Caller | undefined
    }

export type ForwardDecision = Extract<Decision, { act: ForUpstream['act'] }>

/** `decision` is a promise where `verify` returns one; it rejects only on an internal error. */
interface Decided {
  /** Absent if the request was not admitted: then the connection must close. */
  readonly request: Admitted | undefined
  /** The request to allow. Absent also if it is forward auth, and no trusted proxy names the original request clearly. */
  readonly effective: EffectiveRequest | undefined
  readonly route: Route
  readonly decision: Decision | Promise<Decision>
}

/** `peerTrusted`: whether the client is a proxy of `forwarded.trust`. */
export type Decide = (head: RequestHead, peerTrusted: boolean) => Decided

/** `onCheck`: called once for each request that needs a caller. */
export function createDecide(
  config: Config,
  canEndLinks: boolean,
  verify: Verify,
  onCheck: (reason: 'ok' | RefusalReason) => void,
): Decide {
  const routeOf = createRouter(config, canEndLinks)
  const errorOf = refusedTokenErrors(config.contract.refusedTokenStatus)
  const reportOnly = config.enforcement === 'report'

  const refuse = (reason: RefusalReason, caller?: Caller): Decision => ({
    act: 'refuse',
    reason,
    error: errorOf[reason],
    caller,
  })

  const refuseOrReport = (routing: NeedsCaller, reason: RefusalReason, caller?: Caller): Decision => {
    onCheck(reason)
    if (!reportOnly || !isForUpstream(routing)) return refuse(reason, caller)
    // Most services read an empty X-Authenticated-Scope as none, which is unrestricted.
    const mayDoNothing = caller?.identity.scope?.text === ''
    const isLink = caller?.link !== undefined // it proves its own request alone
    const isNamed = !mayDoNothing && !isLink
    return { act: routing.act, caller: isNamed ? caller : undefined, wouldRefuse: reason }
  }

  const decisionOn = (
    routing: NeedsCaller,
    request: Admitted,
    effective: EffectiveRequest | undefined,
    parameter: LinkParameter | undefined,
    verdict: Verdict,
  ): Decision => {
    if (!verdict.ok) return refuseOrReport(routing, verdict.reason)
    const { caller } = verdict
    const reason = reasonToRefuse(routing, request, effective, parameter, caller)
    if (reason !== undefined) return refuseOrReport(routing, reason, reason === 'scope' ? caller : undefined)
    onCheck('ok')
    return isForUpstream(routing)
      ? { act: routing.act, caller, target: parameter?.target }
      : { ...routing, caller }
  }

  return (head, peerTrusted) => {
    const admission = admit(head, config.limits.headerLines)
    if (!admission.ok) {
      const { reason } = admission
      if (reason === 'malformed') onCheck(reason)
      const decision = reason === 'malformed' ? refuse(reason) : ({ act: 'refuse', ...admission } as const)
      return { request: undefined, effective: undefined, route: ROUTE_OF.forward, decision }
    }
    const { request } = admission
    const routing = routeOf(request)
    const { act } = routing
    if (act === 'forwardPublic')
      return { request, effective: request, route: ROUTE_OF[act], decision: PUBLIC }
    if (act === 'issueToken') return { request, effective: request, route: ROUTE_OF[act], decision: routing }
    if (act === 'otherMethod') return { request, effective: request, route: routing.route, decision: routing }
    const effective = act === 'forwardAuth' ? originalRequest(request, peerTrusted) : request
    const takesLink = config.links.enabled && isForUpstream(routing) && effective !== undefined
    const parameter = takesLink ? takeLinkParameter(effective.target) : undefined
    const verdict = verdictOn(request.authorization, parameter, verify)
    const decision =
      verdict instanceof Promise
        ? verdict.then((resolved) => decisionOn(routing, request, effective, parameter, resolved))
        : decisionOn(routing, request, effective, parameter, verdict)
    const route = ROUTE_OF[parameter !== undefined && act === 'forward' ? 'forwardLinked' : act]
    return { request, effective, route, decision }
  }
}

const PUBLIC: Decision = { act: 'forward', caller: undefined }

type NeedsCaller = Exclude<Routing, { act: 'forwardPublic' | 'issueToken' | 'otherMethod' }>
type ForUpstream = Extract<Routing, { act: 'forward' | 'forwardAuth' }>

/** Otherwise the sidecar itself serves it. */
function isForUpstream(routing: NeedsCaller): routing is ForUpstream {
  return routing.act === 'forward' || routing.act === 'forwardAuth'
}

const MISSING: Verdict = { ok: false, reason: 'missing' }
const MALFORMED: Verdict = { ok: false, reason: 'malformed' }

/** A link beside `Authorization` is refused: two proofs may name two callers. */
function verdictOn(
  authorization: string | undefined,
  parameter: LinkParameter | undefined,
  verify: Verify,
): Verdict | Promise<Verdict> {
  if (parameter === undefined) return checkBearer(authorization, verify)
  return parameter.token === undefined || authorization !== undefined ? MALFORMED : verify(parameter.token)
}

/** Scheme in any case, then spaces (RFC 6750 section 2.1, RFC 9110 section 11.4). A list fails on the token's shape. */
export function checkBearer(authorization: string | undefined, verify: Verify): Verdict | Promise<Verdict> {
  if (authorization === undefined) return MISSING
  if (authorization.charCodeAt(6) !== 0x20) return MALFORMED
  const scheme = authorization.slice(0, 6)
  if (scheme !== 'Bearer' && scheme.toLowerCase() !== 'bearer') return MALFORMED
  let start = 7
  while (authorization.charCodeAt(start) === 0x20) start++
  return start < authorization.length ? verify(authorization.slice(start)) : MALFORMED
}

/** Why a verified token or link does not allow the request, or undefined. The endpoints of the sidecar need no scope. */
function reasonToRefuse(
  routing: NeedsCaller,
  request: Admitted,
  effective: EffectiveRequest | undefined,
  parameter: LinkParameter | undefined,
  caller: Caller,
): 'claims' | 'scope' | undefined {
  // A link is no bearer token and a token is no link.
  if ((parameter === undefined) !== (caller.link === undefined)) return 'claims'
  if (parameter !== undefined && caller.link !== undefined) {
    const isLinked = effective !== undefined && allowsRequest(caller.link, effective.method, parameter.target)
    if (!isLinked) return 'claims'
    if (request.namesOtherRequest || request.isWebSocket) return 'scope'
  }
  const { scope } = caller.identity
  if (scope === undefined || !isForUpstream(routing)) return undefined
  return effective !== undefined && allows(scope, effective) ? undefined : 'scope'
}

function refusedTokenErrors(status: 400 | 401): Readonly<Record<RefusalReason, PublicError>> {
  const invalid = { ...ERRORS.invalidToken, status }
  return {
    unavailable: ERRORS.serviceNotReady,
    scope: ERRORS.accessDenied,
    expired: { ...ERRORS.expiredToken, status }, // implies a valid signature
    missing: invalid,
    malformed: invalid,
    signature: invalid,
    unknown_key: invalid,
    algorithm: invalid,
    claims: invalid,
    revoked: invalid,
  }
}
