/**
 * How secrets are kept: made, hashed, read back, compared.
 *
 * Two forms, both in the alphabet of the PHC string format (standard base64 without padding):
 *
 * - `$sha256$<digest>` for secrets this program made. They are 256 random bits, which nobody can guess however
 *   fast the hash is, so one SHA-256 is enough and a login costs microseconds. Never for a secret that a
 *   person has chosen.
 * - `$scrypt$ln=14,r=8,p=5$<salt>$<digest>` for secrets people bring (RFC 7914; `ln` is log2 of N). New ones get
 *   N=2^14, r=8, p=5: of the sets in OWASP's Password Storage Cheat Sheet the strongest in 16 MiB.
 *
 * A digest is 32 bytes; a salt 16 to 64. A secret is the exact bytes of its UTF-8 form: no trimming, no
 * normalisation, no truncation. Comparison takes the same time whatever differs.
 *
 * @module
 */
import { hash as digestOf, randomBytes, scrypt, timingSafeEqual } from 'node:crypto'
import { promisify } from 'node:util'

/** What an scrypt run costs (RFC 7914, section 2). */
export interface ScryptParameters {
  /** N, a power of two. */
  readonly cost: number
  /** r. */
  readonly blockSize: number
  /** p. */
  readonly parallelization: number
}

/** The hash of a secret this program made. */
export interface Sha256Hash {
  readonly scheme: 'sha256'
  readonly digest: Buffer
}

/** The hash of a secret somebody chose. */
export interface ScryptHash {
  readonly scheme: 'scrypt'
  readonly parameters: ScryptParameters
  readonly salt: Buffer
  readonly digest: Buffer
}

/** A stored secret, read. */
export type SecretHash = Sha256Hash | ScryptHash

/** The outcome of reading a stored secret; `problem` fits behind the field's name and echoes nothing. */
export type ParsedSecretHash =
  | { readonly ok: true; readonly hash: SecretHash }
  | { readonly ok: false; readonly problem: string }

const DIGEST_BYTES = 32
const SALT_BYTES = 16
const NEW_PARAMETERS: ScryptParameters = { cost: 2 ** 14, blockSize: 8, parallelization: 5 }

/** The least work (N times r times p) and N that OWASP's sets ask for. */
const LEAST_WORK = 655_360
const LEAST_COST = 2 ** 13
/** Twice the work of OWASP's strongest set: one login must not hold up the others for seconds. */
const MOST_WORK = 2 ** 21
const MOST_MEMORY_BYTES = 64 * 1024 * 1024

const sha256Form = /^\$sha256\$([A-Za-z0-9+/]{43})$/
const scryptForm =
  /^\$scrypt\$ln=([1-9]\d?),r=([1-9]\d{0,2}),p=([1-9]\d{0,2})\$([A-Za-z0-9+/]{22,86})\$([A-Za-z0-9+/]{43})$/

/** Makes a secret of 256 random bits, as 43 characters of base64url. */
export function generateSecret(): string {
  return randomBytes(32).toString('base64url')
}

/**
 * Hashes a secret for keeping.
 *
 * @param scheme - `sha256` only for what {@link generateSecret} made
 */
export async function hashSecret(secret: string, scheme: SecretHash['scheme']): Promise<string> {
  if (scheme === 'sha256') return formatSecretHash({ scheme, digest: sha256(secret) })
  const salt = randomBytes(SALT_BYTES)
  const digest = await runScrypt(secret, salt, NEW_PARAMETERS)
  return formatSecretHash({ scheme, parameters: NEW_PARAMETERS, salt, digest })
}

/** Writes a stored secret the one way {@link parseSecretHash} reads it. */
export function formatSecretHash(hash: SecretHash): string {
  if (hash.scheme === 'sha256') return `$sha256$${base64(hash.digest)}`
  const { cost, blockSize, parallelization } = hash.parameters
  const parameters = `ln=${Math.log2(cost)},r=${blockSize},p=${parallelization}`
  return `$scrypt$${parameters}$${base64(hash.salt)}$${base64(hash.digest)}`
}

/**
 * Reads a stored secret. Parameters weaker than any OWASP set are refused, and so are those that need more
 * than 64 MiB or twice the work of the strongest set.
 */
export function parseSecretHash(text: string): ParsedSecretHash {
  const sha256Digest = unbase64(sha256Form.exec(text)?.[1])
  if (sha256Digest !== undefined) return { ok: true, hash: { scheme: 'sha256', digest: sha256Digest } }

  const [, ln, r, p, saltText, digestText] = scryptForm.exec(text) ?? []
  const salt = unbase64(saltText)
  const digest = unbase64(digestText)
  if (salt === undefined || digest === undefined) {
    return refused('must be a whole $sha256$ or $scrypt$ hash, as `credentials add` writes it')
  }
  const parameters = { cost: 2 ** Number(ln), blockSize: Number(r), parallelization: Number(p) }
  const work = parameters.cost * parameters.blockSize * parameters.parallelization
  if (parameters.cost < LEAST_COST || work < LEAST_WORK) {
    return refused('has scrypt parameters that are too weak (at least ln=14,r=8,p=5 or its equal)')
  }
  if (128 * parameters.cost * parameters.blockSize > MOST_MEMORY_BYTES || work > MOST_WORK) {
    return refused('has scrypt parameters that cost too much (at most 64 MiB, and ln=16,r=8,p=4)')
  }
  return { ok: true, hash: { scheme: 'scrypt', parameters, salt, digest } }
}

/** Whether this is the secret that was hashed; takes microseconds. */
export function verifySha256(secret: string, hash: Sha256Hash): boolean {
  return timingSafeEqual(sha256(secret), hash.digest)
}

/** Whether this is the secret that was hashed; takes a thread of the pool some 0.2 s. */
export async function verifyScrypt(secret: string, hash: ScryptHash): Promise<boolean> {
  return timingSafeEqual(await runScrypt(secret, hash.salt, hash.parameters), hash.digest)
}

/** A stored secret that no secret matches and that costs what a real one with these parameters costs. */
export function scryptDecoy(parameters: ScryptParameters): ScryptHash {
  return {
    scheme: 'scrypt',
    parameters,
    salt: randomBytes(SALT_BYTES),
    digest: randomBytes(DIGEST_BYTES),
  }
}

/** A stored secret that no secret matches. */
export function sha256Decoy(): Sha256Hash {
  return { scheme: 'sha256', digest: randomBytes(DIGEST_BYTES) }
}

const scryptAsync = promisify<string, Buffer, number, object, Buffer>(scrypt)

function runScrypt(secret: string, salt: Buffer, parameters: ScryptParameters): Promise<Buffer> {
  // OpenSSL counts its small buffers against `maxmem`, too: leave it room above the largest table we allow.
  return scryptAsync(secret, salt, DIGEST_BYTES, { ...parameters, maxmem: 2 * MOST_MEMORY_BYTES })
}

function sha256(secret: string): Buffer {
  return digestOf('sha256', secret, 'buffer')
}

function base64(bytes: Buffer): string {
  return bytes.toString('base64').replaceAll('=', '')
}

/** Only the canonical spelling is read: stray last bits would make two texts of one hash. */
function unbase64(text: string | undefined): Buffer | undefined {
  if (text === undefined) return undefined
  const bytes = Buffer.from(text, 'base64')
  return base64(bytes) === text ? bytes : undefined
}

function refused(problem: string): ParsedSecretHash {
  return { ok: false, problem }
}
