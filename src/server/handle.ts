/**
 * Handles a request: carries out the decision of the gate.
 * In: a request. Out: a response by the upstream, the token endpoint or the responder, also after an internal fault.
 */
import { ERRORS } from '../errors.ts'
import type { Decided, Decision } from '../gate/decide.ts'
import { newRequestId, requestIdOf } from '../http/request-ids.ts'
import type { Accepted } from '../token/verify.ts'
import type { SidecarRequest, SidecarResponse } from './context.ts'
import type { LinkEndpoint } from './link-endpoint.ts'
import type { Responder } from './respond.ts'
import type { TokenEndpoint } from './token-endpoint.ts'

interface HandleOptions {
  readonly decide: (req: SidecarRequest) => Decided
  readonly tokenEndpoint: TokenEndpoint
  readonly linkEndpoint: LinkEndpoint
  readonly forward: (req: SidecarRequest, res: SidecarResponse) => void
  readonly responder: Responder
  /** `trusted`: the peer may hold an assertion. */
  readonly identityHeaders: (caller: Accepted, trusted: boolean) => readonly string[]
  /** Maximum for which a proxy may cache a forward-auth response. */
  readonly maxAgeSeconds: number
  readonly now: () => number
  readonly onInternalError: (requestId: string, error: unknown) => void
}

/** A proxy that keeps a decision of forward auth must not give it to another client. */
const VARY_BY_TOKEN = ['Vary', 'Authorization']

export function createHandle(options: HandleOptions): (req: SidecarRequest, res: SidecarResponse) => void {
  const { decide, tokenEndpoint, linkEndpoint, responder } = options

  const fault = (req: SidecarRequest, res: SidecarResponse, error: unknown) => {
    const { context } = req
    if (context.id === '') context.id = newRequestId()
    options.onInternalError(context.id, error)
    context.fail('internal')
    if (res.headersSent) context.connection.abort()
    else responder.refuse(req, res, ERRORS.internalError, { errorType: 'proxy_internal_error', close: true })
  }

  const carryOut = (req: SidecarRequest, res: SidecarResponse, decision: Decision) => {
    const { context } = req
    if (res.destroyed) return // the client left while the token was verified
    if (decision.act === 'refuse') {
      refuse(req, res, decision)
      return
    }
    if (context.isBodyMalformed) {
      refuse(req, res, { act: 'refuse', error: ERRORS.malformedRequest, reason: 'admission' })
      return
    }
    if (context.upgrade !== undefined && context.admitted?.webSocket !== true) {
      context.fail('upgrade')
      responder.refuse(req, res, ERRORS.upgradeRefused, { errorType: 'http_request_error', close: true })
      return
    }
    switch (decision.act) {
      case 'forward':
        context.passed = decision
        options.forward(req, res)
        return
      case 'issue':
        tokenEndpoint.issue(req, res).catch((error: unknown) => fault(req, res, error))
        return
      case 'timeLeft':
        context.passed = decision
        tokenEndpoint.timeLeft(req, res, decision.caller.identity)
        return
      case 'logout':
        context.passed = decision
        tokenEndpoint
          .logout(req, res, decision.caller.identity)
          .catch((error: unknown) => fault(req, res, error))
        return
      case 'allow':
        context.passed = decision
        allow(req, res, decision.caller)
        return
      case 'createLink':
        context.passed = decision
        linkEndpoint.create(req, res, decision.caller).catch((error: unknown) => fault(req, res, error))
        return
      case 'endLink':
        context.passed = decision
        linkEndpoint.end(req, res, decision.caller).catch((error: unknown) => fault(req, res, error))
        return
      case 'otherMethod':
        tokenEndpoint.otherMethod(req, res, decision.allowed)
        return
      default:
        decision satisfies never // a new decision that is not carried out fails to compile
    }
  }

  const allow = (req: SidecarRequest, res: SidecarResponse, caller: Accepted | undefined) => {
    const left = caller === undefined ? 0 : caller.identity.expiresAtSeconds - Math.ceil(options.now() / 1000)
    // A decision for one request of a restricted token, or of a link, is none for another.
    const isForAll = caller?.identity.scope === undefined && caller?.link === undefined
    const age = isForAll ? Math.min(options.maxAgeSeconds, left) : 0
    const { trusted } = req.context.connection.peer
    responder.send(req, res, 200, undefined, [
      // nginx ignores `Cache-Control: private` if this header precedes it.
      ...(age > 0 ? ['X-Accel-Expires', String(age)] : []),
      'Cache-Control',
      age > 0 ? `private, max-age=${age}` : 'no-store',
      ...VARY_BY_TOKEN,
      ...(caller === undefined ? [] : options.identityHeaders(caller, trusted)),
    ])
  }

  const refuse = (
    req: SidecarRequest,
    res: SidecarResponse,
    decision: Extract<Decision, { act: 'refuse' }>,
  ) => {
    const { error, reason, caller } = decision
    req.context.fail(reason)
    req.context.deniedTo = caller?.identity
    const { admitted, isBodyMalformed } = req.context
    const close = admitted === undefined || isBodyMalformed
    if (reason === 'admission') {
      responder.refuse(req, res, error, { errorType: 'http_request_error', close })
      return
    }
    // RFC 6750, section 3: no error code where no token was sent.
    const challenge = reason === 'missing' ? 'Bearer' : 'Bearer error="invalid_token"'
    responder.refuse(req, res, error, {
      errorType: 'http_request_denied',
      details: reason,
      close,
      headers: [
        ...(error.status === 401 ? ['WWW-Authenticate', challenge] : []),
        ...(req.context.route === 'forward_auth' ? VARY_BY_TOKEN : []),
      ],
    })
  }

  return (req, res) => {
    const { context } = req
    try {
      const decided = decide(req)
      const { request, decision } = decided
      context.decided = decided
      context.id = request === undefined ? requestIdOf(req.rawHeaders) : (request.requestId ?? newRequestId())
      // Node reports an invalid chunked body after `request`: a microtask later, `isBodyMalformed` is set.
      if (decision instanceof Promise || request?.chunked === true) {
        Promise.resolve(decision)
          .then((resolved) => carryOut(req, res, resolved))
          .catch((error: unknown) => fault(req, res, error))
      } else {
        carryOut(req, res, decision)
      }
    } catch (error) {
      fault(req, res, error)
    }
  }
}
