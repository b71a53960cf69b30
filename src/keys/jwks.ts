/**
 * The public half of a key ring as a JWK set (RFC 7517, section 5), for anyone who wants to verify our tokens.
 *
 * An HS256 key has no public half: it verifies here and is published nowhere.
 *
 * @module
 */
import type { JWK } from 'jose'
import type { KeyRing } from './key-ring.ts'

/** Lists the public keys of a ring; nothing private can be in it. */
export function publicJwks(ring: KeyRing): { readonly keys: readonly JWK[] } {
  const keys: JWK[] = []
  for (const { publicJwk } of ring.verification.values()) if (publicJwk !== undefined) keys.push(publicJwk)
  return { keys }
}
