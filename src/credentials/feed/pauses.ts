/** How long a follower pauses before it asks a hub again, from what the hub has sent. */

const FIRST_PAUSE_MS = 1000
const MAX_PAUSE_MS = 10_000

/**
 *   failed   no hub could be asked, or what it sent cannot be used
 *   hasty    nothing is new, and the hub did not wait although it was asked to
 *   whole    a whole state. Two hubs that disagree send one after the other
 *   steady   changes, or nothing new after a wait
 */
export type Outcome = 'failed' | 'hasty' | 'whole' | 'steady'

export class Pauses {
  readonly #random: () => number
  #inVain = 0
  #wasWhole = false

  /** `random`: from 0 to 1. */
  constructor(random: () => number) {
    this.#random = random
  }

  note(outcome: Outcome): void {
    const isFirstWhole = outcome === 'whole' && !this.#wasWhole
    this.#inVain = outcome === 'steady' || isFirstWhole ? 0 : this.#inVain + 1
    if (outcome !== 'failed') {
      this.#wasWhole = outcome === 'whole'
    }
  }

  /** The next request is not to wait for what happened before. */
  reset(): void {
    this.#inVain = 0
  }

  /** Milliseconds. At random, so that the followers of a hub that restarts do not return together. */
  next(): number {
    if (this.#inVain === 0) {
      return 0
    }
    return Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#inVain - 1)) * this.#random()
  }
}
