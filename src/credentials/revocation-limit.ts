/**
 * Bounds how often the clients of an account may end tokens and links.
 * The database bounds the rows (`tables.sql`).
 */
import { failed, ok, type Result } from '../base/result.ts'
import { createFixedWindow, secondsLeft } from './fixed-window.ts'
import type { EndedToken, EndingOutcome } from './postgres/database.ts'

/** A token or link that a client ends. */
export interface EndingToken extends Pick<EndedToken, 'tokenId' | 'issuer' | 'accountId'> {
  readonly expiresAtSeconds: number
}

export type NotEnded = Readonly<{ reason: 'throttled' | 'unavailable'; retryAfterSeconds?: number }>

/** Resolves once this sidecar refuses the token. The other sidecars follow soon. Never rejects. */
export type EndToken = (token: EndingToken) => Promise<Result<undefined, NotEnded>>

/** Maximum endings of one account in a window. Those that fail do not count. */
const MAX_ENDINGS = 60
const WINDOW_SECONDS = 60

/**
 * @param write - never rejects
 * @param clockToleranceSeconds - how far the clocks of sidecars may be behind that of the
 * database, which removes the row
 */
export function limitEndings(
  write: (token: EndedToken) => Promise<EndingOutcome>,
  clockToleranceSeconds: number,
): EndToken {
  const counts = createFixedWindow<{ endings: number }>(WINDOW_SECONDS)
  return async ({ expiresAtSeconds, ...token }) => {
    const { accountId } = token
    const count = counts.get(accountId) ?? { endings: 0 }
    if (count.endings >= MAX_ENDINGS) {
      return failed({ reason: 'throttled', retryAfterSeconds: secondsLeft(counts, accountId) })
    }
    count.endings++
    counts.set(accountId, count)
    const outcome = await write({ ...token, rowEndsAtSeconds: expiresAtSeconds + clockToleranceSeconds })
    if (outcome === 'ended') {
      return ok(undefined)
    }
    count.endings--
    return outcome === 'full'
      ? failed({ reason: 'throttled', retryAfterSeconds: WINDOW_SECONDS })
      : failed({ reason: 'unavailable' })
  }
}
