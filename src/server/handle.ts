/**
 * Handles a request: carries out the decision of the gate.
 * In: a request. Out: a response by the upstream, the token endpoint or the responder, also after an internal fault.
 */
import { ERRORS } from '../errors.ts'
import type { Decided, Decision } from '../gate/decide.ts'
import { newRequestId, requestIdOf } from '../http/request-ids.ts'
import type { Caller } from '../token/caller.ts'
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
  readonly identityHeaders: (caller: Caller, trusted: boolean) => readonly string[]
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
    if (res.headersSent) context.connection.abort()
    const errorType = 'proxy_internal_error'
    responder.refuse(req, res, 'internal', ERRORS.internalError, { errorType, close: true })
  }

  const settle = (req: SidecarRequest, res: SidecarResponse, pending: Promise<void>): void => {
    pending.catch((error: unknown) => fault(req, res, error))
  }

  const carryOut = (req: SidecarRequest, res: SidecarResponse, decision: Decision) => {
    const { context } = req
    if (res.destroyed) return // the client left while the token was verified
    context.decision = decision
    if ('caller' in decision) context.identity = decision.caller?.identity
    if (decision.act === 'refuse') return refuse(req, res, decision)
    if (context.isBodyMalformed) return responder.refuse(req, res, 'admission', ERRORS.malformedRequest)
    if (context.upgrade !== undefined && context.admitted?.webSocket !== true)
      return responder.refuse(req, res, 'upgrade', ERRORS.upgradeRefused)
    switch (decision.act) {
      case 'forward':
        return options.forward(req, res)
      case 'allow':
        return allow(req, res, decision.caller)
      case 'issue':
        return settle(req, res, tokenEndpoint.issue(req, res))
      case 'timeLeft':
        return tokenEndpoint.timeLeft(req, res, decision.caller.identity)
      case 'logout':
        return settle(req, res, tokenEndpoint.logout(req, res, decision.caller.identity))
      case 'createLink':
        return settle(req, res, linkEndpoint.create(req, res, decision.caller))
      case 'endLink':
        return settle(req, res, linkEndpoint.end(req, res, decision.caller.identity, decision.linkId))
      case 'otherMethod':
        return tokenEndpoint.otherMethod(req, res, decision.allowed)
      default:
        decision satisfies never // a new decision that is not carried out fails to compile
    }
  }

  const allow = (req: SidecarRequest, res: SidecarResponse, caller: Caller | undefined) => {
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
    { error, reason }: Extract<Decision, { act: 'refuse' }>,
  ) => {
    if (reason === 'admission') return responder.refuse(req, res, reason, error)
    // RFC 6750, section 3: no error code where no token was sent.
    const challenge = reason === 'missing' ? 'Bearer' : 'Bearer error="invalid_token"'
    responder.refuse(req, res, reason, error, {
      errorType: 'http_request_denied',
      details: reason,
      headers: [
        ...(error.status === 401 ? ['WWW-Authenticate', challenge] : []),
        ...(req.context.route === 'forward_auth' ? VARY_BY_TOKEN : []),
      ],
    })
  }

  return (req, res) => {
    const { context } = req
    try {
      const { request, route, decision } = decide(req)
      context.admitted = request
      context.route = route
      context.id = request === undefined ? requestIdOf(req.rawHeaders) : (request.requestId ?? newRequestId())
      // Node reports an invalid chunked body after `request`: a microtask later, `isBodyMalformed` is set.
      if (decision instanceof Promise || request?.chunked === true) {
        settle(
          req,
          res,
          Promise.resolve(decision).then((resolved) => carryOut(req, res, resolved)),
        )
      } else {
        carryOut(req, res, decision)
      }
    } catch (error) {
      fault(req, res, error)
    }
  }
}
