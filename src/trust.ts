/**
 * Keys, credentials, revocations and certificates: loads them, and keeps them current while the sidecar runs.
 * Files must be good at the start. Another issuer or a database may be away: `whenComplete` waits for it.
 */
import type { SecureContext } from 'node:tls'
import { fileProblem, formatProblems, type Problem } from './config/problem.ts'
import type { Config, FileSettings } from './config/schema.ts'
import { loadCredentialsFile } from './credentials/credentials-file.ts'
import type { PostgresStore } from './credentials/postgres/store.ts'
import { createRevocationsLoader, type IsRevoked } from './credentials/revocations.ts'
import { type CredentialStore, createCredentialStore } from './credentials/store.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import type { KeyRing } from './keys/key-ring.ts'
import { createRemoteKeys, type FetchResult, type RemoteKeysState } from './keys/remote-keys.ts'
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
export interface Trust {
  /** What is reloaded: what is in files or in the database. */
  readonly subjects: readonly ReloadSubject[]
  readonly keys: () => KeyRing
  /** Looks for a kid that is not known; only where keys come from another issuer. */
  readonly refreshKeys: ((kid: string) => Promise<boolean>) | undefined
  /** Only where keys come from another issuer. */
  readonly remoteKeys: (() => RemoteKeysState) | undefined
  /** Absent in a verify-only sidecar. */
  readonly credentials: CredentialStore | undefined
  readonly isRevoked: IsRevoked
  /** How many revocations are active. */
  readonly revocations: () => number
  readonly certificates: {
    /** Undefined where the data listener does not speak TLS. */
    readonly listener: () => CertificateMaterial | undefined
    /** Returns what connections to an upstream use; undefined where the settings name no file. */
    readonly upstream: (prefix: string) => (() => SecureContext) | undefined
    /** When the certificates that the sidecar presents expire, in epoch milliseconds, by the name of their set. */
    readonly expiries: () => { readonly certificate: string; readonly expiresAt: number }[]
  }
  readonly checks: () => readonly ReadyCheck[]
  /**
   * Waits for the other issuer and the database. Resolves with false when it is stopped before they answer.
   *
   * @throws UnusableTrust where the database cannot be used as it is
   */
  whenComplete(): Promise<boolean>
  /** Loads everything again, changed or not. Never rejects. */
  refresh(): Promise<void>
  stop(): Promise<void>
}

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
export async function openTrust(config: Config, options: TrustOptions): Promise<Trust> {
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

  return {
    subjects: [
      'revocations',
      ...(ring ? (['keys'] as const) : []),
      ...(accounts || database ? (['credentials'] as const) : []),
      ...(certificates.size > 0 ? (['certificates'] as const) : []),
    ],
    keys: remote?.ring ?? ring?.current ?? (() => NO_KEYS),
    refreshKeys: remote?.refresh,
    remoteKeys: remote?.state,
    credentials: fileStore ?? database?.store,
    isRevoked: (token) =>
      revoked?.current().isRevoked(token) === true || database?.revocations().isRevoked(token) === true,
    revocations: () => (revoked?.current().size ?? 0) + (database?.revocations().size ?? 0),
    certificates: {
      listener: () => certificates.get(LISTENER)?.current().material,
      upstream(prefix) {
        const set = certificates.get(upstreamName(prefix))
        return set && (() => set.current().context)
      },
      expiries: () =>
        [...certificates].flatMap(([certificate, set]) => {
          const { expiresAt } = set.current()
          return expiresAt === undefined ? [] : [{ certificate, expiresAt }]
        }),
    },
    checks: () => [
      { name: 'keys', ok: remote?.state().loaded ?? true, ...remote?.state() },
      ...(accounts ? [{ name: 'credentials', ok: true }] : []),
      ...(database ? [database.check()] : []),
    ],
    async whenComplete() {
      if ((await remote?.firstSet()) === false) return false
      const opened = (await database?.opened) ?? { ok: true, warnings: [] }
      if (opened.ok) for (const warning of opened.warnings) log.warn(warning)
      else if (opened.problems.length > 0)
        throw new UnusableTrust(opened.problems.map((problem) => fileProblem(DATABASE_SETTING, problem)))
      return opened.ok
    },
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
