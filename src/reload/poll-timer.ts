/** Sets the time of the next poll of a source, from what the last one found. */

/**
 *   current   the active version is that of the source
 *   settling  a new version may be incomplete
 *   failing   the source is not available, or its version is rejected
 */
export type SourceState = 'current' | 'settling' | 'failing'

export interface PollPauses {
  /** The pause while the source is `current`. Sources with the same pause are polled at the same moments. */
  readonly pollMs: number
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

  cancel(): void {
    clearTimeout(this.#timer)
  }

  /**
   * Has no effect before `start`, or after `stop`.
   * @param keepsAlive - whether the process must not end before the poll
   */
  set(state: SourceState, keepsAlive: boolean): void {
    this.cancel()
    if (!this.#isStarted || this.#isStopped) {
      return
    }
    this.#timer = setTimeout(this.#poll, this.#pauseMs(state))
    if (!keepsAlive) {
      this.#timer.unref()
    }
  }

  #pauseMs(state: SourceState): number {
    const { pollMs, settlingMs = pollMs, failingMs = pollMs } = this.#pauses
    switch (state) {
      case 'settling':
        return settlingMs
      case 'failing':
        return failingMs
      case 'current':
        return untilSharedMoment(pollMs)
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
