/**
 * Caches accepted tokens, so that a token is verified once and not for every request. Refused tokens are not cached: clients
 * could send enough of them to evict the accepted ones.
 * In: a verifier. Out: the caller of a cached token, without a promise; the verdict of the verifier on others.
 */
import { LRUCache } from 'lru-cache'
import { type Caller, flatCopy, type Identity } from './caller.ts'
import type { Assertions } from './issue.ts'
import type { Verdict, Verify } from './verify.ts'

interface TokenCacheOptions {
  readonly verifyUncached: Verify
  readonly isIdRevoked: (tokenId: string) => boolean
  readonly signAssertions?: (identity: Identity) => Promise<Assertions | undefined>
  readonly maxTokens: number
  readonly maxAgeSeconds: number
  readonly now: () => number
}

interface CachedCaller extends Caller {
  /** The newest change after which the caller was still valid. */
  generation: number
}

export class TokenCache {
  hits = 0
  misses = 0
  evictions = 0
  readonly #options: TokenCacheOptions
  readonly #callers: LRUCache<string, CachedCaller>
  readonly #inFlight = new Map<string, Promise<Verdict>>()
  /** How many changes of keys, credentials and revocations there were. */
  #generation = 0

  constructor(options: TokenCacheOptions) {
    this.#options = options
    this.#callers = new LRUCache({
      max: options.maxTokens,
      dispose: (_entry, _token, why) => {
        if (why === 'evict') this.evictions++
      },
    })
  }

  get size(): number {
    return this.#callers.size
  }

  /** Counts a hit. Where it returns undefined, `verify` follows and counts a miss. */
  cached(token: string): Caller | undefined {
    const caller = this.#callers.get(token)
    if (caller === undefined) return undefined
    // Compared here: lru-cache serves an entry at exactly its ttl and reads the clock once a millisecond.
    if (this.#options.now() < caller.recheckAtMs && this.#isUnrevoked(caller)) {
      this.hits++
      return caller
    }
    this.#callers.delete(token)
    return undefined
  }

  /** Asks for the ids of a token and of a link's parent once after each change: a logout needs no search for entries. */
  #isUnrevoked(caller: CachedCaller): boolean {
    if (caller.generation === this.#generation) return true
    const { isIdRevoked } = this.#options
    const { identity, link } = caller
    if (isIdRevoked(identity.tokenId) || (link && isIdRevoked(link.parentId))) return false
    caller.generation = this.#generation
    return true
  }

  /** Verifies a token that is not cached, and caches it if it is accepted. Rejects only on an internal error. */
  verify(token: string): Promise<Verdict> {
    this.misses++
    return this.#inFlight.get(token) ?? this.#verifyOnce(token)
  }

  /** Follows every change of keys, credentials and revocations. After new revocations by id alone, the entries stay. */
  invalidate(onlyIdsRevoked = false): void {
    this.#generation++
    this.#inFlight.clear()
    if (!onlyIdsRevoked) this.#callers.clear()
  }

  #verifyOnce(token: string): Promise<Verdict> {
    const generation = this.#generation
    const pending = this.#options
      .verifyUncached(token)
      .then(async (verdict) => {
        const entry = verdict.ok ? await this.#entryOf(verdict.value, generation) : undefined
        // After a change the verdict may depend on a removed key, credential or list: the verification is repeated.
        if (generation !== this.#generation) return this.#inFlight.get(token) ?? this.#verifyOnce(token)
        if (entry === undefined) return verdict
        this.#callers.set(flatCopy(token), entry)
        return { ok: true, value: entry } as const
      })
      .finally(() => {
        if (this.#inFlight.get(token) === pending) this.#inFlight.delete(token)
      })
    this.#inFlight.set(token, pending)
    return pending
  }

  async #entryOf(caller: Caller, generation: number): Promise<CachedCaller> {
    const { signAssertions, maxAgeSeconds, now } = this.#options
    const { identity, identityLines, issuer, link, credentialEndsAtMs } = caller
    const { assertions, renewAtMs = Number.POSITIVE_INFINITY } = (await signAssertions?.(identity)) ?? {}
    const recheckAtMs = Math.min(caller.recheckAtMs, renewAtMs, now() + maxAgeSeconds * 1000)
    // A spread would take more memory.
    return { identity, identityLines, issuer, link, credentialEndsAtMs, recheckAtMs, assertions, generation }
  }
}
