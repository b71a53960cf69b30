/**
 * Keys in memory. A ring has the sidecar's own keys, or those of the issuer that signs for it.
 * A set has the keys of another issuer. Both are immutable: a reload replaces all keys in one assignment.
 */
import type { CryptoKey, JWK } from 'jose'
import { addFingerprint, fingerprintOf } from '../base/fingerprint.ts'
import { failed, ok, type Result } from '../base/result.ts'

/** Each key pins its own algorithm (RFC 8725, section 3.1). */
export const PUBLIC_ALGORITHMS = ['ES256', 'ES384', 'EdDSA', 'RS256', 'PS256'] as const
export const ALGORITHMS = [...PUBLIC_ALGORITHMS, 'HS256'] as const
export type Algorithm = (typeof ALGORITHMS)[number]

/** A key verifies only tokens whose header names its `alg` and, except in `findInSet`, its `kid`. */
export interface Key {
  readonly kid: string // '' for a key of another issuer that has none
  readonly alg: Algorithm
  /** A public key, or the secret key of HS256. */
  readonly verifyKey: CryptoKey
  /** A private key, or the secret key of HS256; absent where only the public half is known. */
  readonly signKey?: CryptoKey | undefined
  readonly publicJwk?: JWK | undefined
  /** `iat` of the JWK, else the file's modification time. */
  readonly createdAtSeconds: number
  /** When the key stopped signing, or {@link NEVER_SIGNED}. Absent if unknown. */
  readonly stoppedAtSeconds?: number | undefined
  /** Maximum lifetime of tokens plus clock tolerance, if known when the key stopped signing. */
  readonly tokenSeconds?: number | undefined
}

export interface KeyRing {
  readonly keys: ReadonlyMap<string, Key>
  /** A key with a `signKey`. Absent in a sidecar that only verifies. */
  readonly signing?: Key | undefined
}

/** Finds the key that a token's header names. Returns a promise only if keys are fetched. Never rejects. */
export type FindKey = (kid: string | undefined, alg: string) => FoundKey | Promise<FoundKey>

export type FoundKey = Result<CryptoKey, 'unknown_key' | 'algorithm' | 'unavailable'>

export function findInRing({ keys }: KeyRing, kid: string | undefined, alg: string): FoundKey {
  const key = kid === undefined ? undefined : keys.get(kid)
  if (key === undefined) {
    return failed('unknown_key')
  }
  return key.alg === alg ? ok(key.verifyKey) : failed('algorithm')
}

/**
 * A token may lack `kid` if only one key has its `alg`.
 * Of keys with one `kid` and `alg`, none is found (RFC 7517, 4.5).
 */
export function findInSet(
  keys: readonly Key[],
  algorithms: readonly string[],
  kid: string | undefined,
  alg: string,
): FoundKey {
  if (!algorithms.includes(alg)) {
    return failed('algorithm')
  }
  if (kid === '') {
    return failed('unknown_key') // else it would name the keys without one
  }
  const named = kid === undefined ? keys : keys.filter((key) => key.kid === kid)
  const [found, ...others] = named.filter((key) => key.alg === alg)
  if (found !== undefined && others.length === 0) {
    return ok(found.verifyKey)
  }
  const isOtherAlgorithm = found === undefined && kid !== undefined && named.length > 0
  return failed(isOtherAlgorithm ? 'algorithm' : 'unknown_key')
}

/** A JWK Set (RFC 7517, section 5), without HS256 keys. */
export const publicJwks = (ring: KeyRing) => ({
  keys: [...ring.keys.values()].flatMap(({ publicJwk }) => publicJwk ?? []),
})

/** Made of the public keys. Of a key for HS256, which has none, `kid` and `alg` count alone. */
export function fingerprintOfKeys({ keys }: KeyRing): number {
  let sum = 0
  for (const { kid, alg, publicJwk = {} } of keys.values()) {
    const members = Object.entries(publicJwk).sort(([a], [b]) => a.localeCompare(b))
    sum = addFingerprint(sum, fingerprintOf(kid, alg, members))
  }
  return sum
}

export const NEVER_SIGNED = 0

/**
 * How long a sidecar may sign with the former key after `active` has changed.
 * Longer while its files change, or are rejected.
 */
const RELOAD_SECONDS = 1

/** When the last token of a key that does not sign expires, in epoch seconds. Undefined if unknown. */
export function tokensEndAtSeconds(key: Key, tokenSeconds = key.tokenSeconds): number | undefined {
  const { stoppedAtSeconds } = key
  if (stoppedAtSeconds === undefined || stoppedAtSeconds === NEVER_SIGNED) {
    return stoppedAtSeconds
  }
  return tokenSeconds === undefined ? undefined : stoppedAtSeconds + RELOAD_SECONDS + tokenSeconds
}

/**
 * Returns how long the tokens of each key may still live. A key that never signed here may sign elsewhere.
 */
export const tokenLifetimes = ({ keys, signing }: KeyRing, tokenSeconds: number, nowMs: number) =>
  [...keys.values()].map((key) => {
    const end = key.kid === signing?.kid ? undefined : tokensEndAtSeconds(key, tokenSeconds)
    const isEnding = end !== undefined && end !== NEVER_SIGNED
    return { kid: key.kid, seconds: isEnding ? Math.max(0, Math.ceil(end - nowMs / 1000)) : tokenSeconds }
  })
