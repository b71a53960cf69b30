/**
 * Refuses logins of a pair of account and client address after too many failures within a window. Unknown accounts
 * count alike, and a refused login is never checked. A login that could be one failure too many waits for those in
 * flight. Memory: at most 50,000 pairs in an LRU cache, 300 bytes each and 8 for each failure. To evict its own pair, a
 * client has to fail 50,000 other logins first.
 */
import { hash } from 'node:crypto'
import pLimit, { type LimitFunction } from 'p-limit'
import { type CredentialName, clientNetwork, type LoginVerdict } from './store.ts'
import { createWindowCache, secondsLeft } from './window-cache.ts'

interface LoginOutcome {
  readonly verdict: LoginVerdict | 'throttled'
  /** Of a throttled login: whole seconds, at least 1. */
  readonly retryAfterSeconds?: number
}

export type LoginThrottle = ReturnType<typeof createLoginThrottle>

interface LoginThrottleOptions {
  /** Failures of a pair in one window, which begins with the first of them. */
  readonly count: number
  readonly windowSeconds: number
  /** Monotonic milliseconds. */
  readonly now?: () => number
}

/** Logins of all pairs that wait for those in flight. */
const MAX_WAITING = 1000

export function createLoginThrottle({
  count,
  windowSeconds,
  now = () => performance.now(),
}: LoginThrottleOptions) {
  /** Of each pair: the failures, as digests of their access keys. */
  const failures = createWindowCache<number[]>(windowSeconds, now)
  /** Of pairs with logins in flight. */
  const limits = new Map<string, LimitFunction>()
  let waiting = 0
  return {
    /**
     * Runs `check` when the pair may log in: `rejected` is a failure, `accepted` removes those of its own access key.
     * All of them would be too many: a client could guess the secret of another key between logins with its own.
     */
    async attempt(
      { accountId, accessKey }: CredentialName,
      address: string,
      check: () => Promise<LoginVerdict>,
    ): Promise<LoginOutcome> {
      // The digest, because the account name is the client's choice and may be long.
      const pair = `${hash('sha256', accountId, 'base64url')} ${clientNetwork(address)}`
      const key = hash('sha256', accessKey, 'buffer').readUIntBE(0, 6)
      const failed = () => failures.get(pair)?.length ?? 0
      // Every login in flight may fail: 200 guesses at once are no more than `count` one by one.
      const attemptsLeft = () => Math.max(1, count - failed())
      const limit = limits.get(pair) ?? pLimit(count)
      limits.set(pair, limit)
      limit.concurrency = attemptsLeft()
      const mustWait = limit.activeCount >= limit.concurrency
      if (mustWait && waiting >= MAX_WAITING) return { verdict: 'busy' }
      if (mustWait) waiting++
      try {
        return await limit(async () => {
          if (mustWait) waiting--
          const outcome = failed() >= count ? throttled(pair) : { verdict: await check() }
          const keys = failures.get(pair) ?? []
          if (outcome.verdict === 'rejected') {
            keys.push(key)
            failures.set(pair, keys)
          } else if (outcome.verdict === 'accepted' && keys.includes(key)) {
            const others = keys.filter((other) => other !== key)
            if (others.length > 0) failures.set(pair, others)
            else failures.delete(pair)
          }
          limit.concurrency = attemptsLeft()
          return outcome
        })
      } finally {
        if (limit.activeCount === 0 && limit.pendingCount === 0) limits.delete(pair)
      }
    },
  }

  function throttled(pair: string): LoginOutcome {
    return { verdict: 'throttled', retryAfterSeconds: secondsLeft(failures, pair) }
  }
}
