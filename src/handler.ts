/**
 * Handles a request: admits it, carries out the decision of the gate, and responds to an internal error.
 * In: a request. Out: a response by the upstream, an endpoint or the responder.
 */
import { ACCESS_ERRORS, type AccessFailure, ERRORS, type PublicError } from './base/errors.ts'
import { afterParsing } from './base/event-loop.ts'
import type { SidecarResponse } from './client/response.ts'
import { type Dependencies, revoke } from './endpoints/endpoint.ts'
import { createLink, endLink } from './endpoints/link-endpoint.ts'
import { logIn, sendTimeLeft } from './endpoints/token-endpoint.ts'
import { admit } from './gate/admission.ts'
import { approvalHeaders, VARY_BY_TOKEN } from './gate/forward-auth.ts'
import { bearerToken, type Decision, type Gate } from './gate/gate.ts'
import { HeaderLines } from './http/headers.ts'
import { requestIdOf } from './http/request-ids.ts'

interface HandlerDependencies extends Dependencies {
  readonly gate: Gate
  readonly forwarder: { forward(res: SidecarResponse): void }
  readonly metrics: {
    /** Called once for each request that needs a caller, or has two `Authorization` lines. */
    onTokenCheck(result: 'ok' | AccessFailure): void
  }
  readonly reportInternalError: (requestId: string, error: unknown) => void
}

export class Handler {
  readonly #dependencies: HandlerDependencies

  constructor(dependencies: HandlerDependencies) {
    this.#dependencies = dependencies
  }

  /** Never throws. */
  handle(res: SidecarResponse): void {
    const { config, gate, responder } = this.#dependencies
    const { req } = res
    const { context } = req
    try {
      const admission = admit(req, config.limits)
      if (!admission.ok) {
        context.recordRoute(undefined, requestIdOf(new HeaderLines(req.rawHeaders)))
        responder.fail(res, 'admission', admission.error)
        return
      }
      const admitted = admission.value
      const routed = gate.route(admitted, context.client.peer.isTrusted)
      context.recordRoute(routed, admitted.requestId)
      const decision = gate.decide(routed)
      // A malformed chunk may have come with the head.
      const mustWait = decision instanceof Promise || admitted.isChunked
      const pending = mustWait
        ? afterParsing(decision).then((late) => this.#carryOut(late, res))
        : this.#carryOut(decision, res)
      pending?.catch((error: unknown) => this.#onError(res, error))
    } catch (error) {
      this.#onError(res, error)
    }
  }

  /** Returns a promise if the response takes time. The promise rejects only on an internal error. */
  #carryOut(decision: Decision, res: SidecarResponse): void | Promise<void> {
    const dependencies = this.#dependencies
    const { config, forwarder, responder, metrics, now } = dependencies
    const { context } = res.req
    const { peer } = context.client
    context.recordDecision(decision)
    const failure = decision.act === 'refuse' ? decision.reason : decision.wouldRefuse
    const check = failure ?? (decision.caller && 'ok')
    if (check !== undefined) metrics.onTokenCheck(check)
    if (res.destroyed) return // the client left while the token was verified
    if (decision.act === 'refuse') return this.#refuse(res, decision.reason)
    if (context.isBodyMalformed) return responder.fail(res, 'admission', ERRORS.malformedRequest)
    if (context.isDetached && context.admitted?.isWebSocket !== true)
      return responder.fail(res, 'upgrade', ERRORS.upgradeRefused)
    switch (decision.act) {
      case 'forward':
        return forwarder.forward(res)
      case 'approve':
        return responder.sendEmpty(res, 200, approvalHeaders(decision, peer, config, now()))
      case 'logIn':
        return logIn(dependencies, res)
      case 'sendTimeLeft':
        return sendTimeLeft(dependencies, res, decision.caller.identity)
      case 'logOut':
        return revoke(dependencies, res, decision.caller.identity, { event: 'logout' })
      case 'createLink':
        return createLink(dependencies, res, decision.caller)
      case 'endLink':
        return endLink(dependencies, res, decision.caller.identity, decision.linkId)
      case 'refuseMethod':
        return responder.refuseMethod(res, decision.allowed)
      default:
        decision satisfies never // a new decision that is not carried out fails to compile
    }
  }

  #refuse(res: SidecarResponse, reason: AccessFailure): void {
    const { responder, config } = this.#dependencies
    const documented: PublicError = ACCESS_ERRORS[reason]
    const status = documented.status === 400 ? config.contract.refusedTokenStatus : documented.status
    // RFC 6750, section 3.1: without a token, or with another scheme, the challenge has no error code.
    const { authorization } = res.req.context.admitted ?? {}
    const isOtherScheme = authorization !== undefined && bearerToken(authorization) === undefined
    const challenge = reason === 'missing' || isOtherScheme ? 'Bearer' : 'Bearer error="invalid_token"'
    const headers = status === 401 ? ['WWW-Authenticate', challenge] : []
    if (res.req.context.routeLabel === 'forward_auth') headers.push(...VARY_BY_TOKEN)
    const options = { errorType: 'http_request_denied', details: reason, headers } as const
    responder.fail(res, reason, { ...documented, status }, options)
  }

  #onError(res: SidecarResponse, error: unknown): void {
    const { responder, reportInternalError } = this.#dependencies
    const { context } = res.req
    reportInternalError(context.id, error)
    if (res.headersSent) context.client.abort()
    // Sends nothing if a response has begun, but records the failure.
    responder.fail(res, 'internal', ERRORS.internalError, { errorType: 'proxy_internal_error', close: true })
  }
}
