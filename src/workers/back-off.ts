/**
 * How long to wait before a worker is replaced.
 *
 * In: how long the one before it lived. Out: nothing at first, so that a single death costs no capacity; and with each
 * death soon after a start twice as long, so that a worker that cannot live costs the others little.
 *
 * @module
 */

/** A worker that has lived so long did not end because of how it was started. */
const SETTLED_MS = 10_000
const LEAST_MS = 100
const MOST_MS = 10_000

/** Makes the function that says how many milliseconds to wait. */
export function createBackOff(): (livedMs: number) => number {
  let delayMs = 0
  return (livedMs) => {
    delayMs = livedMs < SETTLED_MS ? Math.min(Math.max(LEAST_MS, 2 * delayMs), MOST_MS) : 0
    return delayMs
  }
}
