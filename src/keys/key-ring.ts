/**
 * Our own keys, or those of the issuer that signs for us; `key-set.ts` has the keys of other issuers.
 * A ring is an immutable snapshot: a reload is one assignment, and no request sees half of it.
 */
import type { CryptoKey, JWK } from 'jose'
import { failed, type Result } from '../values/result.ts'

/** Each key pins its own algorithm (RFC 8725, section 3.1). */
export const PUBLIC_ALGORITHMS = ['ES256', 'ES384', 'EdDSA', 'RS256', 'PS256'] as const
export const ALGORITHMS = [...PUBLIC_ALGORITHMS, 'HS256'] as const

export type Algorithm = (typeof ALGORITHMS)[number]

/** A key verifies only tokens whose header names its `kid` and its `alg`. */
export interface Key {
  readonly kid: string
  readonly alg: Algorithm
  /** A public key, or the secret key of HS256. */
  readonly verifyKey: CryptoKey
  /** A private key, or the secret key of HS256; absent where only the public half is known. */
  readonly signKey?: CryptoKey | undefined
  readonly publicJwk?: JWK | undefined
  /** `iat` of the JWK, else the file's modification time. */
  readonly createdAtSeconds: number
  /** When the key stopped signing, or {@link NEVER_SIGNED}; absent when that is not known. */
  readonly stoppedAtSeconds?: number | undefined
  /** How long tokens of the key live at most, with the clock tolerance, if that was known when the key stopped signing. */
  readonly tokenSeconds?: number | undefined
}

export interface KeyRing {
  readonly keys: ReadonlyMap<string, Key>
  /** A key with a `signKey`. Absent in a sidecar that only verifies. */
  readonly signing?: Key | undefined
}

export type FoundKey = Result<CryptoKey, 'unknown_key' | 'algorithm' | 'unavailable'>

export const UNKNOWN_KEY: FoundKey = failed('unknown_key')
export const OTHER_ALGORITHM: FoundKey = failed('algorithm')

/** Finds the key that a token's header names. A promise only where keys are fetched; does not reject. */
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

/** A JWK Set (RFC 7517, section 5), without HS256 keys. */
export function publicJwks(ring: KeyRing) {
  return { keys: [...ring.keys.values()].flatMap(({ publicJwk }) => publicJwk ?? []) }
}

/** When the last token of a key that does not sign has expired. `longestSeconds`: default as recorded in the key's file. */
export function tokensEndAtSeconds(
  { stoppedAtSeconds, tokenSeconds }: Key,
  longestSeconds: number | undefined,
) {
  if (stoppedAtSeconds === undefined || stoppedAtSeconds === NEVER_SIGNED) return stoppedAtSeconds
  const seconds = longestSeconds ?? tokenSeconds
  return seconds === undefined ? undefined : stoppedAtSeconds + RELOAD_SECONDS + seconds
}

/** A key that never signed counts as signing, like one without `stoppedAtSeconds`: another sidecar may use it already. */
export function tokenLifetimes({ keys, signing }: KeyRing, longestSeconds: number, now: number) {
  return [...keys.values()].map((key) => {
    const end = key.kid === signing?.kid ? undefined : tokensEndAtSeconds(key, longestSeconds)
    return { kid: key.kid, seconds: end ? Math.max(0, Math.ceil(end - now / 1000)) : longestSeconds }
  })
}
