/**
 * What a JWK of each accepted algorithm consists of (RFC 7518, section 6; RFC 8037, section 2).
 *
 * One algorithm names one key type and one curve, so a key can never be used with another algorithm than its
 * own (RFC 8725, section 3.1).
 *
 * @module
 */
import { ALGORITHMS, type Algorithm } from './key-ring.ts'

/** The members of a JWK that hold the key itself. */
export interface AlgorithmParameters {
  readonly kty: 'EC' | 'OKP' | 'RSA' | 'oct'
  /** The one curve, for the key types that have curves. */
  readonly crv?: string
  /** The members that may be published. */
  readonly publicMembers: readonly string[]
  /** The members of the private half; the first of them tells a private key from a public one. */
  readonly privateMembers: readonly [string, ...string[]]
}

const rsa: AlgorithmParameters = {
  kty: 'RSA',
  publicMembers: ['n', 'e'],
  privateMembers: ['d', 'p', 'q', 'dp', 'dq', 'qi'],
}

/** The JWK members of each algorithm. */
export const PARAMETERS: Readonly<Record<Algorithm, AlgorithmParameters>> = {
  ES256: { kty: 'EC', crv: 'P-256', publicMembers: ['x', 'y'], privateMembers: ['d'] },
  ES384: { kty: 'EC', crv: 'P-384', publicMembers: ['x', 'y'], privateMembers: ['d'] },
  EdDSA: { kty: 'OKP', crv: 'Ed25519', publicMembers: ['x'], privateMembers: ['d'] },
  RS256: rsa,
  PS256: rsa,
  HS256: { kty: 'oct', publicMembers: [], privateMembers: ['k'] },
}

/** Whether a value names one of the accepted algorithms, exactly as it is spelled. */
export function isAlgorithm(value: unknown): value is Algorithm {
  return (ALGORITHMS as readonly unknown[]).includes(value)
}
