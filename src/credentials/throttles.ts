/**
 * Bounds failed logins, because a client that guesses secrets must wait, and the revocations of an account by logouts.
 * Both count events by key, in a window that begins with the first event of the key.
 */
import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import pLimit, { type LimitFunction } from 'p-limit'
import { failed, ok, type Result } from '../base/result.ts'
import type { Identity } from '../token/caller.ts'
import type { LoginVerdict } from './credential-checks.ts'
import type { CredentialName } from './credential-list.ts'

/** Calls `authenticate` when the pair of account and client network may log in. */
export type LoginThrottle = (
  name: CredentialName,
  network: string,
  authenticate: () => Promise<LoginVerdict>,
) => Promise<{ readonly verdict: LoginVerdict | 'throttled'; readonly retryAfterSeconds?: number }>

/** Maximum logins of a pair that wait for others of the pair. Further logins are `busy`. */
const MAX_WAITING = 1000

/**
 * After `count` failures of a pair of account and client network in a window, refuses further logins of the pair unchecked.
 * Unknown accounts count, too. If the logins in flight could reach `count` failures, a further login waits for them.
 * A success removes only the failures of its own access key. Otherwise a client could guess the secret of
 * another key between logins with its own. A pair is evicted only after failures of 50,000 other pairs.
 */
export function createLoginThrottle(
  { count, windowSeconds }: { readonly count: number; readonly windowSeconds: number },
  monotonicNow?: () => number,
): LoginThrottle {
  /** For each pair, the digest of the access key of each failure. */
  const failures = createFixedWindow<number[]>(windowSeconds, monotonicNow)
  const limits = new Map<string, LimitFunction>()

  function record(pair: string, key: number, verdict: LoginVerdict): void {
    const keys = failures.get(pair) ?? []
    const others = keys.filter((other) => other !== key)
    if (verdict === 'rejected') {
      failures.set(pair, [...keys, key])
    } else if (verdict === 'accepted' && others.length === 0) {
      failures.delete(pair)
    } else if (verdict === 'accepted') {
      failures.set(pair, others)
    }
  }

  return async ({ accountId, accessKey }, network, authenticate) => {
    // The client chooses the account name, which may be long. The digest is short.
    const pair = `${hash('sha256', accountId, 'base64url')} ${network}`
    const key = hash('sha256', accessKey, 'buffer').readUIntBE(0, 6)
    const failureCount = () => failures.get(pair)?.length ?? 0
    // Each login in flight may fail, so 200 guesses at once get no more attempts than `count`.
    const attemptsLeft = () => Math.max(1, count - failureCount())
    const limit = limits.get(pair) ?? pLimit(attemptsLeft())
    if (limit.pendingCount >= MAX_WAITING) {
      return { verdict: 'busy' }
    }
    limits.set(pair, limit)
    try {
      return await limit(async () => {
        if (failureCount() >= count) {
          return { verdict: 'throttled', retryAfterSeconds: secondsLeft(failures, pair) }
        }
        const verdict = await authenticate()
        record(pair, key, verdict)
        limit.concurrency = attemptsLeft()
        return { verdict }
      })
    } finally {
      if (limit.activeCount === 0 && limit.pendingCount === 0) {
        limits.delete(pair)
      }
    }
  }
}

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

/** A value expires one window after its key was first set. */
const createFixedWindow = <V extends object>(windowSeconds: number, monotonicNow = () => performance.now()) =>
  new LRUCache<string, V>({
    // `max` would allocate the memory of all entries at the start, and clear all of it with the last entry.
    maxSize: 50_000,
    sizeCalculation: () => 1,
    ttl: windowSeconds * 1000 - 1, // an entry is stale once it is older than this
    noUpdateTTL: true,
    ttlResolution: 0,
    perf: { now: monotonicNow },
  })

/** Seconds until the value of the key expires, at least 1. */
const secondsLeft = <V extends object>(window: LRUCache<string, V>, key: string) =>
  Math.max(1, Math.ceil(window.getRemainingTTL(key) / 1000))
