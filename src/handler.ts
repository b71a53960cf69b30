/**
 * Handles a request: admits it, carries out the decision of the gate, and responds to an internal error.
 * In: a request. Out: a response by the upstream, the Account API, a room or the responder.
 */
import { type AccessFailure, ERRORS } from './base/errors.ts'
import type { ReportError } from './base/log.ts'
import type { RequestContext, SidecarRequest } from './client/request.ts'
import type { Responder } from './client/responder.ts'
import type { SidecarResponse } from './client/response.ts'
import type { Config } from './config/config.ts'
import type { AccountApi } from './endpoints/account-api.ts'
import { admit } from './gate/admission.ts'
import type { BasicVerdict } from './gate/basic-logins.ts'
import { approvalHeaders } from './gate/forward-auth.ts'
import type {
  BasicRequest,
  Decision,
  Gate,
  LoginNeeded,
  RoutedRequest,
  ServiceDecision,
} from './gate/gate.ts'
import { HeaderLines, requestIdOf } from './http/headers.ts'
import type { Room, RoomEndpoint } from './room.ts'

interface Forwarding {
  /** If false, `forward` refuses the request without a transfer. */
  canForward(res: SidecarResponse, decision: ServiceDecision): boolean
  forward(res: SidecarResponse, decision: ServiceDecision): void
}

interface HandlerOptions {
  readonly config: Pick<Config, 'forwardAuth' | 'identity' | 'limits'>
  readonly gate: Gate
  /** Undefined unless HTTP Basic is on. Rejects only on an internal error. */
  readonly basic: { logIn(res: SidecarResponse, authorization: string): Promise<BasicVerdict> } | undefined
  readonly api: AccountApi
  readonly responder: Responder
  readonly forwarder: Forwarding
  /** Called once for each request that needs a caller, or has two `Authorization` lines. */
  readonly metrics: { onTokenCheck(reason: 'ok' | AccessFailure): void }
  readonly rooms: readonly Pick<Room, 'onRequest' | 'review'>[]
  readonly endpoints: readonly RoomEndpoint[]
  readonly now: () => number
  readonly reportError: ReportError
}

export class Handler {
  readonly #options: HandlerOptions
  readonly #endpoints: ReadonlyMap<string, RoomEndpoint>

  constructor(options: HandlerOptions) {
    this.#options = options
    this.#endpoints = new Map(options.endpoints.map((endpoint) => [endpoint.path, endpoint]))
  }

  /** Never throws. */
  handle(res: SidecarResponse): void {
    const { config, gate, responder } = this.#options
    const { req } = res
    const { context } = req
    try {
      const { isTrusted } = context.connection.peer
      const admission = admit(req, config.limits, isTrusted)
      if (!admission.ok) {
        this.#onHead(req, undefined, requestIdOf(new HeaderLines(req.rawHeaders)))
        const { error, cause } = admission.error
        responder.fail(res, 'admission', error, { cause })
        return
      }
      const admitted = admission.value
      const routed = gate.route(admitted, isTrusted)
      this.#onHead(req, routed, admitted.requestId)
      const decision = gate.decide(routed)
      if (decision instanceof Promise) {
        context.recordCacheMiss()
      }
      // A malformed chunk may have come with the head.
      // Node parses all that it has read before a promise continues.
      const mustWait = decision instanceof Promise || admitted.isChunked
      const pending = mustWait
        ? Promise.resolve(decision).then((late) => this.#carryOut(late, res))
        : this.#carryOut(decision, res)
      pending?.catch((error: unknown) => this.#onError(res, error))
    } catch (error) {
      this.#onError(res, error)
    }
  }

  #onHead(req: SidecarRequest, routed: RoutedRequest | undefined, requestId: string | undefined): void {
    req.context.recordHead(routed, requestId)
    for (const room of this.#options.rooms) {
      room.onRequest?.(req)
    }
  }

  /** A room may refuse a request that would pass to a service. */
  #review(decision: Decision, res: SidecarResponse): Decision {
    const { rooms, forwarder } = this.#options
    const { context } = res.req
    const passes = decision.act === 'forward' || decision.act === 'approve'
    if (!passes || rooms.length === 0 || res.destroyed || protocolRefusal(context) !== undefined) {
      return decision
    }
    if (decision.act === 'forward' && !forwarder.canForward(res, decision)) {
      return decision
    }
    for (const room of rooms) {
      const refusal = room.review?.(decision, context)
      if (refusal !== undefined) {
        return refusal
      }
    }
    return decision
  }

  /** Returns a promise if the response takes time. The promise rejects only on an internal error. */
  #carryOut(decided: Decision | LoginNeeded, res: SidecarResponse): void | Promise<void> {
    const { config, forwarder, api, responder, metrics, now } = this.#options
    const { context } = res.req
    if (decided.act === 'authenticate') {
      return this.#authenticate(decided.request, res)
    }
    const decision = this.#review(decided, res)
    context.recordDecision(decision)
    const failure = decision.act === 'refuse' ? decision.reason : decision.wouldRefuse
    const check = failure ?? (decision.caller && 'ok')
    if (check !== undefined) {
      metrics.onTokenCheck(check)
    }
    if (res.destroyed) {
      return // the client left while the token was verified
    }
    if (decision.act === 'refuse') {
      return responder.refuseAccess(res, decision)
    }
    const refusal = protocolRefusal(context)
    if (refusal !== undefined) {
      return responder.fail(res, refusal.reason, refusal.error)
    }
    switch (decision.act) {
      case 'forward':
        return forwarder.forward(res, decision)
      case 'approve':
        return responder.sendEmpty(res, 200, approvalHeaders(decision, context.connection, config, now()))
      case 'logIn':
        return api.logIn(res)
      case 'sendTimeLeft':
        return api.sendTimeLeft(res, decision.caller.identity)
      case 'logOut':
        return api.logOut(res, decision.caller)
      case 'createLink':
        return api.createLink(res, decision.caller)
      case 'endLink':
        return api.endLink(res, decision.caller.identity, decision.path)
      case 'respond':
        return this.#endpoints.get(decision.path)?.respond(res)
      case 'refuseMethod':
        return responder.refuseMethod(res, decision.allowed)
      default:
        decision satisfies never // a new decision that is not carried out fails to compile
    }
  }

  /** Makes a login by HTTP Basic, then carries out the decision on it. */
  async #authenticate(request: BasicRequest, res: SidecarResponse): Promise<void> {
    const { gate, basic } = this.#options
    if (basic === undefined) {
      throw new Error('HTTP Basic is off')
    }
    res.req.context.recordCacheMiss()
    const verdict = await basic.logIn(res, request.admitted.authorization)
    if (res.destroyed && !verdict.ok) {
      return // the client left, perhaps before its secret was hashed
    }
    return this.#carryOut(gate.decideOnLogin(request, verdict), res)
  }

  #onError(res: SidecarResponse, error: unknown): void {
    const { responder, reportError } = this.#options
    const { context } = res.req
    reportError(context.id, error)
    if (res.hasBegun) {
      context.recordFailure('internal')
      context.connection.abort()
      return
    }
    const options = { errorType: 'proxy_internal_error', persistence: 'close' } as const
    responder.fail(res, 'internal', ERRORS.internalError, options)
  }
}

/** Why an admitted request cannot be served, whatever its decision is. */
function protocolRefusal(context: RequestContext) {
  if (context.isBodyMalformed) {
    return { reason: 'admission', error: ERRORS.malformedRequest } as const
  }
  if (context.isDetached && context.admitted?.isWebSocket !== true) {
    return { reason: 'upgrade', error: ERRORS.upgradeRefused } as const
  }
  return undefined
}
