/**
 * The gate: what becomes of a request.
 *
 *   admission -> route -> upgrade -> token check -> forward | answer here | refuse
 *
 * In: the head of a request. Out: a decision, which whoever asked carries out. Forwarded is what stands on a public
 * route, as nobody, and what proves its token, as the token's identity; nothing else.
 *
 * @module
 */
import { ERRORS, type PublicError } from '../errors.ts'
import type { Identity, RejectReason, Verdict } from '../token/verdict.ts'
import { type Admitted, admit, type HeadLimits, type LastAdmitted, type RequestHead } from './admission.ts'
import type { Route, RouteDecision, Routed } from './routes.ts'
import { createTokenCheck, type TokenCheckOptions } from './token-check.ts'

/** What is looked at: an exchange, and no more of it than this. */
export interface Undecided {
  /** `isRemembered`: what is found in the header lines may be kept for the next request with the same ones. */
  readonly req: RequestHead & { readonly isRemembered: boolean }
  readonly connection: {
    readonly lastAdmitted: LastAdmitted
    /** Requests that are not answered yet, this one among them. */
    readonly unanswered: number
  }
}

/** It goes to the upstream, as `identity`; `undefined` on a public route. */
export interface Forward {
  readonly act: 'forward'
  readonly admitted: Admitted
  readonly route: 'proxy' | 'public'
  readonly identity: Identity | undefined
}

/** The token endpoint answers it: issues a token, tells the time that this one has left, or refuses the method. */
export type AnswerHere =
  | { readonly act: 'issue'; readonly admitted: Admitted; readonly route: 'token_issue' }
  | { readonly act: 'refuse_method'; readonly admitted: Admitted; readonly route: 'token_check' }
  | {
      readonly act: 'tell'
      readonly admitted: Admitted
      readonly route: 'token_check'
      readonly identity: Identity
    }

/** It goes no further. */
export interface Refuse {
  readonly act: 'refuse'
  /** What its token was refused for, or what the request itself was. */
  readonly reason: RejectReason | 'admission' | 'upgrade'
  readonly error: PublicError
  /** Absent where it was not admitted; then nothing that follows on its connection can be believed. */
  readonly admitted: Admitted | undefined
  readonly route: Route
}

/** What becomes of a request. */
export type Decision = Forward | AnswerHere | Refuse

/** A decision that waits for its token to be verified. The promise rejects only on a fault of our own. */
export interface Pending {
  readonly act: 'wait'
  readonly decision: Promise<Decision>
  readonly admitted: Admitted
  readonly route: Route
}

/** What decides. */
export interface DecideOptions extends TokenCheckOptions {
  readonly limits: HeadLimits
  /** Whether the protocol may be changed at all. */
  readonly upgrade: boolean
  readonly routeOf: (request: Routed) => RouteDecision
}

/** Makes the function that decides. A remembered token is decided at once, with one object for the decision. */
export function createDecide(options: DecideOptions): (undecided: Undecided) => Decision | Pending {
  const { limits, routeOf, onCheck } = options
  const check = createTokenCheck(options)

  return (undecided) => {
    const { req, connection } = undecided
    const { isRemembered } = req
    const admission = admit(req, limits, isRemembered ? connection.lastAdmitted : undefined)
    if (!admission.ok) {
      if (!admission.authorization) return refuse('admission', admission.error)
      onCheck('malformed')
      return refuse('malformed', admission.error)
    }
    const admitted = admission.request
    const route = routeOf(admitted)
    if (admitted.upgrade !== undefined && !(options.upgrade && mayUpgrade(route, admitted, undecided)))
      return refuse('upgrade', ERRORS.upgradeRefused, admitted)
    switch (route) {
      case 'public':
        return { act: 'forward', admitted, route, identity: undefined }
      case 'token_issue':
        return { act: 'issue', admitted, route }
      case 'method_not_allowed':
        return { act: 'refuse_method', admitted, route: 'token_check' }
    }
    const verdict = check(admitted.authorization)
    if (!(verdict instanceof Promise)) return checked(admitted, route, verdict)
    return { act: 'wait', decision: verdict.then((late) => checked(admitted, route, late)), admitted, route }
  }
}

/** What becomes of a request that needs a token. */
function checked(admitted: Admitted, route: 'proxy' | 'token_check', verdict: Verdict): Decision {
  if (!verdict.ok) return refuse(verdict.reason, tokenRefusal(verdict.reason), admitted, route)
  const { identity } = verdict
  return route === 'proxy'
    ? { act: 'forward', admitted, route, identity }
    : { act: 'tell', admitted, route, identity }
}

function refuse(
  reason: Refuse['reason'],
  error: PublicError,
  admitted?: Admitted,
  route: Route = 'proxy',
): Refuse {
  return { act: 'refuse', reason, error, admitted, route }
}

/** What a client is told of its token: only one that we signed is called expired. */
export function tokenRefusal(reason: RejectReason): PublicError {
  return reason === 'expired' ? ERRORS.expiredToken : ERRORS.invalidToken
}

/**
 * Whether it may change the protocol: where it is forwarded, to WebSocket, in the one form with nothing odd about it.
 * Nobody sends a handshake behind requests that are not answered.
 */
function mayUpgrade(
  route: RouteDecision,
  { method, hasBody, http10, upgrade, nominated }: Admitted,
  { connection }: Undecided,
): boolean {
  const isForwarded = route === 'proxy' || route === 'public'
  const isPlain = method === 'GET' && !hasBody && !http10 && connection.unanswered === 1
  return (
    isForwarded && isPlain && upgrade?.toLowerCase() === 'websocket' && nominated?.has('upgrade') === true
  )
}
