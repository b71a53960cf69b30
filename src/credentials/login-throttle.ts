/**
 * Refuses logins of a pair of account and client address after too many failures within a window.
 * Other addresses and other accounts are untouched, unknown accounts count alike, and a refused login is never checked.
 * Memory: at most 50,000 pairs in an LRU cache, about 250 bytes each (12 MB). To evict its own pair, a client has to fail
 * 50,000 other logins first.
 */
import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { clientNetwork, type LoginVerdict } from './store.ts'

/** Permission for one login, or the whole seconds (at least 1) after which the client may try again. */
export type LoginPermission =
  | {
      readonly ok: true
      /** Must be called once the login has ended. `rejected` is a failure; `accepted` clears the pair. */
      settle(verdict: LoginVerdict): void
    }
  | { readonly ok: false; readonly retryAfterSeconds: number }

export interface LoginThrottle {
  check(accountId: string, address: string): LoginPermission
}

export interface LoginThrottleOptions {
  /** How many failures a pair has in one window. */
  readonly count: number
  /** The length of a window, which begins with its first attempt. */
  readonly windowSeconds: number
  /** Milliseconds of a clock that is never set; default `performance.now`. */
  readonly now?: () => number
}

interface Attempts {
  failed: number
  inFlight: number
}

const MAX_PAIRS = 50_000

export function createLoginThrottle({
  count,
  windowSeconds,
  now = () => performance.now(),
}: LoginThrottleOptions): LoginThrottle {
  const pairs = new LRUCache<string, Attempts>({
    max: MAX_PAIRS,
    ttl: windowSeconds * 1000 - 1, // an entry is stale once it is older than this
    ttlResolution: 0,
    perf: { now },
  })
  return {
    check(accountId, address) {
      // The digest, because the account name is the client's choice and may be long.
      const pair = `${hash('sha256', accountId, 'base64url')} ${clientNetwork(address)}`
      const attempts = pairs.get(pair) ?? { failed: 0, inFlight: 0 }
      // An attempt in flight may fail: 200 guesses at once are no more than `count` one by one.
      if (attempts.failed + attempts.inFlight >= count) {
        const leftMs = attempts.failed >= count ? pairs.getRemainingTTL(pair) : 0
        return { ok: false, retryAfterSeconds: Math.max(1, Math.ceil(leftMs / 1000)) }
      }
      attempts.inFlight++
      if (!pairs.has(pair)) pairs.set(pair, attempts)
      return {
        ok: true,
        settle(verdict) {
          attempts.inFlight--
          if (verdict === 'rejected') attempts.failed++
          const isUnused = attempts.failed + attempts.inFlight === 0
          if ((verdict === 'accepted' || isUnused) && pairs.peek(pair) === attempts) pairs.delete(pair)
        },
      }
    },
  }
}
