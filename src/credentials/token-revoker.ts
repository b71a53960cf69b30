/** Ends single tokens, and links, before they expire: at most 60 a minute for each account, as each is a row to write. */
import { createWindowCache, secondsLeft } from './window-cache.ts'

export interface EndedToken {
  readonly accountId: string
  readonly tokenId: string
  readonly expiresAtSeconds: number
}

export type Revoked =
  | { readonly ok: true }
  | { readonly ok: false; readonly reason: 'throttled' | 'unavailable'; readonly retryAfterSeconds?: number }

/** Resolves once the token is refused here, and soon everywhere. Never rejects. */
export type RevokeToken = (token: EndedToken) => Promise<Revoked>

interface TokenRevokerOptions {
  /** Whether the revocation was written and is active. Does not reject. `until`: epoch seconds. */
  readonly write: (tokenId: string, until: number) => Promise<boolean>
  /** Until then a token is accepted after its end. */
  readonly clockToleranceSeconds: number
  /** Monotonic milliseconds. */
  readonly now?: () => number
}

const MAX_REVOKED = 60
const WINDOW_SECONDS = 60

export function createTokenRevoker(options: TokenRevokerOptions): RevokeToken {
  const { write, clockToleranceSeconds, now = () => performance.now() } = options
  const counts = createWindowCache<{ revoked: number }>(WINDOW_SECONDS, now)
  return async ({ accountId, tokenId, expiresAtSeconds }) => {
    const count = counts.get(accountId) ?? { revoked: 0 }
    if (count.revoked >= MAX_REVOKED) {
      return { ok: false, reason: 'throttled', retryAfterSeconds: secondsLeft(counts, accountId) }
    }
    count.revoked++
    counts.set(accountId, count)
    const isWritten = await write(tokenId, expiresAtSeconds + clockToleranceSeconds)
    return isWritten ? { ok: true } : { ok: false, reason: 'unavailable' }
  }
}
