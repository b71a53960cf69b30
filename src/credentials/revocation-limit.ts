/** Bounds how many revocations the clients of an account may write by logouts and ended links. */
import { failed, ok, type Result } from '../base/result.ts'
import type { Identity } from '../token/caller.ts'
import { createFixedWindow, secondsLeft } from './fixed-window.ts'

export type EndedToken = Pick<Identity, 'accountId' | 'tokenId' | 'expiresAtSeconds'>

export type NotRevoked = Readonly<{ reason: 'throttled' | 'unavailable'; retryAfterSeconds?: number }>

/** Resolves once this sidecar refuses the token. The other sidecars follow soon. Never rejects. */
export type RevokeToken = (token: EndedToken) => Promise<Result<undefined, NotRevoked>>

/** Maximum rows that one account may write in a window. Failed writes do not count. */
const MAX_REVOKED = 60
const REVOKED_WINDOW_SECONDS = 60

/**
 * @param write - resolves with whether the revocation is written and active. Never rejects
 * @param clockToleranceSeconds - how long a token is accepted after its end
 */
export function limitRevocations(
  write: (tokenId: string, endsAtSeconds: number) => Promise<boolean>,
  clockToleranceSeconds: number,
): RevokeToken {
  const counts = createFixedWindow<{ revoked: number }>(REVOKED_WINDOW_SECONDS)
  return async ({ accountId, tokenId, expiresAtSeconds }) => {
    const count = counts.get(accountId) ?? { revoked: 0 }
    if (count.revoked >= MAX_REVOKED) {
      return failed({ reason: 'throttled', retryAfterSeconds: secondsLeft(counts, accountId) })
    }
    count.revoked++
    counts.set(accountId, count)
    if (await write(tokenId, expiresAtSeconds + clockToleranceSeconds)) {
      return ok(undefined)
    }
    count.revoked--
    return failed({ reason: 'unavailable' })
  }
}
