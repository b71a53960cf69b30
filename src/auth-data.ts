/**
 * Everything that decides on access, by subject:
 *
 *   keys           the files of `keys.directory`, or the JWK Set at `keys.jwksUrl`
 *   key sets       the JWK Sets of `trustedIssuers`, and the one at `keys.jwksUrl`
 *   credentials    `credentials.file`, or the database
 *   revocations    `revocations.file`, and the database
 *   certificates   the PEM files of each listener, upstream and issuer
 *
 * Each source is polled, and each good new version replaces the active one: a small file in 0.2 to 0.4 s. A thread parses
 * larger files. After a new version of keys or credentials, `app.ts` empties the token cache.
 */
import type { Config, Problem } from './config/config.ts'
import { formatProblems, insecureKeySets, keySetsOf, problemsAt } from './config/config.ts'
import { type CredentialChecks, createCredentialChecks } from './credentials/credential-checks.ts'
import { loadCredentialsFile } from './credentials/credential-list.ts'
import type { CredentialsDatabase, DatabaseState } from './credentials/postgres/database.ts'
import type { RevocationList, RevokeToken } from './credentials/revocation-list.ts'
import { createTokenRevoker, loadRevocationsFile } from './credentials/revocation-list.ts'
import { readBearerToken } from './keys/jwk-set.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import { type FindKey, findInRing, type KeyRing, publicJwks, tokenLifetimes } from './keys/key-ring.ts'
import { type KeySetState, RemoteKeys } from './keys/remote-keys.ts'
import type { Logger } from './log.ts'
import { openPolledFiles } from './reload/polled-files.ts'
import type { Reloadable, ReloadResult } from './reload/reloadable.ts'
import type { CertificateName, CertificateSet } from './tls/certificates.ts'
import { activeContextOf, certificateFiles, openCertificateSet } from './tls/certificates.ts'
import type { RevocableToken } from './token/caller.ts'
import { createIssuers, type TokenIssuer } from './token/issuers.ts'
import { type Loaded, notLoaded } from './values/result.ts'

export type ReloadSubject = 'keys' | 'credentials' | 'revocations' | 'certificates'

/** Called for each new version of a source after the start. */
type OnReload = (subject: ReloadSubject, result: ReloadResult, certificate?: CertificateName) => void

/** The functions return the values that are active at the time of the call. */
export interface AuthData {
  readonly keys: {
    /** Returns an empty ring until the JWK Set at `keys.jwksUrl` has been fetched. */
    readonly ring: () => KeyRing
    /** Returns a JWK Set, or undefined until the one at `keys.jwksUrl` has been fetched. */
    readonly publicJwks: () => object | undefined
    readonly tokenLifetimes: () => readonly { readonly kid: string; readonly seconds: number }[]
  }
  readonly keySets: readonly RemoteKeys[]
  /** Issuers whose tokens are accepted. The sidecar's own is the first. */
  readonly issuers: readonly [TokenIssuer, ...TokenIssuer[]]
  /** Undefined in a sidecar that only verifies and has no database. */
  readonly credentials: CredentialChecks | undefined
  readonly revocations: {
    readonly isRevoked: (token: RevocableToken) => boolean
    readonly count: () => number
    /** Undefined without a database. */
    readonly revoke: RevokeToken | undefined
  }
  readonly certificateSets: ReadonlyMap<CertificateName, Reloadable<CertificateSet>>
  readonly subjects: readonly ReloadSubject[]
  readonly conditions: () => readonly AuthCondition[]
  /** `onChange`: called with the subject of each new version, except for certificates. */
  subscribe(onChange: (subject: ReloadSubject) => void): void
  start(): void
  /** Waits for the JWK Set at `keys.jwksUrl` and the database. False after a stop. @throws InvalidAuthData */
  whenLoaded(): Promise<boolean>
  /** Loads all sources again, even if nothing has changed. Never rejects. */
  reload(): Promise<unknown>
  /** The active values stay usable. */
  stop(): Promise<unknown>
}

export interface AuthCondition extends Partial<KeySetState> {
  readonly name: 'keys' | 'credentials'
  readonly ok: boolean
  readonly state?: DatabaseState | undefined
}

/** The sidecar cannot start before an operator repairs files or the database. */
export class InvalidAuthData extends Error {
  override readonly name = 'InvalidAuthData'
  readonly problems: readonly Problem[]
  constructor(problems: readonly Problem[]) {
    super(formatProblems(problems))
    this.problems = problems
  }
}

/** @throws InvalidAuthData with the problems of all sources */
export async function openAuthData(
  config: Config,
  log: Logger,
  now: () => number,
  onReload?: OnReload,
): Promise<AuthData> {
  const opened = await openSources(config, log, now, onReload)
  if (opened.problems.length > 0) throw new InvalidAuthData(opened.problems)
  for (const warning of opened.warnings) log.warn(warning)
  const { files, database, certificateSets, keySets } = opened
  const all = [...Object.values(files), ...certificateSets.values(), database, ...keySets]
  const sources = all.filter((source) => source !== undefined)

  const { maxLifetimeSeconds, clockToleranceSeconds } = config.token
  const ownKeySet = keySets.find(({ issuer }) => issuer === config.token.issuer)
  const ring = ownKeySet?.ring ?? files.keys?.current ?? (() => NO_KEYS)
  const list = files.credentials?.current ?? database?.credentials
  const onError = (error: unknown) => log.error({ err: error }, 'a login could not be checked')
  const credentials = list && createCredentialChecks(list, now, onError, database?.refresh)
  const revocationLists = [files.revocations?.current, database?.revocations].flatMap((list) => list ?? [])
  const findInOwnRing: FindKey = (kid, alg) => findInRing(ring(), kid, alg)

  const subjects: ReloadSubject[] = ['revocations']
  if (files.keys) subjects.push('keys')
  if (list) subjects.push('credentials')
  if (certificateSets.size > 0) subjects.push('certificates')
  return {
    keys: {
      ring,
      publicJwks: () => (ownKeySet?.state().loaded === false ? undefined : publicJwks(ring())),
      tokenLifetimes: () => tokenLifetimes(ring(), maxLifetimeSeconds + clockToleranceSeconds, now()),
    },
    keySets,
    issuers: createIssuers(config, ownKeySet?.findKey ?? findInOwnRing, keySets, credentials),
    credentials,
    revocations: {
      isRevoked: (token) => revocationLists.some((list) => list().isRevoked(token)),
      count: () => revocationLists.reduce((sum, list) => sum + list().size, 0),
      revoke: database && createTokenRevoker(database.revoke, clockToleranceSeconds),
    },
    certificateSets,
    subjects,
    conditions() {
      const keySet = ownKeySet?.state()
      const ofKeys: AuthCondition = { name: 'keys', ok: keySet?.loaded ?? true, ...keySet }
      const state = database?.state
      const areCredentialsLoaded = database === undefined || state !== undefined
      return list ? [ofKeys, { name: 'credentials', ok: areCredentialsLoaded, state }] : [ofKeys]
    },
    subscribe(onChange) {
      for (const subject of FILE_SUBJECTS) files[subject]?.subscribe(() => onChange(subject))
      for (const keySet of keySets) keySet.subscribe(() => onChange('keys'))
      database?.subscribe(onChange)
    },
    start() {
      for (const source of sources) source.start()
    },
    async whenLoaded() {
      if ((await ownKeySet?.whenLoaded) === false) return false
      if (database === undefined || (await database.whenLoaded)) return true
      const { fatalProblems } = database
      if (fatalProblems.length > 0) throw new InvalidAuthData(databaseProblems(fatalProblems))
      return false
    },
    reload: () => Promise.all(sources.map((source) => source.reload())),
    stop: () => Promise.all(sources.map((source) => source.stop())),
  }
}

const NO_KEYS: KeyRing = { keys: new Map() }
const FILE_SUBJECTS = ['keys', 'credentials', 'revocations'] as const

export const databaseProblems = (problems: readonly string[]) =>
  problemsAt('credentials.postgres.urlFile', problems)

/**
 * Opens the sources that the settings name, and collects the problems and warnings of all of them.
 * Never rejects. A source is undefined if no setting names it, or if it has problems.
 */
export async function openSources(
  config: Config,
  log: Logger,
  now: () => number,
  onReload: OnReload = () => {},
) {
  const { keys, identity, revocations, trustedIssuers } = config
  const { file, postgres } = config.credentials
  const results: Loaded<unknown, Problem>[] = []
  const collect = <T>(result: Loaded<T, Problem>): T | undefined => {
    results.push(result)
    return result.ok ? result.value : undefined
  }
  async function openFile<T>(
    subject: ReloadSubject,
    setting: string,
    path: string | undefined,
    load: (path: string, active: T | undefined) => Promise<Loaded<T>>,
    includes?: (name: string) => boolean,
  ) {
    if (path === undefined) return undefined
    const loadNamed = (active?: T) => withSetting(setting, load(path, active))
    const onResult = (result: ReloadResult) => onReload(subject, result)
    const options = { subject, paths: [path], includes, load: loadNamed, onReload: onResult, log }
    return collect(await openPolledFiles(options))
  }
  const loadKeys = (directory: string, active: KeyRing | undefined) => {
    // Tokens of trusted issuers need no key of the sidecar. A directory that loses its last key is a mistake.
    const mayBeEmpty = trustedIssuers.length > 0 && (active?.keys.size ?? 0) === 0
    return loadKeyRing(directory, { signsAssertions: identity.assertion.enabled, mayBeEmpty })
  }
  const loadRevocations = (path: string, active: RevocationList | undefined) =>
    loadRevocationsFile(path, revocations.required, active)
  const files = {
    keys: await openFile('keys', 'keys.directory', keys.directory, loadKeys, isKeyFileName),
    credentials: await openFile('credentials', 'credentials.file', file, loadCredentialsFile),
    revocations: await openFile('revocations', 'revocations.file', revocations.file, loadRevocations),
  }

  let database: CredentialsDatabase | undefined
  if (postgres !== undefined) {
    // Imported on demand: the PostgreSQL client loads slowly, and most sidecars do not need it.
    const { openDatabase } = await import('./credentials/postgres/database.ts')
    const onResult = (result: ReloadResult) => onReload('credentials', result)
    const opening = openDatabase({ ...postgres, log, onReload: onResult })
    database = collect(await withSetting('credentials.postgres.urlFile', opening))
  }

  const certificateSets = new Map<CertificateName, Reloadable<CertificateSet>>()
  for (const files of certificateFiles(config)) {
    const onResult = (result: ReloadResult) => onReload('certificates', result, files.name)
    const set = collect(await openCertificateSet(files, log, now, onResult))
    if (set !== undefined) certificateSets.set(files.name, set)
  }

  const keySets: RemoteKeys[] = []
  for (const { setting, ...keySet } of keySetsOf(config)) {
    const { bearerTokenFile: path } = keySet
    if (path) collect(await withSetting(`${setting}.bearerTokenFile`, readBearerToken(path)))
    const secureContext = activeContextOf(certificateSets.get(`issuer:${setting}`))
    keySets.push(new RemoteKeys({ ...keySet, secureContext, log, now }))
  }
  const problems = results.flatMap((result) => (result.ok ? [] : result.problems))
  const ofSources = results.flatMap((result) => (result.ok ? result.warnings : []))
  const warnings = [...new Set([...ofSources, ...insecureKeySets(config)])]
  return { files, database, certificateSets, keySets, problems, warnings }
}

async function withSetting<T>(setting: string, loading: Promise<Loaded<T>>): Promise<Loaded<T, Problem>> {
  const result = await loading
  if (result.ok) return result
  return notLoaded(problemsAt(setting, result.problems))
}
