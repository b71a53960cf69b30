/**
 * Our own keys, or those of the issuer that signs for us; `key-set.ts` has the keys of other issuers.
 * A ring is an immutable snapshot: a reload is one assignment, and no request sees half of it.
 */
import type { CryptoKey, JWK } from 'jose'
import type { Result } from '../values/result.ts'

/** The accepted signature algorithms; each key pins its own (RFC 8725, section 3.1). */
export const PUBLIC_ALGORITHMS = ['ES256', 'ES384', 'EdDSA', 'RS256', 'PS256'] as const
export const ALGORITHMS = [...PUBLIC_ALGORITHMS, 'HS256'] as const

export type Algorithm = (typeof ALGORITHMS)[number]

/** A key that verifies tokens whose header names its `kid` and exactly its `alg`. */
export interface Key {
  readonly kid: string
  readonly alg: Algorithm
  /** A public key, or the secret key of HS256. */
  readonly verifyKey: CryptoKey
  /** A private key, or the secret key of HS256. Absent where only the public half is known. */
  readonly signKey?: CryptoKey | undefined
  /** Published by the admin listener; absent for HS256, which has no public half. */
  readonly publicJwk?: JWK | undefined
  /** When the key was created: `iat` of its JWK, else the file's modification time. */
  readonly createdAtSeconds: number
  /** When the key stopped signing, or {@link NEVER_SIGNED}; absent when it is not known. */
  readonly stoppedAtSeconds?: number | undefined
  /** How long its tokens live at most, with the clock tolerance; recorded when it stopped signing, if it was known. */
  readonly tokenSeconds?: number | undefined
}

export interface KeyRing {
  readonly keys: ReadonlyMap<string, Key>
  /** The one that signs, with its `signKey`. Absent in a sidecar that only verifies. */
  readonly signing?: Key | undefined
}

/** The key of a token, or the label `reason` of its refusal. */
export type FoundKey = Result<CryptoKey, 'unknown_key' | 'algorithm' | 'unavailable'>

export const UNKNOWN_KEY: FoundKey = { ok: false, reason: 'unknown_key' }
export const OTHER_ALGORITHM: FoundKey = { ok: false, reason: 'algorithm' }

/** Finds the key that a token's header names. A promise only where keys are fetched or imported; does not reject. */
export type FindKey = (kid: string | undefined, alg: string) => FoundKey | Promise<FoundKey>

export function findKeyIn(ring: () => KeyRing): FindKey {
  return (kid = '', alg) => {
    const key = ring().keys.get(kid)
    if (key === undefined) return UNKNOWN_KEY
    return key.alg === alg ? { ok: true, value: key.verifyKey } : OTHER_ALGORITHM
  }
}

export const NEVER_SIGNED = 0

/** How long a sidecar may sign with the former key after `active` has changed. */
const RELOAD_SECONDS = 1

/** The public keys of a ring as a JWK Set (RFC 7517, section 5). An HS256 key is never in it. */
export function publicJwks(ring: KeyRing) {
  return { keys: [...ring.keys.values()].flatMap(({ publicJwk }) => publicJwk ?? []) }
}

/**
 * When the last token of a key that does not sign has expired, in epoch seconds (0: at once); undefined if not known.
 * @param longestSeconds - the longest lifetime of a token plus the clock tolerance; default: as recorded in the key's file
 */
export function tokensEndAtSeconds(
  { stoppedAtSeconds, tokenSeconds }: Key,
  longestSeconds: number | undefined,
) {
  if (stoppedAtSeconds === undefined || stoppedAtSeconds === NEVER_SIGNED) return stoppedAtSeconds
  const seconds = longestSeconds ?? tokenSeconds
  return seconds === undefined ? undefined : stoppedAtSeconds + RELOAD_SECONDS + seconds
}

/**
 * For how many seconds tokens of each key may be valid at most. A key without a time at which it stopped signing counts
 * as signing, and so does one that never signed: another sidecar may have read `active` earlier. `now`: milliseconds.
 */
export function tokenLifetimes({ keys, signing }: KeyRing, longestSeconds: number, now: number) {
  return [...keys.values()].map((key) => {
    const end = key.kid === signing?.kid ? undefined : tokensEndAtSeconds(key, longestSeconds)
    return { kid: key.kid, seconds: end ? Math.max(0, Math.ceil(end - now / 1000)) : longestSeconds }
  })
}
