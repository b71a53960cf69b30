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
import { createRouter, type Passage, type Route, type Service } from './route.ts'

export type Decision =
  /**
   * `caller` is absent on a public route and where report mode ignores a refused token; `wouldRefuse` says why.
   * `allow`: forward auth, 200 with the identity headers. `target`: that of the upstream's request, without a link's
   * parameter.
   */
  | {
      readonly act: 'forward' | 'allow'
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

export type ForwardDecision = Extract<Decision, { act: 'forward' | 'allow' }>

/** `decision` is a promise where `verify` returns one; it rejects only on an internal error. */
export interface Decided {
  /** Absent if the request was not admitted: then the connection must close. */
  readonly request: Admitted | undefined
  readonly route: Route
  readonly decision: Decision | Promise<Decision>
}

/** A request that needs a caller. */
interface Question {
  readonly routed: Passage | Service
  readonly received: Admitted
  /** The request to allow: of forward auth the one that a trusted proxy names, undefined if it names none clearly. */
  readonly request: Admitted | NamedRequest | undefined
  /** The link parameter of that request. */
  readonly link: LinkParameter | undefined
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

  const questionOf = (routed: Passage | Service, received: Admitted, peerTrusted: boolean): Question => {
    if (!isPassage(routed)) return { routed, received, request: received, link: undefined }
    const named = routed.act === 'allow' && peerTrusted ? namedRequest(received) : undefined
    const request = routed.act === 'allow' ? named : received
    const link = config.links.enabled && request !== undefined ? takeLinkParameter(request.target) : undefined
    return { routed, received, request, link }
  }

  const decisionOn = (question: Question, verified: Verdict): Decision => {
    const { routed, link } = question
    const verdict = verified.ok && !isProof(question, verified.caller) ? NO_PROOF : verified
    const caller = verdict.ok ? verdict.caller : undefined
    if (caller !== undefined && isAllowed(question, caller)) {
      onCheck('ok')
      return isPassage(routed)
        ? { act: routed.act, caller, target: typeof link === 'object' ? link.target : undefined }
        : { ...routed, caller }
    }
    const reason = verdict.ok ? 'scope' : verdict.reason
    onCheck(reason)
    if (!reportOnly || !isPassage(routed)) return refuse(reason, caller)
    // Most services read an empty X-Authenticated-Scope as none: unrestricted.
    const mayDoNothing = caller?.identity.scope?.text === ''
    return { act: routed.act, caller: mayDoNothing ? undefined : caller, wouldRefuse: reason }
  }

  /** `peerTrusted`: whether the client is a proxy of `forwarded.trust`. */
  return (head: RequestHead, peerTrusted: boolean): Decided => {
    const admission = admit(head, config.limits.headerLines)
    if (!admission.ok) {
      const { reason } = admission
      if (reason === 'malformed') onCheck(reason)
      const decision = reason === 'malformed' ? refuse(reason) : ({ act: 'refuse', ...admission } as const)
      return { request: undefined, route: 'proxy', decision }
    }
    const { request } = admission
    const routed = routeOf(request)
    const { route } = routed
    if (routed.act === 'public') return { request, route, decision: { act: 'forward', caller: undefined } }
    if (routed.act === 'issue' || routed.act === 'otherMethod') return { request, route, decision: routed }
    const question = questionOf(routed, request, peerTrusted)
    const verdict = verdictOn(question, verify)
    const decision =
      verdict instanceof Promise
        ? verdict.then((resolved) => decisionOn(question, resolved))
        : decisionOn(question, verdict)
    const isLink = question.link !== undefined && routed.act === 'forward'
    return { request, route: isLink ? 'link' : route, decision }
  }
}

/** Whether the request is for the upstream, not for the sidecar itself. */
function isPassage(routed: Passage | Service): routed is Passage {
  return routed.act === 'forward' || routed.act === 'allow'
}

const MISSING: Verdict = { ok: false, reason: 'missing' }
const MALFORMED: Verdict = { ok: false, reason: 'malformed' }
const NO_PROOF: Verdict = { ok: false, reason: 'claims' }

/** A link beside `Authorization` is refused: two proofs may name two callers. */
function verdictOn(
  { link, received: { authorization } }: Question,
  verify: Verify,
): Verdict | Promise<Verdict> {
  if (link === undefined) return checkBearer(authorization, verify)
  return link === 'several' || authorization !== undefined ? MALFORMED : verify(link.token)
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

/** A link is no bearer token and a token is no link. A link proves its caller for one request alone. */
function isProof({ request, link }: Question, caller: Caller): boolean {
  if (typeof link !== 'object') return caller.link === undefined
  return (
    caller.link !== undefined &&
    request !== undefined &&
    allowsRequest(caller.link, request.method, link.target)
  )
}

/** Whether the caller's scope and link allow the request. The endpoints of the sidecar itself need no scope. */
function isAllowed({ routed, received, request, link }: Question, { identity: { scope } }: Caller): boolean {
  if (!isPassage(routed)) return true
  const isWebSocket = routed.act === 'forward' && received.webSocket
  if (link !== undefined && (isWebSocket || received.namesOtherRequest)) return false
  return scope === undefined || (request !== undefined && allows(scope, request))
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
