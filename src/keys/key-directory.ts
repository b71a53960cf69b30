/**
 * Reads and lists a key directory: one JWK per file `<kid>.jwk.json`, and a text file `active` that names the signing key.
 * In: the directory. Out: the key ring, or every problem, each with its file and without its content. Dot files (the
 * `..data` of a Kubernetes volume, the lock) are ignored, symbolic links are followed.
 */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileErrorReason, readRegularFile } from '../reload/files.ts'
import type { Loaded } from '../reload/loaded.ts'
import { type ImportedKey, importKey, isKid } from './jwk.ts'
import { type Algorithm, type KeyRing, NEVER_SIGNED, tokensEndAt, type VerificationKey } from './key-ring.ts'

/** The file that names the signing key. */
export const ACTIVE_FILE = 'active'

/** Follows the kid in the name of a key file. */
export const KEY_FILE_SUFFIX = '.jwk.json'

/** Whether a change of a file with this name can change the ring. */
export function isKeyFileName(name: string): boolean {
  return name === ACTIVE_FILE || name.endsWith(KEY_FILE_SUFFIX)
}

const MAX_FILE_BYTES = 65_536

/** One valid key file. */
export interface KeyFile extends ImportedKey {
  /** The JSON document, private members included: for rewriting the file, never for output. */
  readonly document: object
}

/** The content of a key directory. Invalid files appear in `problems` only. */
export interface KeyDirectory {
  /** By kid. */
  readonly files: ReadonlyMap<string, KeyFile>
  /** The kid in the file `active`, whether there is such a key or not; absent without that file. */
  readonly active?: string
  readonly problems: readonly string[]
  readonly warnings: readonly string[]
}

const NO_ASSERTION_KEY =
  'identity.assertion.enabled needs a private key here, and not one for HS256: upstreams verify with its public half'

/**
 * Loads the key ring. A directory without a private key is valid: it only verifies. Never rejects.
 *
 * @param signsAssertions - whether upstreams verify what the key signs
 */
export async function loadKeyRing(directory: string, signsAssertions = false): Promise<Loaded<KeyRing>> {
  const keys = await readKeyDirectory(directory)
  const signing = signingFile(keys)
  const problems = [...keys.problems, ...signing.problems.map((problem) => `${directory}: ${problem}`)]
  if (problems.length > 0) return { ok: false, problems }
  if (signsAssertions && (signing.file?.signing?.alg ?? 'HS256') === 'HS256') {
    return { ok: false, problems: [`${directory}: ${NO_ASSERTION_KEY}`] }
  }
  const verification = new Map<string, VerificationKey>()
  for (const [kid, file] of keys.files) verification.set(kid, file.verification)
  const value = { verification, ...(signing.file?.signing && { signing: signing.file.signing }) }
  return { ok: true, value, warnings: keys.warnings }
}

/**
 * Finds the key that signs: the one that `active` names or, without that file, the only private one.
 *
 * @returns no file when no key signs; problems when it is not clear which one signs
 */
export function signingFile({ files, active, problems }: KeyDirectory): {
  readonly file?: KeyFile
  readonly problems: readonly string[]
} {
  // The invalid file may be the signing key.
  if (problems.length > 0) return { problems: [] }
  if (files.size === 0) return { problems: [`holds no key (a file named <kid>${KEY_FILE_SUFFIX})`] }
  if (active !== undefined) {
    const file = files.get(active)
    if (file === undefined) return { problems: [`${ACTIVE_FILE} names a key that is not there`] }
    if (file.signing === undefined)
      return { problems: [`${ACTIVE_FILE} names a key without its private half`] }
    return { file, problems: [] }
  }
  const [file, ...others] = [...files.values()].filter(({ signing }) => signing !== undefined)
  if (others.length > 0)
    return { problems: [`several private keys, and no file ${ACTIVE_FILE} to say which signs`] }
  return { ...(file && { file }), problems: [] }
}

/** Reads every file of a key directory. Never rejects. */
export async function readKeyDirectory(directory: string): Promise<KeyDirectory> {
  const files = new Map<string, KeyFile>()
  const problems: string[] = []
  const warnings: string[] = []
  let active: string | undefined
  let names: string[]
  try {
    names = (await readdir(directory)).sort()
  } catch (error) {
    return { files, problems: [`${directory}: cannot be read: ${fileErrorReason(error)}`], warnings }
  }
  for (const name of names) {
    const path = join(directory, name)
    if (name.startsWith('.') || name.endsWith('.tmp')) continue // .tmp: a file that is being replaced
    if (name === ACTIVE_FILE) {
      const read = await readRegularFile(path, MAX_FILE_BYTES)
      if (!read.ok) problems.push(`${path}: ${read.problem}`)
      active = read.ok ? read.bytes.toString().trim() : undefined
      if (active !== undefined && !isKid(active)) problems.push(`${path}: does not hold a kid`)
    } else if (name.endsWith(KEY_FILE_SUFFIX)) {
      const loaded = await loadKeyFile(path, name.slice(0, -KEY_FILE_SUFFIX.length))
      if (loaded.ok) files.set(loaded.value.verification.kid, loaded.value)
      if (loaded.ok) warnings.push(...loaded.warnings)
      else problems.push(...loaded.problems.map((problem) => `${path}: ${problem}`))
    } else {
      warnings.push(`${path}: ignored, key files are named <kid>${KEY_FILE_SUFFIX}`)
    }
  }
  return { files, ...(active !== undefined && { active }), problems, warnings }
}

async function loadKeyFile(path: string, kid: string): Promise<Loaded<KeyFile>> {
  const read = await readRegularFile(path, MAX_FILE_BYTES)
  if (!read.ok) return { ok: false, problems: [read.problem] }
  let document: unknown
  try {
    document = JSON.parse(read.bytes.toString())
  } catch {
    const isPem = read.bytes.includes('-----BEGIN ')
    return { ok: false, problems: [isPem ? 'holds PEM; a JWK (RFC 7517) is needed' : 'is not a JSON text'] }
  }
  if (typeof document !== 'object' || document === null || Array.isArray(document)) {
    return { ok: false, problems: ['is not a JSON object'] }
  }
  const imported = await importKey(document, Math.floor(read.modifiedAt / 1000))
  if (!imported.ok) return imported
  const { verification, signing } = imported.value
  if (verification.kid !== kid) return { ok: false, problems: ['kid differs from the name of the file'] }
  return { ok: true, value: { ...imported.value, document }, warnings: signing ? read.exposure : [] }
}

/** One key, without any part of it. Times are RFC 3339 in UTC. */
export interface KeyListEntry {
  readonly kid: string
  readonly alg: Algorithm
  readonly active: boolean
  readonly private: boolean
  readonly created: string
  /** Null when it signs, never signed, or may sign elsewhere. */
  readonly signedUntil: string | null
  /** When it can be retired, which may be in the past; null when it signs, or when that is not known. */
  readonly retirableFrom: string | null
}

/**
 * Returns when the last token of a key that does not sign has expired, in epoch seconds (0: at once); undefined where
 * the key does not record when it stopped signing.
 *
 * @param longestSeconds - the longest lifetime of a token plus the clock tolerance
 */
export function retirableFrom({ verification }: KeyFile, longestSeconds: number): number | undefined {
  const { signedUntil } = verification
  return signedUntil === undefined ? undefined : tokensEndAt(signedUntil, longestSeconds)
}

/**
 * Lists the keys of a directory, oldest first.
 *
 * @param longestSeconds - the longest lifetime of a token plus the clock tolerance
 */
export function listKeys(keys: KeyDirectory, longestSeconds: number): readonly KeyListEntry[] {
  const signing = signingFile(keys).file
  return [...keys.files.values()]
    .sort((a, b) => a.verification.createdAt - b.verification.createdAt)
    .map((file) => {
      const { kid, alg, createdAt, signedUntil } = file.verification
      const active = file === signing
      const from = retirableFrom(file, longestSeconds)
      return {
        kid,
        alg,
        active,
        private: file.signing !== undefined,
        created: time(createdAt),
        signedUntil:
          active || signedUntil === undefined || signedUntil === NEVER_SIGNED ? null : time(signedUntil),
        retirableFrom: active || from === undefined ? null : time(Math.max(from, createdAt)),
      }
    })
}

const time = (epochSeconds: number) => new Date(epochSeconds * 1000).toISOString()
