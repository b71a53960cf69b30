/**
 * Remembers tokens that were verified.
 *
 * In: a verifier. Out: a verifier that answers at once for a token it has seen, as long as the token, its
 * credential and the entry last. Only positive verdicts are kept, by the SHA-256 of the token: the cache
 * holds nothing that could be used as a token, and refused tokens never push out good ones. Of a refused token the
 * connection that repeats it may know, and no other. `clear()` forgets everything, what is being verified at that moment
 * included.
 *
 * @module
 */
import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { ownText } from '../own-text.ts'
import { InFlight } from './in-flight.ts'
import { type Moment, rememberRefusal, repeatedRefusal } from './repeated-refusal.ts'
import { hasTokenShape, MOST_TOKEN_BYTES } from './shape.ts'
import type { Identity, LastToken, Verdict } from './verdict.ts'
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

/** The verdict itself: one object less for each token. */
interface Entry {
  readonly ok: true
  readonly identity: Identity
  /** Epoch milliseconds: from then on the entry is not used. */
  readonly until: number
}

const malformed: Verdict = { ok: false, reason: 'malformed' }

/** Puts a cache in front of a verifier. */
export function withCache(
  verify: Verify,
  { maxTokens, maxAgeSeconds, now }: CacheOptions,
): RememberingVerify {
  const entries = new LRUCache<string, Entry>({ max: maxTokens })
  const inFlight = new InFlight()
  let generation = 0
  const moment = (): Moment => ({ generation, time: now() })

  function remembering(token: string, last?: LastToken): Verdict | Promise<Verdict> {
    if (token.length > MOST_TOKEN_BYTES) return malformed
    const key = digestOf(token, last)
    const entry = entries.get(key)
    if (entry !== undefined) {
      if (now() < entry.until) {
        remembering.hits++
        return entry
      }
      entries.delete(key)
      remembering.size = entries.size
    }
    const refusal = last && repeatedRefusal(last, moment())
    // Only a token in its one canonical spelling gets further, so nothing else is ever remembered, and a hit
    // needs no check of the shape (which saves half of its time).
    if (refusal === undefined && !hasTokenShape(token)) return malformed
    remembering.misses++
    if (refusal !== undefined) return refusal
    const verdict = inFlight.find(key) ?? verifyOnce(token, key)
    return last && verdict instanceof Promise ? noted(verdict, token, last) : verdict
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
        inFlight.delete(key, pending)
        // Something changed while this was verified: it may rest on what is no longer in force.
        if (started !== generation) return remembering(token)
        return verified.ok ? remember(key, verified.identity, verified.usableUntil) : verified
      },
      (fault: unknown) => {
        inFlight.delete(key, pending)
        throw fault
      },
    )
    inFlight.add(key, pending)
    return pending
  }

  function remember(key: string, identity: Identity, usableUntil: number): Entry {
    if (entries.size === maxTokens && !entries.has(key)) remembering.evictions++
    const entry: Entry = { ok: true, identity, until: Math.min(usableUntil, now() + maxAgeSeconds * 1000) }
    entries.set(key, entry)
    remembering.size = entries.size
    return entry
  }

  /** Lets the connection that asked remember a refusal, if no other token has come on it meanwhile. */
  function noted(verdict: Promise<Verdict>, token: string, last: LastToken): Promise<Verdict> {
    const asked = moment()
    return verdict.then((known) => {
      if (last.token === token) rememberRefusal(last, known, asked, moment())
      return known
    })
  }
}

/** The SHA-256 of a token, one byte a character, remembered for the connection it came on. */
function digestOf(token: string, last: LastToken | undefined): string {
  if (last?.token === token) return last.digest
  const digest = hash('sha256', token, 'binary')
  if (last !== undefined) {
    last.token = ownText(token) // a connection may be idle for long, and must not keep a whole head meanwhile
    last.digest = digest
    last.refusal = undefined
  }
  return digest
}
