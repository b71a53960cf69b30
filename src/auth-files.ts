/**
 * Opens the files that decide on access (keys, credentials, revocations) and the certificates.
 * In: settings that name files. Out: values that follow their files once polled, or every problem with its setting.
 */
import { type Config, type FileSettings, insecureKeySets } from './config/config.ts'
import { fileProblem, formatProblems, type Problem } from './config/problem.ts'
import { loadCredentialsFile } from './credentials/credentials-file.ts'
import { createRevocationsLoader, newlyRevoked, type Revocations } from './credentials/revocations.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import type { KeyRing } from './keys/key-ring.ts'
import { readBearerToken } from './keys/key-set.ts'
import { createLog, type Logger } from './ops/log.ts'
import type { ReloadSubject } from './ops/metrics.ts'
import {
  ADMIN_CERTIFICATES,
  type CertificateMaterial,
  type Certificates,
  certificatePaths,
  certificateSets,
  loadCertificates,
} from './reload/certificates.ts'
import type { Loaded } from './reload/files.ts'
import { openPolledFiles, type PolledFilesOptions } from './reload/polled-files.ts'
import type { Reloadable, ReloadResult } from './reload/reloadable.ts'

export class InvalidAuthData extends Error {
  override readonly name = 'InvalidAuthData'
  readonly problems: readonly Problem[]
  constructor(problems: readonly Problem[]) {
    super(formatProblems(problems))
    this.problems = problems
  }
}

export interface FileEvents {
  /**
   * Keys, credentials or revocations have changed. Cached verdicts must be dropped now: on the tokens of these ids where
   * nothing else has changed, otherwise on all.
   */
  readonly onChange?: (revokedTokens?: readonly string[]) => void
  /** `name`: of the certificate set. */
  readonly onCertificates?: (name: string, material: CertificateMaterial) => void
  /** `part`: the name of the certificate set. */
  readonly onReload?: (subject: ReloadSubject, result: ReloadResult, part?: string) => void
}

export interface Clock {
  readonly log: Logger
  /** Epoch milliseconds. */
  readonly now: () => number
}

/** The files of one subject. */
type Source<T> = Pick<PolledFilesOptions<T>, 'paths' | 'includes' | 'load' | 'onChange'> & {
  readonly subject: ReloadSubject
  readonly part?: string
}

export const DATABASE_SETTING = 'credentials.postgres.urlFile'

/** Names the setting in the problems of a loader. */
async function problemsOf<T>(setting: string, loading: Promise<Loaded<T>>): Promise<Loaded<T, Problem>> {
  const loaded = await loading
  if (loaded.ok) return loaded
  return { ok: false, problems: loaded.problems.map((problem) => fileProblem(setting, problem)) }
}

/** Reads every file that the settings name. Never rejects. @param connects - also to the database, if the URL is valid */
export async function checkFiles(settings: FileSettings, connects = false) {
  const log = createLog('silent', { write() {} })
  const { problems, warnings } = await openFiles(settings, { log, now: Date.now }, () => ({}))
  const urlFile = settings.credentials?.postgres?.urlFile
  if (!connects || urlFile === undefined || problems.some(({ path }) => path === DATABASE_SETTING)) {
    return { problems, warnings }
  }
  const { checkDatabase } = await import('./credentials/postgres/editor.ts')
  const checked = await checkDatabase(urlFile)
  if (!checked.ok && checked.unusable) {
    problems.push(...checked.problems.map((problem) => fileProblem(DATABASE_SETTING, problem)))
  } else if (!checked.ok) warnings.push(...checked.problems.map((problem) => `not checked: ${problem}`))
  return { problems, warnings }
}

/** The certificates of the admin listener alone, for a process that serves no clients. @throws InvalidAuthData */
export async function openAdminCertificates({ admin }: Config, clock: Clock, events: FileEvents) {
  const { certificates, problems } = await openFiles({ admin }, clock, () => events)
  if (problems.length > 0) throw new InvalidAuthData(problems)
  return certificates.get(ADMIN_CERTIFICATES)
}

/** Nothing is polled before `start`. Never rejects. @param events - those at the time of a reload */
export async function openFiles(settings: FileSettings, { log, now }: Clock, events: () => FileEvents) {
  const { keys, credentials, revocations, identity } = settings
  const problems: Problem[] = []
  const warnings: string[] = []
  const onChange = () => events().onChange?.()
  let activeRevocations: Revocations | undefined

  async function open<T>({ part, ...source }: Source<T>): Promise<Reloadable<T> | undefined> {
    const onReload = (result: ReloadResult) => events().onReload?.(source.subject, result, part)
    const opened = await openPolledFiles({ ...source, onReload, log })
    if (opened.ok) warnings.push(...opened.warnings)
    else problems.push(...opened.problems)
    return opened.ok ? opened.value : undefined
  }

  const { directory } = keys ?? {}
  // Once it has had a key, an empty directory is a mistake.
  let mayBeEmpty = (settings.trustedIssuers ?? []).length > 0
  const loadKeys = async (path: string): Promise<Loaded<KeyRing, Problem>> => {
    const loading = loadKeyRing(path, identity?.assertion.enabled, mayBeEmpty)
    const loaded = await problemsOf('keys.directory', loading)
    if (loaded.ok && loaded.value.verification.size > 0) mayBeEmpty = false
    return loaded
  }
  const keyRing =
    directory === undefined
      ? undefined
      : await open({
          subject: 'keys',
          paths: [directory],
          includes: isKeyFileName,
          load: () => loadKeys(directory),
          onChange,
        })
  const { file, postgres } = credentials ?? {}
  const accounts =
    file === undefined
      ? undefined
      : await open({
          subject: 'credentials',
          paths: [file],
          load: () => problemsOf('credentials.file', loadCredentialsFile(file)),
          onChange,
        })
  if (postgres !== undefined) {
    const { readUrlFile } = await import('./credentials/postgres/connection.ts')
    const read = await problemsOf(DATABASE_SETTING, readUrlFile(postgres.urlFile))
    if (read.ok) warnings.push(...read.warnings)
    else problems.push(...read.problems)
  }
  const loadRevocations = revocations && createRevocationsLoader(revocations)
  const revoked =
    loadRevocations &&
    (await open({
      subject: 'revocations',
      paths: [revocations.file],
      load: () => problemsOf('revocations.file', loadRevocations()),
      onChange(fresh) {
        events().onChange?.(activeRevocations && newlyRevoked(activeRevocations, fresh))
        activeRevocations = fresh
      },
    }))
  activeRevocations = revoked?.current()
  const certificates = new Map<string, Reloadable<Certificates>>()
  for (const set of certificateSets(settings)) {
    const opened = await open({
      subject: 'certificates',
      part: set.name,
      paths: certificatePaths(set),
      load: () => loadCertificates(set, now()),
      onChange: ({ material }) => events().onCertificates?.(set.name, material),
    })
    if (opened !== undefined) certificates.set(set.name, opened)
  }
  for (const [index, { bearerTokenFile }] of (settings.trustedIssuers ?? []).entries()) {
    if (bearerTokenFile === undefined) continue
    const read = await problemsOf(
      `trustedIssuers[${index}].bearerTokenFile`,
      readBearerToken(bearerTokenFile),
    )
    if (!read.ok) problems.push(...read.problems)
  }
  warnings.push(...insecureKeySets(settings))
  return { keyRing, accounts, revoked, certificates, problems, warnings: [...new Set(warnings)] }
}
