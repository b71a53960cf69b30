/**
 * Deadlines on a clock that a test sets.
 *
 * @module
 */
import { createDeadlines, type Deadlines, type Waiting } from '../../src/http/deadlines.ts'

/** Deadlines, what waits for one, and the way time passes. */
export interface SetDeadlines extends Deadlines {
  /** Everything that waits. */
  readonly waiting: ReadonlySet<Waiting>
  /** Lets milliseconds pass, then expires what is due. */
  advance(ms: number): void
}

/** Makes them; nothing ever expires by itself. */
export function setDeadlines(t: { teardown(cleanUp: () => void): void }): SetDeadlines {
  let time = 1000
  const waiting = new Set<Waiting>()
  const deadlines = createDeadlines({ monotonicNow: () => time, periodMs: 2 ** 30 })
  t.teardown(deadlines.stop)
  return {
    ...deadlines,
    waiting,
    add: (one) => {
      waiting.add(one)
      deadlines.add(one)
    },
    delete: (one) => {
      waiting.delete(one)
      deadlines.delete(one)
    },
    advance: (ms) => {
      time += ms
      deadlines.sweep()
    },
  }
}
