/**
 * Hashes secrets, and compares hashes in constant time. A hash has one of two forms, in the PHC
 * string format's alphabet: `$sha256$<digest>` for generated secrets (256 random bits need no slow hash),
 * and `$scrypt$ln=14,r=8,p=5$<salt>$<digest>` for chosen ones (RFC 7914; `ln` is log2 of N).
 */
import { hash, randomBytes, scrypt, timingSafeEqual } from 'node:crypto'
import { promisify } from 'node:util'
import { errorIn, failed, ok, type Result } from '../base/result.ts'

const DIGEST_BYTES = 32
const SALT_BYTES = 16
/** N, r and p (RFC 7914): the set of OWASP's Password Storage Cheat Sheet that needs 16 MiB. */
const NEW_PARAMETERS = { cost: 2 ** 14, blockSize: 8, parallelization: 5 }

/** The minimum work (N * r * p) and the minimum N of OWASP's sets. */
const MIN_WORK = 655_360
const MIN_COST = 2 ** 13
/** Twice the work of OWASP's strongest set. With more, one login would delay the others for seconds. */
const MAX_WORK = 2 ** 21
const MAX_MEMORY_BYTES = 64 * 1024 * 1024

const SHA256_HASH = /^\$sha256\$([A-Za-z0-9+/]{43})$/
const SCRYPT_HASH =
  /^\$scrypt\$ln=([1-9]\d?),r=([1-9]\d{0,2}),p=([1-9]\d{0,2})\$([A-Za-z0-9+/]{22,86})\$([A-Za-z0-9+/]{43})$/

export const generateSecret = (): string => randomBytes(32).toString('base64url')

/** Neither trims, normalizes nor truncates. @param scheme - `sha256` only for {@link generateSecret} */
export async function hashSecret(secret: string, scheme: 'sha256' | 'scrypt'): Promise<string> {
  if (scheme === 'sha256') {
    return `$sha256$${base64(hash('sha256', secret, 'buffer'))}`
  }
  const salt = randomBytes(SALT_BYTES)
  const { cost, blockSize, parallelization } = NEW_PARAMETERS
  const prefix = `$scrypt$ln=${Math.log2(cost)},r=${blockSize},p=${parallelization}`
  return `${prefix}$${base64(salt)}$${base64(await runScrypt(secret, { salt, parameters: NEW_PARAMETERS }))}`
}

/** Returns the prefix of a scrypt hash, such as `$scrypt$ln=14,r=8,p=5`. Undefined for a SHA-256 hash. */
export const scryptPrefixOf = (secretHash: string) => /^\$scrypt\$[^$]*/.exec(secretHash)?.[0]

export const secretHashProblem = (text: string) => errorIn(parseSecretHash(text))

type ScryptInput = Readonly<{ salt: Buffer; parameters: typeof NEW_PARAMETERS }>

function parseSecretHash(text: string): Result<{ readonly digest: Buffer; readonly slow?: ScryptInput }> {
  const sha256Digest = unbase64(SHA256_HASH.exec(text)?.[1])
  if (sha256Digest !== undefined) {
    return ok({ digest: sha256Digest })
  }

  const [, ln, r, p, saltText, digestText] = SCRYPT_HASH.exec(text) ?? []
  const salt = unbase64(saltText)
  const digest = unbase64(digestText)
  if (salt === undefined || digest === undefined) {
    return failed('must be a complete $sha256$ or $scrypt$ hash, as `credentials add` writes it')
  }
  const parameters = { cost: 2 ** Number(ln), blockSize: Number(r), parallelization: Number(p) }
  const work = parameters.cost * parameters.blockSize * parameters.parallelization
  if (parameters.cost < MIN_COST || work < MIN_WORK) {
    return failed('has scrypt parameters that are too weak (at least ln=14,r=8,p=5 or its equal)')
  }
  if (128 * parameters.cost * parameters.blockSize > MAX_MEMORY_BYTES || work > MAX_WORK) {
    return failed('has scrypt parameters that cost too much (at most 64 MiB, and ln=16,r=8,p=4)')
  }
  return ok({ digest, slow: { salt, parameters } })
}

/** Rejects if the text is not a valid hash, or if memory is short. */
export async function verifySecret(secret: string, text: string): Promise<boolean> {
  const stored = parseSecretHash(text)
  if (!stored.ok) {
    throw new Error('a stored hash cannot be parsed')
  }
  const { digest, slow } = stored.value
  const computed = slow ? await runScrypt(secret, slow) : hash('sha256', secret, 'buffer')
  return timingSafeEqual(computed, digest)
}

/**
 * Returns a hash that no secret matches, as costly as a real one.
 * @param prefix - `$sha256` or `$scrypt$ln=14,r=8,p=5`
 */
export function dummyHash(prefix: string): string {
  const salt = prefix === '$sha256' ? '' : `$${base64(randomBytes(SALT_BYTES))}`
  return `${prefix}${salt}$${base64(randomBytes(DIGEST_BYTES))}`
}

const scryptAsync = promisify<string, Buffer, number, object, Buffer>(scrypt)

function runScrypt(secret: string, { salt, parameters }: ScryptInput): Promise<Buffer> {
  // OpenSSL counts its small buffers against `maxmem`, too.
  return scryptAsync(secret, salt, DIGEST_BYTES, { ...parameters, maxmem: 2 * MAX_MEMORY_BYTES })
}

const base64 = (bytes: Buffer) => bytes.toString('base64').replaceAll('=', '')

/** Accepts only the canonical spelling. Otherwise stray last bits would give one hash several texts. */
function unbase64(text: string | undefined): Buffer | undefined {
  if (text === undefined) {
    return undefined
  }
  const bytes = Buffer.from(text, 'base64')
  return base64(bytes) === text ? bytes : undefined
}
