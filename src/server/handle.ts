/**
 * Handles a request: executes the decision of the gate.
 * In: a request. Out: a response by the upstream, an endpoint or the responder, also after an internal error.
 */
import { createLoginThrottle } from '../credentials/throttles.ts'
import { ERRORS } from '../errors.ts'
import type { Decide, Decision } from '../gate/decide.ts'
import type { Route } from '../gate/route.ts'
import { newRequestId, requestIdOf } from '../http/headers.ts'
import { type Caller, identityHeaders } from '../token/caller.ts'
import type { SidecarResponse } from './context.ts'
import { type EndpointOptions, revoke } from './endpoint.ts'
import { endLink, issueLink } from './link-endpoint.ts'
import type { RefusalOptions } from './respond.ts'
import { issueToken, sendTimeLeft } from './token-endpoint.ts'

/** `endpoints`: what the endpoints need; other responses use its settings, its responder and its clock. */
export function createHandle(
  endpoints: EndpointOptions,
  decide: Decide,
  forward: (res: SidecarResponse) => void,
  onInternalError: (requestId: string, error: unknown) => void,
): (res: SidecarResponse) => void {
  const { config, responder, now } = endpoints
  const throttle = createLoginThrottle(config.limits.loginFailures)

  /** Returns a promise, which rejects only on an internal error, where the response takes time. */
  const execute = (decision: Decision, res: SidecarResponse): void | Promise<void> => {
    const { context } = res.req
    if (res.destroyed) return // the client left while the token was verified
    context.decision = decision
    if (decision.act === 'refuse')
      return responder.refuse(res, decision.reason, decision.error, refusalOptions(decision, context.route))
    if (context.isBodyMalformed) return responder.refuse(res, 'admission', ERRORS.malformedRequest)
    if (context.isDetached && context.admitted?.isWebSocket !== true)
      return responder.refuse(res, 'upgrade', ERRORS.upgradeRefused)
    switch (decision.act) {
      case 'forward':
        return forward(res)
      case 'forwardAuth':
        return allowForwarding(res, decision.caller)
      case 'issueToken':
        return issueToken(endpoints, throttle, res)
      case 'timeLeft':
        return sendTimeLeft(endpoints, res, decision.caller.identity)
      case 'logout':
        return revoke(endpoints, res, decision.caller.identity, { event: 'logout' })
      case 'issueLink':
        return issueLink(endpoints, res, decision.caller)
      case 'endLink':
        return endLink(endpoints, res, decision.caller.identity, decision.linkId)
      case 'otherMethod':
        return responder.refuseMethod(res, decision.allowed)
      default:
        decision satisfies never // a new decision that is not executed fails to compile
    }
  }

  const allowForwarding = (res: SidecarResponse, caller: Caller | undefined) => {
    if (caller === undefined) return responder.send(res, 200, undefined, VARY_BY_TOKEN)
    const { identity, link, assertions, usableUntilMs } = caller
    // A client that reaches the forward-auth path itself must not collect assertions.
    const { isTrusted } = res.req.context.connection.peer
    const assertion = isTrusted ? assertions?.get(config.identity.assertion.audience) : undefined
    // At `usableUntilMs` the assertion is renewed: a proxy must not keep it until it expires.
    const endMs = assertion === undefined ? identity.expiresAtSeconds * 1000 : usableUntilMs
    const left = Math.floor((endMs - now()) / 1000)
    // A decision for one request of a restricted token, or of a link, is none for another.
    const isForAll = identity.scope === undefined && link === undefined
    const age = isForAll ? Math.min(config.forwardAuth.maxAgeSeconds, left) : 0
    responder.send(res, 200, undefined, [
      // nginx ignores `Cache-Control: private` if `X-Accel-Expires` precedes it.
      ...(age > 0 ? ['X-Accel-Expires', String(age), 'Cache-Control', `private, max-age=${age}`] : []),
      ...VARY_BY_TOKEN,
      ...identityHeaders(identity, assertion),
    ])
  }

  const onError = (res: SidecarResponse, error: unknown) => {
    const { context } = res.req
    if (context.id === '') context.id = newRequestId()
    onInternalError(context.id, error)
    if (res.headersSent) context.connection.abort()
    const errorType = 'proxy_internal_error'
    responder.refuse(res, 'internal', ERRORS.internalError, { errorType, close: true })
  }

  return (res) => {
    const { req } = res
    const { context } = req
    try {
      const { request, effective, route, decision } = decide(req, context.connection.peer.isTrusted)
      context.admitted = request
      context.effective = effective
      context.route = route
      context.id = request === undefined ? requestIdOf(req.rawHeaders) : (request.requestId ?? newRequestId())
      // Node reports an invalid chunked body after `request`: a microtask later, `isBodyMalformed` is set.
      const mustWait = decision instanceof Promise || request?.isChunked === true
      const pending = mustWait
        ? Promise.resolve(decision).then((resolved) => execute(resolved, res))
        : execute(decision, res)
      pending?.catch((error: unknown) => onError(res, error))
    } catch (error) {
      onError(res, error)
    }
  }
}

/** A proxy that keeps a decision of forward auth must not give it to another client. */
const VARY_BY_TOKEN = ['Vary', 'Authorization']

function refusalOptions(
  { error, reason }: Extract<Decision, { act: 'refuse' }>,
  route: Route,
): RefusalOptions {
  if (reason === 'admission') return {}
  // RFC 6750, section 3: no error code where no token was sent.
  const challenge = reason === 'missing' ? 'Bearer' : 'Bearer error="invalid_token"'
  return {
    errorType: 'http_request_denied',
    details: reason,
    headers: [
      ...(error.status === 401 ? ['WWW-Authenticate', challenge] : []),
      ...(route === 'forward_auth' ? VARY_BY_TOKEN : []),
    ],
  }
}
