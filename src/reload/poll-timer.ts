/** Sets the time of the next poll of a source, from what the last one found. */

/**
 *   current   the active version is that of the source
 *   watched   the same, and `wake` is called after a change
 *   settling  a new version may be incomplete
 *   failing   the source is not available, or its version is rejected
 */
export type SourceState = 'current' | 'watched' | 'settling' | 'failing'

export interface PollPauses {
  /** The pause while the source is `current`. Sources with the same pause are polled at the same moments. */
  readonly pollMs: number
  /** Default: `pollMs`. */
  readonly watchedMs?: number
  /** Default: `pollMs`. */
  readonly settlingMs?: number
  /** Default: `pollMs`. */
  readonly failingMs?: number
}

export class PollTimer {
  readonly #pauses: PollPauses
  readonly #poll: () => void
  #isStarted = false
  #isStopped = false
  #timer: NodeJS.Timeout | undefined
  /** That of the current pause. */
  #state: SourceState | undefined
  /** Whether `wake` was called since the last pause. */
  #isWoken = false

  constructor(pauses: PollPauses, poll: () => void) {
    this.#pauses = pauses
    this.#poll = poll
  }

  start(): void {
    this.#isStarted = true
  }

  stop(): void {
    this.#isStopped = true
    this.cancel()
  }

  /** Must be called before a poll. */
  cancel(): void {
    clearTimeout(this.#timer)
    this.#state = undefined
    this.#isWoken = false
  }

  /**
   * Ends the pause of a watched source. During a poll, it makes the next pause short: the poll may have read
   * the source before its change.
   */
  wake(): void {
    if (this.#state === 'watched') {
      this.cancel()
      this.#poll()
    } else {
      this.#isWoken = true
    }
  }

  /**
   * Has no effect before `start`, or after `stop`.
   * @param keepsAlive - whether the process must not end before the poll
   */
  set(state: SourceState, keepsAlive: boolean): void {
    const isWoken = this.#isWoken
    this.cancel()
    if (!this.#isStarted || this.#isStopped) {
      return
    }
    this.#state = state === 'watched' && isWoken ? 'current' : state
    this.#timer = setTimeout(this.#poll, this.#pauseMs(this.#state))
    if (!keepsAlive) {
      this.#timer.unref()
    }
  }

  #pauseMs(state: SourceState): number {
    const { pollMs, watchedMs = pollMs, settlingMs = pollMs, failingMs = pollMs } = this.#pauses
    switch (state) {
      case 'settling':
        return settlingMs
      case 'failing':
        return failingMs
      case 'current':
        return untilSharedMoment(pollMs)
      case 'watched':
        return untilSharedMoment(watchedMs)
    }
  }
}

/** A timer can fire so much early, or a poll can end so early, that the moment is that of the last poll. */
const SAME_MOMENT = 0.1

/** An idle process wakes up once for all its sources, which costs less than once for each. */
function untilSharedMoment(pollMs: number): number {
  const delayMs = pollMs - (performance.now() % pollMs)
  const isThatOfLastPoll = delayMs < pollMs * SAME_MOMENT
  return Math.ceil(isThatOfLastPoll ? delayMs + pollMs : delayMs)
}
