/**
 * Changes a key directory: adds a key, makes one sign, removes one.
 *
 * Each change is a sequence of whole-file replacements under a lock, in an order in which the directory can
 * be loaded after every step, so that a sidecar that follows it never sees a broken set. Files get mode 0600.
 *
 * @module
 */
import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { replaceFile } from '../reload/files.ts'
import { withDirectoryLock } from './directory-lock.ts'
import { generateKey, newKid } from './generate-key.ts'
import type { KeyFile } from './jwk-file.ts'
import {
  ACTIVE_FILE,
  KEY_FILE_SUFFIX,
  type KeyDirectory,
  readKeyDirectory,
  signingFile,
} from './key-directory.ts'
import type { Algorithm } from './key-ring.ts'
import { lastSigned, NEVER_SIGNED } from './last-signed.ts'
import { retirementOf } from './retirement.ts'

/**
 * Why a change was not made. `broken`: files in the directory cannot be used, each problem names one.
 * `refused`: the directory is fine, the change is not.
 */
export interface ChangeRefused {
  readonly ok: false
  readonly kind: 'broken' | 'refused'
  readonly problems: readonly string[]
}

/** What every change works on. */
export interface KeyChange {
  readonly directory: string
  /** The clock, in epoch milliseconds. */
  readonly now: () => number
}

/** A key that was added. */
export interface KeyAdded {
  readonly ok: true
  readonly kid: string
  readonly alg: Algorithm
  /** Whether the new key signs from now on. */
  readonly active: boolean
  /** Epoch seconds. */
  readonly createdAt: number
}

/**
 * Generates a key and writes its file; the directory is created (mode 0700) when missing. The key signs when
 * it is the first private one or `activate` is asked for; otherwise it is only published, so that everyone
 * who verifies knows it before it signs.
 *
 * @throws file system errors, or `ELOCKED`
 */
export async function addKey(
  change: KeyChange & { readonly alg: Algorithm; readonly kid?: string; readonly activate?: boolean },
): Promise<KeyAdded | ChangeRefused> {
  const { directory, alg, now } = change
  await mkdir(directory, { recursive: true, mode: 0o700 })
  return withDirectoryLock(directory, async () => {
    const keys = await readKeyDirectory(directory)
    if (keys.problems.length > 0) return broken(keys)
    const createdAt = Math.floor(now() / 1000)
    const kid = change.kid ?? newKid(alg, createdAt)
    if (keys.files.has(kid)) return refused(`there is already a key ${kid}`)
    // Two private keys need an `active` file: write it before the second one appears.
    const signing = signingFile(keys).file
    if (signing !== undefined && keys.active === undefined)
      await writeActive(directory, signing.kid, signing.document)
    const active = change.activate === true || privateFiles(keys).length === 0
    const generated = await generateKey(alg, kid, createdAt)
    await writeDocument(directory, kid, active ? generated : { ...generated, signedUntil: NEVER_SIGNED })
    if (active) await handOver(directory, keys, kid, generated, now)
    return { ok: true, kid, alg, active, createdAt }
  })
}

/**
 * Makes a key sign, and notes in the outgoing key's file when it stopped.
 *
 * @returns the kid that signed before, if another one did
 * @throws file system errors, or `ELOCKED`
 */
export async function activateKey(
  change: KeyChange & { readonly kid: string },
): Promise<{ readonly ok: true; readonly previous?: string } | ChangeRefused> {
  const { directory, kid, now } = change
  return withDirectoryLock(directory, async () => {
    const keys = await readKeyDirectory(directory)
    if (keys.problems.length > 0) return broken(keys)
    const incoming = keys.files.get(kid)
    if (incoming === undefined) return refused(`there is no key ${kid}`)
    if (incoming.signing === undefined) return refused(`of ${kid} only the public half is here`)
    const previous = signingFile(keys).file?.kid
    await handOver(directory, keys, kid, incoming.document, now)
    return { ok: true, ...(previous !== undefined && previous !== kid && { previous }) }
  })
}

/**
 * Removes a key that does not sign, once no token signed by it can be alive.
 *
 * @throws file system errors, or `ELOCKED`
 */
export async function retireKey(
  change: KeyChange & {
    readonly kid: string
    /** The longest lifetime that tokens are given. */
    readonly maxLifetimeSeconds: number
    /** Removes the key though tokens signed by it may be alive; they are refused from then on. */
    readonly force?: boolean
  },
): Promise<{ readonly ok: true } | ChangeRefused> {
  const { directory, kid, now } = change
  return withDirectoryLock(directory, async () => {
    const keys = await readKeyDirectory(directory)
    if (keys.problems.length > 0) return broken(keys)
    const file = keys.files.get(kid)
    if (file === undefined) return refused(`there is no key ${kid}`)
    const signing = signingFile(keys)
    if (signing.problems.length > 0) return refused(`${signing.problems.join('; ')}; activate one first`)
    if (signing.file === file) return refused(`${kid} signs new tokens; activate another key first`)
    if (change.force !== true) {
      const retirement = retirementOf(file, keys, change.maxLifetimeSeconds)
      if (!retirement.known) return refused(`${kid}: ${retirement.why}; --force removes it all the same`)
      if (now() < retirement.from * 1000) {
        const from = new Date(retirement.from * 1000).toISOString()
        const why = retirement.why === undefined ? '' : `: ${retirement.why}`
        return refused(
          `tokens signed by ${kid} can be alive until ${from}${why}; --force removes it all the same`,
        )
      }
    }
    await rm(join(directory, `${kid}${KEY_FILE_SUFFIX}`))
    return { ok: true }
  })
}

/**
 * Makes `kid` sign. The notes go first: should the last write fail, the old key goes on signing and can still
 * be noted. Where it is not clear which key has signed, any of them may have. Notes that cannot be trusted, since
 * `active` was changed by hand, are put right, so that from now on they can.
 */
async function handOver(
  directory: string,
  keys: KeyDirectory,
  kid: string,
  document: Readonly<Record<string, unknown>>,
  now: () => number,
): Promise<void> {
  const signing = signingFile(keys).file
  const state = { ...keys, signing }
  const stopped = Math.ceil(now() / 1000)
  for (const file of privateFiles(keys)) {
    if (file.kid === kid) continue
    const signedUntil = signing === undefined || file === signing ? stopped : lastSigned(file, state)?.at
    if (file.document['signedUntil'] === signedUntil) continue
    await writeDocument(directory, file.kid, { ...file.document, signedUntil })
  }
  await writeActive(directory, kid, document)
}

/** Writes the file of the key that signs and, right after it, `active`: see `last-signed.ts`. */
async function writeActive(
  directory: string,
  kid: string,
  { signedUntil: _outdated, ...document }: Readonly<Record<string, unknown>>,
): Promise<void> {
  await writeDocument(directory, kid, document)
  await replaceFile(join(directory, ACTIVE_FILE), `${kid}\n`)
}

async function writeDocument(directory: string, kid: string, document: object): Promise<void> {
  await replaceFile(join(directory, `${kid}${KEY_FILE_SUFFIX}`), `${JSON.stringify(document, null, 2)}\n`)
}

function privateFiles({ files }: KeyDirectory): readonly KeyFile[] {
  return [...files.values()].filter((file) => file.signing !== undefined)
}

function broken({ problems }: KeyDirectory): ChangeRefused {
  return { ok: false, kind: 'broken', problems }
}

function refused(problem: string): ChangeRefused {
  return { ok: false, kind: 'refused', problems: [problem] }
}
