/** How long a follower pauses before it asks a hub again, from what the hub has sent. */

const FIRST_PAUSE_MS = 1000
const MAX_PAUSE_MS = 10_000
/** Limits what a hub costs that always has changes, such as one with an error. */
const CHANGES_PAUSE_MS = 100
/** Hubs that disagree send one whole state after the other. Up to this number in a row, there is no pause. */
const MAX_WHOLES_WITHOUT_PAUSE = 3
/** Whole states are in a row if each follows the one before it sooner than this. */
const WHOLE_AGAIN_MS = 60_000

/**
 *   failed   there was no response, or it cannot be used
 *   hasty    no newer version, and the hub did not wait as requested
 *   whole    a whole state that the hub had at once
 *   changes  changes that the hub had at once
 *   steady   anything good after a wait
 */
export type Outcome = 'failed' | 'hasty' | 'whole' | 'changes' | 'steady'

export class Pauses {
  readonly #random: () => number
  /** How many outcomes in a row ask for a pause. */
  #pausesInRow = 0
  #hadChanges = false
  /** Changes between them do not end the row: hubs that disagree may send both. */
  #wholesInRow = 0
  #wholeAtMs = Number.NEGATIVE_INFINITY

  /** `random`: from 0 to 1. */
  constructor(random: () => number) {
    this.#random = random
  }

  /** `nowMs`: monotonic. */
  note(outcome: Outcome, nowMs: number): void {
    this.#hadChanges = outcome === 'changes'
    switch (outcome) {
      case 'failed':
      case 'hasty':
        this.#pausesInRow++
        break
      case 'whole':
        this.#noteWhole(nowMs)
        break
      case 'changes':
        this.#pausesInRow = 0
        break
      case 'steady':
        this.#pausesInRow = 0
        this.#wholesInRow = 0
        break
    }
  }

  #noteWhole(nowMs: number): void {
    const isAgain = nowMs - this.#wholeAtMs < WHOLE_AGAIN_MS
    this.#wholeAtMs = nowMs
    this.#wholesInRow = isAgain ? this.#wholesInRow + 1 : 1
    this.#pausesInRow = Math.max(0, this.#wholesInRow - MAX_WHOLES_WITHOUT_PAUSE)
  }

  /** The next request is sent without a pause. */
  reset(): void {
    this.#pausesInRow = 0
    this.#hadChanges = false
  }

  /** Milliseconds. At random, so that the followers of a hub that restarts do not return together. */
  next(): number {
    if (this.#pausesInRow > 0) {
      return Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#pausesInRow - 1)) * this.#random()
    }
    return this.#hadChanges ? CHANGES_PAUSE_MS * this.#random() : 0
  }
}
