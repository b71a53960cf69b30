/**
 * Opens everything that decides on access (keys, credentials, revocations) and the certificates, and keeps it current.
 * In: settings. Out: functions that return the active values.
 */
import type { SecureContext } from 'node:tls'
import { type Config, type FileSettings, insecureKeySets, keySetsOf } from './config/config.ts'
import { fileProblem, formatProblems, type Problem } from './config/problem.ts'
import { loadCredentialsFile } from './credentials/credentials-file.ts'
import type { PostgresStore } from './credentials/postgres/store.ts'
import {
  createRevocationsLoader,
  type IsRevoked,
  newlyRevoked,
  type Revocations,
} from './credentials/revocations.ts'
import { type CredentialStore, createCredentialStore } from './credentials/store.ts'
import { createTokenRevoker, type RevokeToken } from './credentials/token-revoker.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import { findKeyIn, type KeyRing } from './keys/key-ring.ts'
import { readBearerToken } from './keys/key-set.ts'
import { createRemoteKeys } from './keys/remote-keys.ts'
import { createLog, type Logger } from './ops/log.ts'
import type { ReloadSubject } from './ops/metrics.ts'
import type { ReadyCheck } from './ops/status.ts'
import {
  ADMIN_CERTIFICATES,
  type CertificateMaterial,
  type Certificates,
  certificatePaths,
  certificateSets,
  issuerName,
  loadCertificates,
  upstreamName,
} from './reload/certificates.ts'
import type { Loaded } from './reload/files.ts'
import { openPolledFiles, type PolledFilesOptions } from './reload/polled-files.ts'
import type { Reloadable, ReloadResult } from './reload/reloadable.ts'
import { ownIssuer, trustedIssuer } from './token/issuers.ts'
import type { TokenIssuer } from './token/verify.ts'

export class InvalidAuthData extends Error {
  override readonly name = 'InvalidAuthData'
  readonly problems: readonly Problem[]
  constructor(problems: readonly Problem[]) {
    super(formatProblems(problems))
    this.problems = problems
  }
}

export interface AuthData {
  /** The labels `subject` of reloads. */
  readonly subjects: readonly ReloadSubject[]
  readonly keys: () => KeyRing
  /** Whose tokens are accepted; our own first. */
  readonly issuers: readonly [TokenIssuer, ...TokenIssuer[]]
  /** Those whose keys are fetched. */
  readonly keySets: () => readonly { readonly issuer: string; readonly ageSeconds?: number }[]
  /** Absent in a sidecar that only verifies and has no database. */
  readonly credentials: CredentialStore | undefined
  readonly isRevoked: IsRevoked
  /** Absent without a database. */
  readonly revokeToken: RevokeToken | undefined
  /** How many there are. */
  readonly revocations: () => number
  readonly certificates: {
    /** Undefined where the listener of this name does not speak TLS. */
    material(name: string): CertificateMaterial | undefined
    /** Undefined where the settings name no file. */
    upstream(prefix: string): (() => SecureContext) | undefined
    /** When they expire, in epoch milliseconds. */
    expiries(): readonly { readonly certificate: string; readonly expiresAt: number }[]
  }
  /** Conditions of readiness. */
  checks(): readonly ReadyCheck[]
  /** Polls from now on. Called once. */
  start(events?: AuthDataEvents): void
  /** Waits for issuer or database; false if stopped before. @throws InvalidAuthData if an operator must act */
  whenComplete(): Promise<boolean>
  /** Waits until each key set has been fetched once, well or not. */
  whenFetched(): Promise<unknown>
  /** Loads everything again, changed or not. Never rejects. */
  reload(): Promise<void>
  /** Ends the polling. The values stay. */
  stop(): Promise<void>
}

export interface AuthDataEvents {
  /**
   * Keys, credentials or revocations have changed. Cached verdicts must be dropped now: on the tokens of these ids where
   * nothing else has changed, otherwise on all.
   */
  readonly onChange?: (revokedTokens?: readonly string[]) => void
  /** `name`: of the certificate set. */
  readonly onCertificates?: (name: string, material: CertificateMaterial) => void
  /** `part`: the name of the certificate set. */
  readonly onReload?: (subject: ReloadSubject, result: ReloadResult, part?: string) => void
  readonly onFetch?: (issuer: string, result: ReloadResult) => void
}

interface Clock {
  readonly log: Logger
  /** Epoch milliseconds. */
  readonly now: () => number
}

/** The files of one subject. */
type Source<T> = Pick<PolledFilesOptions<T>, 'paths' | 'includes' | 'load' | 'onChange'> & {
  readonly subject: ReloadSubject
  readonly part?: string
}

const NO_KEYS: KeyRing = { verification: new Map() }
const DATABASE_SETTING = 'credentials.postgres.urlFile'

/** Names the setting in the problems of a loader. */
async function problemsOf<T>(setting: string, loading: Promise<Loaded<T>>): Promise<Loaded<T, Problem>> {
  const loaded = await loading
  if (loaded.ok) return loaded
  return { ok: false, problems: loaded.problems.map((problem) => fileProblem(setting, problem)) }
}

type CertificateMap = ReadonlyMap<string, Reloadable<Certificates>>

function contextOf(certificates: CertificateMap, name: string): (() => SecureContext) | undefined {
  const set = certificates.get(name)
  return set && (() => set.current().context)
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
export async function openAdminCertificates({ admin }: Config, clock: Clock, events: AuthDataEvents) {
  const { certificates, problems } = await openFiles({ admin }, clock, () => events)
  if (problems.length > 0) throw new InvalidAuthData(problems)
  return certificates.get(ADMIN_CERTIFICATES)
}

/** Nothing is polled before `start`. Never rejects. @param events - those at the time of a reload */
async function openFiles(settings: FileSettings, { log, now }: Clock, events: () => AuthDataEvents) {
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
  const keyRing =
    directory === undefined
      ? undefined
      : await open({
          subject: 'keys',
          paths: [directory],
          includes: isKeyFileName,
          load: () => problemsOf('keys.directory', loadKeyRing(directory, identity?.assertion.enabled)),
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

/** Reads the files; nothing is polled, fetched or connected before `start`. @throws InvalidAuthData with every problem */
export async function openAuthData(config: Config, { log, now }: Clock): Promise<AuthData> {
  let events: AuthDataEvents = {}
  const opened = await openFiles(config, { log, now }, () => events)
  const { keyRing, accounts, revoked, certificates, problems, warnings } = opened
  if (problems.length > 0) throw new InvalidAuthData(problems)
  for (const warning of warnings) log.warn(warning)
  const onChange = (revokedTokens?: readonly string[]) => events.onChange?.(revokedTokens)
  const onFault = (cause: unknown) => log.error({ err: cause }, 'a login could not be checked')
  let database: PostgresStore | undefined
  if (config.credentials.postgres !== undefined) {
    // Imported on demand: most sidecars have no database, and its client loads slowly.
    const { openPostgresStore } = await import('./credentials/postgres/store.ts')
    const onReload = (result: ReloadResult) => events.onReload?.('credentials', result)
    database = openPostgresStore({ ...config.credentials.postgres, log, now, onChange, onReload, onFault })
  }
  const fileStore = accounts && createCredentialStore({ credentials: accounts.current, now, onFault })
  const credentials = fileStore ?? database?.store
  const files = [keyRing, accounts, revoked, ...certificates.values()].filter((file) => file !== undefined)

  const subjects: ReloadSubject[] = ['revocations']
  if (keyRing) subjects.push('keys')
  if (accounts ?? database) subjects.push('credentials')
  if (certificates.size > 0) subjects.push('certificates')

  const keySets = keySetsOf(config).map(({ setting, ...source }) => {
    const onFetch = (...fetched: [string, ReloadResult]) => events.onFetch?.(...fetched)
    const secureContext = contextOf(certificates, issuerName(setting))
    return createRemoteKeys({ ...source, secureContext, log, now, onChange: () => onChange(), onFetch })
  })
  const remote = config.keys.jwksUrl === undefined ? undefined : keySets[0]
  const keys = remote?.ring ?? keyRing?.current ?? (() => NO_KEYS)
  const own = ownIssuer({
    ...config.token,
    findKey: remote?.findKey ?? findKeyIn(keys),
    credentialStatus: credentials?.credentialStatus,
  })
  const isOwnAccount = (accountId: string) => credentials?.hasAccount(accountId) === true
  const trusted = config.trustedIssuers.flatMap((entry) => {
    const keySet = keySets.find(({ issuer }) => issuer === entry.issuer)
    return keySet === undefined ? [] : [trustedIssuer(entry, keySet.findKey, isOwnAccount)]
  })

  return {
    subjects,
    keys,
    issuers: [own, ...trusted],
    keySets: () => keySets.map(({ issuer, state }) => ({ issuer, ...state() })),
    credentials,
    isRevoked: (token) =>
      revoked?.current().isRevoked(token) === true || database?.revocations().isRevoked(token) === true,
    revokeToken: database && createTokenRevoker({ ...config.token, write: database.revoke }),
    revocations: () => (revoked?.current().size ?? 0) + (database?.revocations().size ?? 0),
    certificates: {
      material: (name) => certificates.get(name)?.current().material,
      upstream: (prefix) => contextOf(certificates, upstreamName(prefix)),
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
    start(subscribed = {}) {
      events = subscribed
      for (const file of files) file.start()
      for (const keySet of keySets) keySet.start()
    },
    whenFetched: () => Promise.all(keySets.map((keySet) => keySet.fetched())),
    async whenComplete() {
      if ((await remote?.firstSet()) === false) return false
      const { ok, problems } = (await database?.opened) ?? { ok: true, problems: [] }
      if (problems.length > 0)
        throw new InvalidAuthData(problems.map((problem) => fileProblem(DATABASE_SETTING, problem)))
      return ok
    },
    async reload() {
      const reloadables = [...files, ...keySets]
      await Promise.all([...reloadables.map((one) => one.reload()), database?.reload()])
    },
    async stop() {
      for (const file of files) file.stop()
      for (const keySet of keySets) keySet.stop()
      await database?.stop()
    },
  }
}
