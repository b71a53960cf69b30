/** Random choices that two numbers decide, so that one connection of a long run can be played again alone. */

export type Random = ReturnType<typeof createRandom>

/** Creates a source for the `stream`-th part of a run (mulberry32). */
export function createRandom(seed: number, stream: number) {
  let state = Math.imul(seed ^ Math.imul(stream, 0x9e3779b9), 0x85ebca6b)
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0
    let bits = Math.imul(state ^ (state >>> 15), state | 1)
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61)
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32
  }
  /** An integer from `low` to `high`, both included. */
  const int = (low: number, high: number) => low + Math.floor(next() * (high - low + 1))
  const pick = <T>(items: readonly T[]): T => items[int(0, items.length - 1)] as T
  return {
    int,
    pick,
    chance: (probability: number) => next() < probability,
    /** One of the items; each is as likely as its weight. */
    weighted<T>(items: readonly (readonly [weight: number, item: T])[]): T {
      let left = next() * items.reduce((sum, [weight]) => sum + weight, 0)
      for (const [weight, item] of items) {
        left -= weight
        if (left < 0) {
          return item
        }
      }
      return (items[items.length - 1] as (typeof items)[number])[1]
    },
    text(length: number, alphabet = 'abcdefghijklmnopqrstuvwxyz0123456789'): string {
      return Array.from({ length }, () => alphabet[int(0, alphabet.length - 1)]).join('')
    },
  }
}
