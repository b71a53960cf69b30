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
import { type NamedRequest, namedRequest } from './named-request.ts'
import { createRouter, type ForUpstream, type Route, type Routing } from './route.ts'

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
  | { readonly act: 'timeLeft' | 'logout' | 'createLink'; readonly caller: Caller }
  | { readonly act: 'endLink'; readonly caller: Caller; readonly linkId: string }
  | { readonly act: 'issue' }
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
export interface Decided {
  /** Absent if the request was not admitted: then the connection must close. */
  readonly request: Admitted | undefined
  /** Of forward auth: the request that a trusted proxy names. Absent if it names none clearly. */
  readonly named?: NamedRequest | undefined
  readonly route: Route
  readonly decision: Decision | Promise<Decision>
}

/**
 * @param canEndLinks - whether there is a database for the revocations of links
 * @param onCheck - called once for each request that needs a caller
 */
export function createDecide(
  config: Config,
  canEndLinks: boolean,
  verify: Verify,
  onCheck: (reason: 'ok' | RefusalReason) => void,
) {
  const routeOf = createRouter(config, canEndLinks)
  const errorOf = refusedTokenErrors(config.contract.refusedTokenStatus)
  const reportOnly = config.enforcement === 'report'

  const refuse = (reason: RefusalReason, caller?: Caller): Decision => ({
    act: 'refuse',
    reason,
    error: errorOf[reason],
    caller,
  })

  /** `caller`: of a valid token that does not allow the request. */
  const refuseOrReport = (routing: NeedsCaller, reason: RefusalReason, caller?: Caller): Decision => {
    onCheck(reason)
    if (!reportOnly || !isForUpstream(routing)) return refuse(reason, caller)
    // Most services read an empty X-Authenticated-Scope as none: unrestricted.
    const mayDoNothing = caller?.identity.scope?.text === ''
    return { act: routing.act, caller: mayDoNothing ? undefined : caller, wouldRefuse: reason }
  }

  const decisionOn = (
    routing: NeedsCaller,
    received: Admitted,
    asked: Admitted | NamedRequest | undefined,
    link: LinkParameter | undefined,
    verdict: Verdict,
  ): Decision => {
    if (!verdict.ok) return refuseOrReport(routing, verdict.reason)
    const { caller } = verdict
    const reason = reasonToRefuse(routing, received, asked, link, caller)
    if (reason !== undefined) return refuseOrReport(routing, reason, reason === 'scope' ? caller : undefined)
    onCheck('ok')
    return isForUpstream(routing)
      ? { act: routing.act, caller, target: link?.target }
      : { ...routing, caller }
  }

  /** `peerTrusted`: whether the client is a proxy of `forwarded.trust`. */
  return (head: RequestHead, peerTrusted: boolean): Decided => {
    const admission = admit(head, config.limits.headerLines)
    if (!admission.ok) {
      const { reason } = admission
      if (reason === 'malformed') onCheck(reason)
      const decision = reason === 'malformed' ? refuse(reason) : ({ act: 'refuse', ...admission } as const)
      return { request: undefined, named: undefined, route: 'proxy', decision }
    }
    const { request } = admission
    const routing = routeOf(request)
    const { route, act } = routing
    if (act === 'public')
      return { request, named: undefined, route, decision: { act: 'forward', caller: undefined } }
    if (act === 'issue' || act === 'otherMethod')
      return { request, named: undefined, route, decision: routing }
    const named = act === 'forwardAuth' && peerTrusted ? namedRequest(request) : undefined
    const asked = act === 'forwardAuth' ? named : request
    const takesLink = config.links.enabled && isForUpstream(routing) && asked !== undefined
    const link = takesLink ? takeLinkParameter(asked.target) : undefined
    const verdict = verdictOn(request.authorization, link, verify)
    const decision =
      verdict instanceof Promise
        ? verdict.then((resolved) => decisionOn(routing, request, asked, link, resolved))
        : decisionOn(routing, request, asked, link, verdict)
    return { request, named, route: link !== undefined && act === 'forward' ? 'link' : route, decision }
  }
}

type NeedsCaller = Exclude<Routing, { act: 'public' | 'issue' | 'otherMethod' }>

/** Otherwise the sidecar itself serves it. */
function isForUpstream(routing: NeedsCaller): routing is ForUpstream {
  return routing.act === 'forward' || routing.act === 'forwardAuth'
}

const MISSING: Verdict = { ok: false, reason: 'missing' }
const MALFORMED: Verdict = { ok: false, reason: 'malformed' }

/** A link beside `Authorization` is refused: two proofs may name two callers. */
function verdictOn(
  authorization: string | undefined,
  link: LinkParameter | undefined,
  verify: Verify,
): Verdict | Promise<Verdict> {
  if (link === undefined) return checkBearer(authorization, verify)
  return link.token === undefined || authorization !== undefined ? MALFORMED : verify(link.token)
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

/**
 * Why a verified token or link does not allow the request, or undefined. The endpoints of the sidecar need no scope.
 * @param asked - the request to allow: of forward auth the one that a trusted proxy names, undefined if none is clear
 * @param link - the link parameter of that request
 */
function reasonToRefuse(
  routing: NeedsCaller,
  received: Admitted,
  asked: Admitted | NamedRequest | undefined,
  link: LinkParameter | undefined,
  caller: Caller,
): 'claims' | 'scope' | undefined {
  // A link is no bearer token and a token is no link.
  if ((link === undefined) !== (caller.link === undefined)) return 'claims'
  if (link !== undefined && caller.link !== undefined) {
    const isLinked = asked !== undefined && allowsRequest(caller.link, asked.method, link.target)
    if (!isLinked) return 'claims'
    if (received.namesOtherRequest || (routing.act === 'forward' && received.webSocket)) return 'scope'
  }
  const { scope } = caller.identity
  if (scope === undefined || !isForUpstream(routing)) return undefined
  return asked !== undefined && allows(scope, asked) ? undefined : 'scope'
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
