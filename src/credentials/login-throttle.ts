/**
 * Refuses logins of a pair of account and client address after too many failures within a window. Unknown accounts
 * count alike, and a refused login is never checked. Memory: at most 50,000 pairs in an LRU cache, 250 bytes each. To
 * evict its own pair, a client has to fail 50,000 other logins first.
 */
import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { clientNetwork, type LoginVerdict } from './store.ts'

/** Permission for one login, or the whole seconds (at least 1) after which the client may try again. */
type LoginPermission =
  | {
      readonly ok: true
      /** Must be called once the login has ended. `rejected` is a failure; `accepted` clears the pair. */
      settle(verdict: LoginVerdict): void
    }
  | { readonly ok: false; readonly retryAfterSeconds: number }

export type LoginThrottle = ReturnType<typeof createLoginThrottle>

interface LoginThrottleOptions {
  /** Failures of a pair in one window, which begins with the first of them. */
  readonly count: number
  readonly windowSeconds: number
  /** Monotonic milliseconds. */
  readonly now?: () => number
}

const MAX_PAIRS = 50_000

export function createLoginThrottle({
  count,
  windowSeconds,
  now = () => performance.now(),
}: LoginThrottleOptions) {
  const failures = new LRUCache<string, number>({
    // Not `max`, which allocates memory for all entries at the start, and clears it with the last one: 100 µs a login.
    maxSize: MAX_PAIRS,
    sizeCalculation: () => 1,
    ttl: windowSeconds * 1000 - 1, // an entry is stale once it is older than this
    noUpdateTTL: true,
    ttlResolution: 0,
    perf: { now },
  })
  const inFlight = new Map<string, number>()
  return {
    check(accountId: string, address: string): LoginPermission {
      // The digest, because the account name is the client's choice and may be long.
      const pair = `${hash('sha256', accountId, 'base64url')} ${clientNetwork(address)}`
      const failed = failures.get(pair) ?? 0
      const running = inFlight.get(pair) ?? 0
      // An attempt in flight may fail: 200 guesses at once are no more than `count` one by one.
      if (failed + running >= count) {
        const leftMs = failed >= count ? failures.getRemainingTTL(pair) : 0
        return { ok: false, retryAfterSeconds: Math.max(1, Math.ceil(leftMs / 1000)) }
      }
      inFlight.set(pair, running + 1)
      return {
        ok: true,
        settle(verdict) {
          const left = (inFlight.get(pair) ?? 1) - 1
          if (left > 0) inFlight.set(pair, left)
          else inFlight.delete(pair)
          if (verdict === 'rejected') failures.set(pair, (failures.get(pair) ?? 0) + 1)
          else if (verdict === 'accepted' && failures.has(pair)) failures.delete(pair)
        },
      }
    },
  }
}
