/**
 * Opens everything that decides on access (keys, credentials, revocations) and the certificates, and keeps it current.
 * In: settings. Out: functions that return the active values.
 */
import type { Config, FileSettings } from './config/config.ts'
import { fileProblem, formatProblems, type Problem } from './config/problem.ts'
import { loadCredentialsFile } from './credentials/credentials-file.ts'
import type { PostgresStore } from './credentials/postgres/store.ts'
import { createRevocationsLoader, type IsRevoked } from './credentials/revocations.ts'
import { createCredentialStore } from './credentials/store.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import { findKeyIn, type KeyRing } from './keys/key-ring.ts'
import { createRemoteKeys } from './keys/remote-keys.ts'
import { createLog, type Logger } from './ops/log.ts'
import type { ReloadSubject } from './ops/metrics.ts'
import type { ReadyCheck } from './ops/status.ts'
import {
  type CertificateMaterial,
  type Certificates,
  certificatePaths,
  certificateSets,
  LISTENER_CERTIFICATES,
  loadCertificates,
  upstreamName,
} from './reload/certificates.ts'
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

export type AuthData = Awaited<ReturnType<typeof openAuthData>>

export interface AuthDataOptions {
  readonly log: Logger
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Keys, credentials or revocations have changed: cached verdicts must be dropped now. */
  readonly onChange?: () => void
  readonly onListenerCertificates?: (material: CertificateMaterial) => void
  /** `part`: the name of the certificate set. */
  readonly onReload?: (subject: ReloadSubject, result: ReloadResult, part?: string) => void
  readonly onFetch?: (result: ReloadResult) => void
}

const NO_KEYS: KeyRing = { verification: new Map() }
const DATABASE_SETTING = 'credentials.postgres.urlFile'

/** Reads every file that the settings name. Never rejects. @param connects - also to the database, if the URL is valid */
export async function checkFiles(settings: FileSettings, connects = false) {
  const log = createLog('silent', { write() {} })
  const { problems, warnings } = await openFiles(settings, { log, now: Date.now })
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

/** Nothing is polled before `start`. Never rejects. */
async function openFiles(settings: FileSettings, options: AuthDataOptions) {
  const { keys, credentials, revocations, identity } = settings
  const { log, now, onChange = () => {}, onReload, onListenerCertificates } = options
  const problems: Problem[] = []
  const warnings: string[] = []
  /** `setting`: the setting that names the file; undefined for certificates, whose problems begin with it. */
  const report = (setting: string | undefined, messages: readonly string[]): undefined => {
    for (const text of messages) {
      const [path = '', ...rest] = setting === undefined ? text.split(': ') : [setting, text]
      problems.push(fileProblem(path, rest.join(': ')))
    }
  }

  async function open<T>(
    subject: ReloadSubject,
    setting: string | undefined,
    source: Pick<PolledFilesOptions<T>, 'paths' | 'includes' | 'load' | 'onChange'>,
    part?: string,
  ): Promise<Reloadable<T> | undefined> {
    const opened = await openPolledFiles({
      ...source,
      subject,
      onReload: (result) => onReload?.(subject, result, part),
      log,
    })
    if (!opened.ok) return report(setting, opened.problems)
    warnings.push(...opened.warnings)
    return opened.value
  }

  const { directory } = keys ?? {}
  const keyRing =
    directory === undefined
      ? undefined
      : await open('keys', 'keys.directory', {
          paths: [directory],
          includes: isKeyFileName,
          load: () => loadKeyRing(directory, identity?.assertion.enabled),
          onChange,
        })
  const { file, postgres } = credentials ?? {}
  const accounts =
    file === undefined
      ? undefined
      : await open('credentials', 'credentials.file', {
          paths: [file],
          load: () => loadCredentialsFile(file),
          onChange,
        })
  if (postgres !== undefined) {
    const { readUrlFile } = await import('./credentials/postgres/connection.ts')
    const read = await readUrlFile(postgres.urlFile)
    if (read.ok) warnings.push(...read.warnings)
    else report(DATABASE_SETTING, read.problems)
  }
  const revoked =
    revocations &&
    (await open('revocations', 'revocations.file', {
      paths: [revocations.file],
      load: createRevocationsLoader(revocations),
      onChange,
    }))
  const certificates = new Map<string, Reloadable<Certificates>>()
  for (const set of certificateSets(settings)) {
    const opened = await open(
      'certificates',
      undefined,
      {
        paths: certificatePaths(set),
        load: () => loadCertificates(set, now()),
        onChange({ material }) {
          if (set.name === LISTENER_CERTIFICATES) onListenerCertificates?.(material)
        },
      },
      set.name,
    )
    if (opened !== undefined) certificates.set(set.name, opened)
  }
  return { keyRing, accounts, revoked, certificates, problems, warnings }
}

/** @throws InvalidAuthData with every problem of the files; nothing was started then */
export async function openAuthData(config: Config, options: AuthDataOptions) {
  const { log, now, onChange = () => {}, onReload } = options
  const { keys, credentials } = config
  const { keyRing, accounts, revoked, certificates, problems, warnings } = await openFiles(config, options)
  if (problems.length > 0) throw new InvalidAuthData(problems)
  for (const warning of warnings) log.warn(warning)
  const onFault = (cause: unknown) => log.error({ err: cause }, 'a login could not be checked')
  const remote = keys.jwksUrl === undefined ? undefined : createRemoteKeys({ ...options, url: keys.jwksUrl })
  let database: PostgresStore | undefined
  if (credentials.postgres !== undefined) {
    // Imported on demand: most sidecars have no database, and its client loads slowly.
    const { openPostgresStore } = await import('./credentials/postgres/store.ts')
    database = openPostgresStore({
      ...credentials.postgres,
      log,
      now,
      onChange,
      onReload: (result) => onReload?.('credentials', result),
      onFault,
    })
  }
  const fileStore = accounts && createCredentialStore({ credentials: accounts.current, now, onFault })
  const files = [keyRing, accounts, revoked, ...certificates.values()].filter((file) => file !== undefined)
  for (const file of files) file.start()

  const subjects: ReloadSubject[] = ['revocations']
  if (keyRing) subjects.push('keys')
  if (accounts ?? database) subjects.push('credentials')
  if (certificates.size > 0) subjects.push('certificates')
  const isRevoked: IsRevoked = (token) =>
    revoked?.current().isRevoked(token) === true || database?.revocations().isRevoked(token) === true

  return {
    /** The label `subject` of reloads. */
    subjects,
    keys: remote?.ring ?? keyRing?.current ?? (() => NO_KEYS),
    findKey: remote?.findKey ?? findKeyIn(keyRing?.current ?? (() => NO_KEYS)),
    /** Undefined without `keys.jwksUrl`. */
    remoteKeys: remote?.state,
    /** Absent in a verify-only sidecar. */
    credentials: fileStore ?? database?.store,
    isRevoked,
    revocations: () => (revoked?.current().size ?? 0) + (database?.revocations().size ?? 0),
    certificates: {
      /** Undefined where the data listener does not speak TLS. */
      listener: () => certificates.get(LISTENER_CERTIFICATES)?.current().material,
      /** Undefined where the settings name no file. */
      upstream(prefix: string) {
        const set = certificates.get(upstreamName(prefix))
        return set && (() => set.current().context)
      },
      expiries: () =>
        [...certificates].flatMap(([certificate, set]) => {
          const { expiresAt } = set.current()
          return expiresAt === undefined ? [] : [{ certificate, expiresAt }]
        }),
    },
    checks: (): ReadyCheck[] => [
      { name: 'keys', ok: remote?.state().loaded ?? true, ...remote?.state() },
      ...(accounts ? [{ name: 'credentials', ok: true }] : []),
      ...(database ? [database.check()] : []),
    ],
    /** Waits for issuer or database; false if stopped before. @throws InvalidAuthData if an operator must act */
    async whenComplete() {
      if ((await remote?.firstSet()) === false) return false
      const { ok, problems } = (await database?.opened) ?? { ok: true, problems: [] }
      if (problems.length > 0)
        throw new InvalidAuthData(problems.map((problem) => fileProblem(DATABASE_SETTING, problem)))
      return ok
    },
    /** Never rejects. */
    async reload() {
      await Promise.all([...files.map((file) => file.reload()), remote?.reload(), database?.reload()])
    },
    async stop() {
      for (const file of files) file.stop()
      remote?.stop()
      await database?.stop()
    },
  }
}
