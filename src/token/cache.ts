/**
 * Caches accepted tokens, so that a token is verified once and not for every request. Refused ones could evict them.
 * In: a verifier. Out: a `Verify` that returns the verdict on a cached token as a value, without a promise.
 */
import { LRUCache } from 'lru-cache'
import { flatCopy } from '../http/headers.ts'
import type { Accepted, Verdict, Verify, VerifyUncached } from './caller.ts'
import { NO_ASSERTIONS, type SignAssertions } from './issue.ts'

interface TokenCacheOptions {
  readonly verifyUncached: VerifyUncached
  readonly signAssertions?: SignAssertions | undefined
  readonly maxTokens: number
  readonly maxAgeSeconds: number
  readonly now: () => number
}

export interface TokenCache {
  readonly verify: Verify
  /** Must be called whenever keys, credentials or revocations have changed. */
  clear(): void
  /** Enough where only tokens of these ids have been revoked: clients that log out must not cost others their entries. */
  evict(tokenIds: readonly string[]): void
  readonly hits: number
  readonly misses: number
  readonly evictions: number
  readonly size: number
}

const signNone: SignAssertions = async () => NO_ASSERTIONS

export function createTokenCache(options: TokenCacheOptions): TokenCache {
  const { verifyUncached, signAssertions = signNone, maxTokens, maxAgeSeconds, now } = options
  const entries = new LRUCache<string, Accepted>({
    max: maxTokens,
    dispose: (_entry, _token, why) => {
      if (why === 'evict') cache.evictions++
    },
  })
  const inFlight = new Map<string, Promise<Verdict>>()
  let generation = 0

  function lookUp(token: string): Verdict | Promise<Verdict> {
    const entry = entries.get(token)
    if (entry !== undefined) {
      // Compared here: lru-cache serves an entry at exactly its ttl and reads the clock once a millisecond.
      if (now() < entry.caller.usableUntil) {
        cache.hits++
        return entry
      }
      entries.delete(token)
    }
    cache.misses++
    return inFlight.get(token) ?? verifyOnce(token)
  }

  /** Verifies a token once for all concurrent requests that carry it. */
  function verifyOnce(token: string): Verdict | Promise<Verdict> {
    const started = generation
    const found = verifyUncached(token)
    if (!(found instanceof Promise)) return found
    const pending = found
      .then(async (verdict) => {
        const signed = verdict.ok ? await signAssertions(verdict.caller.identity) : NO_ASSERTIONS
        // After a change the verdict may depend on a removed key, credential or list.
        if (started !== generation) return inFlight.get(token) ?? verifyOnce(token)
        if (!verdict.ok) return verdict
        const { identity, issuer, link, usableUntil: provenUntil } = verdict.caller
        const usableUntil = Math.min(provenUntil, signed.renewAt, now() + maxAgeSeconds * 1000)
        // A spread takes 270 bytes more.
        const caller = { identity, issuer, link, usableUntil, assertions: signed.assertions }
        const entry = { ok: true, caller } as const
        entries.set(flatCopy(token), entry)
        return entry
      })
      .finally(() => {
        if (inFlight.get(token) === pending) inFlight.delete(token)
      })
    inFlight.set(token, pending)
    return pending
  }

  /** Verifications in progress are repeated. */
  function restart() {
    generation++
    inFlight.clear()
  }

  const cache = {
    verify: lookUp,
    clear() {
      restart()
      entries.clear()
    },
    evict(tokenIds: readonly string[]) {
      restart()
      const revoked = new Set(tokenIds)
      for (const [token, { caller }] of [...entries.entries()]) {
        const { identity, link } = caller
        if (revoked.has(identity.tokenId) || (link && revoked.has(link.parentId))) entries.delete(token)
      }
    },
    hits: 0,
    misses: 0,
    evictions: 0,
    get size() {
      return entries.size
    },
  }
  return cache
}
