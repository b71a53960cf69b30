/**
 * Popularity after Zipf's law: the r-th most popular of N things is asked for in proportion to 1 / r^s.
 *
 * @module
 */

/** Random numbers in [0, 1) that are the same for the same seed (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Draws ranks from 0 (the most popular) to `count - 1`. */
export function zipf(count: number, exponent: number, random: () => number): () => number {
  const upTo = new Float64Array(count)
  let total = 0
  for (let rank = 0; rank < count; rank++) {
    total += (rank + 1) ** -exponent
    upTo[rank] = total
  }
  return () => firstAbove(upTo, random() * total)
}

/** The first place whose value is above the limit, in ascending values whose last one is above it. */
function firstAbove(values: Float64Array, limit: number): number {
  let low = 0
  let high = values.length - 1
  while (low < high) {
    const middle = (low + high) >>> 1
    if (Number(values[middle]) > limit) high = middle
    else low = middle + 1
  }
  return low
}
