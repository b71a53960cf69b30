/**
 * Checks, imports and generates single keys as JWKs (RFC 7517; members: RFC 7518, section 6, and RFC 8037).
 * In: a parsed JSON object. Out: keys pinned to one algorithm, or every problem.
 * Problems quote no value. Members that only the sidecar uses: `iat` (when the key was created)
 * and `signedUntil` (when it stopped signing, or 0 if it never signed), both in epoch seconds,
 * and `tokenSeconds` (maximum lifetime of the key's tokens).
 */
import { KeyObject, randomBytes, webcrypto } from 'node:crypto'
// The index of jose would also load encryption.
import type { CryptoKey, JWK } from 'jose'
import { CompactSign } from 'jose/jws/compact/sign'
import { compactVerify } from 'jose/jws/compact/verify'
import { exportJWK } from 'jose/key/export'
import { generateKeyPair } from 'jose/key/generate/keypair'
import { importJWK } from 'jose/key/import'
import { z } from 'zod'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import { integer, must } from '../base/values.ts'
import { ALGORITHMS, type Algorithm, type Key } from './key-ring.ts'

/** RFC 7518, sections 6.2.2, 6.3.2 and 6.4.1. The key type AKP has `priv`. */
export const PRIVATE_MEMBERS: ReadonlySet<string> = new Set('d p q dp dq qi oth k priv'.split(' '))

// RFC 7518, sections 3.2 and 3.3; FIPS 186-5, section 5.4. With exponent 1, a message is its own signature.
const MIN_SECRET_BYTES = 32
const MIN_MODULUS_BITS = 2048
const MIN_EXPONENT = 65_537n

const KEY_TYPES: Readonly<Record<Algorithm, string>> = {
  ES256: 'EC P-256',
  ES384: 'EC P-384',
  EdDSA: 'OKP Ed25519',
  RS256: 'RSA',
  PS256: 'RSA',
  HS256: 'oct',
}

export const fitsType = (alg: Algorithm, { kty, crv }: { readonly kty?: unknown; readonly crv?: unknown }) =>
  KEY_TYPES[alg] === (kty === 'RSA' || kty === 'oct' ? kty : `${kty} ${crv}`)

/** The end of the year 9999. A present time in milliseconds is larger, and thus refused. */
const MAX_SECONDS = 253_402_300_799
const secondsSchema = integer(0, MAX_SECONDS, 'must be an integer of epoch seconds').optional()
const textSchema = z.string(must('must be a string'))
const octets = z.base64url(must('must be base64url')).exactOptional()

const jwkSchema = z.object({
  kid: textSchema,
  alg: z.enum(ALGORITHMS, must(`must be one of ${ALGORITHMS.join(', ')}`)),
  use: z.literal('sig', must('must be sig')).optional(),
  key_ops: z
    .array(z.enum(['sign', 'verify'], must('must be sign or verify')), must('must be a list'))
    .optional(),
  iat: secondsSchema,
  signedUntil: secondsSchema,
  tokenSeconds: integer(1, MAX_SECONDS, 'must be an integer of seconds').optional(),
  kty: z.enum(['EC', 'OKP', 'RSA', 'oct'], must('must be EC, OKP, RSA or oct')),
  crv: textSchema.exactOptional(),
  x: octets,
  y: octets,
  n: octets,
  e: octets,
  k: octets,
  d: octets,
  p: octets,
  q: octets,
  dp: octets,
  dq: octets,
  qi: octets,
})

/** Never rejects. @param createdAtSeconds - the creation time of a key without `iat` */
export async function importKey(jwk: object, createdAtSeconds: number): Promise<Loaded<Key>> {
  const parsed = jwkSchema.safeParse(jwk)
  if (!parsed.success) {
    return notLoaded(parsed.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`))
  }
  const { kid, alg, use: _use, key_ops: _ops, iat, signedUntil, tokenSeconds, ...members } = parsed.data
  if (!fitsType(alg, members)) {
    return notLoaded([`kty and crv must be ${KEY_TYPES[alg]} for ${alg}`])
  }
  const { kty, k = '' } = members
  const times = { createdAtSeconds: iat ?? createdAtSeconds, stoppedAtSeconds: signedUntil, tokenSeconds }
  try {
    if (kty === 'oct') {
      const secret = Buffer.from(k, 'base64url')
      if (secret.length < MIN_SECRET_BYTES) {
        return notLoaded([`the secret is shorter than ${MIN_SECRET_BYTES} bytes`])
      }
      const hmac = { name: 'HMAC', hash: 'SHA-256' }
      const key = await webcrypto.subtle.importKey('raw', secret, hmac, false, ['sign', 'verify'])
      return loaded({ kid, alg, ...times, verifyKey: key, signKey: key })
    }
    const publicEntries = Object.entries(members).filter(([name]) => !PRIVATE_MEMBERS.has(name))
    const verifyKey = await importJWK({ ...Object.fromEntries(publicEntries), kty }, alg)
    const weakness = rsaWeakness(verifyKey)
    if (weakness !== undefined) {
      return notLoaded([weakness])
    }
    const signKey = members.d === undefined ? undefined : await importJWK({ ...members, kty }, alg)
    if (signKey !== undefined) {
      await assertPair(signKey, verifyKey, alg)
    }
    const publicJwk = { kid, alg, use: 'sig', ...(await exportJWK(verifyKey)) }
    return loaded({ kid, alg, ...times, verifyKey, signKey, publicJwk })
  } catch {
    // The cause may quote a member.
    return notLoaded([`is no valid ${alg} key, or its private and public halves do not belong together`])
  }
}

/** Returns a JWK with its private members. */
export async function generateKey(alg: Algorithm, kid: string, createdAtSeconds: number) {
  const members: JWK =
    alg === 'HS256'
      ? { kty: 'oct', k: randomBytes(MIN_SECRET_BYTES).toString('base64url') }
      : await exportJWK((await generateKeyPair(alg, { extractable: true })).privateKey)
  return { kid, alg, use: 'sig', ...members, iat: createdAtSeconds }
}

/** The kid does not depend on the key material. */
export function newKid(alg: Algorithm, createdAtSeconds: number): string {
  const day = new Date(createdAtSeconds * 1000).toISOString().slice(0, 10).replaceAll('-', '')
  return `${alg.toLowerCase()}-${day}-${randomBytes(4).toString('hex')}`
}

function rsaWeakness(key: CryptoKey): string | undefined {
  const { modulusLength, publicExponent } = KeyObject.from(key).asymmetricKeyDetails ?? {}
  if (modulusLength !== undefined && modulusLength < MIN_MODULUS_BITS) {
    return `the RSA modulus is shorter than ${MIN_MODULUS_BITS} bits`
  }
  if (publicExponent !== undefined && publicExponent < MIN_EXPONENT) {
    return `the RSA exponent is smaller than ${MIN_EXPONENT}`
  }
  return undefined
}

/** WebCrypto imports halves of different keys as a pair. Verification would then fail for every token. */
async function assertPair(privateKey: CryptoKey, publicKey: CryptoKey, alg: Algorithm): Promise<void> {
  const probe = await new CompactSign(new Uint8Array(1)).setProtectedHeader({ alg }).sign(privateKey)
  await compactVerify(probe, publicKey, { algorithms: [alg] })
}
