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
  const all = new Set<Waiting>()
  const sweep = () => {
    const time = monotonicNow()
    for (const waiting of all) if (waiting.deadline <= time) waiting.expire()
  }
  const interval = setInterval(sweep, periodMs)
  interval.unref()
  return {
    monotonicNow,
    add: (waiting) => void all.add(waiting),
    delete: (waiting) => void all.delete(waiting),
    sweep,
    stop: () => clearInterval(interval),
  }
}
