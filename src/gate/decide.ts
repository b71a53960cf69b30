/**
 * The gate decides on a request: admission -> route -> token check -> forward | respond | refuse.
 * In: the head of a request. Out: a value, whose effects are left to `server/handle.ts`.
 */
import { ERRORS, type PublicError } from '../errors.ts'
import { isWithin } from '../http/request-target.ts'
import { allows, type Scope } from '../token/scopes.ts'
import type { Accepted, RefusalReason, Verdict, Verify } from '../token/verify.ts'
import { type Admitted, admit, type RequestHead } from './admission.ts'
import { namedRequest } from './named-request.ts'

export type Decision =
  /** `caller` is absent on a public route and where report mode ignores a refused token; `wouldRefuse` says why. */
  | { readonly act: 'forward'; readonly caller: Accepted | undefined; readonly wouldRefuse?: RefusalReason }
  | { readonly act: 'issue' }
  | { readonly act: 'timeLeft' | 'logout'; readonly caller: Accepted }
  /** Forward auth: 200 with the identity headers. */
  | { readonly act: 'allow'; readonly caller: Accepted | undefined; readonly wouldRefuse?: RefusalReason }
  | { readonly act: 'otherMethod' }
  | {
      readonly act: 'refuse'
      readonly error: PublicError
      readonly reason: RefusalReason | 'admission'
      /** Of a valid token that does not allow the request. */
      readonly caller?: Accepted
    }

/** A decision that lets the request pass. */
export type Passed = Extract<Decision, { caller: Accepted | undefined }>

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
  readonly verify: Verify
  readonly onCheck: (reason: 'ok' | RefusalReason) => void
}

/** `peerTrusted`: whether the client is a proxy of `forwarded.trust`. */
export function createDecide(options: DecideOptions): (head: RequestHead, peerTrusted?: boolean) => Decided {
  const { verify, onCheck, headerLines } = options
  const routeOf = createRouteOf(options)
  const reportOnly = options.enforcement === 'report'
  const expired = { ...ERRORS.expiredToken, status: options.refusedTokenStatus }
  const invalid = { ...ERRORS.invalidToken, status: options.refusedTokenStatus }
  // `expired` implies a valid signature.
  const refusal = (reason: RefusalReason): Decision => ({
    act: 'refuse',
    reason,
    error: reason === 'unavailable' ? ERRORS.serviceNotReady : reason === 'expired' ? expired : invalid,
  })

  const checked = (checking: Checking, verdict: Verdict): Decision => {
    const { route } = checking
    const act = route === 'forward_auth' ? 'allow' : 'forward'
    if (
      verdict.ok &&
      verdict.identity.scope !== undefined &&
      !isWithinScope(checking, verdict.identity.scope)
    ) {
      onCheck('scope')
      return reportOnly
        ? { act, caller: verdict, wouldRefuse: 'scope' }
        : { act: 'refuse', error: ERRORS.accessDenied, reason: 'scope', caller: verdict }
    }
    onCheck(verdict.ok ? 'ok' : verdict.reason)
    if (verdict.ok && isTokenEndpoint(route)) {
      return { act: route === 'logout' ? 'logout' : 'timeLeft', caller: verdict }
    }
    if (verdict.ok) return { act, caller: verdict }
    if (reportOnly && !isTokenEndpoint(route)) return { act, caller: undefined, wouldRefuse: verdict.reason }
    return refusal(verdict.reason)
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
    const route = routeOf(request)
    switch (route) {
      case 'public':
        return { request, route, decision: { act: 'forward', caller: undefined } }
      case 'token_issue':
        return { request, route, decision: { act: 'issue' } }
      case 'token_method':
        return { request, route: 'token_check', decision: { act: 'otherMethod' } }
    }
    const checking = { route, request, rawHeaders: head.rawHeaders, peerTrusted }
    const verdict = checkBearer(request.authorization, verify)
    const decision =
      verdict instanceof Promise
        ? verdict.then((resolved) => checked(checking, resolved))
        : checked(checking, verdict)
    return { request, route, decision }
  }
}

/** With a token, not for one. */
const isTokenEndpoint = (route: Route) => route === 'token_check' || route === 'logout'

/** A request whose token is being checked. */
interface Checking {
  readonly route: Route
  readonly request: Admitted
  readonly rawHeaders: readonly string[]
  readonly peerTrusted: boolean
}

function isWithinScope({ route, request, rawHeaders, peerTrusted }: Checking, scope: Scope): boolean {
  if (isTokenEndpoint(route)) return true
  if (route !== 'forward_auth') return allows(scope, request, rawHeaders)
  const named = peerTrusted ? namedRequest(request, rawHeaders) : undefined
  return named !== undefined && allows(scope, named, rawHeaders)
}

const missing: Verdict = { ok: false, reason: 'missing' }
const malformed: Verdict = { ok: false, reason: 'malformed' }

/** Scheme in any case, then spaces (RFC 6750 section 2.1, RFC 9110 section 11.4). A list fails on the token's shape. */
export function checkBearer(authorization: string | undefined, verify: Verify): Verdict | Promise<Verdict> {
  if (authorization === undefined) return missing
  if (authorization.charCodeAt(6) !== 0x20) return malformed
  const scheme = authorization.slice(0, 6)
  if (scheme !== 'Bearer' && scheme.toLowerCase() !== 'bearer') return malformed
  let start = 7
  while (authorization.charCodeAt(start) === 0x20) start++
  return start >= authorization.length ? malformed : verify(authorization.slice(start))
}

/** The label `route` of the metrics. `token_check`: GET or HEAD of the token endpoint, not the check of every token. */
export const ROUTES = ['token_issue', 'token_check', 'logout', 'proxy', 'public', 'forward_auth'] as const

export type Route = (typeof ROUTES)[number]

/** Compares the raw bytes of the path: decoding or normalizing it could differ from the upstream's (CVE-2025-54576). */
function createRouteOf(options: DecideOptions): (request: Admitted) => Route | 'token_method' {
  const tokenPath = `${options.basePath}/v2/auth/token`
  const tokenPathSlash = `${tokenPath}/`
  const { forwardAuthPath } = options
  const publicRoutes = new Set(options.publicRoutes.map(({ method, path }) => `${method} ${path}`))
  const passPreflight = options.corsPreflight === 'pass'
  return ({ method, path, preflight, hasBody }) => {
    if (path === tokenPath || path === tokenPathSlash) {
      if (method === 'POST') return 'token_issue'
      if (method === 'DELETE' && options.logout) return 'logout'
      return method === 'GET' || method === 'HEAD' ? 'token_check' : 'token_method'
    }
    if (forwardAuthPath !== '' && isWithin(path, forwardAuthPath)) return 'forward_auth'
    if (publicRoutes.size > 0 && publicRoutes.has(`${method} ${path}`)) return 'public'
    // A body could be of another method: some services read one from `X-HTTP-Method-Override`.
    return passPreflight && preflight && !hasBody ? 'public' : 'proxy'
  }
}
