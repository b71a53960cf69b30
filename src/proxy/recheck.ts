/**
 * Has the gate decide again on a request that waits for the upstream, and on an open tunnel: the token may have expired or been
 * revoked, or its scope may have changed. In: a call with each tick (`UpstreamPool`). Out: a new decision once one is due.
 */
import type { RequestContext } from '../client/request.ts'
import type { Decision, Gate, ServiceDecision } from '../gate/gate.ts'

export interface RecheckSource {
  readonly gate: Pick<Gate, 'decide' | 'changes'>
  /** Epoch milliseconds. */
  readonly now: () => number
}

const NEVER = Number.POSITIVE_INFINITY

export class Recheck {
  readonly #source: RecheckSource
  readonly #context: RequestContext
  /** `Gate.changes` before the last decision. */
  #changesBefore: number | undefined
  /** Epoch milliseconds. `NEVER` if only a change can lead to another decision, and while a decision is being made. */
  #dueAtMs: number

  constructor(context: RequestContext, decision: ServiceDecision, source: RecheckSource) {
    this.#source = source
    this.#context = context
    this.#changesBefore = context.routed?.changesBefore
    this.#dueAtMs = decision.caller?.recheckAtMs ?? NEVER
  }

  /** Undefined unless a decision is due. The promise rejects on an internal error. */
  ifDue(): Promise<Decision> | undefined {
    const { gate, now } = this.#source
    return gate.changes() !== this.#changesBefore || now() >= this.#dueAtMs ? this.#decide() : undefined
  }

  async #decide(): Promise<Decision> {
    const { routed } = this.#context
    if (routed === undefined) throw new Error('only a routed request is forwarded')
    this.#changesBefore = this.#source.gate.changes()
    this.#dueAtMs = NEVER
    const decision = await this.#source.gate.decide(routed)
    // After a refusal, the next tick decides again: the request may have been sent meanwhile, and its retry or tunnel is refused.
    this.#dueAtMs = decision.act === 'forward' ? (decision.caller?.recheckAtMs ?? NEVER) : 0
    return decision
  }
}
