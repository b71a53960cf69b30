/**
 * Makes a new private key as a JWK.
 *
 * In: the algorithm. Out: a document ready to be written as a key file, strong enough that the loader takes
 * it.
 *
 * @module
 */
import { randomBytes } from 'node:crypto'
import { exportJWK, generateKeyPair, type JWK } from 'jose'
import type { Algorithm } from './key-ring.ts'

/**
 * Generates a private JWK with `kid`, `alg`, `use` and `iat`.
 *
 * @param createdAt - epoch seconds
 */
export async function generateKey(
  alg: Algorithm,
  kid: string,
  createdAt: number,
): Promise<JWK & { readonly iat: number }> {
  const members = alg === 'HS256' ? newSecret() : await newKeyPair(alg)
  return { kid, alg, use: 'sig', ...members, iat: createdAt }
}

/**
 * A kid that nothing else has: the algorithm, the day, and 32 random bits. It sorts by age, says when to
 * rotate, and tells nothing of the key (the thumbprint of an HS256 key would be a hash of the secret).
 *
 * @param createdAt - epoch seconds
 */
export function newKid(alg: Algorithm, createdAt: number): string {
  const day = new Date(createdAt * 1000).toISOString().slice(0, 10).replaceAll('-', '')
  return `${alg.toLowerCase()}-${day}-${randomBytes(4).toString('hex')}`
}

function newSecret(): JWK {
  return { kty: 'oct', k: randomBytes(32).toString('base64url') }
}

async function newKeyPair(alg: Algorithm): Promise<JWK> {
  const { privateKey } = await generateKeyPair(alg, { extractable: true })
  return exportJWK(privateKey)
}
