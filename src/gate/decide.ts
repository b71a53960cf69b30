/**
 * The gate decides on a request: admission -> route -> proof of the caller -> forward | respond | refuse.
 * In: the head of a request. Out: a value, whose effects are left to `server/handle.ts`.
 */
import { ERRORS, type PublicError } from '../errors.ts'
import type { Caller, RefusalReason, Verdict, Verify } from '../token/caller.ts'
import { type LinkParameter, takeLinkParameter } from '../token/links.ts'
import { allows } from '../token/scopes.ts'
import { type Admitted, admit, type RequestHead } from './admission.ts'
import { type NamedRequest, namedRequest } from './named-request.ts'
import { checkBearer, checkLink } from './proof.ts'
import { createRouter, type Passage, type Route, type RouteOptions, type Service } from './route.ts'

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

/** `decision` is a promise where `verify` returns one; it rejects only on an internal fault. */
export interface Decided {
  /** Absent if the request was not admitted: then the connection must close. */
  readonly request: Admitted | undefined
  readonly route: Route
  readonly decision: Decision | Promise<Decision>
}

interface DecideOptions extends RouteOptions {
  readonly headerLines: number
  readonly enforcement: 'enforce' | 'report'
  readonly refusedTokenStatus: 400 | 401
  readonly verify: Verify
  readonly onCheck: (reason: 'ok' | RefusalReason) => void
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

/** `peerTrusted`: whether the client is a proxy of `forwarded.trust`. */
export function createDecide(options: DecideOptions): (head: RequestHead, peerTrusted?: boolean) => Decided {
  const { verify, onCheck, headerLines, links } = options
  const routeOf = createRouter(options)
  const reportOnly = options.enforcement === 'report'
  const errorOf = refusedTokenErrors(options.refusedTokenStatus)

  const questionOf = (routed: Passage | Service, received: Admitted, peerTrusted: boolean): Question => {
    if (!isPassage(routed)) return { routed, received, request: received, link: undefined }
    const named = routed.act === 'allow' && peerTrusted ? namedRequest(received) : undefined
    const request = routed.act === 'allow' ? named : received
    const link = links.enabled && request !== undefined ? takeLinkParameter(request.target) : undefined
    return { routed, received, request, link }
  }

  const verdictOn = ({ received: { authorization }, request, link }: Question): Verdict | Promise<Verdict> =>
    link === undefined || request === undefined
      ? checkBearer(authorization, verify)
      : checkLink(link, request.method, authorization, verify)

  const refuse = (reason: RefusalReason, caller?: Caller): Decision => ({
    act: 'refuse',
    reason,
    error: errorOf[reason],
    caller,
  })

  const decisionOn = (question: Question, verdict: Verdict): Decision => {
    const { routed, link } = question
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

  return (head, peerTrusted = false) => {
    const admission = admit(head, headerLines)
    if (!admission.ok) {
      if (admission.reason === 'malformed') onCheck('malformed')
      const { reason } = admission
      const decision = reason === 'malformed' ? refuse(reason) : ({ act: 'refuse', ...admission } as const)
      return { request: undefined, route: 'proxy', decision }
    }
    const { request } = admission
    const routed = routeOf(request)
    const { route } = routed
    if (routed.act === 'public') return { request, route, decision: { act: 'forward', caller: undefined } }
    if (routed.act === 'issue' || routed.act === 'otherMethod') return { request, route, decision: routed }
    const question = questionOf(routed, request, peerTrusted)
    const verdict = verdictOn(question)
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

/** Whether the caller's scope and link allow the request. The endpoints of the sidecar itself need no scope. */
function isAllowed({ routed, received, request, link }: Question, { identity: { scope } }: Caller): boolean {
  if (!isPassage(routed)) return true
  const isHandshake = routed.act === 'forward' && received.webSocket
  if (link !== undefined && (isHandshake || received.namesOtherRequest)) return false
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
