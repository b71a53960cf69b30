/**
 * Opens the files that decide on access (keys, credentials, revocations) and the certificates.
 * In: settings that name files. Out: values that follow their files once polled, or every problem with its setting.
 */
import { type Config, insecureKeySets } from './config/config.ts'
import { fileProblem, formatProblems, type Problem } from './config/problem.ts'
import { loadCredentialsFile } from './credentials/credentials-file.ts'
import { createRevocationsLoader } from './credentials/revocations.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import type { KeyRing } from './keys/key-ring.ts'
import { readBearerToken } from './keys/key-set.ts'
import { createLog, type Logger } from './ops/log.ts'
import type { ReloadSubject } from './ops/metrics.ts'
import {
  ADMIN_CERTIFICATES,
  type CertificateMaterial,
  type CertificateSet,
  type Certificates,
  certificatePaths,
  certificateSets,
  loadCertificates,
} from './reload/certificates.ts'
import type { Loaded } from './reload/files.ts'
import { openPolledFiles } from './reload/polled-files.ts'
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

export const DATABASE_SETTING = 'credentials.postgres.urlFile'

/** Names the setting in the problems of a loader. */
async function problemsOf<T>(setting: string, loading: Promise<Loaded<T>>): Promise<Loaded<T, Problem>> {
  const loaded = await loading
  if (loaded.ok) return loaded
  return { ok: false, problems: loaded.problems.map((problem) => fileProblem(setting, problem)) }
}

/** Reads every file that the settings name, and asks the database whether its tables can be used. Never rejects. */
export async function checkFiles(config: Config) {
  const log = createLog('silent', { write() {} })
  const { problems, warnings } = await openFiles(config, { log, now: Date.now }, () => ({}))
  const { postgres } = config.credentials
  if (postgres === undefined || problems.some(({ path }) => path === DATABASE_SETTING)) {
    return { problems, warnings }
  }
  const { checkDatabase } = await import('./credentials/postgres/editors.ts')
  const checked = await checkDatabase(postgres.urlFile)
  if (!checked.ok && checked.unusable) {
    problems.push(...checked.problems.map((problem) => fileProblem(DATABASE_SETTING, problem)))
  } else if (!checked.ok) warnings.push(...checked.problems.map((problem) => `not checked: ${problem}`))
  return { problems, warnings }
}

/** The certificates of the admin listener alone, for a process that serves no clients. @throws InvalidAuthData */
export async function openAdminCertificates(config: Config, clock: Clock, events: FileEvents) {
  const set = certificateSets(config).find(({ name }) => name === ADMIN_CERTIFICATES)
  const opened = set && (await openCertificates(set, clock, () => events))
  if (opened?.ok === false) throw new InvalidAuthData(opened.problems)
  return opened?.value
}

const openCertificates = (set: CertificateSet, { log, now }: Clock, events: () => FileEvents) =>
  openPolledFiles<Certificates>({
    subject: 'certificates',
    paths: certificatePaths(set),
    load: () => loadCertificates(set, now()),
    onChange: ({ material }) => events().onCertificates?.(set.name, material),
    onReload: (result) => events().onReload?.('certificates', result, set.name),
    log,
  })

/** Nothing is polled before `start`. Never rejects. @param events - those at the time of a reload */
export async function openFiles(config: Config, { log, now }: Clock, events: () => FileEvents) {
  const problems: Problem[] = []
  const warnings: string[] = []

  /** The value; keeps problems and warnings. */
  function unwrap<T>(loaded: Loaded<T, Problem>): T | undefined {
    if (loaded.ok) warnings.push(...loaded.warnings)
    else problems.push(...loaded.problems)
    return loaded.ok ? loaded.value : undefined
  }

  async function open<T>({ subject, setting, path, load, includes, onChange }: Source<T>) {
    if (path === undefined) return undefined
    const opened = await openPolledFiles<T>({
      subject,
      paths: [path],
      includes,
      load: () => problemsOf(setting, load(path)),
      onChange: onChange ?? (() => events().onChange?.()),
      onReload: (result) => events().onReload?.(subject, result),
      log,
    })
    return unwrap(opened)
  }

  const keyRing = await open({
    subject: 'keys',
    setting: 'keys.directory',
    path: config.keys.directory,
    load: createKeysLoader(config),
    includes: isKeyFileName,
  })
  const accounts = await open({
    subject: 'credentials',
    setting: 'credentials.file',
    path: config.credentials.file,
    load: loadCredentialsFile,
  })
  const revoked = await open({
    subject: 'revocations',
    setting: 'revocations.file',
    path: config.revocations.file,
    load: createRevocationsLoader(config.revocations),
    onChange: (fresh, former) => events().onChange?.(fresh.addedSince(former)),
  })
  const certificates = new Map<string, Reloadable<Certificates>>()
  for (const set of certificateSets(config)) {
    const opened = unwrap(await openCertificates(set, { log, now }, events))
    if (opened !== undefined) certificates.set(set.name, opened)
  }
  const { postgres } = config.credentials
  if (postgres !== undefined) {
    const { readUrlFile } = await import('./credentials/postgres/connection.ts')
    unwrap(await problemsOf(DATABASE_SETTING, readUrlFile(postgres.urlFile)))
  }
  for (const [index, { bearerTokenFile }] of config.trustedIssuers.entries()) {
    const setting = `trustedIssuers[${index}].bearerTokenFile`
    if (bearerTokenFile !== undefined) unwrap(await problemsOf(setting, readBearerToken(bearerTokenFile)))
  }
  warnings.push(...insecureKeySets(config))
  return { keyRing, accounts, revoked, certificates, problems, warnings: [...new Set(warnings)] }
}

/** The file or directory of one subject. */
interface Source<T> {
  readonly subject: ReloadSubject
  readonly setting: string
  readonly path: string | undefined
  readonly load: (path: string) => Promise<Loaded<T>>
  readonly includes?: (name: string) => boolean
  /** Default: `onChange` of the events, for all tokens. */
  readonly onChange?: (fresh: T, former: T) => void
}

/** Tokens of trusted issuers need no key of ours. Once it has had a key, an empty directory is a mistake. */
function createKeysLoader({ trustedIssuers, identity }: Config) {
  let mayBeEmpty = trustedIssuers.length > 0
  return async (directory: string): Promise<Loaded<KeyRing>> => {
    const loaded = await loadKeyRing(directory, identity.assertion.enabled, mayBeEmpty)
    if (loaded.ok && loaded.value.verification.size > 0) mayBeEmpty = false
    return loaded
  }
}
