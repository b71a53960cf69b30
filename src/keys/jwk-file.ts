/**
 * Reads one key file: a JWK (RFC 7517) in a file named `<kid>.jwk.json`.
 *
 * In: the file's bytes and the kid that its name promises. Out: a key pinned to its one algorithm, or every
 * reason why it cannot be trusted. A reason never quotes what the file holds.
 *
 * Beside the registered members two of our own are read: `iat`, when the key was made, and `signedUntil`,
 * when it stopped signing (0: it never has), both in epoch seconds. Whatever else stands in the file is ignored and never
 * published.
 *
 * @module
 */
import type { JWK } from 'jose'
import { isJsonObject, parseStrictJson } from '../strict-json.ts'
import { type AlgorithmParameters, isAlgorithm, PARAMETERS } from './algorithm-parameters.ts'
import { importKey } from './import-key.ts'
import { ALGORITHMS, type Algorithm, type SigningKey, type VerificationKey } from './key-ring.ts'
import { weakRsa } from './weak-rsa.ts'
import { weakSecret } from './weak-secret.ts'

/** One key file that can be trusted. */
export interface KeyFile {
  readonly kid: string
  readonly alg: Algorithm
  readonly verification: VerificationKey
  /** Absent when the file holds a public key only. */
  readonly signing?: SigningKey
  /** When the file was last changed, in epoch seconds. */
  readonly modifiedAt: number
  /** The whole document as written, private members included: for rewriting the file, never for output. */
  readonly document: Readonly<Record<string, unknown>>
}

/** The outcome of reading a key file. */
export type ParsedKeyFile =
  | { readonly ok: true; readonly file: KeyFile }
  | { readonly ok: false; readonly problems: readonly string[] }

/** What is known of a key file before it is parsed. */
export interface KeyFileText {
  readonly bytes: Uint8Array
  /** What stands before `.jwk.json` in the file's name. */
  readonly kid: string
  /** When the file was last changed, in epoch seconds: the key's age when the file does not tell it. */
  readonly modifiedAt: number
}

type Members = Readonly<Record<string, unknown>>

/** Whether a kid can stand in a file name, and so in a token header that we honour. */
export function isKid(kid: string): boolean {
  return /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$/.test(kid)
}

/** Parses, checks and imports one key file. Never throws. */
export async function parseKeyFile({ bytes, kid, modifiedAt }: KeyFileText): Promise<ParsedKeyFile> {
  const parsed = parseStrictJson(bytes)
  if (!parsed.ok) return refused([notJson(bytes, parsed.repeatedKey !== undefined)])
  const jwk = parsed.value
  if (!isJsonObject(jwk)) return refused(['is not a JSON object'])

  const { alg } = jwk
  const problems = bookkeepingProblems(jwk, kid)
  if (!isAlgorithm(alg)) {
    return refused([
      ...problems,
      alg === undefined ? 'alg is missing' : `alg must be one of ${ALGORITHMS.join(', ')}`,
    ])
  }
  problems.push(...keyProblems(jwk, alg))
  if (problems.length > 0) return refused(problems)

  let imported: Awaited<ReturnType<typeof importKey>>
  try {
    imported = await importKey(jwk, alg)
  } catch {
    // The cause may quote a member, so it is not passed on.
    return refused([`is no valid ${alg} key, or its private and public halves do not belong together`])
  }
  const signedUntil = jwk['signedUntil']
  return {
    ok: true,
    file: {
      kid,
      alg,
      verification: {
        kid,
        alg,
        key: imported.verify,
        ...(PARAMETERS[alg].kty !== 'oct' && { publicJwk: publicJwk(jwk, kid, alg) }),
        createdAt: isEpochSeconds(jwk['iat']) ? jwk['iat'] : modifiedAt,
        ...(isEpochSeconds(signedUntil) && { signedUntil }),
      },
      ...(imported.sign !== undefined && { signing: { kid, alg, key: imported.sign } }),
      modifiedAt,
      document: jwk,
    },
  }
}

function refused(problems: readonly string[]): ParsedKeyFile {
  return { ok: false, problems }
}

function notJson(bytes: Uint8Array, repeated: boolean): string {
  if (repeated) return 'names a member twice'
  const pem = Buffer.from(bytes.subarray(0, 4096)).includes('-----BEGIN ')
  return pem ? 'holds PEM; a JWK (RFC 7517) is needed' : 'is not a JSON text'
}

function bookkeepingProblems(jwk: Members, kid: string): string[] {
  const problems: string[] = []
  if (jwk['kid'] === undefined) problems.push('kid is missing')
  else if (jwk['kid'] !== kid) problems.push('kid differs from the name of the file')
  for (const name of ['iat', 'signedUntil']) {
    if (jwk[name] !== undefined && !isEpochSeconds(jwk[name]))
      problems.push(`${name} must be whole epoch seconds`)
  }
  return problems
}

function keyProblems(jwk: Members, alg: Algorithm): string[] {
  const { kty, crv, publicMembers, privateMembers } = PARAMETERS[alg]
  const problems: string[] = []
  if (jwk['use'] !== undefined && jwk['use'] !== 'sig') problems.push('use must be sig')
  const isPrivate = jwk[privateMembers[0]] !== undefined
  if (!allows(jwk['key_ops'], kty === 'oct' ? ['sign', 'verify'] : isPrivate ? ['sign'] : ['verify'])) {
    problems.push('key_ops contradicts what the key is for')
  }
  if (jwk['kty'] !== kty) return [...problems, `kty must be ${kty} for ${alg}`]
  if (crv !== undefined && jwk['crv'] !== crv) return [...problems, `crv must be ${crv} for ${alg}`]
  const needed = kty === 'oct' ? privateMembers : publicMembers
  const faulty = [...publicMembers, ...privateMembers].filter((name) =>
    jwk[name] === undefined ? needed.includes(name) : !isBase64url(jwk[name]),
  )
  if (faulty.length > 0) return [...problems, `missing or not base64url: ${faulty.join(', ')}`]
  const weakness = weaknessOf(jwk, kty)
  return weakness === undefined ? problems : [...problems, weakness]
}

function weaknessOf(jwk: Members, kty: AlgorithmParameters['kty']): string | undefined {
  if (kty === 'RSA') return weakRsa(octets(jwk['n']), octets(jwk['e']))
  if (kty === 'oct') return weakSecret(octets(jwk['k']))
  return undefined
}

/** `key_ops` may be absent; when present it must allow all that is needed and nothing but signatures. */
function allows(keyOps: unknown, needed: readonly string[]): boolean {
  if (keyOps === undefined) return true
  if (!Array.isArray(keyOps)) return false
  return (
    needed.every((use) => keyOps.includes(use)) && keyOps.every((use) => use === 'sign' || use === 'verify')
  )
}

/** Only what is registered as public, in an order of our own: no member of the file slips through. */
function publicJwk(jwk: Members, kid: string, alg: Algorithm): JWK {
  const { kty, crv, publicMembers } = PARAMETERS[alg]
  const parameters = Object.fromEntries(publicMembers.map((name) => [name, jwk[name]]))
  return { kty, kid, alg, use: 'sig', ...(crv !== undefined && { crv }), ...parameters }
}

function isEpochSeconds(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

function isBase64url(value: unknown): boolean {
  return typeof value === 'string' && value !== '' && octets(value).toString('base64url') === value
}

function octets(value: unknown): Buffer {
  return Buffer.from(String(value), 'base64url')
}
