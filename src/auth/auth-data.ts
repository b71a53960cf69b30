/**
 * What is loaded again while the sidecar runs: keys, credentials, revocations and certificates.
 * `auth-sources.ts` opens their sources. `reload/` polls each, and activates good new versions. A bad one is
 * reported, and changes nothing: a token of a credential that only this version disables is accepted.
 * Of a database, only bad rows are left out.
 *
 *   source                polled each                       what `Gate.onAuthDataChange` does then
 *   key files             0.5 s, and 0.2 s after a change   empties the cache, checks tunnels again
 *   credentials file      the same                          the same
 *   revocations file      the same                          checks tunnels again
 *   rows of the database  0.5 s, each login and logout      the same as for files
 *   feed of issuers       at once: the issuer waits         the same as for files, and once it is too old
 *   key set of an issuer  60 s, and for an unknown kid      drops its cached tokens, checks tunnels again
 *   certificate files     as key files                      nothing: they are for new connections
 *
 * Then `checkStatus` of `token/verify.ts` refuses the token of a disabled credential (`revoked`). Waiting
 * requests are checked like tunnels. A change ends no transfer in progress.
 * Revocations are looked up at each use of a cached token.
 * Without a database or a feed, a sidecar that fetches its keys learns of no disabled credential.
 */
import { formatProblems, type Problem, problemsAt } from '../config/config.ts'
import type {
  CredentialChecks,
  CredentialLookups,
  CredentialSource,
} from '../credentials/credential-checks.ts'
import { createCredentialChecks } from '../credentials/credential-checks.ts'
import type { FeedFollower, FeedState } from '../credentials/feed/follower.ts'
import type { DatabaseState } from '../credentials/postgres/database.ts'
import { type EndToken, limitEndings } from '../credentials/revocation-limit.ts'
import { type FindKey, findInRing, type KeyRing, publicJwks, tokenLifetimes } from '../keys/key-ring.ts'
import type { KeySetState, RemoteKeys } from '../keys/remote-keys.ts'
import type { IsRevoked } from '../token/caller.ts'
import { createIssuers, type TokenIssuer } from '../token/issuers.ts'
import type { AuthSources, ReloadSubject, SourceOptions } from './auth-sources.ts'
import { DATABASE_SETTING, openSources } from './auth-sources.ts'
import { AuthStore } from './auth-store.ts'
import { Suspicions } from './suspicions.ts'
import { watchedStates } from './watched-states.ts'

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
  /** Of the same credentials, or of those of a feed. */
  readonly lookups: CredentialLookups | undefined
  /** Undefined without a feed. */
  readonly feed: Pick<FeedFollower, 'ageSeconds' | 'isTooOld'> | undefined
  readonly revocations: {
    readonly isRevoked: IsRevoked
    readonly count: () => number
    /** Undefined without a database. */
    readonly endToken: EndToken | undefined
  }
  /** The credentials and revocations together. Undefined without `credentials.file` and a database. */
  readonly store: AuthStore | undefined
  /** The number of credentials that may log in now. */
  readonly activeCredentials: () => number
  readonly suspicions: Pick<Suspicions, 'suspect' | 'fingerprints'>
  readonly subjects: readonly ReloadSubject[]
  readonly conditions: () => readonly AuthCondition[]
  /** Calls `onChange` with the subject of each new version of keys, credentials or revocations. */
  subscribe(onChange: OnAuthDataChange): void
  start(): void
  /**
   * True once the JWK Set at `keys.jwksUrl`, and the database or the feed are loaded.
   * False if stopped earlier.
   * @throws InvalidAuthData
   */
  whenLoaded(): Promise<boolean>
  /** Loads all sources again, even if nothing has changed. Never rejects. */
  reload(): Promise<unknown>
  /** Stops polling. The active values stay usable. */
  stop(): Promise<unknown>
}

/** `issuer`: whose key set has changed. Undefined for the sidecar's key files, and for the other subjects. */
type OnAuthDataChange = (subject: Exclude<ReloadSubject, 'certificates'>, issuer?: string) => void

/** What readiness needs, as the health check shows it. */
export interface AuthCondition extends Partial<KeySetState> {
  readonly name: 'keys' | 'credentials'
  readonly ok: boolean
  readonly state?: DatabaseState | FeedState | undefined
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

/**
 * @param otherProblems - those of other files, which are reported together with those of the sources
 * @throws InvalidAuthData with the problems of all sources
 */
export async function openAuthData(
  options: SourceOptions,
  otherProblems: readonly Problem[] = [],
): Promise<AuthData> {
  const { config, log } = options
  const sources = await openSources(options)
  const problems = [...sources.problems, ...otherProblems]
  if (problems.length > 0) {
    throw new InvalidAuthData(problems)
  }
  for (const warning of sources.warnings) {
    log.warn(warning)
  }
  const { certificateSets, keySets } = sources
  const hasStore = sources.database !== undefined || sources.credentialsFile !== undefined
  const ownKeySet = keySets.find(({ issuer }) => issuer === config.token.issuer)
  const keys = keysIn(options, sources, ownKeySet)
  const credentials = credentialsIn(options, sources)
  const lookups = credentials ?? sources.feed?.lookups
  const polled = polledSources(sources)
  const suspicions = new Suspicions(watchedStates(options, sources), log)
  return {
    keys,
    keySets,
    issuers: createIssuers(config, keys.findKey, keySets, lookups),
    credentials,
    lookups,
    feed: sources.feed,
    revocations: revocationsIn(options, sources),
    certificateSets,
    store: hasStore ? new AuthStore(sources) : undefined,
    suspicions,
    activeCredentials: () => countActive(options, sources),
    subjects: subjectsIn(sources),
    conditions: () => conditionsOf(sources, ownKeySet),
    subscribe: (onChange) => subscribeToSources(sources, onChange),
    start() {
      for (const source of polled) {
        source.start()
      }
      suspicions.start()
    },
    async whenLoaded() {
      const isLoaded = await whenSourcesLoaded(sources, ownKeySet)
      suspicions.accept()
      return isLoaded
    },
    async reload() {
      await Promise.all(polled.map((source) => source.reload()))
      suspicions.accept()
    },
    async stop() {
      suspicions.stop()
      await Promise.all(polled.map((source) => source.stop()))
    },
  }
}

/** The keys of the sidecar's own issuer. */
function keysIn(
  { config, now }: SourceOptions,
  { keyFiles }: AuthSources,
  ownKeySet: RemoteKeys | undefined,
) {
  const noKeys = (): KeyRing => ({ keys: new Map() })
  const ring = ownKeySet?.ring ?? keyFiles?.current ?? noKeys
  const findInFiles: FindKey = (kid, alg) => findInRing(ring(), kid, alg)
  return {
    ring,
    findKey: ownKeySet?.findKey ?? findInFiles,
    publicJwks() {
      const isAwaited = ownKeySet?.state().loaded === false
      return isAwaited ? undefined : publicJwks(ring())
    },
    tokenLifetimes: () => tokenLifetimes(ring(), config.token.maxSignedSeconds, now()),
  }
}

function credentialsIn({ log, now }: SourceOptions, sources: AuthSources): CredentialChecks | undefined {
  const source = credentialSourceIn(sources)
  if (source === undefined) {
    return undefined
  }
  const onError = (error: unknown) => log.error({ err: error }, 'a login could not be checked')
  return createCredentialChecks(source, now, onError)
}

function credentialSourceIn({ database, credentialsFile }: AuthSources): CredentialSource | undefined {
  if (database !== undefined) {
    return database
  }
  if (credentialsFile !== undefined) {
    return { list: credentialsFile.current, refresh: async () => true }
  }
  return undefined
}

function countActive({ now }: SourceOptions, sources: AuthSources): number {
  return sources.feed?.countActive() ?? credentialSourceIn(sources)?.list().countActive(now()) ?? 0
}

const hasCredentials = (sources: AuthSources) =>
  sources.feed !== undefined || credentialSourceIn(sources) !== undefined

function revocationsIn({ config }: SourceOptions, { revocationsFile, database, feed }: AuthSources) {
  const sources = [revocationsFile?.current, database?.revocations, feed?.revocations]
  const lists = sources.filter((list) => list !== undefined)
  const isRevoked: IsRevoked = (token, issuer) => lists.some((list) => list().isRevoked(token, issuer))
  return {
    isRevoked,
    count: () => lists.reduce((sum, list) => sum + list().size, 0),
    endToken: database && limitEndings(database.endToken, config.token.clockToleranceSeconds),
  }
}

function subjectsIn(sources: AuthSources): ReloadSubject[] {
  const subjects: ReloadSubject[] = ['revocations'] // a file of them is polled even while it is missing
  if (sources.keyFiles !== undefined) {
    subjects.push('keys')
  }
  if (hasCredentials(sources)) {
    subjects.push('credentials')
  }
  if (sources.certificateSets.size > 0) {
    subjects.push('certificates')
  }
  return subjects
}

function conditionsOf(sources: AuthSources, ownKeySet: RemoteKeys | undefined): AuthCondition[] {
  const conditions: AuthCondition[] = [ownKeySet?.condition() ?? { name: 'keys', ok: true }]
  if (hasCredentials(sources)) {
    const { database, feed } = sources
    conditions.push(database?.condition() ?? feed?.condition() ?? { name: 'credentials', ok: true })
  }
  return conditions
}

function polledSources(sources: AuthSources) {
  const { keyFiles, credentialsFile, revocationsFile, database, feed, certificateSets, keySets } = sources
  const ofSettings = [
    keyFiles,
    credentialsFile,
    revocationsFile,
    database,
    feed,
    ...keySets,
    ...certificateSets.values(),
  ]
  return ofSettings.filter((source) => source !== undefined)
}

function subscribeToSources(sources: AuthSources, onChange: OnAuthDataChange): void {
  sources.keyFiles?.subscribe(() => onChange('keys'))
  for (const keySet of sources.keySets) {
    keySet.subscribe(() => onChange('keys', keySet.issuer))
  }
  sources.credentialsFile?.subscribe(() => onChange('credentials'))
  sources.revocationsFile?.subscribe(() => onChange('revocations'))
  sources.database?.subscribe(onChange)
  sources.feed?.subscribe(onChange)
}

/** Resolves with false if a source was stopped before it was loaded. @throws InvalidAuthData */
async function whenSourcesLoaded(
  { database, feed }: AuthSources,
  ownKeySet: RemoteKeys | undefined,
): Promise<boolean> {
  const loads = await Promise.all([
    firstLoadOf('keys.jwksUrl', ownKeySet),
    firstLoadOf(DATABASE_SETTING, database),
    firstLoadOf('credentials.feed.url', feed),
  ])
  return loads.every(Boolean)
}

async function firstLoadOf(setting: string, source: Pick<RemoteKeys, 'whenLoaded'> | undefined) {
  if (source === undefined) {
    return true
  }
  const first = await source.whenLoaded
  if (!first.ok) {
    throw new InvalidAuthData(problemsAt(setting, first.problems))
  }
  return first.value
}
