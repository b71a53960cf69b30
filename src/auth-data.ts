/**
 * Everything that decides on access, and the certificates. Each subject has a source that keeps it current:
 *
 *   keys           the files of `keys.directory`, or the JWK Set at `keys.jwksUrl`
 *   credentials    `credentials.file`, or the database
 *   revocations    `revocations.file`, and the database
 *   certificates   the PEM files of each listener, upstream and issuer
 *   key sets       the JWK Set of each of `trustedIssuers`
 *
 * In: settings. Out: functions that return the active values, and an event for each change (`AuthDataEvents`). The
 * listeners subscribe to their certificates themselves.
 * A changed file becomes active at the second poll that finds it whole, one each 200 ms (`reload/`). Its event `change`
 * clears the cache of verified tokens (`app.ts`); the next request verifies its token anew (`token/verify.ts`), which asks
 * `isRevoked` and the `credentialStatus` of `credentials/store.ts`.
 */
import { EventEmitter } from 'node:events'
import {
  type CertificateName,
  type CertificateSet,
  type Certificates,
  certificatePaths,
  certificateSets,
  loadCertificates,
  secureContextOf,
} from './certificates.ts'
import { type Config, insecureKeySets, keySetsOf } from './config/config.ts'
import { loadCredentialsFile } from './credentials/credentials-file.ts'
import { createTokenRevoker, loadRevocationsFile, type Revocations } from './credentials/revocations.ts'
import { createCredentialStore } from './credentials/store.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import { findKeyIn, type KeyRing, tokenLifetimes } from './keys/key-ring.ts'
import { readBearerToken } from './keys/key-set.ts'
import { createRemoteKeys } from './keys/remote-keys.ts'
import type { Logger } from './log.ts'
import { openPolledFiles } from './reload/polled-files.ts'
import type { Reloadable, ReloadResult, ReloadSubject } from './reload/reloadable.ts'
import type { RevocableToken } from './token/caller.ts'
import { ownIssuer, type TokenIssuer, trustedIssuer } from './token/issuers.ts'
import { fileProblem, InvalidAuthData, type Loaded, type Problem } from './values/problem.ts'

/** The arguments of each event. The new version is active before its event. */
interface AuthDataEvents {
  /**
   * Keys, credentials or revocations have changed: a cached verdict may be wrong. Where only tokens were revoked, the
   * argument has their ids.
   */
  change: [revokedTokens?: readonly string[]]
  /** A new version is active, or was rejected. */
  reload: [subject: ReloadSubject, result: ReloadResult, certificate?: CertificateName]
  /** A JWK Set was fetched, well or not. */
  fetch: [issuer: string, result: ReloadResult]
}

type Events = EventEmitter<AuthDataEvents>

/** One condition of readiness. Its state is shown as it is; the last is of workers that respond. */
export interface ReadyCheck {
  readonly name: string
  readonly ok: boolean
  readonly state?:
    | ('draining' | 'current' | 'database down, last snapshot active' | `${number} of ${number}`)
    | undefined
}

export type AuthData = Awaited<ReturnType<typeof openAuthData>>

/**
 * Reads the files; nothing is polled, fetched or connected before `start`.
 * @param now - epoch milliseconds
 * @throws InvalidAuthData with every problem
 */
export async function openAuthData(config: Config, log: Logger, now: () => number) {
  const events: Events = new EventEmitter()
  const opened = await openFiles(config, log, now, events)
  if (opened.problems.length > 0) throw new InvalidAuthData(opened.problems)
  for (const warning of opened.warnings) log.warn(warning)
  const { keyFiles, credentialsFile, database, revocationsFile, certificates } = opened
  keyFiles?.subscribe(() => events.emit('change'))
  credentialsFile?.subscribe(() => events.emit('change'))
  revocationsFile?.subscribe((fresh, former) => events.emit('change', fresh.addedSince(former)))
  const keySets = keySetsOf(config).map(({ setting, ...source }) =>
    createRemoteKeys({
      ...source,
      secureContext: secureContextOf(certificates, `issuer:${setting}`),
      log,
      now,
      onChange: () => events.emit('change'),
      onFetch: (issuer, result) => events.emit('fetch', issuer, result),
    }),
  )
  const files = [keyFiles, credentialsFile, revocationsFile, ...certificates.values()]
  const polled = [...files, database, ...keySets].filter((one) => one !== undefined)
  const subjects: ReloadSubject[] = ['revocations']
  if (keyFiles) subjects.push('keys')
  if (credentialsFile ?? database) subjects.push('credentials')
  if (certificates.size > 0) subjects.push('certificates')

  const ownKeySet = config.keys.jwksUrl === undefined ? undefined : keySets[0]
  const keys = ownKeySet?.ring ?? keyFiles?.current ?? (() => NO_KEYS)
  /** False until the JWK Set at `keys.jwksUrl` has been fetched. */
  const keysReady = () => ownKeySet?.state().loaded ?? true
  /** Absent in a sidecar that only verifies and has no database. */
  const index = credentialsFile?.current ?? database?.credentials
  const onFault = (cause: unknown) => log.error({ err: cause }, 'a login could not be checked')
  const credentials = index && createCredentialStore(index, now, onFault, database?.refresh)
  const { maxLifetimeSeconds, clockToleranceSeconds } = config.token
  const findKey = ownKeySet?.findKey ?? findKeyIn(keys)
  const own = ownIssuer(config.token, config.links, findKey, credentials?.credentialStatus)
  const isOwnAccount = (accountId: string) => credentials?.hasAccount(accountId) === true
  const trusted = config.trustedIssuers.flatMap((entry) => {
    const keySet = keySets.find((one) => one.issuer === entry.issuer)
    return keySet === undefined ? [] : [trustedIssuer(entry, keySet.findKey, isOwnAccount)]
  })

  return {
    events,
    subjects,
    keys,
    /** Undefined in a sidecar that only verifies. */
    signingKey: () => keys().signing,
    /** How long tokens of each key may still be valid. */
    tokenLifetimes: () => tokenLifetimes(keys(), maxLifetimeSeconds + clockToleranceSeconds, now()),
    keysReady,
    /** Whose tokens are accepted; our own first. */
    issuers: [own, ...trusted] as readonly [TokenIssuer, ...TokenIssuer[]],
    keySets,
    credentials,
    isRevoked: (token: RevocableToken) =>
      revocationsFile?.current().isRevoked(token) === true ||
      database?.revocations().isRevoked(token) === true,
    /** Absent without a database. */
    revokeToken: database && createTokenRevoker(database.revoke, clockToleranceSeconds),
    revocations: () => (revocationsFile?.current().size ?? 0) + (database?.revocations().size ?? 0),
    certificates,
    checks: (): readonly ReadyCheck[] => [
      { name: 'keys', ok: keysReady(), ...ownKeySet?.state() },
      ...(credentialsFile ? [{ name: 'credentials', ok: true }] : []),
      ...(database ? [database.check()] : []),
    ],
    start(): void {
      for (const one of polled) one.start()
    },
    /** Waits for the JWK Set at `keys.jwksUrl` and the database; false if stopped before. @throws InvalidAuthData */
    async whenLoaded(): Promise<boolean> {
      if ((await ownKeySet?.whenLoaded()) === false) return false
      const { ok, problems } = (await database?.opened) ?? { ok: true, problems: [] }
      if (problems.length > 0) throw new InvalidAuthData(databaseProblems(problems))
      return ok
    },
    /** Loads everything again, changed or not. Never rejects. */
    async reload(): Promise<void> {
      await Promise.all(polled.map((one) => one.reload()))
    },
    async stop(): Promise<void> {
      await Promise.all(polled.map((one) => one.stop()))
    },
  }
}

const NO_KEYS: KeyRing = { keys: new Map() }

export const databaseProblems = (problems: readonly string[]) =>
  problems.map((problem) => fileProblem('credentials.postgres.urlFile', problem))

/** The values of all files and the database, not polled yet, and what is wrong with the files. Never rejects. */
export async function openFiles(
  config: Config,
  log: Logger,
  now: () => number,
  events: Events = new EventEmitter(),
) {
  const { keys, credentials, revocations, identity, trustedIssuers } = config
  const problems: Problem[] = []
  const warnings: string[] = []

  /** The value; keeps problems and warnings. */
  function unwrap<T>(loaded: Loaded<T, Problem>): T | undefined {
    if (loaded.ok) warnings.push(...loaded.warnings)
    else problems.push(...loaded.problems)
    return loaded.ok ? loaded.value : undefined
  }

  async function open<T>(
    subject: ReloadSubject,
    setting: string,
    path: string | undefined,
    load: (path: string, active: T | undefined) => Promise<Loaded<T>>,
    includes?: (name: string) => boolean,
  ) {
    if (path === undefined) return undefined
    const opened = await openPolledFiles<T>({
      subject,
      paths: [path],
      includes,
      load: (active) => withSetting(setting, load(path, active)),
      onReload: (result) => events.emit('reload', subject, result),
      log,
    })
    return unwrap(opened)
  }

  function loadKeys(directory: string, active: KeyRing | undefined) {
    // Tokens of trusted issuers need no key of ours. Once it has had a key, an empty directory is a mistake.
    const mayBeEmpty = trustedIssuers.length > 0 && (active?.keys.size ?? 0) === 0
    return loadKeyRing(directory, identity.assertion.enabled, mayBeEmpty)
  }
  async function openDatabase() {
    if (credentials.postgres === undefined) return undefined
    // Imported on demand: most sidecars have no database, and its client loads slowly.
    const { openPostgresStore } = await import('./credentials/postgres/store.ts')
    const opening = openPostgresStore({
      ...credentials.postgres,
      log,
      onChange: (revokedTokens) => events.emit('change', revokedTokens),
      onReload: (result) => events.emit('reload', 'credentials', result),
    })
    return unwrap(await withSetting('credentials.postgres.urlFile', opening))
  }
  const keyFiles = await open('keys', 'keys.directory', keys.directory, loadKeys, isKeyFileName)
  const credentialsFile = await open('credentials', 'credentials.file', credentials.file, loadCredentialsFile)
  const loadRevocations = (path: string, active?: Revocations) =>
    loadRevocationsFile(path, revocations.required, active)
  const revocationsFile = await open('revocations', 'revocations.file', revocations.file, loadRevocations)
  const database = await openDatabase()
  const certificates = new Map<CertificateName, Reloadable<Certificates>>()
  for (const set of certificateSets(config)) {
    const opened = unwrap(await openCertificates(set, log, now, events))
    if (opened !== undefined) certificates.set(set.name, opened)
  }
  for (const [index, { bearerTokenFile }] of trustedIssuers.entries()) {
    const setting = `trustedIssuers[${index}].bearerTokenFile`
    if (bearerTokenFile !== undefined) unwrap(await withSetting(setting, readBearerToken(bearerTokenFile)))
  }
  warnings.push(...insecureKeySets(config))
  return {
    keyFiles,
    credentialsFile,
    database,
    revocationsFile,
    certificates,
    problems,
    warnings: [...new Set(warnings)],
  }
}

/** Names the setting in the problems of a loader. */
async function withSetting<T>(setting: string, loading: Promise<Loaded<T>>): Promise<Loaded<T, Problem>> {
  const loaded = await loading
  if (loaded.ok) return loaded
  return { ok: false, problems: loaded.problems.map((problem) => fileProblem(setting, problem)) }
}

const openCertificates = (set: CertificateSet, log: Logger, now: () => number, events: Events) =>
  openPolledFiles<Certificates>({
    subject: 'certificates',
    paths: certificatePaths(set),
    load: () => loadCertificates(set, now()),
    onReload: (result) => events.emit('reload', 'certificates', result, set.name),
    log,
  })

/** Those of the admin listener, for the primary process; the workers count their reloads. @throws InvalidAuthData */
export async function openAdminCertificates(config: Config, log: Logger) {
  const set = certificateSets(config).find(({ name }) => name === 'admin')
  const opened = set && (await openCertificates(set, log, Date.now, new EventEmitter()))
  if (opened?.ok === false) throw new InvalidAuthData(opened.problems)
  return opened?.value
}
