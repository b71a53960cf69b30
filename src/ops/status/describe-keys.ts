/**
 * What may be told of the keys in force: never anything that is part of a key.
 *
 * @module
 */
import { type KeyRing, tokenLifetimes } from '../../keys/key-ring.ts'
import type { StatusKey } from './status.ts'

/**
 * Describes every key, newest first.
 *
 * @param longestSeconds - for how long after it was issued a token may be accepted
 * @param now - epoch milliseconds
 */
export function describeKeys(ring: KeyRing, longestSeconds: number, now: number): readonly StatusKey[] {
  const lifetimes = new Map(
    tokenLifetimes(ring, longestSeconds, now).map(({ kid, seconds }) => [kid, seconds]),
  )
  return [...ring.verification.values()]
    .sort((a, b) => b.createdAt - a.createdAt)
    .map(({ kid, alg, createdAt }) => ({
      kid,
      alg,
      signs: kid === ring.signing?.kid,
      createdAt: new Date(createdAt * 1000).toISOString(),
      ageSeconds: Math.max(0, Math.floor(now / 1000 - createdAt)),
      tokensLiveSeconds: lifetimes.get(kid) as number, // told of each key of the ring
    }))
}
