import { fileProblem, formatProblems, type Problem } from './config/problem.ts'
import type { Config, FileSettings } from './config/schema.ts'
import { loadCredentialsFile } from './credentials/credentials-file.ts'
import type { PostgresStore } from './credentials/postgres/store.ts'
import { createRevocationsLoader, type IsRevoked } from './credentials/revocations.ts'
import { createCredentialStore } from './credentials/store.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import type { KeyRing } from './keys/key-ring.ts'
import { createRemoteKeys, type FetchResult } from './keys/remote-keys.ts'
import { createLog, type Logger } from './ops/log.ts'
import type { ReloadSubject } from './ops/metrics.ts'
import type { ReadyCheck } from './ops/status.ts'
import {
  type CertificateMaterial,
  type Certificates,
  certificateFiles,
  certificateSets,
  LISTENER,
  loadCertificates,
  upstreamName,
} from './reload/certificates.ts'
import {
  createReloadable,
  type Reloadable,
  type ReloadableOptions,
  type ReloadResult,
} from './reload/reloadable.ts'

/** Keys, credentials, revocations or certificates that cannot be used. */
export class UnusableTrust extends Error {
  override readonly name = 'UnusableTrust'
  readonly problems: readonly Problem[]
  constructor(problems: readonly Problem[]) {
    super(formatProblems(problems))
    this.problems = problems
  }
}

/** The active values; each function returns the current one. */
export type Trust = Awaited<ReturnType<typeof openTrust>>

export interface TrustOptions {
  readonly log: Logger
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called right after keys, credentials or revocations changed: cached verdicts are void. */
  readonly onChange?: () => void
  /** Called right after the data listener's certificates changed. */
  readonly onListenerCertificates?: (material: CertificateMaterial) => void
  /** `part`: the name of the certificate set. */
  readonly onReload?: (subject: ReloadSubject, result: ReloadResult, seconds?: number, part?: string) => void
  readonly onFetch?: (result: FetchResult) => void
}

const NO_KEYS: KeyRing = { verification: new Map() }
const DATABASE_SETTING = 'credentials.postgres.urlFile'

/** Every problem of every file that the settings name. Never rejects. */
export async function fileProblems(settings: FileSettings): Promise<readonly Problem[]> {
  const log = createLog('silent', { write() {} })
  return (await openFiles(settings, { log, now: Date.now })).problems
}

/** Loads what is in files. Nothing is polled before `start`. Never rejects. */
async function openFiles(settings: FileSettings, options: TrustOptions) {
  const { keys, credentials, revocations, listen, upstreams = [] } = settings
  const { log, now, onChange = () => {}, onReload, onListenerCertificates } = options
  const problems: Problem[] = []
  const warnings: string[] = []
  /** `setting` names the file; problems of certificates begin with theirs. */
  const report = (setting: string | undefined, messages: readonly string[]): undefined => {
    for (const text of messages) {
      const [path = '', ...rest] = setting === undefined ? text.split(': ') : [setting, text]
      problems.push(fileProblem(path, rest.join(': ')))
    }
  }

  async function open<T>(
    subject: ReloadSubject,
    setting: string | undefined,
    source: Pick<ReloadableOptions<T>, 'paths' | 'includes' | 'load' | 'onChange'>,
    part?: string,
  ): Promise<Reloadable<T> | undefined> {
    const onResult = (result: ReloadResult, seconds?: number) => onReload?.(subject, result, seconds, part)
    const opened = await createReloadable({ onChange, ...source, subject, onReload: onResult, log })
    if (!opened.ok) return report(setting, opened.problems)
    warnings.push(...opened.warnings)
    return opened.value
  }

  const { directory } = keys ?? {}
  const ring =
    directory === undefined
      ? undefined
      : await open('keys', 'keys.directory', {
          paths: [directory],
          includes: isKeyFileName,
          load: () => loadKeyRing(directory),
        })
  const { file, postgres } = credentials ?? {}
  const accounts =
    file === undefined
      ? undefined
      : await open('credentials', 'credentials.file', {
          paths: [file],
          load: () => loadCredentialsFile(file),
        })
  if (postgres !== undefined) {
    const { readUrlFile } = await import('./credentials/postgres/connection.ts')
    const read = await readUrlFile(postgres.urlFile)
    if (!read.ok) report(DATABASE_SETTING, read.problems)
  }
  const revoked =
    revocations &&
    (await open('revocations', 'revocations.file', {
      paths: [revocations.file],
      load: createRevocationsLoader(revocations),
    }))
  const certificates = new Map<string, Reloadable<Certificates>>()
  for (const set of certificateSets({ tls: listen?.tls, upstreams })) {
    const opened = await open(
      'certificates',
      undefined,
      {
        paths: certificateFiles(set),
        load: () => loadCertificates(set, now()),
        onChange({ material }) {
          if (set.name === LISTENER) onListenerCertificates?.(material)
        },
      },
      set.name,
    )
    if (opened !== undefined) certificates.set(set.name, opened)
  }
  return { ring, accounts, revoked, certificates, problems, warnings }
}

/**
 * Loads what is in files, then starts to poll them and to ask the other issuer and the database.
 *
 * @throws UnusableTrust with every problem of the files; nothing was started then
 */
export async function openTrust(config: Config, options: TrustOptions) {
  const { log, now, onChange = () => {}, onReload } = options
  const { keys, credentials } = config
  const { ring, accounts, revoked, certificates, problems, warnings } = await openFiles(config, options)
  if (problems.length > 0) throw new UnusableTrust(problems)
  for (const warning of warnings) log.warn(warning)
  const onFault = (cause: unknown) => log.error({ err: cause }, 'a login could not be checked')
  const remote = keys.jwksUrl === undefined ? undefined : createRemoteKeys({ ...options, url: keys.jwksUrl })
  let database: PostgresStore | undefined
  if (credentials.postgres !== undefined) {
    // Loaded when needed: most sidecars have no database, and its client takes a while.
    const { openPostgresStore } = await import('./credentials/postgres/store.ts')
    database = openPostgresStore({
      ...credentials.postgres,
      log,
      now,
      onChange,
      onReload: (result, seconds) => onReload?.('credentials', result, seconds),
      onFault,
    })
  }
  const fileStore = accounts && createCredentialStore({ credentials: accounts.current, now, onFault })
  const files = [ring, accounts, revoked, ...certificates.values()].filter((file) => file !== undefined)
  for (const file of files) file.start()

  const subjects: ReloadSubject[] = ['revocations']
  if (ring) subjects.push('keys')
  if (accounts ?? database) subjects.push('credentials')
  if (certificates.size > 0) subjects.push('certificates')
  const isRevoked: IsRevoked = (token) =>
    revoked?.current().isRevoked(token) === true || database?.revocations().isRevoked(token) === true

  return {
    /** What is reloaded: what is in files or in the database. */
    subjects,
    keys: remote?.ring ?? ring?.current ?? (() => NO_KEYS),
    /** Looks for a kid that is not known; only where keys come from another issuer, as `remoteKeys`. */
    refreshKeys: remote?.refresh,
    remoteKeys: remote?.state,
    /** Absent in a verify-only sidecar. */
    credentials: fileStore ?? database?.store,
    isRevoked,
    /** How many revocations are active. */
    revocations: () => (revoked?.current().size ?? 0) + (database?.revocations().size ?? 0),
    certificates: {
      /** Undefined where the data listener does not speak TLS. */
      listener: () => certificates.get(LISTENER)?.current().material,
      /** Returns what connections to an upstream use; undefined where the settings name no file. */
      upstream(prefix: string) {
        const set = certificates.get(upstreamName(prefix))
        return set && (() => set.current().context)
      },
      /** When the certificates that the sidecar presents expire, in epoch milliseconds, by the name of their set. */
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
    /**
     * Waits for the other issuer and the database. Resolves with false when it is stopped before they answer.
     *
     * @throws UnusableTrust where the database cannot be used as it is
     */
    async whenComplete() {
      if ((await remote?.firstSet()) === false) return false
      const opened = (await database?.opened) ?? { ok: true, warnings: [] }
      if (opened.ok) for (const warning of opened.warnings) log.warn(warning)
      else if (opened.problems.length > 0)
        throw new UnusableTrust(opened.problems.map((problem) => fileProblem(DATABASE_SETTING, problem)))
      return opened.ok
    },
    /** Loads everything again, changed or not. Never rejects. */
    async refresh() {
      await Promise.all([...files.map((file) => file.reload()), remote?.refetch(), database?.reload()])
    },
    async stop() {
      for (const file of files) file.stop()
      remote?.stop()
      await database?.stop()
    },
  }
}
