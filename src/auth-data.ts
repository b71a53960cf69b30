/**
 * Everything that decides on access, and the certificates. Each subject has a source that keeps it current:
 *
 *   keys           the files of `keys.directory`, or the JWK Set at `keys.jwksUrl`
 *   credentials    `credentials.file`, or the database
 *   revocations    `revocations.file`, and the database
 *   certificates   the PEM files of each listener, upstream and issuer
 *   key sets       the JWK Set of each of `trustedIssuers`
 *
 * A changed file becomes active at the second poll that finds it whole, one each 200 ms (`reload/`). Its event `change`
 * clears the cache of verified tokens (`app.ts`); the next request verifies its token anew (`token/verify.ts`), which asks
 * `isRevoked` and the `credentialStatus` of `credentials/store.ts`.
 */
import { EventEmitter } from 'node:events'
import type { CertificateMap, CertificateName, Certificates } from './certificates.ts'
import { certificateSets, openCertificates, secureContextOf } from './certificates.ts'
import { type Config, insecureKeySets, keySetsOf } from './config/config.ts'
import { loadCredentialsFile } from './credentials/credentials-file.ts'
import type { RevocationList, RevokeToken } from './credentials/revocation-list.ts'
import { createTokenRevoker, loadRevocationsFile } from './credentials/revocation-list.ts'
import { type CredentialStore, createCredentialStore } from './credentials/store.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import { findKeyIn, type Key, type KeyRing, tokenLifetimes } from './keys/key-ring.ts'
import { readBearerToken } from './keys/key-set.ts'
import { createRemoteKeys } from './keys/remote-keys.ts'
import type { Logger } from './log.ts'
import { openPolledFiles } from './reload/polled-files.ts'
import type { Reloadable, ReloadResult, ReloadSubject } from './reload/reloadable.ts'
import type { RevocableToken } from './token/caller.ts'
import { ownIssuer, type TokenIssuer, trustedIssuer } from './token/issuers.ts'
import { fileProblem, formatProblems, type Loaded, type Problem } from './values/problem.ts'

/** The arguments of each event. The new version is active before its event. */
interface AuthDataEvents {
  /** Cached verdicts may be wrong: those on the revoked tokens, or without the argument all of them. */
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
  readonly state?: 'draining' | 'current' | 'database down, last snapshot active' | `${number} of ${number}`
}

/** What decides on access. Its functions return the values that are active when they are called. */
export interface AuthData {
  readonly events: Events
  /** What is reloaded in this sidecar. */
  readonly subjects: readonly ReloadSubject[]
  /** The ring is empty until the JWK Set at `keys.jwksUrl` has been fetched. */
  readonly keys: () => KeyRing
  readonly keysReady: () => boolean
  /** Undefined in a sidecar that only verifies. */
  readonly signingKey: () => Pick<Key, 'kid' | 'createdAtSeconds'> | undefined
  /** How long tokens of each key may still be valid. */
  readonly tokenLifetimes: () => readonly { readonly kid: string; readonly seconds: number }[]
  /** The age of each JWK Set that is fetched; undefined until it has been. */
  readonly keySetAges: () => readonly (readonly [issuer: string, seconds: number | undefined])[]
  /** Issuers whose tokens are accepted, our own first. */
  readonly issuers: readonly [TokenIssuer, ...TokenIssuer[]]
  /** Undefined in a sidecar that only verifies and has no database. */
  readonly credentials: CredentialStore | undefined
  readonly isRevoked: (token: RevocableToken) => boolean
  /** Undefined without a database. */
  readonly revokeToken: RevokeToken | undefined
  /** How many revocations there are. */
  readonly revocations: () => number
  readonly certificates: CertificateMap
  /** When the first certificate of each chain expires, in epoch seconds; undefined of a set without a chain. */
  readonly certificateEnds: () => readonly (readonly [CertificateName, seconds: number | undefined])[]
  /** Conditions of readiness. */
  readonly checks: () => readonly ReadyCheck[]
  /** Polls, fetches and connects from now on. */
  start(): void
  /** Waits for the JWK Set at `keys.jwksUrl` and the database; false if stopped before. @throws InvalidAuthData */
  whenLoaded(): Promise<boolean>
  /** Waits for the fetches of JWK Sets in progress. */
  whenFetched(): Promise<unknown>
  /** Loads everything again, changed or not. Never rejects. */
  reload(): Promise<unknown>
  /** Ends the polling. The values stay. */
  stop(): Promise<unknown>
}

/** Files, or the database, that an operator must mend before the sidecar can start. */
export class InvalidAuthData extends Error {
  override readonly name = 'InvalidAuthData'
  readonly problems: readonly Problem[]
  constructor(problems: readonly Problem[]) {
    super(formatProblems(problems))
    this.problems = problems
  }
}

/** Reads the files. `now`: epoch milliseconds. @throws InvalidAuthData with every problem */
export async function openAuthData(config: Config, log: Logger, now: () => number): Promise<AuthData> {
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
  const keysReady = () => ownKeySet?.state().loaded ?? true
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
    signingKey: () => keys().signing,
    tokenLifetimes: () => tokenLifetimes(keys(), maxLifetimeSeconds + clockToleranceSeconds, now()),
    keysReady,
    keySetAges: () => keySets.map(({ issuer, state }) => [issuer, state().ageSeconds]),
    issuers: [own, ...trusted],
    credentials,
    isRevoked: (token) =>
      revocationsFile?.current().isRevoked(token) === true ||
      database?.revocations().isRevoked(token) === true,
    revokeToken: database && createTokenRevoker(database.revoke, clockToleranceSeconds),
    revocations: () => (revocationsFile?.current().size ?? 0) + (database?.revocations().size ?? 0),
    certificates,
    certificateEnds: () => [...certificates].map(([name, set]) => [name, set.current().endsAtSeconds]),
    checks: () => [
      { name: 'keys', ok: keysReady(), ...ownKeySet?.state() },
      ...(credentialsFile ? [{ name: 'credentials', ok: true }] : []),
      ...(database ? [database.check()] : []),
    ],
    start() {
      for (const one of polled) one.start()
    },
    async whenLoaded() {
      if ((await ownKeySet?.whenLoaded()) === false) return false
      const { ok, problems } = (await database?.opened) ?? { ok: true, problems: [] }
      if (problems.length > 0) throw new InvalidAuthData(databaseProblems(problems))
      return ok
    },
    whenFetched: () => Promise.all(keySets.map((keySet) => keySet.whenFetched())),
    reload: () => Promise.all(polled.map((one) => one.reload())),
    stop: () => Promise.all(polled.map((one) => one.stop())),
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
  let problems: readonly Problem[] = []
  const warnings: string[] = []

  /** The value; keeps problems and warnings. */
  function unwrap<T>(loaded: Loaded<T, Problem>): T | undefined {
    if (loaded.ok) warnings.push(...loaded.warnings)
    else problems = problems.concat(loaded.problems) // `push` with 130,000 arguments overflows the stack
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
    const { openDatabase } = await import('./credentials/postgres/database.ts')
    const opening = openDatabase({
      ...credentials.postgres,
      log,
      onChange: (revokedTokens) => events.emit('change', revokedTokens),
      onReload: (result) => events.emit('reload', 'credentials', result),
    })
    return unwrap(await withSetting('credentials.postgres.urlFile', opening))
  }
  const keyFiles = await open('keys', 'keys.directory', keys.directory, loadKeys, isKeyFileName)
  const credentialsFile = await open('credentials', 'credentials.file', credentials.file, loadCredentialsFile)
  const loadRevocations = (path: string, active?: RevocationList) =>
    loadRevocationsFile(path, revocations.required, active)
  const revocationsFile = await open('revocations', 'revocations.file', revocations.file, loadRevocations)
  const database = await openDatabase()
  const certificates = new Map<CertificateName, Reloadable<Certificates>>()
  for (const set of certificateSets(config)) {
    const onReload = (result: ReloadResult) => events.emit('reload', 'certificates', result, set.name)
    const opened = unwrap(await openCertificates(set, log, now, onReload))
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

/** The certificates of the admin listener, for the primary process; the workers count their reloads. @throws InvalidAuthData */
export async function openAdminCertificates(config: Config, log: Logger) {
  const set = certificateSets(config).find(({ name }) => name === 'admin')
  const opened = set && (await openCertificates(set, log, Date.now, () => {}))
  if (opened?.ok === false) throw new InvalidAuthData(opened.problems)
  return opened?.value
}
