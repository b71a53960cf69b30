/** Random choices that two numbers decide, so that one connection of a long run can be played again alone. */

/** A source of random choices. */
export interface Random {
  /** An integer from `low` to `high`, both included. */
  int(low: number, high: number): number
  chance(probability: number): boolean
  pick<T>(items: readonly T[]): T
  /** One of the items; each is as likely as its weight. */
  weighted<T>(items: readonly (readonly [weight: number, item: T])[]): T
  text(length: number, alphabet?: string): string
}

const LETTERS = 'abcdefghijklmnopqrstuvwxyz0123456789'

/** Makes a source for the `stream`-th part of a run (sfc32, which passes the usual statistical tests). */
export function createRandom(seed: number, stream: number): Random {
  let a = seed >>> 0
  let b = stream >>> 0
  let c = 0x9e3779b9 ^ Math.floor(seed / 2 ** 32)
  let counter = 1
  const next = (): number => {
    const sum = (a + b + counter) | 0
    counter = (counter + 1) | 0
    a = b ^ (b >>> 9)
    b = (c + (c << 3)) | 0
    c = (((c << 21) | (c >>> 11)) + sum) | 0
    return (sum >>> 0) / 2 ** 32
  }
  for (let round = 0; round < 12; round++) next() // Neighboring seeds must not begin alike.

  const int = (low: number, high: number) => low + Math.floor(next() * (high - low + 1))
  const pick = <T>(items: readonly T[]): T => items[int(0, items.length - 1)] as T
  return {
    int,
    pick,
    chance: (probability) => next() < probability,
    weighted(items) {
      let left = next() * items.reduce((sum, [weight]) => sum + weight, 0)
      for (const [weight, item] of items) {
        left -= weight
        if (left < 0) return item
      }
      return (items[items.length - 1] as (typeof items)[number])[1]
    },
    text(length, alphabet = LETTERS) {
      return Array.from({ length }, () => alphabet[int(0, alphabet.length - 1)]).join('')
    },
  }
}
