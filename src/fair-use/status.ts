/** What the status page says of fair use: which limits refuse requests, never whose. */
import type { AdminRoom } from '../ops/admin-room.ts'
import type { StatusProblem } from '../ops/problems.ts'
import type { Windows } from '../ops/samples.ts'
import type { Limit } from './account.ts'

const NAMES: Readonly<Record<Limit, string>> = {
  requests: 'requests per second',
  in_flight: 'requests in flight',
}

export class FairUseStatus implements AdminRoom {
  readonly #enforcement: 'enforce' | 'report'

  constructor(enforcement: 'enforce' | 'report') {
    this.#enforcement = enforcement
  }

  *problems({ recently }: Windows): Generator<StatusProblem> {
    const outcome = this.#enforcement === 'enforce' ? 'were refused' : 'would be refused'
    for (const [limit, count] of recently.ofRoom('fair_use_limited_total', 'limit')) {
      if (count > 0 && isLimit(limit)) {
        const seconds = Math.round(recently.seconds)
        const text = `Accounts are over their limit of ${NAMES[limit]}: ${count} requests ${outcome} in ${seconds} s`
        yield { severity: 'warning', text }
      }
    }
  }
}

const isLimit = (text: string): text is Limit => Object.hasOwn(NAMES, text)
