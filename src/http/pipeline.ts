/**
 * The way of a request, from its head to whoever answers it.
 *
 * In: an exchange. Out: an answer, sooner or later, by whoever the gate decides on: nothing that goes wrong in here
 * ends the process or leaves a client without one.
 *
 * @module
 */
import { randomUUID } from 'node:crypto'
import { ERRORS } from '../errors.ts'
import { type Decision, type Pending, type Refuse, tokenRefusal, type Undecided } from '../gate/decide.ts'
import { requestIdOf } from '../gate/request-id.ts'
import { REJECT_REASONS } from '../token/verdict.ts'
import { type Answer, errorAnswer } from './answers.ts'
import type { Exchange } from './exchange.ts'
import type { Responder } from './respond.ts'
import type { TokenEndpoint } from './token-endpoint.ts'

/** The stages, and what is told of faults. */
export interface PipelineOptions {
  readonly decide: (undecided: Undecided) => Decision | Pending
  readonly tokenEndpoint: TokenEndpoint
  readonly forward: (exchange: Exchange) => void
  readonly responder: Responder
  /** Told of each fault of our own. */
  readonly onFault: (exchange: Exchange, error: unknown) => void
}

/** Makes the function that works on an exchange. It never throws. */
export function createPipeline(options: PipelineOptions): (exchange: Exchange) => void {
  const { decide, tokenEndpoint, forward, responder } = options

  const fault = (exchange: Exchange, error: unknown): void => {
    if (exchange.requestId === '') exchange.requestId = requestIdOf(exchange.req.rawHeaders) ?? randomUUID()
    options.onFault(exchange, error)
    exchange.reason = 'internal'
    responder.refuse(exchange, ERRORS.internalError, { error: 'proxy_internal_error' }, true)
  }

  const carryOut = (exchange: Exchange, decision: Decision): void => {
    if (exchange.over) return // the client left while the token was verified
    switch (decision.act) {
      case 'forward':
        exchange.identity = decision.identity
        forward(exchange)
        break
      case 'refuse':
        exchange.reason = decision.reason
        responder.respond(exchange, refusal(decision), endsConnection(decision))
        break
      case 'tell':
        exchange.identity = decision.identity
        tokenEndpoint.tell(exchange, decision.identity)
        break
      case 'issue':
        tokenEndpoint.issue(exchange).catch((error: unknown) => fault(exchange, error))
        break
      case 'refuse_method':
        tokenEndpoint.refuseMethod(exchange)
        break
    }
  }

  const work = (exchange: Exchange): void => {
    const decision = decide(exchange)
    const { admitted } = decision
    exchange.admitted = admitted
    exchange.route = decision.route
    exchange.requestId =
      (admitted === undefined ? requestIdOf(exchange.req.rawHeaders) : admitted.requestId) ?? randomUUID()
    if (decision.act !== 'wait') {
      carryOut(exchange, decision)
      return
    }
    decision.decision
      .then((late) => carryOut(exchange, late))
      .catch((error: unknown) => fault(exchange, error))
  }

  return (exchange) => {
    try {
      work(exchange)
    } catch (error) {
      fault(exchange, error)
    }
  }
}

/** Nothing is believed behind a request that is ambiguous or that would have left HTTP. */
function endsConnection({ admitted, reason }: Refuse): boolean {
  return admitted === undefined || reason === 'upgrade'
}

function refusal({ reason, error }: Refuse): Answer {
  return REFUSED_TOKENS.get(reason) ?? errorAnswer(error, { error: 'http_request_error' })
}

/** The refusals of tokens, rendered once: they must stay cheap under a flood of them. */
const REFUSED_TOKENS: ReadonlyMap<Refuse['reason'], Answer> = new Map(
  REJECT_REASONS.map((reason) => [
    reason,
    errorAnswer(tokenRefusal(reason), { error: 'http_request_denied', details: reason }),
  ]),
)
