/**
 * Makes keys that WebCrypto can use from the members of a checked JWK.
 *
 * In: the members and the algorithm they are for. Out: keys pinned to that algorithm, of which the private
 * one makes signatures that the public one accepts. Nothing else of the JWK (`key_ops`, `ext`, `x5c`, …)
 * reaches the import.
 *
 * @module
 */
import { webcrypto } from 'node:crypto'
import { CompactSign, type CryptoKey, compactVerify, importJWK, type JWK } from 'jose'
import { PARAMETERS } from './algorithm-parameters.ts'
import type { Algorithm } from './key-ring.ts'

/** The usable forms of one key; for HS256 both are the same secret key. */
export interface ImportedKey {
  readonly verify: CryptoKey
  /** Absent when only the public half is known. */
  readonly sign?: CryptoKey
}

/**
 * Imports a key and proves that its halves belong together: WebCrypto takes a private key beside the public
 * half of another one, and every token it signed would then be refused.
 *
 * @param jwk - holds every public member of `alg`, and the private ones or none
 * @throws when the members are no valid key of that algorithm (a point off the curve, say), or the halves
 *   do not match; the error may quote nothing of the key
 */
export async function importKey(
  jwk: Readonly<Record<string, unknown>>,
  alg: Algorithm,
): Promise<ImportedKey> {
  const { kty, crv, publicMembers, privateMembers } = PARAMETERS[alg]
  if (kty === 'oct') {
    const secret = Buffer.from(String(jwk['k']), 'base64url')
    const hmac = { name: 'HMAC', hash: 'SHA-256' }
    const key = await webcrypto.subtle.importKey('raw', secret, hmac, false, ['sign', 'verify'])
    return { verify: key, sign: key }
  }
  const publicJwk: JWK = { kty, ...(crv !== undefined && { crv }), ...pick(jwk, publicMembers) }
  const verify = await importOne(publicJwk, alg)
  if (jwk[privateMembers[0]] === undefined) return { verify }
  const sign = await importOne({ ...publicJwk, ...pick(jwk, privateMembers) }, alg)
  const probe = await new CompactSign(new Uint8Array(1)).setProtectedHeader({ alg }).sign(sign)
  await compactVerify(probe, verify, { algorithms: [alg] })
  return { verify, sign }
}

async function importOne(jwk: JWK, alg: Algorithm): Promise<CryptoKey> {
  // jose gives bytes for `oct` only, which never comes here.
  return (await importJWK(jwk, alg, { extractable: false })) as CryptoKey
}

function pick(jwk: Readonly<Record<string, unknown>>, names: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(names.filter((name) => jwk[name] !== undefined).map((name) => [name, jwk[name]]))
}
