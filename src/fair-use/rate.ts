/**
 * The generic cell rate algorithm (GCRA, ITU-T I.371) as functions: how much an account may use, at a
 * steady rate and in bursts.
 * The whole state is one number, `fullAtMs`: when the account will have paid back all that it used, if it
 * uses nothing more.
 * All times are milliseconds of one monotonic clock.
 */

export interface Rate {
  /** The time that pays back one unit (a request, or a byte). */
  readonly msPerUnit: number
  /** The units that may be used at once, at least 1. */
  readonly burst: number
}

/** Additions of binary fractions differ by less than this part of a unit. */
const ROUNDING = 0.001

/** Milliseconds until one unit may be used within the burst: 0 if now. */
export function waitMs(rate: Rate, fullAtMs: number, nowMs: number): number {
  const allowedMs = (rate.burst - 1 + ROUNDING) * rate.msPerUnit
  return Math.max(0, fullAtMs - nowMs - allowedMs)
}

/** The part of the burst that is not used up. Negative if more was used, which must be paid back first. */
export const creditOf = (rate: Rate, fullAtMs: number, nowMs: number): number =>
  rate.burst - Math.max(0, fullAtMs - nowMs) / rate.msPerUnit

/** Returns the new state. */
export const use = (rate: Rate, fullAtMs: number, units: number, nowMs: number): number =>
  Math.max(fullAtMs, nowMs) + units * rate.msPerUnit

/** Returns the state under a new rate. What the account owes stays, but no more than the new burst. */
export function changeRate(former: Rate, rate: Rate, fullAtMs: number, nowMs: number): number {
  const owed = Math.max(0, fullAtMs - nowMs) / former.msPerUnit
  return nowMs + Math.min(owed, rate.burst) * rate.msPerUnit
}
