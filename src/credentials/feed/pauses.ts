/** How long a follower pauses before it asks a hub again, from what the hub has sent. */

const FIRST_PAUSE_MS = 1000
const MAX_PAUSE_MS = 10_000
/** A hub that always has changes, such as one with an error, costs the follower this much less than a core. */
const QUICK_PAUSE_MS = 100
/** Whole states that follow each other sooner are of hubs that disagree. */
const WHOLE_AGAIN_MS = 60_000

/**
 *   failed   no hub could be asked, or what it sent cannot be used
 *   hasty    nothing is new, and the hub did not wait although it was asked to
 *   whole    a whole state. Hubs that disagree send it again and again, with changes in between
 *   quick    changes that the hub had within a second
 *   steady   changes, or nothing new after a wait
 */
export type Outcome = 'failed' | 'hasty' | 'whole' | 'quick' | 'steady'

export class Pauses {
  readonly #random: () => number
  #inVain = 0
  #isQuick = false
  /** How many whole states followed each other. */
  #wholes = 0
  #wholeAtMs = Number.NEGATIVE_INFINITY

  /** `random`: from 0 to 1. */
  constructor(random: () => number) {
    this.#random = random
  }

  /** `nowMs`: monotonic. */
  note(outcome: Outcome, nowMs: number): void {
    this.#isQuick = outcome === 'quick'
    switch (outcome) {
      case 'failed':
      case 'hasty':
        this.#inVain++
        break
      case 'whole':
        this.#noteWhole(nowMs)
        break
      case 'quick':
        this.#inVain = 0
        break
      case 'steady':
        this.#inVain = 0
        this.#wholes = 0
        break
    }
  }

  /** The first whole state is followed by no pause. */
  #noteWhole(nowMs: number): void {
    const isAgain = nowMs - this.#wholeAtMs < WHOLE_AGAIN_MS
    this.#wholeAtMs = nowMs
    this.#wholes = isAgain ? this.#wholes + 1 : 1
    this.#inVain = this.#wholes - 1
  }

  /** The next request is not to wait for what happened before. */
  reset(): void {
    this.#inVain = 0
    this.#isQuick = false
  }

  /** Milliseconds. At random, so that the followers of a hub that restarts do not return together. */
  next(): number {
    if (this.#inVain > 0) {
      return Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#inVain - 1)) * this.#random()
    }
    return this.#isQuick ? QUICK_PAUSE_MS * this.#random() : 0
  }
}
