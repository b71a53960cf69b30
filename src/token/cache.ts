/**
 * Caches accepted tokens, so that a token is verified once and not for every request.
 * Refused tokens are not cached: clients could send enough of them to evict accepted tokens.
 * A change of keys or credentials empties the cache. A logout does not, because each hit looks
 * up revocations. In: a token. Out: its caller, or why the token is refused. A cached token needs no promise.
 */
import { LRUCache } from 'lru-cache'
import { ok } from '../base/result.ts'
import { flatCopy } from '../http/headers.ts'
import type { Caller, CallerOptions, IsRevoked } from './caller.ts'
import { callerOf, isCallerRevoked } from './caller.ts'
import type { Verdict, Verify } from './verify.ts'

interface TokenCacheOptions extends CallerOptions {
  readonly verify: Verify
  readonly isRevoked: IsRevoked
  readonly maxTokens: number
}

export class TokenCache {
  readonly #options: TokenCacheOptions
  readonly #accepted: LRUCache<string, Extract<Verdict<Caller>, { ok: true }>>
  readonly #inFlight = new Map<string, Promise<Verdict<Caller>>>()
  readonly #counts = { hits: 0, misses: 0, evictions: 0 }
  #clears = 0

  constructor(options: TokenCacheOptions) {
    this.#options = options
    this.#accepted = new LRUCache({
      max: options.maxTokens,
      dispose: (_accepted, _token, why) => {
        if (why === 'evict') {
          this.#counts.evictions++
        }
      },
    })
  }

  get counts(): Readonly<Record<'hits' | 'misses' | 'evictions' | 'size', number>> {
    return { ...this.#counts, size: this.#accepted.size }
  }

  /** Verifies a token that is not cached, and caches an accepted one. Rejects only on an internal error. */
  check(token: string): Verdict<Caller> | Promise<Verdict<Caller>> {
    const accepted = this.#accepted.get(token)
    if (accepted !== undefined) {
      const { now, isRevoked, maxAgeSeconds } = this.#options
      // Not `ttl` of lru-cache: it serves an entry at exactly its end,
      // and reads the clock only once a millisecond.
      // Above the maximum age if the clock has been set back.
      const leftMs = accepted.value.recheckAtMs - now()
      if (leftMs > 0 && leftMs <= maxAgeSeconds * 1000 && !isCallerRevoked(accepted.value, isRevoked)) {
        this.#counts.hits++
        return accepted
      }
      this.#accepted.delete(token)
    }
    this.#counts.misses++
    const inFlight = this.#inFlight.get(token)
    if (inFlight !== undefined) {
      return inFlight
    }
    const pending = this.#verifyAndCache(token)
    this.#inFlight.set(token, pending)
    return pending
  }

  /** Must be called after each change of the sidecar's key files, or of credentials. */
  clear(): void {
    this.#clears++
    this.#accepted.clear()
  }

  /** Must be called after each change of the keys of one issuer. Tokens of other issuers stay. */
  removeTokensOf(issuer: string): void {
    this.#clears++
    const entries = [...this.#accepted.entries()]
    for (const [token, accepted] of entries) {
      if (accepted.value.issuer === issuer) {
        this.#accepted.delete(token)
      }
    }
  }

  async #verifyAndCache(token: string): Promise<Verdict<Caller>> {
    const { verify, isRevoked } = this.#options
    try {
      while (true) {
        const clearsBefore = this.#clears
        const verdict = await verify(token)
        if (!verdict.ok) {
          return verdict
        }
        const accepted = ok(await callerOf(verdict.value, this.#options))
        // Verifies again if, meanwhile, keys or credentials have changed or the token has been revoked.
        if (clearsBefore !== this.#clears || isCallerRevoked(accepted.value, isRevoked)) {
          continue
        }
        this.#accepted.set(flatCopy(token), accepted)
        return accepted
      }
    } finally {
      this.#inFlight.delete(token)
    }
  }
}
