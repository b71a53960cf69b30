/**
 * What is loaded again while the sidecar runs: keys, credentials, revocations and certificates.
 * Opens their sources, which the settings name. `reload/` polls each source, and activates each good new version. A version
 * that cannot be used is reported, and changes nothing: a token of a credential that it disables is still accepted.
 *
 *   source                polled each                     subject        then (`Gate.onAuthDataChange`)
 *   key files             `FILE_POLL_MS`, see `loadStep`  keys           the cache is emptied, tunnels are checked again
 *   credentials file      the same                        credentials    the same
 *   revocations file      the same                        revocations    tunnels are checked again, tokens with each request
 *   rows of the database  `DB_POLL_MS`, and for a login   both of these  the same as for files
 *   key set of an issuer  `REFRESH_MS`, and for a kid     keys           the same as for key files
 *   certificate files     the same as for key files       certificates   nothing: they are for new connections
 *
 * Then `checkStatus` of `token/verify.ts` refuses the token of a disabled credential. Waiting requests are checked like tunnels.
 * A change ends no transfer in progress. Without a database, a sidecar that fetches its keys learns of no disabled credential.
 */
import type { Logger } from './base/log.ts'
import { type Loaded, loaded, notLoaded } from './base/result.ts'
import type { Config, Problem } from './config/config.ts'
import { formatProblems, insecureKeySets, keySetsOf, problemsAt } from './config/config.ts'
import { type CredentialChecks, createCredentialChecks } from './credentials/credential-checks.ts'
import type { CredentialList } from './credentials/credential-list.ts'
import { loadCredentialsFile, loadRevocationsFile } from './credentials/list-files.ts'
import type { CredentialsDatabase, DatabaseState } from './credentials/postgres/database.ts'
import type { RevocationList } from './credentials/revocation-list.ts'
import { limitRevocations, type RevokeToken } from './credentials/throttles.ts'
import { readBearerToken } from './keys/jwk-set.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import { type FindKey, findInRing, type KeyRing, publicJwks, tokenLifetimes } from './keys/key-ring.ts'
import { type KeySetState, RemoteKeys } from './keys/remote-keys.ts'
import { openPolledFiles } from './reload/polled-files.ts'
import type { Reloadable, ReloadResult } from './reload/reloadable.ts'
import type { CertificateName, CertificateSet, CertificateSets } from './tls/certificates.ts'
import { activeContextOf, certificateFiles, issuerSetName, openCertificateSet } from './tls/certificates.ts'
import type { IsRevoked } from './token/caller.ts'
import { createIssuers, type TokenIssuer } from './token/issuers.ts'

export type ReloadSubject = 'keys' | 'credentials' | 'revocations' | 'certificates'

/** Called for each new version of a source after the start. */
export type OnReload = (subject: ReloadSubject, result: ReloadResult, certificate?: CertificateName) => void

export interface AuthDataOptions {
  readonly config: Config
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly now: () => number
  readonly onReload?: OnReload
}

/** The opened sources. One that the settings do not name, or that has problems, is undefined. */
interface AuthSources {
  readonly keyFiles: Reloadable<KeyRing> | undefined
  readonly credentialsFile: Reloadable<CredentialList> | undefined
  readonly revocationsFile: Reloadable<RevocationList> | undefined
  /** Replaces `credentialsFile`, and adds to the revocations of `revocationsFile`. */
  readonly database: CredentialsDatabase | undefined
  readonly certificateSets: CertificateSets
  /** The JWK Sets at `keys.jwksUrl`, which replaces key files, and of `trustedIssuers`. */
  readonly keySets: readonly RemoteKeys[]
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
}

/** Each function returns the value that is active when it is called. */
export interface AuthData extends Pick<AuthSources, 'certificateSets' | 'keySets'> {
  readonly keys: {
    /** Returns an empty ring until the JWK Set has been fetched. */
    readonly ring: () => KeyRing
    /** Returns a JWK Set, or undefined until the one at `keys.jwksUrl` has been fetched. */
    readonly publicJwks: () => object | undefined
    readonly tokenLifetimes: () => readonly { readonly kid: string; readonly seconds: number }[]
  }
  /** The issuers whose tokens are accepted. The sidecar's own issuer is the first. */
  readonly issuers: readonly [TokenIssuer, ...TokenIssuer[]]
  /** Undefined without `credentials.file` and without a database. */
  readonly credentials: CredentialChecks | undefined
  readonly revocations: {
    readonly isRevoked: IsRevoked
    readonly count: () => number
    /** Undefined without a database. */
    readonly revoke: RevokeToken | undefined
  }
  readonly subjects: readonly ReloadSubject[]
  readonly conditions: () => readonly AuthCondition[]
  /** Calls `onChange` with the subject of each new version of keys, credentials or revocations. */
  subscribe(onChange: (subject: Exclude<ReloadSubject, 'certificates'>) => void): void
  start(): void
  /** True once the JWK Set at `keys.jwksUrl` and the database are loaded. False if stopped earlier. @throws InvalidAuthData */
  whenLoaded(): Promise<boolean>
  /** Loads all sources again, even if nothing has changed. Never rejects. */
  reload(): Promise<unknown>
  /** Stops polling. The active values stay usable. */
  stop(): Promise<unknown>
}

/** What readiness needs, as the health check shows it. */
export interface AuthCondition extends Partial<KeySetState> {
  readonly name: 'keys' | 'credentials'
  readonly ok: boolean
  readonly state?: DatabaseState | undefined
}

/** The sidecar cannot start until an operator repairs its files or its database. */
export class InvalidAuthData extends Error {
  override readonly name = 'InvalidAuthData'
  readonly problems: readonly Problem[]
  constructor(problems: readonly Problem[]) {
    super(formatProblems(problems))
    this.problems = problems
  }
}

/** @throws InvalidAuthData with the problems of all sources */
export async function openAuthData(options: AuthDataOptions): Promise<AuthData> {
  const { config, log, now } = options
  const sources = await openSources(options)
  if (sources.problems.length > 0) throw new InvalidAuthData(sources.problems)
  for (const warning of sources.warnings) log.warn(warning)
  const { keyFiles, credentialsFile, revocationsFile, database, certificateSets, keySets } = sources
  const ownKeySet = keySets.find(({ issuer }) => issuer === config.token.issuer)
  const keys = ownKeysIn(options, keyFiles, ownKeySet)
  const logins = database ?? (credentialsFile && { list: credentialsFile.current, refresh: async () => true })
  const onError = (error: unknown) => log.error({ err: error }, 'a login could not be checked')
  const credentials = logins && createCredentialChecks(logins, now, onError)
  const revocations = [revocationsFile?.current, database?.revocations].flatMap((list) => list ?? [])
  const possible = [keyFiles, credentialsFile, revocationsFile, database, ...certificateSets.values()]
  const polled = [...possible.filter((source) => source !== undefined), ...keySets]
  const subjects: ReloadSubject[] = ['revocations'] // a file of them is polled even while it is missing
  if (keyFiles) subjects.push('keys')
  if (credentials) subjects.push('credentials')
  if (certificateSets.size > 0) subjects.push('certificates')
  return {
    keys,
    keySets,
    issuers: createIssuers(config, keys.findKey, keySets, credentials),
    credentials,
    revocations: {
      isRevoked: (token) => revocations.some((list) => list().isRevoked(token)),
      count: () => revocations.reduce((sum, list) => sum + list().size, 0),
      revoke: database && limitRevocations(database.revoke, config.token.clockToleranceSeconds),
    },
    certificateSets,
    subjects,
    conditions() {
      const ofKeys: AuthCondition = ownKeySet?.condition() ?? { name: 'keys', ok: true }
      const ofCredentials: AuthCondition = database?.condition() ?? { name: 'credentials', ok: true }
      return credentials ? [ofKeys, ofCredentials] : [ofKeys]
    },
    subscribe(onChange) {
      for (const source of [keyFiles, ...keySets]) source?.subscribe(() => onChange('keys'))
      credentialsFile?.subscribe(() => onChange('credentials'))
      revocationsFile?.subscribe(() => onChange('revocations'))
      database?.subscribe(onChange)
    },
    start() {
      for (const source of polled) source.start()
    },
    async whenLoaded() {
      const awaited = { 'keys.jwksUrl': ownKeySet, [DATABASE_SETTING]: database }
      for (const [setting, source] of Object.entries(awaited)) {
        const first = (await source?.whenLoaded) ?? loaded(true)
        if (!first.ok) throw new InvalidAuthData(problemsAt(setting, first.problems))
        if (!first.value) return false
      }
      return true
    },
    reload: () => Promise.all(polled.map((source) => source.reload())),
    stop: () => Promise.all(polled.map((source) => source.stop())),
  }
}

/** The keys of the sidecar's own issuer. */
function ownKeysIn({ config, now }: AuthDataOptions, keyFiles?: Reloadable<KeyRing>, keySet?: RemoteKeys) {
  const ring = keySet?.ring ?? keyFiles?.current ?? (() => ({ keys: new Map() }))
  const findKey: FindKey = keySet?.findKey ?? ((kid, alg) => findInRing(ring(), kid, alg))
  return {
    ring,
    findKey,
    publicJwks: () => (keySet?.state().loaded === false ? undefined : publicJwks(ring())),
    tokenLifetimes: () => tokenLifetimes(ring(), config.token.maxSignedSeconds, now()),
  }
}

type Opening = AuthDataOptions & { readonly results: Loaded<unknown, Problem>[] }

/** Opens the sources that the settings name, in the order in which their problems are reported. Never rejects. */
export async function openSources(options: AuthDataOptions): Promise<AuthSources> {
  const opening: Opening = { ...options, results: [] }
  const keyFiles = await openKeyFiles(opening)
  const credentialsFile = await openCredentialsFile(opening)
  const revocationsFile = await openRevocationsFile(opening)
  const database = await openCredentialsDatabase(opening)
  const certificateSets = await openCertificateSets(opening)
  const keySets = await openKeySets(opening, certificateSets)
  const problems = opening.results.flatMap((result) => (result.ok ? [] : result.problems))
  const ofSources = opening.results.flatMap((result) => (result.ok ? result.warnings : []))
  const warnings = [...new Set([...ofSources, ...insecureKeySets(options.config)])]
  const files = { keyFiles, credentialsFile, revocationsFile, certificateSets }
  return { ...files, database, keySets, problems, warnings }
}

function openKeyFiles(opening: Opening) {
  const { keys, identity, trustedIssuers } = opening.config
  const load = (directory: string, active?: KeyRing) => {
    // Tokens of trusted issuers need no key of the sidecar. A directory that loses its last key is a mistake.
    const mayBeEmpty = trustedIssuers.length > 0 && (active?.keys.size ?? 0) === 0
    return loadKeyRing(directory, { signsAssertions: identity.assertion.enabled, mayBeEmpty })
  }
  return openFiles(opening, 'keys', 'keys.directory', keys.directory, load, isKeyFileName)
}

function openCredentialsFile(opening: Opening) {
  const { file } = opening.config.credentials
  return openFiles(opening, 'credentials', 'credentials.file', file, loadCredentialsFile)
}

function openRevocationsFile(opening: Opening) {
  const { file, required } = opening.config.revocations
  const load = (path: string, active?: RevocationList) => loadRevocationsFile(path, required, active)
  return openFiles(opening, 'revocations', 'revocations.file', file, load)
}

/** `path`: a file or directory. Undefined if `setting` has no value. */
async function openFiles<T>(
  opening: Opening,
  subject: ReloadSubject,
  setting: string,
  path: string | undefined,
  load: (path: string, active: T | undefined) => Promise<Loaded<T>>,
  includes?: (name: string) => boolean,
) {
  if (path === undefined) return undefined
  const loadNamed = (active?: T) => withSetting(setting, load(path, active))
  const onReload = (result: ReloadResult) => opening.onReload?.(subject, result)
  const options = { subject, paths: [path], includes, load: loadNamed, onReload, log: opening.log }
  return collect(opening, await openPolledFiles(options))
}

export const DATABASE_SETTING = 'credentials.postgres.urlFile'

async function openCredentialsDatabase(opening: Opening) {
  const { postgres } = opening.config.credentials
  if (postgres === undefined) return undefined
  // Imported on demand: the PostgreSQL client loads slowly, and most sidecars do not need it.
  const { openDatabase } = await import('./credentials/postgres/database.ts')
  const onReload = (result: ReloadResult) => opening.onReload?.('credentials', result)
  const database = openDatabase({ ...postgres, log: opening.log, onReload })
  return collect(opening, await withSetting(DATABASE_SETTING, database))
}

async function openCertificateSets(opening: Opening): Promise<CertificateSets> {
  const { config, log, now } = opening
  const sets = new Map<CertificateName, Reloadable<CertificateSet>>()
  for (const files of certificateFiles(config)) {
    const onReload = (result: ReloadResult) => opening.onReload?.('certificates', result, files.name)
    const set = collect(opening, await openCertificateSet(files, log, now, onReload))
    if (set !== undefined) sets.set(files.name, set)
  }
  return sets
}

async function openKeySets(opening: Opening, certificateSets: CertificateSets): Promise<RemoteKeys[]> {
  const { config, log, now } = opening
  const keySets: RemoteKeys[] = []
  for (const { setting, ...keySet } of keySetsOf(config)) {
    const { bearerTokenFile: path } = keySet
    if (path) collect(opening, await withSetting(`${setting}.bearerTokenFile`, readBearerToken(path)))
    const secureContext = activeContextOf(certificateSets.get(issuerSetName(setting)))
    keySets.push(new RemoteKeys({ ...keySet, secureContext, log, now }))
  }
  return keySets
}

/** Notes the problems and warnings. Returns undefined if there are problems. */
function collect<T>({ results }: Opening, result: Loaded<T, Problem>): T | undefined {
  results.push(result)
  return result.ok ? result.value : undefined
}

async function withSetting<T>(setting: string, loading: Promise<Loaded<T>>) {
  const result = await loading
  return result.ok ? result : notLoaded(problemsAt(setting, result.problems))
}
