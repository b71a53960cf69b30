/**
 * Reads a directory of keys: one JWK per file `<kid>.jwk.json`, and a text file `active` that names the kid
 * of the key that signs.
 *
 * In: the directory. Out: the key ring, or every problem at once, each naming its file and never quoting what
 * the file holds. Dot files (the `..data` of a Kubernetes volume, our lock) are passed over, symbolic links
 * followed.
 *
 * @module
 */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileErrorReason, readRegularFile } from '../reload/files.ts'
import { isKid, type KeyFile, parseKeyFile } from './jwk-file.ts'
import type { KeyRing, VerificationKey } from './key-ring.ts'
import { lastSigned } from './last-signed.ts'

/** The file that names the signing key. */
export const ACTIVE_FILE = 'active'

/** What follows the kid in the name of a key file. */
export const KEY_FILE_SUFFIX = '.jwk.json'

/** Whether a file of that name says anything of keys. */
export function isKeyFileName(name: string): boolean {
  return name === ACTIVE_FILE || name.endsWith(KEY_FILE_SUFFIX)
}

/** No key of ours comes near this; whatever is larger is no key file. */
const MOST_BYTES = 65_536

/** What stands in a key directory. Broken files appear in `problems` only. */
export interface KeyDirectory {
  /** By kid. */
  readonly files: ReadonlyMap<string, KeyFile>
  /** The kid that `active` names, whether there is such a key or not; absent when there is no such file. */
  readonly active?: string
  /** When that file was last changed, in epoch seconds. */
  readonly activeModifiedAt?: number
  /** Every reason why a file cannot be used. */
  readonly problems: readonly string[]
  /** What works but should be mended. */
  readonly warnings: readonly string[]
}

/** The outcome of loading a key ring. */
export type LoadedKeyRing =
  | { readonly ok: true; readonly ring: KeyRing; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly string[] }

/**
 * Loads the keys in force from a directory. A directory without a private key is fine: it verifies only.
 * Never rejects: a directory that cannot be read is a problem like any other.
 */
export async function loadKeyRing({ directory }: { readonly directory: string }): Promise<LoadedKeyRing> {
  const read = await readKeyDirectory(directory)
  const signing = signingFile(read)
  const problems = [...read.problems, ...signing.problems.map((problem) => `${directory}: ${problem}`)]
  if (problems.length > 0) return { ok: false, problems }
  const state = { ...read, signing: signing.file }
  const verification = new Map<string, VerificationKey>()
  for (const [kid, file] of read.files) {
    const last = lastSigned(file, state)
    verification.set(kid, { ...file.verification, ...(last !== undefined && { signedUntil: last.at }) })
  }
  const ring: KeyRing = { verification, ...(signing.file?.signing && { signing: signing.file.signing }) }
  return { ok: true, ring, warnings: read.warnings }
}

/**
 * Finds the key that signs: the one that `active` names or, without that file, the only private one.
 *
 * @returns no file when no key signs; problems when it is not clear which one should
 */
export function signingFile({ files, active, problems }: KeyDirectory): {
  readonly file?: KeyFile
  readonly problems: readonly string[]
} {
  // A broken file may be the one meant: say what is wrong with it, and do not guess further.
  if (problems.length > 0) return { problems: [] }
  if (files.size === 0) return { problems: [`holds no key (a file named <kid>${KEY_FILE_SUFFIX})`] }
  const named = active === undefined ? undefined : files.get(active)
  if (active !== undefined) {
    if (named === undefined) return { problems: [`${ACTIVE_FILE} names a key that is not there`] }
    if (named.signing === undefined)
      return { problems: [`${ACTIVE_FILE} names a key without its private half`] }
    return { file: named, problems: [] }
  }
  const [first, ...others] = [...files.values()].filter((file) => file.signing !== undefined)
  if (others.length > 0)
    return { problems: [`several private keys, and no file ${ACTIVE_FILE} to say which signs`] }
  return first === undefined ? { problems: [] } : { file: first, problems: [] }
}

/** Reads every file of a key directory. Never rejects. */
export async function readKeyDirectory(directory: string): Promise<KeyDirectory> {
  const files = new Map<string, KeyFile>()
  const problems: string[] = []
  const warnings: string[] = []
  let active: { readonly active: string; readonly activeModifiedAt: number } | undefined
  let names: string[]
  try {
    names = (await readdir(directory)).sort()
  } catch (error) {
    return { files, problems: [`${directory}: ${unreadable(error)}`], warnings }
  }
  for (const name of names) {
    const path = join(directory, name)
    try {
      if (name.startsWith('.')) continue
      if (name === ACTIVE_FILE) {
        const { bytes, modifiedAt } = await readSmallFile(path)
        active = { active: bytes.toString().trim(), activeModifiedAt: modifiedAt }
        if (!isKid(active.active)) problems.push(`${path}: does not hold a kid`)
      } else if (name.endsWith(KEY_FILE_SUFFIX)) {
        await readKeyFile(path, name.slice(0, -KEY_FILE_SUFFIX.length))
      } else if (!HALF_WRITTEN.test(name)) {
        warnings.push(`${path}: passed over, key files are named <kid>${KEY_FILE_SUFFIX}`)
      }
    } catch (error) {
      problems.push(`${path}: ${unreadable(error)}`)
    }
  }
  return { files, ...active, problems, warnings }

  async function readKeyFile(path: string, kid: string): Promise<void> {
    if (!isKid(kid)) throw new Problem('the name holds no kid of 1 to 128 letters, digits, . _ -')
    const { bytes, mode, modifiedAt } = await readSmallFile(path)
    const parsed = await parseKeyFile({ bytes, kid, modifiedAt })
    if (!parsed.ok) return void problems.push(...parsed.problems.map((problem) => `${path}: ${problem}`))
    files.set(kid, parsed.file)
    if (parsed.file.signing !== undefined && (mode & 0o004) !== 0) {
      warnings.push(`${path}: a private key that everyone on this machine can read`)
    }
  }
}

/** Why a file was not even parsed. */
class Problem extends Error {}

/** @throws Problem when it is not read */
async function readSmallFile(path: string) {
  const read = await readRegularFile(path, MOST_BYTES)
  if (!read.ok) throw new Problem(read.problem)
  return { ...read, modifiedAt: Math.floor(read.modifiedAt / 1000) }
}

/** What the atomic replacement of a file leaves beside it for a moment. */
const HALF_WRITTEN = /\.tmp$/

function unreadable(error: unknown): string {
  return error instanceof Problem ? error.message : `cannot be read: ${fileErrorReason(error)}`
}
