/**
 * Caches accepted tokens, so that a token is verified once and not for every request. Refused tokens are not cached: clients
 * could send enough of them to evict the accepted ones.
 * In: a verifier. Out: the verdict on a cached token, without a promise; of others, that of the verifier.
 */
import { LRUCache } from 'lru-cache'
import { type Accepted, flatCopy, type Identity, type Verdict, type Verify } from './caller.ts'
import type { Assertions } from './issue.ts'

interface TokenCacheOptions {
  readonly verifyUncached: Verify
  readonly signAssertions?: (identity: Identity) => Promise<Assertions | undefined>
  readonly maxTokens: number
  readonly maxAgeSeconds: number
  readonly now: () => number
}

export class TokenCache {
  hits = 0
  misses = 0
  evictions = 0
  readonly #options: TokenCacheOptions
  readonly #entries: LRUCache<string, Accepted>
  readonly #inFlight = new Map<string, Promise<Verdict>>()
  /** Counts the changes of keys, credentials and revocations. */
  #generation = 0

  constructor(options: TokenCacheOptions) {
    this.#options = options
    this.#entries = new LRUCache({
      max: options.maxTokens,
      dispose: (_entry, _token, why) => {
        if (why === 'evict') this.evictions++
      },
    })
  }

  get size(): number {
    return this.#entries.size
  }

  /** Counts a hit. Where it returns undefined, `verify` follows and counts a miss. */
  cached(token: string): Accepted | undefined {
    const entry = this.#entries.get(token)
    if (entry === undefined) return undefined
    // Compared here: lru-cache serves an entry at exactly its ttl and reads the clock once a millisecond.
    if (this.#options.now() < entry.caller.usableUntilMs) {
      this.hits++
      return entry
    }
    this.#entries.delete(token)
    return undefined
  }

  /** Verifies a token that is not cached, and caches it if it is accepted. Rejects only on an internal error. */
  verify(token: string): Promise<Verdict> {
    this.misses++
    return this.#inFlight.get(token) ?? this.#verifyOnce(token)
  }

  /**
   * Must be called whenever keys, credentials or revocations have changed. Where tokens were revoked by their ids and
   * nothing else has changed, it removes only them and their links: a logout costs others no entry. 10,000 take 3 ms.
   */
  invalidate(revokedTokens?: readonly string[]): void {
    // Verifications in progress are repeated.
    this.#generation++
    this.#inFlight.clear()
    if (revokedTokens === undefined) this.#entries.clear()
    const revoked = new Set(revokedTokens)
    for (const [token, { caller }] of [...this.#entries.entries()]) {
      const { identity, link } = caller
      if (revoked.has(identity.tokenId) || (link && revoked.has(link.parentId))) this.#entries.delete(token)
    }
  }

  #verifyOnce(token: string): Promise<Verdict> {
    const generation = this.#generation
    const pending = this.#options
      .verifyUncached(token)
      .then(async (verdict) => {
        const entry = verdict.ok ? await this.#entryOf(verdict) : verdict
        // After a change the verdict may depend on a removed key, credential or list.
        if (generation !== this.#generation) return this.#inFlight.get(token) ?? this.#verifyOnce(token)
        if (entry.ok) this.#entries.set(flatCopy(token), entry)
        return entry
      })
      .finally(() => {
        if (this.#inFlight.get(token) === pending) this.#inFlight.delete(token)
      })
    this.#inFlight.set(token, pending)
    return pending
  }

  async #entryOf({ caller }: Accepted): Promise<Accepted> {
    const { signAssertions, maxAgeSeconds, now } = this.#options
    const { identity, identityLines, issuer, link, credentialEndMs } = caller
    const { assertions, renewAtMs = Number.POSITIVE_INFINITY } = (await signAssertions?.(identity)) ?? {}
    const usableUntilMs = Math.min(caller.usableUntilMs, renewAtMs, now() + maxAgeSeconds * 1000)
    // A spread takes 270 bytes more.
    return {
      ok: true,
      caller: { identity, identityLines, issuer, link, credentialEndMs, usableUntilMs, assertions },
    }
  }
}
