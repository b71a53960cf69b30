/**
 * The gate decides on a request: admission -> route -> token check -> forward | respond | refuse.
 * In: the head of a request. Out: a value, whose effects are left to `server/handle.ts`.
 */
import { ERRORS, type PublicError } from '../errors.ts'
import { isWithin } from '../http/request-target.ts'
import type { Caller, RefusalReason, Verdict, Verify } from '../token/caller.ts'
import { type LinkParameter, takeLinkParameter } from '../token/links.ts'
import { allows, namesOtherRequest } from '../token/scopes.ts'
import { type Admitted, admit, type RequestHead } from './admission.ts'
import { type JudgedRequest, namedRequest } from './named-request.ts'
import { checkBearer, checkLink } from './proof.ts'

/** Of a request that needs a token or a link: what it asks for. */
type Act = 'forward' | 'allow' | 'timeLeft' | 'logout' | 'createLink' | 'endLink'

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
  | { readonly act: 'timeLeft' | 'logout' | 'createLink' | 'endLink'; readonly caller: Caller }
  | { readonly act: 'issue' }
  | { readonly act: 'otherMethod'; readonly allowed: string }
  | {
      readonly act: 'refuse'
      readonly error: PublicError
      readonly reason: RefusalReason | 'admission'
      /** Of a valid token that does not allow the request. */
      readonly caller?: Caller | undefined
    }

/** `decision` is a promise where `verify` returns one; it rejects only on an internal fault. */
export interface Decided {
  /** Absent if the request was not admitted: then the connection must close. */
  readonly request: Admitted | undefined
  readonly route: Route
  readonly decision: Decision | Promise<Decision>
}

interface DecideOptions {
  readonly headerLines: number
  readonly enforcement: 'enforce' | 'report'
  readonly refusedTokenStatus: 400 | 401
  /** `''`, or `/…` without a slash at its end. */
  readonly basePath: string
  /** Whether DELETE on the token endpoint ends the token. */
  readonly logout: boolean
  readonly publicRoutes: readonly { readonly method: string; readonly path: string }[]
  readonly corsPreflight: 'deny' | 'pass'
  /** With everything below it; `''` for none. */
  readonly forwardAuthPath: string
  readonly links: {
    readonly enabled: boolean
    /** Whether clients can end links. */
    readonly canEnd: boolean
  }
  readonly verify: Verify
  readonly onCheck: (reason: 'ok' | RefusalReason) => void
}

/** `peerTrusted`: whether the client is a proxy of `forwarded.trust`. */
export function createDecide(options: DecideOptions): (head: RequestHead, peerTrusted?: boolean) => Decided {
  const { verify, onCheck, headerLines } = options
  const planOf = createPlanOf(options)
  const reportOnly = options.enforcement === 'report'
  const expired = { ...ERRORS.expiredToken, status: options.refusedTokenStatus }
  const invalid = { ...ERRORS.invalidToken, status: options.refusedTokenStatus }
  const errors: Readonly<Record<RefusalReason, PublicError>> = {
    unavailable: ERRORS.serviceNotReady,
    scope: ERRORS.accessDenied,
    expired, // implies a valid signature
    missing: invalid,
    malformed: invalid,
    signature: invalid,
    unknown_key: invalid,
    algorithm: invalid,
    claims: invalid,
    revoked: invalid,
  }
  const refusal = (reason: RefusalReason, caller?: Caller): Decision => ({
    act: 'refuse',
    reason,
    error: errors[reason],
    caller,
  })

  /** `judged`: the request to allow; undefined where a proxy that asks for a decision does not name it. */
  const checked = (
    act: Act,
    judged: JudgedRequest | undefined,
    rawHeaders: readonly string[],
    link: LinkParameter | undefined,
    verdict: Verdict,
  ): Decision => {
    const isForwarded = act === 'forward' || act === 'allow'
    if (!verdict.ok) {
      onCheck(verdict.reason)
      return reportOnly && isForwarded
        ? { act, caller: undefined, wouldRefuse: verdict.reason }
        : refusal(verdict.reason)
    }
    const { caller } = verdict
    if (!isForwarded) {
      onCheck('ok')
      return { act, caller }
    }
    const { scope } = caller.identity
    const isDenied =
      (scope !== undefined && (judged === undefined || !allows(scope, judged, rawHeaders))) ||
      (link !== undefined && (judged?.webSocket === true || namesOtherRequest(rawHeaders)))
    onCheck(isDenied ? 'scope' : 'ok')
    if (!isDenied) return { act, caller, target: typeof link === 'object' ? link.target : undefined }
    return reportOnly ? { act, caller, wouldRefuse: 'scope' } : refusal('scope', caller)
  }

  return (head, peerTrusted = false) => {
    const admission = admit(head, headerLines)
    if (!admission.ok) {
      const { error, reason } = admission
      if (reason === 'malformed') onCheck(reason)
      const decision: Decision = reason === 'malformed' ? refusal(reason) : { act: 'refuse', error, reason }
      return { request: undefined, route: 'proxy', decision }
    }
    const { request } = admission
    const { rawHeaders } = head
    const plan = planOf(request)
    const { route } = plan
    if (plan.act === 'public') return { request, route, decision: { act: 'forward', caller: undefined } }
    if (plan.act === 'issue' || plan.act === 'otherMethod') return { request, route, decision: plan }
    const { act } = plan
    // Forward auth judges the request that a trusted proxy names, and no other.
    const named = act === 'allow' && peerTrusted ? namedRequest(request, rawHeaders) : undefined
    const judged = act === 'allow' ? named : request
    const link =
      options.links.enabled && (act === 'allow' || act === 'forward')
        ? takeLinkParameter(judged?.target ?? '')
        : undefined
    const verdict =
      link === undefined || judged === undefined
        ? checkBearer(request.authorization, verify)
        : checkLink(link, judged.method, request.authorization, verify)
    const decision =
      verdict instanceof Promise
        ? verdict.then((resolved) => checked(act, judged, rawHeaders, link, resolved))
        : checked(act, judged, rawHeaders, link, verdict)
    return { request, route: link !== undefined && act === 'forward' ? 'link' : route, decision }
  }
}

/** The label `route` of the metrics. `token_check`: GET or HEAD of the token endpoint, not the check of every token. */
export const ROUTES = [
  'token_issue',
  'token_check',
  'logout',
  'link_issue',
  'proxy',
  'link',
  'public',
  'forward_auth',
] as const

export type Route = (typeof ROUTES)[number]

type Plan =
  | { readonly route: Route; readonly act: Act | 'public' }
  | { readonly route: Route; readonly act: 'issue' }
  | { readonly route: Route; readonly act: 'otherMethod'; readonly allowed: string }

/** Compares the raw bytes of the path: decoding or normalizing it could differ from the upstream's (CVE-2025-54576). */
function createPlanOf(options: DecideOptions): (request: Admitted) => Plan {
  const { forwardAuthPath, links } = options
  const tokenPath = `${options.basePath}/v2/auth/token`
  const tokenPathSlash = `${tokenPath}/`
  const linksPath = `${options.basePath}/v2/auth/links`
  const publicRoutes = new Set(options.publicRoutes.map(({ method, path }) => `${method} ${path}`))
  const passPreflight = options.corsPreflight === 'pass'
  const otherMethod = (route: Route, allowed: string) => ({ act: 'otherMethod', route, allowed }) as const
  const plans = {
    issue: { route: 'token_issue', act: 'issue' },
    timeLeft: { route: 'token_check', act: 'timeLeft' },
    logout: { route: 'logout', act: 'logout' },
    tokenMethod: otherMethod('token_check', options.logout ? 'GET, HEAD, POST, DELETE' : 'GET, HEAD, POST'),
    createLink: { route: 'link_issue', act: 'createLink' },
    linksMethod: otherMethod('link_issue', 'POST'),
    endLink: { route: 'link_issue', act: 'endLink' },
    linkMethod: otherMethod('link_issue', links.canEnd ? 'DELETE' : ''),
    allow: { route: 'forward_auth', act: 'allow' },
    public: { route: 'public', act: 'public' },
    forward: { route: 'proxy', act: 'forward' },
  } as const
  return ({ method, path, preflight, hasBody }) => {
    if (path === tokenPath || path === tokenPathSlash) {
      if (method === 'POST') return plans.issue
      if (method === 'DELETE' && options.logout) return plans.logout
      return method === 'GET' || method === 'HEAD' ? plans.timeLeft : plans.tokenMethod
    }
    if (links.enabled && isWithin(path, linksPath)) {
      if (path === linksPath) return method === 'POST' ? plans.createLink : plans.linksMethod
      return method === 'DELETE' && links.canEnd ? plans.endLink : plans.linkMethod
    }
    if (forwardAuthPath !== '' && isWithin(path, forwardAuthPath)) return plans.allow
    if (publicRoutes.size > 0 && publicRoutes.has(`${method} ${path}`)) return plans.public
    // A body could be of another method: some services read one from `X-HTTP-Method-Override`.
    return passPreflight && preflight && !hasBody ? plans.public : plans.forward
  }
}
