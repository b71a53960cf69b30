/**
 * Remembers for one connection that the token which came last on it was refused: a client that repeats it must not cost
 * a signature check each time.
 *
 * In: a verdict, and when it was found. Out: the same verdict for the same token, for as long as it would be found again.
 * That is so for a wrong signature until keys change, and for an expired token unless the clock is set back. Other
 * reasons pass with time, or are found without a signature. It is kept in the connection's {@link LastToken}: one token,
 * which no other connection sees.
 *
 * @module
 */
import type { LastToken, Verdict } from './verdict.ts'

/** A moment, by what a refusal can depend on. */
export interface Moment {
  /** How often keys, credentials and revocations have changed so far. */
  readonly generation: number
  /** Epoch milliseconds. */
  readonly time: number
}

/**
 * Remembers a refusal.
 *
 * @param from - when the check began: it cannot have looked at a later generation
 * @param to - when it ended
 */
export function rememberRefusal(last: LastToken, verdict: Verdict, from: Moment, to: Moment): void {
  if (verdict.ok || from.generation !== to.generation) return
  if (verdict.reason !== 'signature' && verdict.reason !== 'expired') return
  // The later time, should the clock have been set back meanwhile: the check may have looked at it before that.
  last.refusal = { verdict, generation: to.generation, time: Math.max(from.time, to.time) }
}

/** What was said of the last token, if it would be said again. */
export function repeatedRefusal({ refusal }: LastToken, now: Moment): Verdict | undefined {
  if (refusal === undefined || refusal.generation !== now.generation) return undefined
  return refusal.verdict.reason === 'expired' && now.time < refusal.time ? undefined : refusal.verdict
}
