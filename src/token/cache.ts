/**
 * Remembers tokens that were verified.
 *
 * In: a verifier. Out: a verifier that answers at once for a token it has seen, as long as the token, its
 * credential and the entry last. Only positive verdicts are kept, by the SHA-256 of the token: the cache
 * holds nothing that could be used as a token, and refused tokens never push out good ones. `clear()` forgets
 * everything, what is being verified at that moment included.
 *
 * @module
 */
import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { hasTokenShape, MOST_TOKEN_BYTES } from './shape.ts'
import type { LastToken, Verdict } from './verdict.ts'
import type { Verify } from './verify.ts'

/** What the cache works with. */
export interface CacheOptions {
  /** The most tokens remembered, at least 1; the least recently used one makes room. */
  readonly maxTokens: number
  /** The longest time a token is remembered before it is verified anew. */
  readonly maxAgeSeconds: number
  /** The clock, in epoch milliseconds. */
  readonly now: () => number
}

/** A `Verify` that remembers, with the numbers its metrics are made of. */
export interface RememberingVerify {
  (token: string, last?: LastToken): Verdict | Promise<Verdict>
  /** Forgets every token: to be called when keys, credentials or revocations have changed. */
  clear(): void
  /** Tokens answered from memory. */
  readonly hits: number
  /** Well-formed tokens that had to be verified, or were being verified for somebody else. */
  readonly misses: number
  /** Remembered tokens that made room for others. */
  readonly evictions: number
  /** Tokens remembered now. */
  readonly size: number
}

interface Entry {
  readonly verdict: Verdict
  /** Epoch milliseconds: from then on the entry is not used. */
  readonly until: number
}

/** Bounds the table of tokens being verified; beyond it they are verified without being shared. */
const MOST_IN_FLIGHT = 1024

const malformed: Verdict = { ok: false, reason: 'malformed' }

/** Puts a cache in front of a verifier. */
export function withCache(
  verify: Verify,
  { maxTokens, maxAgeSeconds, now }: CacheOptions,
): RememberingVerify {
  const entries = new LRUCache<string, Entry>({ max: maxTokens })
  const inFlight = new Map<string, Promise<Verdict>>()
  let generation = 0

  function remembering(token: string, last?: LastToken): Verdict | Promise<Verdict> {
    if (token.length > MOST_TOKEN_BYTES) return malformed
    const key = digestOf(token, last)
    const entry = entries.get(key)
    if (entry !== undefined) {
      if (now() < entry.until) {
        remembering.hits++
        return entry.verdict
      }
      entries.delete(key)
      remembering.size = entries.size
    }
    // Only a token in its one canonical spelling gets further, so nothing else is ever remembered, and a hit
    // needs no check of the shape (which saves half of its time).
    if (!hasTokenShape(token)) return malformed
    remembering.misses++
    return inFlight.get(key) ?? verifyOnce(token, key)
  }
  remembering.hits = 0
  remembering.misses = 0
  remembering.evictions = 0
  remembering.size = 0
  remembering.clear = () => {
    generation++
    entries.clear()
    inFlight.clear()
    remembering.size = 0
  }
  return remembering

  /** Verifies for everyone who asks for this token meanwhile. */
  function verifyOnce(token: string, key: string): Verdict | Promise<Verdict> {
    const started = generation
    const found = verify(token)
    if (!(found instanceof Promise)) return found
    const pending = found.then(
      (verified) => {
        if (inFlight.get(key) === pending) inFlight.delete(key)
        // Something changed while this was verified: it may rest on what is no longer in force.
        if (started !== generation) return remembering(token)
        if (verified.ok) remember(key, verified, verified.usableUntil)
        return verified
      },
      (fault: unknown) => {
        if (inFlight.get(key) === pending) inFlight.delete(key)
        throw fault
      },
    )
    if (inFlight.size < MOST_IN_FLIGHT) inFlight.set(key, pending)
    return pending
  }

  function remember(key: string, verdict: Verdict, usableUntil: number): void {
    if (entries.size === maxTokens && !entries.has(key)) remembering.evictions++
    entries.set(key, { verdict, until: Math.min(usableUntil, now() + maxAgeSeconds * 1000) })
    remembering.size = entries.size
  }
}

/** The SHA-256 of a token, remembered for the connection it came on. */
function digestOf(token: string, last: LastToken | undefined): string {
  if (last?.token === token) return last.digest
  const digest = hash('sha256', token, 'base64url')
  if (last !== undefined) {
    last.token = token
    last.digest = digest
  }
  return digest
}
