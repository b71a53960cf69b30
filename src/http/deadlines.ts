/**
 * One clock for every wait.
 *
 * A timer for each request would cost more than the request's own work. Whoever waits carries a `deadline`, moves
 * it on when there is progress, and one interval looks through all of them. A deadline is met at most one period
 * late, never early.
 *
 * @module
 */

/** Something that waits. */
export interface Waiting {
  /** When to give up, by {@link Deadlines.monotonicNow}, in milliseconds; `Infinity` while nothing is awaited. */
  deadline: number
  /** Where it stands among all that wait; theirs to keep. */
  place?: number
  /** Called once the deadline has passed, every period until it is moved or the thing is removed. */
  expire(): void
}

/** The set of everything that waits. */
export interface Deadlines {
  /** A clock that never goes back, in milliseconds. */
  readonly monotonicNow: () => number
  add(waiting: Waiting): void
  delete(waiting: Waiting): void
  /** Expires everything that is due; the interval calls it, and tests with a set clock. */
  sweep(): void
  /** Stops the interval. */
  stop(): void
}

/** What the deadlines run on. */
export interface DeadlinesOptions {
  /** A clock that never goes back, in milliseconds; default `performance.now`. */
  readonly monotonicNow?: () => number
  /** Milliseconds between two looks; default 100. */
  readonly periodMs?: number
}

/** Starts the interval. It does not keep the process alive. */
export function createDeadlines({
  monotonicNow = () => performance.now(),
  periodMs = 100,
}: DeadlinesOptions = {}): Deadlines {
  // No set: V8's tables of many short-lived entries keep one another alive, and what was in them, until the whole heap
  // is collected.
  const all: Waiting[] = []
  const remove = (waiting: Waiting) => {
    const { place = -1 } = waiting
    const last = all[all.length - 1]
    if (place < 0 || last === undefined) return
    all[place] = last
    last.place = place
    waiting.place = -1
    all.pop()
  }
  const sweep = () => {
    const time = monotonicNow()
    // From the end: what takes the place of one that is removed has been looked at already.
    for (let at = all.length - 1; at >= 0; at--) {
      const waiting = all[at]
      if (waiting !== undefined && waiting.deadline <= time) waiting.expire()
    }
  }
  const interval = setInterval(sweep, periodMs)
  interval.unref()
  return {
    monotonicNow,
    add(waiting) {
      if ((waiting.place ?? -1) < 0) waiting.place = all.push(waiting) - 1
    },
    delete: remove,
    sweep,
    stop: () => clearInterval(interval),
  }
}
