/**
 * Checks, imports and generates single keys as JWKs (RFC 7517; members: RFC 7518, section 6, and RFC 8037).
 * In: a parsed JSON object. Out: keys pinned to one algorithm, or every problem. A problem never quotes a value.
 * Three members are our own: `iat` (created) and `signedUntil` (stopped signing, 0: never signed), in epoch seconds,
 * and `tokenSeconds` (how long its tokens live at most).
 */
import { KeyObject, randomBytes, webcrypto } from 'node:crypto'
// By part: the index of jose also loads encryption, which is not used.
import type { CryptoKey, JWK } from 'jose'
import { CompactSign } from 'jose/jws/compact/sign'
import { compactVerify } from 'jose/jws/compact/verify'
import { exportJWK } from 'jose/key/export'
import { generateKeyPair } from 'jose/key/generate/keypair'
import { importJWK } from 'jose/key/import'
import { z } from 'zod'
import type { Loaded } from '../files/files.ts'
import { integer, must } from '../values/values.ts'
import { ALGORITHMS, type Algorithm, type Key } from './key-ring.ts'

/** The members that must never be published (RFC 7518, sections 6.2.2, 6.3.2 and 6.4.1; `priv` of the AKP key type). */
export const PRIVATE_MEMBERS: ReadonlySet<string> = new Set('d p q dp dq qi oth k priv'.split(' '))

// RFC 7518, sections 3.2 and 3.3; FIPS 186-5, section 5.4 (with an exponent of 1 a message is its own signature).
const MIN_SECRET_BYTES = 32
const MIN_MODULUS_BITS = 2048
const MIN_EXPONENT = 65_537n

const is = <V extends string>(value: V, alg: Algorithm) =>
  z.literal(value, must(`must be ${value} for ${alg}`))
/** The end of the year 9999. Milliseconds and microseconds of today are larger. */
const MAX_SECONDS = 253_402_300_799
const seconds = integer(0, MAX_SECONDS, 'must be an integer of epoch seconds').optional()
const member = z.base64url(must('must be base64url'))
/** `d`, and any other member of a private half. */
const d = member.exactOptional()
const common = {
  kid: z.string(must('must be a string')),
  use: z.literal('sig', must('must be sig')).optional(),
  key_ops: z
    .array(z.enum(['sign', 'verify'], must('must be sign or verify')), must('must be a list'))
    .optional(),
  iat: seconds,
  signedUntil: seconds,
  tokenSeconds: integer(1, MAX_SECONDS, 'must be an integer of seconds').optional(),
}
const ec = <A extends Algorithm>(alg: A, crv: string) =>
  z.object({ ...common, alg: z.literal(alg), kty: is('EC', alg), crv: is(crv, alg), x: member, y: member, d })
const okp = <A extends Algorithm>(alg: A, crv: string) =>
  z.object({ ...common, alg: z.literal(alg), kty: is('OKP', alg), crv: is(crv, alg), x: member, d })
const rsa = <A extends Algorithm>(alg: A) => {
  const members = { n: member, e: member, d, p: d, q: d, dp: d, dq: d, qi: d }
  return z.object({ ...common, alg: z.literal(alg), kty: is('RSA', alg), ...members })
}
const oct = <A extends Algorithm>(alg: A) =>
  z.object({ ...common, alg: z.literal(alg), kty: is('oct', alg), k: member })
const jwkSchema = z.discriminatedUnion(
  'alg',
  [
    ec('ES256', 'P-256'),
    ec('ES384', 'P-384'),
    okp('EdDSA', 'Ed25519'),
    rsa('RS256'),
    rsa('PS256'),
    oct('HS256'),
  ],
  { error: ({ code }) => (code === 'invalid_union' ? `must be one of ${ALGORITHMS.join(', ')}` : undefined) },
)

/** Publishes only members of the schema. Never rejects. @param createdAt - of a key without `iat`, epoch seconds */
export async function importKey(jwk: object, createdAt: number): Promise<Loaded<Key>> {
  const parsed = jwkSchema.safeParse(jwk)
  if (!parsed.success) {
    return refused(...parsed.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`))
  }
  const { kid, alg, use: _use, key_ops: _ops, iat, signedUntil, tokenSeconds, ...members } = parsed.data
  const described = { kid, alg, createdAt: iat ?? createdAt, signedUntil, tokenSeconds }
  const imported = (key: Key): Loaded<Key> => ({ ok: true, value: key, warnings: [] })
  try {
    if (members.kty === 'oct') {
      const secret = Buffer.from(members.k, 'base64url')
      if (secret.length < MIN_SECRET_BYTES)
        return refused(`the secret is shorter than ${MIN_SECRET_BYTES} bytes`)
      const hmac = { name: 'HMAC', hash: 'SHA-256' }
      const key = await webcrypto.subtle.importKey('raw', secret, hmac, false, ['sign', 'verify'])
      return imported({ ...described, verifyKey: key, signKey: key })
    }
    const publicEntries = Object.entries(members).filter(([name]) => !PRIVATE_MEMBERS.has(name))
    const publicMembers = { ...Object.fromEntries(publicEntries), kty: members.kty }
    const verifyKey = await importJWK(publicMembers, alg)
    const weakness = rsaWeakness(verifyKey)
    if (weakness !== undefined) return refused(weakness)
    const signKey = members.d === undefined ? undefined : await importJWK(members, alg)
    if (signKey !== undefined) await assertPair(signKey, verifyKey, alg)
    return imported({
      ...described,
      verifyKey,
      signKey,
      publicJwk: { kid, alg, use: 'sig', ...publicMembers },
    })
  } catch {
    // The cause may quote a member.
    return refused(`is no valid ${alg} key, or its private and public halves do not belong together`)
  }
}

/** A private JWK. @param createdAt - epoch seconds */
export async function generateKey(alg: Algorithm, kid: string, createdAt: number) {
  const members: JWK =
    alg === 'HS256'
      ? { kty: 'oct', k: randomBytes(MIN_SECRET_BYTES).toString('base64url') }
      : await exportJWK((await generateKeyPair(alg, { extractable: true })).privateKey)
  return { kid, alg, use: 'sig', ...members, iat: createdAt }
}

/** Algorithm, day of `createdAt` (epoch seconds) and 32 random bits, nothing derived from the key. */
export function newKid(alg: Algorithm, createdAt: number): string {
  const day = new Date(createdAt * 1000).toISOString().slice(0, 10).replaceAll('-', '')
  return `${alg.toLowerCase()}-${day}-${randomBytes(4).toString('hex')}`
}

const refused = (...problems: readonly string[]): Loaded<never> => ({ ok: false, problems })

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

/** WebCrypto imports a private key beside another key's public half; each of its tokens would then be refused. */
async function assertPair(privateKey: CryptoKey, publicKey: CryptoKey, alg: Algorithm): Promise<void> {
  const probe = await new CompactSign(new Uint8Array(1)).setProtectedHeader({ alg }).sign(privateKey)
  await compactVerify(probe, publicKey, { algorithms: [alg] })
}
