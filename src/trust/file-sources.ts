/**
 * The files that decide who gets in, and how each is loaded.
 *
 * In: where a file is. Out: its loader, and the setting that named it. Whoever needs keys, credentials or revocations
 * from a file loads them through these: to serve, to explain a token, or only to say what is wrong with them.
 *
 * @module
 */
import { fileProblem, type Problem } from '../config/problem.ts'
import { type Accounts, createAccountsInSlices } from '../credentials/accounts.ts'
import { readAccountsFile } from '../credentials/accounts-file.ts'
import type { IsPart } from '../files/files-version.ts'
import { isKeyFileName, loadKeyRing } from '../keys/key-directory.ts'
import type { KeyRing } from '../keys/key-ring.ts'
import type { ReloadSubject } from '../ops/reload-metrics.ts'
import type { Load, Loaded } from '../reload/loaded.ts'
import type { Revocations } from '../token/revocations.ts'
import { createRevocationsLoader, type RevocationsFile } from '../token/revocations-file.ts'

/** A file, or a directory of them, that decides who gets in. */
export interface FileSource<T> {
  readonly subject: ReloadSubject
  /** The setting that names it. */
  readonly setting: string
  readonly path: string
  /** Which files of a directory count. */
  readonly isPart?: IsPart
  readonly load: Load<T>
}

/** The directory of key files. */
export function keysIn(directory: string): FileSource<KeyRing> {
  return {
    subject: 'keys',
    setting: 'keys.directory',
    path: directory,
    isPart: isKeyFileName,
    load: async () => {
      const loaded = await loadKeyRing({ directory })
      return loaded.ok ? { ok: true, value: loaded.ring, warnings: loaded.warnings } : loaded
    },
  }
}

/** The credentials file. */
export function accountsIn(file: string): FileSource<Accounts> {
  return {
    subject: 'credentials',
    setting: 'credentials.file',
    path: file,
    load: async () => {
      const read = await readAccountsFile(file)
      if (!read.ok) return read
      return { ok: true, value: await createAccountsInSlices(read.accounts), warnings: read.warnings }
    },
  }
}

/** The revocations file. Its loader remembers whether it was there before. */
export function revocationsIn(named: RevocationsFile): FileSource<Revocations> {
  return {
    subject: 'revocations',
    setting: 'revocations.file',
    path: named.file,
    load: createRevocationsLoader(named),
  }
}

/** Why what was loaded cannot be used; nothing where it can. */
export function problemsOf({ setting }: FileSource<unknown>, loaded: Loaded<unknown>): readonly Problem[] {
  return loaded.ok ? [] : loaded.problems.map((message) => fileProblem(setting, message))
}
