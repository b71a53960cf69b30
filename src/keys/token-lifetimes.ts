/**
 * Tells for how long tokens of each key may still be alive, so that nobody removes a key too early.
 *
 * In: a ring and the longest lifetime of a token. Out: seconds for each key, never fewer than there may be.
 *
 * @module
 */
import type { KeyRing } from './key-ring.ts'
import { NEVER_SIGNED, tokensEndAt } from './last-signed.ts'

/** Of one key, in how many seconds the last token that it can have signed will have expired; 0 when all have. */
export interface TokenLifetime {
  readonly kid: string
  readonly seconds: number
}

/**
 * Lists the keys of a ring. One that is not known to have stopped signing counts as signing: it may do so in another
 * sidecar, which has read its files a moment earlier, or with another issuer. So does one that has never signed, as it
 * has been published to sign.
 *
 * @param longestSeconds - for how long after it was issued a token may be accepted: its longest lifetime and the clock
 *   tolerance
 * @param now - epoch milliseconds
 */
export function tokenLifetimes(
  { verification, signing }: KeyRing,
  longestSeconds: number,
  now: number,
): readonly TokenLifetime[] {
  return [...verification.values()].map(({ kid, signedUntil }) => {
    const signs = signedUntil === undefined || signedUntil === NEVER_SIGNED || kid === signing?.kid
    const seconds = signs ? longestSeconds : Math.ceil(tokensEndAt(signedUntil, longestSeconds) - now / 1000)
    return { kid, seconds: Math.max(0, seconds) }
  })
}
