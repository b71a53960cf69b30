/**
 * Reads a key directory: one JWK per file `<kid>.jwk.json`, and a text file `active` with the signing kid.
 * Out: the key ring, or every problem, each with its file and without its content. No function rejects.
 * Ignores dot files (the `..data` of a Kubernetes volume, the lock). Follows symbolic links.
 */
import { join } from 'node:path'
import { isJsonObject } from '../base/json.ts'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import {
  errorCode,
  type FileContent,
  failureKind,
  fileErrorText,
  readRegularFile,
  visibleNames,
} from '../files/files.ts'
import { importKey } from './jwk.ts'
import { type Key, type KeyRing, tokensEndAtSeconds } from './key-ring.ts'

export const ACTIVE_FILE = 'active'
export const KEY_FILE_SUFFIX = '.jwk.json'

export const isKeyFileName = (name: string) => name === ACTIVE_FILE || name.endsWith(KEY_FILE_SUFFIX)

/** A kid must be valid as a part of a file name. */
export const isKid = (kid: string): boolean => /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$/.test(kid)

export const KID_RULE = 'must be 1 to 128 letters, digits, . _ - and no . first'

const MAX_KEY_FILE_BYTES = 65_536

interface KeyFile {
  readonly key: Key
  /** The JSON document, private members included: for rewriting the file, never for output. */
  readonly document: object
}

export interface KeyDirectory {
  readonly files: ReadonlyMap<string, KeyFile>
  /** The key that `active` names or, without that file, the only private key. */
  readonly signing?: KeyFile | undefined
  /** Why no signing key could be chosen. A directory of public halves needs no signing key. */
  readonly signingProblem?: string | undefined
}

const NO_ASSERTION_KEY =
  'identity.assertion.enabled needs a private key here, and not one for HS256: upstreams verify with its public half'

/** A directory without a private key is valid. `mayBeEmpty`: a directory without any key is valid, too. */
export async function loadKeyRing(
  directory: string,
  { signsAssertions = false, mayBeEmpty = false }: { signsAssertions?: boolean; mayBeEmpty?: boolean } = {},
): Promise<Loaded<KeyRing>> {
  const read = await readKeyDirectory(directory)
  if (!read.ok) {
    return read
  }
  const { files, signing, signingProblem } = read.value
  const isEmpty = mayBeEmpty && files.size === 0
  if (signingProblem !== undefined && !isEmpty) {
    return notLoaded([`${directory}: ${signingProblem}`])
  }
  if (signsAssertions && (signing?.key.alg ?? 'HS256') === 'HS256') {
    return notLoaded([`${directory}: ${NO_ASSERTION_KEY}`])
  }
  const keys = new Map([...files].map(([kid, { key }]) => [kid, key]))
  const emptyWarnings = [`${directory}: ${signingProblem}: only tokens of trusted issuers are accepted`]
  return loaded({ keys, signing: signing?.key }, isEmpty ? emptyWarnings : read.warnings)
}

export async function readKeyDirectory(directory: string): Promise<Loaded<KeyDirectory>> {
  const names = await namesIn(directory)
  if (!names.ok) {
    return names
  }
  const ignored = names.value.filter((name) => !isKeyFileName(name))
  const warnings = ignored.map(
    (name) => `${join(directory, name)}: ignored, key files are named <kid>${KEY_FILE_SUFFIX}`,
  )
  const files = new Map<string, KeyFile>()
  const problems: string[] = []
  let active: string | undefined
  for (const name of names.value.filter(isKeyFileName)) {
    const file = await readNamedFile(directory, name)
    if (!file.ok && file.kind === 'outOfFiles') {
      return file
    }
    if (!file.ok) {
      problems.push(...file.problems)
      continue
    }
    warnings.push(...file.warnings)
    if (typeof file.value === 'string') {
      active = file.value
    } else {
      files.set(file.value.key.kid, file.value)
    }
  }
  if (problems.length > 0) {
    return notLoaded(problems)
  }
  return loaded({ files, ...findSigning(files, active, directory) }, warnings)
}

function readNamedFile(directory: string, name: string): Promise<Loaded<string | KeyFile>> {
  const path = join(directory, name)
  return name === ACTIVE_FILE ? readActiveFile(path) : readKeyFile(path, name)
}

async function namesIn(directory: string): Promise<Loaded<readonly string[]>> {
  try {
    return loaded(await visibleNames(directory))
  } catch (error) {
    const hint = errorCode(error) === 'ENOENT' ? `; ${addKeyHint(directory)}` : ''
    return notLoaded([`${directory}: cannot be read: ${fileErrorText(error)}${hint}`], failureKind(error))
  }
}

async function readActiveFile(path: string): Promise<Loaded<string>> {
  const read = await readRegularFile(path, MAX_KEY_FILE_BYTES)
  if (!read.ok) {
    return read
  }
  const kid = read.value.bytes.toString().trim()
  return isKid(kid) ? loaded(kid) : notLoaded([`${path}: does not hold a kid`])
}

async function readKeyFile(path: string, name: string): Promise<Loaded<KeyFile>> {
  const read = await readRegularFile(path, MAX_KEY_FILE_BYTES)
  if (!read.ok) {
    return read
  }
  const imported = await importKeyFile(read.value, name)
  if (!imported.ok) {
    return notLoaded(imported.problems.map((problem) => `${path}: ${problem}`))
  }
  const isPrivate = imported.value.key.signKey !== undefined
  return loaded(imported.value, isPrivate ? read.warnings : [])
}

/** Returns the keys as commands print them, oldest first. @param tokenSeconds - maximum lifetime of tokens */
export function listKeys({ files, signing }: KeyDirectory, tokenSeconds: number | undefined) {
  return [...files.values()]
    .map(({ key }) => key)
    .sort((a, b) => a.createdAtSeconds - b.createdAtSeconds)
    .map((key) => {
      const { kid, alg, createdAtSeconds, stoppedAtSeconds } = key
      const active = key === signing?.key
      const end = tokensEndAtSeconds(key, tokenSeconds)
      return {
        kid,
        alg,
        active,
        private: key.signKey !== undefined,
        created: isoTime(createdAtSeconds),
        /** Null when the key signs, never signed, or may sign elsewhere. */
        signedUntil: active || !stoppedAtSeconds ? null : isoTime(stoppedAtSeconds),
        /**
         * When the key can be retired, perhaps in the past.
         * Null when the key signs, or when the time is unknown.
         */
        retirableFrom: active || end === undefined ? null : isoTime(Math.max(end, createdAtSeconds)),
      }
    })
}

const isoTime = (epochSeconds: number) => new Date(epochSeconds * 1000).toISOString()

export const privateFiles = (files: KeyDirectory['files']): readonly KeyFile[] =>
  [...files.values()].filter(({ key }) => key.signKey !== undefined)

async function importKeyFile({ bytes, modifiedAtMs }: FileContent, name: string): Promise<Loaded<KeyFile>> {
  let document: unknown
  try {
    document = JSON.parse(bytes.toString())
  } catch {
    const isPem = bytes.includes('-----BEGIN ')
    return notLoaded([isPem ? 'holds PEM; a JWK (RFC 7517) is needed' : 'is not a JSON text'])
  }
  if (!isJsonObject(document)) {
    return notLoaded(['is not a JSON object'])
  }
  const imported = await importKey(document, Math.floor(modifiedAtMs / 1000))
  if (!imported.ok) {
    return imported
  }
  const key = imported.value
  if (!isKid(key.kid)) {
    return notLoaded([`kid ${KID_RULE}`])
  }
  const properName = `${key.kid}${KEY_FILE_SUFFIX}`
  if (name !== properName) {
    return notLoaded([`its kid is ${key.kid}; rename the file to ${properName}`])
  }
  return loaded({ key, document })
}

function findSigning(files: KeyDirectory['files'], activeKid: string | undefined, directory: string) {
  if (files.size === 0) {
    return { signingProblem: `holds no key (a file named <kid>${KEY_FILE_SUFFIX}); ${addKeyHint(directory)}` }
  }
  const choose = `storage-auth-sidecar keys activate KID --directory ${directory} chooses one`
  if (activeKid === undefined) {
    const [only, ...others] = privateFiles(files)
    if (others.length === 0) {
      return { signing: only }
    }
    const signingProblem = `several private keys, and no file ${ACTIVE_FILE} to say which signs; ${choose}`
    return { signingProblem }
  }
  const signing = files.get(activeKid)
  if (signing?.key.signKey !== undefined) {
    return { signing }
  }
  const name = `${activeKid}${KEY_FILE_SUFFIX}`
  const why = signing === undefined ? `there is no ${name}` : `${name} lacks the private half`
  return { signingProblem: `${ACTIVE_FILE} names ${activeKid}, but ${why}; ${choose}` }
}

const addKeyHint = (directory: string) => `storage-auth-sidecar keys add --directory ${directory} creates one`
