/**
 * Adds, activates and retires keys of a key directory. Each change replaces files atomically
 * and under a lock, in an order that leaves a valid directory after every step.
 */
import { access, mkdir, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { type Loaded, loaded, NotDone, notLoaded } from '../base/result.ts'
import { errorCode, fileErrorText, replaceFile, withLock } from '../files/files.ts'
import { generateKey, newKid } from './jwk.ts'
import type { KeyDirectory } from './key-directory.ts'
import { ACTIVE_FILE, KEY_FILE_SUFFIX, privateFiles, readKeyDirectory } from './key-directory.ts'
import { type Algorithm, type Key, NEVER_SIGNED, tokensEndAtSeconds } from './key-ring.ts'

interface KeyChange {
  readonly directory: string
  /** Maximum lifetime of tokens plus clock tolerance. Default: the value in the file of the key. */
  readonly tokenSeconds?: number | undefined
  readonly now: () => number
}

/**
 * Creates the directory, too. The first key signs at once.
 * Activate a later key after verifiers have it.
 * @throws NotDone
 */
export async function addKey(
  change: KeyChange & { readonly alg: Algorithm; readonly kid?: string; readonly activate?: boolean },
) {
  const { directory, alg, now } = change
  return changeDirectory({ directory, createIfMissing: true }, async (keys) => {
    const createdAtSeconds = Math.floor(now() / 1000)
    const kid = change.kid ?? newKid(alg, createdAtSeconds)
    if (keys.files.has(kid)) {
      throw new NotDone(`there is already a key ${kid}`)
    }
    // Two private keys need an `active` file, which is written before the second key.
    if (keys.signing) {
      await replaceFileIn(directory, ACTIVE_FILE, keys.signing.key.kid)
    }
    const active = change.activate === true || privateFiles(keys.files).length === 0
    const generated = await generateKey(alg, kid, createdAtSeconds)
    await writeKey(directory, kid, active ? generated : { ...generated, signedUntil: NEVER_SIGNED })
    if (active) {
      await switchSigningKey(change, keys, kid)
    }
    return loaded({ kid, alg, active, createdAtSeconds })
  })
}

/** Node's recursive `mkdir` never ends where the system refuses a name with ENOENT, as in /proc. */
async function createDirectory(path: string): Promise<void> {
  const parent = dirname(path)
  if (parent !== path) {
    await access(parent).catch(() => createDirectory(parent))
  }
  try {
    await mkdir(path, { mode: 0o700 })
  } catch (error) {
    if (errorCode(error) !== 'EEXIST' || !(await stat(path)).isDirectory()) {
      throw error
    }
  }
}

/** Records when the outgoing key stopped signing, and how long its tokens live. @throws NotDone */
export async function activateKey(change: KeyChange & { readonly kid: string }) {
  const { directory, kid } = change
  return changeDirectory({ directory }, async (keys) => {
    const incoming = keys.files.get(kid)
    if (incoming === undefined) {
      throw new NotDone(`there is no key ${kid}`)
    }
    if (incoming.key.signKey === undefined) {
      throw new NotDone(`of ${kid} only the public half is here`)
    }
    const previous = keys.signing?.key.kid
    await writeKey(directory, kid, { ...incoming.document, signedUntil: undefined, tokenSeconds: undefined })
    await switchSigningKey(change, keys, kid)
    return loaded({ previous: previous === kid ? undefined : previous })
  })
}

/** Removes a key that does not sign. Only `force` ends tokens that may be valid. @throws NotDone */
export async function retireKey(change: KeyChange & { readonly kid: string; readonly force?: boolean }) {
  const { directory, kid, now } = change
  return changeDirectory({ directory }, async (keys) => {
    const file = keys.files.get(kid)
    if (file === undefined) {
      throw new NotDone(`there is no key ${kid}`)
    }
    if (keys.signingProblem !== undefined) {
      throw new NotDone(`${keys.signingProblem}; activate one first`)
    }
    if (keys.signing === file) {
      throw new NotDone(`${kid} signs new tokens; activate another key first`)
    }
    const endsAtSeconds = tokensEndAtSeconds(file.key, change.tokenSeconds)
    if (change.force !== true && (endsAtSeconds === undefined || now() < endsAtSeconds * 1000)) {
      throw new NotDone(`${whyKept(file.key, endsAtSeconds)}; --force removes it all the same`)
    }
    await rm(join(directory, `${kid}${KEY_FILE_SUFFIX}`))
    return loaded(undefined)
  })
}

/** The path that was given is not that of a directory of keys. */
const WRONG_PATH = ['EEXIST', 'ENOENT', 'ENOTDIR']

async function changeDirectory<T>(
  { directory, createIfMissing = false }: { readonly directory: string; readonly createIfMissing?: boolean },
  change: (keys: KeyDirectory) => Promise<Loaded<T>>,
): Promise<Loaded<T>> {
  try {
    if (createIfMissing) {
      await createDirectory(directory)
    }
    return await withLock(join(directory, '.lock'), async () => {
      const keys = await readKeyDirectory(directory)
      return keys.ok ? await change(keys.value) : keys
    })
  } catch (error) {
    if (error instanceof NotDone) {
      throw error
    }
    const code = errorCode(error)
    // `mkdir` fails with EEXIST if the path is a file.
    const problem = `${directory}: ${code === 'EEXIST' ? 'it is not a directory' : fileErrorText(error)}`
    if (!WRONG_PATH.includes(code)) {
      throw new NotDone(problem)
    }
    return notLoaded([problem])
  }
}

/**
 * Writes `active` last: if this fails, the old key keeps signing.
 * If the old key is unknown, any private key may be it.
 */
async function switchSigningKey(change: KeyChange, keys: KeyDirectory, kid: string): Promise<void> {
  const { directory, tokenSeconds, now } = change
  for (const { key, document } of privateFiles(keys.files)) {
    const maySign = keys.signing === undefined || keys.signing.key === key
    if (key.kid === kid || (key.stoppedAtSeconds !== undefined && !maySign)) {
      continue
    }
    const recorded = { signedUntil: Math.ceil(now() / 1000), tokenSeconds }
    await writeKey(directory, key.kid, { ...document, ...recorded })
  }
  await replaceFileIn(directory, ACTIVE_FILE, kid)
}

const writeKey = (directory: string, kid: string, document: object) =>
  replaceFileIn(directory, `${kid}${KEY_FILE_SUFFIX}`, JSON.stringify(document, null, 2))

const replaceFileIn = (directory: string, name: string, text: string) =>
  replaceFile(join(directory, name), `${text}\n`)

function whyKept({ kid, stoppedAtSeconds, signKey }: Key, endsAtSeconds: number | undefined): string {
  if (endsAtSeconds !== undefined) {
    return `tokens signed by ${kid} can be alive until ${new Date(endsAtSeconds * 1000).toISOString()}`
  }
  if (stoppedAtSeconds !== undefined) {
    return `tokens signed by ${kid} can be alive until an unknown time: give --config or --max-lifetime-seconds`
  }
  if (signKey === undefined) {
    return `of ${kid} only the public half is here, so it may still sign elsewhere`
  }
  return `the file of ${kid} does not record when it stopped signing; run 'keys activate' with the active key to add it`
}
