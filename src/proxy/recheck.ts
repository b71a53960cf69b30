/**
 * Has the gate decide again on a request that waits for the upstream, and on an open tunnel:
 * the token or the credential may have expired or been revoked, or its scope may have changed.
 * In: a call with each tick (`UpstreamPool`). Out: a new decision once one is due.
 */
import type { ReportError } from '../base/log.ts'
import type { RequestContext } from '../client/request.ts'
import type { Decision, Gate, ServiceDecision } from '../gate/gate.ts'

export interface RecheckSource {
  readonly gate: Pick<Gate, 'decideAgain' | 'changes'>
  /** Epoch milliseconds. */
  readonly now: () => number
  readonly reportError: ReportError
}

const NEVER = Number.POSITIVE_INFINITY

export class Recheck {
  readonly #source: RecheckSource
  readonly #context: RequestContext
  /** The last decision that lets the request pass. */
  #decision: ServiceDecision
  /** `Gate.changes` before the last decision. */
  #changesBefore: number | undefined
  /**
   * Epoch milliseconds. `NEVER` if only a change can lead to another decision, and while
   * a decision is being made.
   */
  #dueAtMs: number

  constructor(context: RequestContext, decision: ServiceDecision, source: RecheckSource) {
    this.#source = source
    this.#context = context
    this.#decision = decision
    this.#changesBefore = context.routed?.changesBefore
    this.#dueAtMs = decision.caller?.recheckAtMs ?? NEVER
  }

  /** If a decision is due, makes it, and calls back with it, or with undefined after an internal error. */
  ifDue(onDecision: (decision: Decision | undefined) => void): void {
    const { gate, now } = this.#source
    if (gate.changes() !== this.#changesBefore || now() >= this.#dueAtMs) {
      this.#decide(onDecision)
    }
  }

  async #decide(onDecision: (decision: Decision | undefined) => void): Promise<void> {
    const { gate, reportError } = this.#source
    this.#changesBefore = gate.changes()
    this.#dueAtMs = NEVER
    const { routed, id } = this.#context
    let decision: Decision | undefined
    try {
      if (routed !== undefined) {
        decision = await gate.decideAgain(routed, this.#decision)
      }
    } catch (error) {
      reportError(id, error)
    }
    if (decision?.act === 'forward') {
      this.#decision = decision
      this.#dueAtMs = decision.caller?.recheckAtMs ?? NEVER
    } else {
      // The next tick decides again: the request may have been sent meanwhile,
      // and its retry or tunnel is refused.
      this.#dueAtMs = 0
    }
    onDecision(decision)
  }
}
