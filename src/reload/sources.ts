/**
 * The files that keys, credentials, revocations and certificates are loaded from.
 * In: what the settings name. Out: the loader of each source, or the problems of all of them (`config check`).
 */
import type { NamedFiles } from '../config/load.ts'
import { fileProblem, type Problem } from '../config/problem.ts'
import type { CredentialIndex } from '../credentials/credential.ts'
import { loadCredentialsFile } from '../credentials/credentials-file.ts'
import { isKeyFileName, loadKeyRing } from '../keys/key-directory.ts'
import type { KeyRing } from '../keys/key-ring.ts'
import type { ReloadSubject } from '../ops/metrics.ts'
import type { Revocations } from '../token/revocations.ts'
import { createRevocationsLoader, type RevocationsFile } from '../token/revocations-file.ts'
import { type CertificateSet, type Certificates, certificateSets, loadCertificates } from './certificates.ts'
import type { Load, Loaded } from './loaded.ts'

/** Files that are loaded together. */
export interface FileSource<T> {
  readonly subject: ReloadSubject
  /** The setting that names the files; empty where problems name it themselves. */
  readonly setting: string
  readonly paths: readonly string[]
  readonly includes?: (name: string) => boolean
  readonly load: Load<T>
}

export function keysIn(directory: string): FileSource<KeyRing> {
  return {
    subject: 'keys',
    setting: 'keys.directory',
    paths: [directory],
    includes: isKeyFileName,
    load: () => loadKeyRing(directory),
  }
}

export function accountsIn(file: string): FileSource<CredentialIndex> {
  return {
    subject: 'credentials',
    setting: 'credentials.file',
    paths: [file],
    load: () => loadCredentialsFile(file),
  }
}

export function revocationsIn(named: RevocationsFile): FileSource<Revocations> {
  return {
    subject: 'revocations',
    setting: 'revocations.file',
    paths: [named.file],
    load: createRevocationsLoader(named),
  }
}

/** @param now - epoch milliseconds, for warnings about expiry */
export function certificatesIn(set: CertificateSet, now: () => number): FileSource<Certificates> {
  return {
    subject: 'certificates',
    setting: '',
    paths: [set.cert, set.key, set.ca].flatMap((file) => file?.path ?? []),
    load: () => loadCertificates(set, now()),
  }
}

/** Why a source cannot be used; empty where it can. */
export function problemsOf({ setting }: FileSource<unknown>, loaded: Loaded<unknown>): readonly Problem[] {
  return loaded.ok ? [] : loaded.problems.map((message) => fileProblem(setting, message))
}

/** Every problem of every file that is named. Never rejects. */
export async function fileProblems(files: NamedFiles): Promise<readonly Problem[]> {
  const { keysDirectory, credentialsFile, revocationsFile } = files
  const sources = [
    ...(keysDirectory === undefined ? [] : [keysIn(keysDirectory)]),
    ...(credentialsFile === undefined ? [] : [accountsIn(credentialsFile)]),
    ...(revocationsFile === undefined ? [] : [revocationsIn(revocationsFile)]),
    ...certificateSets(files).map((set) => certificatesIn(set, Date.now)),
  ]
  const found = await Promise.all(sources.map(async (source) => problemsOf(source, await source.load())))
  return found.flat()
}
