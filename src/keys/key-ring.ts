/**
 * The keys in force: every key that verifies, and the one that signs.
 *
 * A ring is an immutable snapshot. Whoever needs keys is given a function that returns the ring in force, so
 * that a reload is one assignment and no request sees half of it.
 *
 * @module
 */
import type { CryptoKey, JWK } from 'jose'

/** The signature algorithms we accept; each key pins its own (RFC 8725, section 3.1). */
export const ALGORITHMS = ['ES256', 'ES384', 'EdDSA', 'RS256', 'PS256', 'HS256'] as const

/** One of the accepted signature algorithms. */
export type Algorithm = (typeof ALGORITHMS)[number]

/** A key that verifies tokens whose header names its `kid` and exactly its `alg`. */
export interface VerificationKey {
  readonly kid: string
  readonly alg: Algorithm
  /** The imported key, as jose takes it: a public `CryptoKey`, or a secret one for HS256. */
  readonly key: CryptoKey
  /** The public JWK that the admin listener publishes; absent for HS256, which has no public half. */
  readonly publicJwk?: JWK
  /** When the key was made (`iat` of its file, else the file's modification time), in epoch seconds. */
  readonly createdAt: number
  /**
   * When the key last signed, at the latest, in epoch seconds; 0 when it never has, absent when nobody knows, outdated
   * while it signs.
   */
  readonly signedUntil?: number
}

/** The key that signs new tokens. */
export interface SigningKey {
  readonly kid: string
  readonly alg: Algorithm
  /** The imported private (or secret) key, as jose takes it. */
  readonly key: CryptoKey
}

/** An immutable set of keys. */
export interface KeyRing {
  /** By `kid`. */
  readonly verification: ReadonlyMap<string, VerificationKey>
  /** Absent in a sidecar that only verifies. */
  readonly signing?: SigningKey
}
