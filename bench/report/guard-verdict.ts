/**
 * Whether a ratio of CPU times is still what it was.
 *
 * @module
 */

/** The verdict over one measurement. */
export type GuardVerdict = 'good' | 'too dear' | 'much cheaper'

/** How far from the baseline a ratio may be, as a share of it. */
export const TOLERANCE = 0.15

/** Compares a ratio with the baseline. */
export function judge(ratio: number, baseline: number): GuardVerdict {
  if (ratio > baseline * (1 + TOLERANCE)) return 'too dear'
  return ratio < baseline * (1 - TOLERANCE) ? 'much cheaper' : 'good'
}
