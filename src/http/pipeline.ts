/**
 * The way of a request, from its head to whoever answers it.
 *
 *   admission -> route -> gate -> token endpoint, or forwarding
 *
 * In: an exchange. Out: an answer, sooner or later: nothing that goes wrong in here ends the process or leaves
 * a client without one.
 *
 * @module
 */
import { randomUUID } from 'node:crypto'
import { ERRORS } from '../errors.ts'
import { admit, type HeadLimits } from '../gate/admission.ts'
import type { Gate } from '../gate/decide.ts'
import { requestIdOf } from '../gate/request-id.ts'
import type { RouteDecision, Routed } from '../gate/routes.ts'
import type { RejectReason, Verdict } from '../token/verdict.ts'
import { type Answer, errorAnswer } from './answers.ts'
import type { Exchange } from './exchange.ts'
import type { Responder } from './respond.ts'
import type { TokenEndpoint } from './token-endpoint.ts'

/** The stages, and what is told of faults. */
export interface PipelineOptions {
  readonly limits: HeadLimits
  readonly routeOf: (request: Routed) => RouteDecision
  readonly gate: Gate
  readonly tokenEndpoint: TokenEndpoint
  readonly forward: (exchange: Exchange) => void
  readonly responder: Responder
  /** Told of each fault of our own. */
  readonly onFault: (exchange: Exchange, error: unknown) => void
  /** Told that a request was refused for its second `Authorization` before the gate. */
  readonly onTwiceAuthorized: () => void
}

/** Makes the function that works on an exchange. It never throws. */
export function createPipeline(options: PipelineOptions): (exchange: Exchange) => void {
  const { limits, routeOf, gate, tokenEndpoint, forward, responder } = options

  const fault = (exchange: Exchange, error: unknown): void => {
    options.onFault(exchange, error)
    exchange.reason = 'internal'
    responder.refuse(exchange, ERRORS.internalError, { error: 'proxy_internal_error' }, true)
  }

  const refuseUpgrade = (exchange: Exchange): void => {
    exchange.reason = 'upgrade'
    responder.refuse(exchange, ERRORS.upgradeRefused, { error: 'http_request_error' }, true)
  }

  /** The token has been checked: answers, or lets pass. */
  const proceed = (exchange: Exchange, verdict: Verdict): void => {
    if (exchange.over) return // the client left while the token was verified
    if (!verdict.ok) {
      exchange.reason = verdict.reason
      responder.respond(exchange, REFUSED_TOKENS[verdict.reason])
      return
    }
    exchange.identity = verdict.identity
    if (exchange.route === 'token_check') tokenEndpoint.tell(exchange, verdict.identity)
    else forward(exchange)
  }

  const work = (exchange: Exchange): void => {
    const admission = admit(exchange.req, limits)
    if (!admission.ok) {
      exchange.requestId = requestIdOf(exchange.req.rawHeaders) ?? randomUUID()
      if (admission.authorization) {
        options.onTwiceAuthorized()
        exchange.reason = 'malformed'
        responder.respond(exchange, REFUSED_TOKENS.malformed, true)
      } else {
        exchange.reason = 'admission'
        responder.refuse(exchange, admission.error, { error: 'http_request_error' }, true)
      }
      return
    }
    const { request } = admission
    exchange.request = request
    exchange.requestId = request.requestId ?? randomUUID()
    if (request.upgrade && !isWebSocketHandshake(exchange)) {
      refuseUpgrade(exchange)
      return
    }
    const route = routeOf(request)
    if (request.upgrade && route !== 'proxy' && route !== 'public') {
      refuseUpgrade(exchange)
      return
    }
    if (route === 'method_not_allowed') {
      exchange.route = 'token_check'
      tokenEndpoint.refuseMethod(exchange)
      return
    }
    exchange.route = route
    if (route === 'token_issue') {
      tokenEndpoint.issue(exchange).catch((error: unknown) => fault(exchange, error))
      return
    }
    if (route === 'public') {
      forward(exchange)
      return
    }
    const verdict = gate(request.authorization, exchange.connection.lastToken)
    if (!(verdict instanceof Promise)) {
      proceed(exchange, verdict)
      return
    }
    verdict.then((late) => proceed(exchange, late)).catch((error: unknown) => fault(exchange, error))
  }

  return (exchange) => {
    try {
      work(exchange)
    } catch (error) {
      fault(exchange, error)
    }
  }
}

/** Whether a request asks for the one protocol that is let through, in the one form that has nothing odd about it. */
function isWebSocketHandshake({ req, request, upgradeHead }: Exchange): boolean {
  const plain = request?.method === 'GET' && !request.hasBody && !request.http10
  return plain && upgradeHead !== undefined && req.headers.upgrade?.toLowerCase() === 'websocket'
}

/** The refusal of a token: only one that we signed is called expired. */
const refusedToken = (reason: RejectReason): Answer =>
  errorAnswer(reason === 'expired' ? ERRORS.expiredToken : ERRORS.invalidToken, {
    error: 'http_request_denied',
    details: reason,
  })

/** Rendered once: refusals must stay cheap under a flood of them. */
const REFUSED_TOKENS: Readonly<Record<RejectReason, Answer>> = {
  missing: refusedToken('missing'),
  malformed: refusedToken('malformed'),
  expired: refusedToken('expired'),
  signature: refusedToken('signature'),
  unknown_key: refusedToken('unknown_key'),
  algorithm: refusedToken('algorithm'),
  claims: refusedToken('claims'),
  revoked: refusedToken('revoked'),
}
