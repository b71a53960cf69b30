/**
 * What is loaded again while the sidecar runs: keys, credentials and revocations, which decide on access, and certificates.
 * `auth-sources.ts` opens their sources. `app.ts` empties the token cache after each new version of keys or credentials.
 */
import { formatProblems, type Problem, problemsAt } from '../config/config.ts'
import { type CredentialChecks, createCredentialChecks } from '../credentials/credential-checks.ts'
import type { DatabaseState } from '../credentials/postgres/database.ts'
import { createTokenRevoker, type RevokeToken } from '../credentials/revocation-list.ts'
import { type FindKey, findInRing, type KeyRing, publicJwks, tokenLifetimes } from '../keys/key-ring.ts'
import type { KeySetState, RemoteKeys } from '../keys/remote-keys.ts'
import type { CertificateSets } from '../tls/certificates.ts'
import type { RevocableToken } from '../token/caller.ts'
import { createIssuers, type TokenIssuer } from '../token/issuers.ts'
import type { AuthSources, ReloadSubject, SourceOptions } from './auth-sources.ts'
import { DATABASE_SETTING, openSources } from './auth-sources.ts'

/** Each function returns the value that is active when it is called. */
export interface AuthData {
  readonly keys: {
    /** Returns an empty ring until the JWK Set has been fetched. */
    readonly ring: () => KeyRing
    /** Returns a JWK Set, or undefined until the one at `keys.jwksUrl` has been fetched. */
    readonly publicJwks: () => object | undefined
    readonly tokenLifetimes: () => readonly { readonly kid: string; readonly seconds: number }[]
  }
  readonly keySets: readonly RemoteKeys[]
  /** The issuers whose tokens are accepted. The sidecar's own issuer is the first. */
  readonly issuers: readonly [TokenIssuer, ...TokenIssuer[]]
  /** Undefined without `credentials.file` and without a database. */
  readonly credentials: CredentialChecks | undefined
  readonly revocations: {
    readonly isRevoked: (token: RevocableToken) => boolean
    readonly count: () => number
    /** Undefined without a database. */
    readonly revoke: RevokeToken | undefined
  }
  readonly certificateSets: CertificateSets
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
export async function openAuthData(options: SourceOptions): Promise<AuthData> {
  const sources = await openSources(options)
  if (sources.problems.length > 0) throw new InvalidAuthData(sources.problems)
  for (const warning of sources.warnings) options.log.warn(warning)
  const { keyFiles, ownKeySet, keySets, certificateSets } = sources
  const { credentialsFile, revocationsFile, database } = sources
  const keys = ownKeysIn(sources, options)
  const credentials = credentialsIn(sources, options)
  const files = [keyFiles, credentialsFile, revocationsFile, ...certificateSets.values()]
  const polled = [...files, ...keySets, database].flatMap((source) => source ?? [])
  const subjects: ReloadSubject[] = ['revocations']
  if (keyFiles) subjects.push('keys')
  if (credentials) subjects.push('credentials')
  if (certificateSets.size > 0) subjects.push('certificates')
  return {
    keys,
    keySets,
    issuers: createIssuers(options.config, keys.findKey, keySets, credentials),
    credentials,
    revocations: revocationsIn(sources, options),
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
      if ((await ownKeySet?.whenLoaded) === false) return false
      const first = await database?.whenLoaded
      if (first?.ok === false) throw new InvalidAuthData(problemsAt(DATABASE_SETTING, first.problems))
      return first?.value !== false
    },
    reload: () => Promise.all(polled.map((source) => source.reload())),
    stop: () => Promise.all(polled.map((source) => source.stop())),
  }
}

function ownKeysIn({ keyFiles, ownKeySet }: AuthSources, { config, now }: SourceOptions) {
  const ring = ownKeySet?.ring ?? keyFiles?.current ?? (() => ({ keys: new Map() }))
  const findKey: FindKey = ownKeySet?.findKey ?? ((kid, alg) => findInRing(ring(), kid, alg))
  const maxSeconds = config.token.maxLifetimeSeconds + config.token.clockToleranceSeconds
  return {
    ring,
    findKey,
    publicJwks: () => (ownKeySet?.state().loaded === false ? undefined : publicJwks(ring())),
    tokenLifetimes: () => tokenLifetimes(ring(), maxSeconds, now()),
  }
}

function credentialsIn({ credentialsFile, database }: AuthSources, { log, now }: SourceOptions) {
  const source = database ?? (credentialsFile && { list: credentialsFile.current, refresh: async () => true })
  const onError = (error: unknown) => log.error({ err: error }, 'a login could not be checked')
  return source && createCredentialChecks(source, now, onError)
}

function revocationsIn({ revocationsFile, database }: AuthSources, { config }: SourceOptions) {
  const lists = [revocationsFile?.current, database?.revocations].flatMap((list) => list ?? [])
  return {
    isRevoked: (caller: RevocableToken) => lists.some((list) => list().isRevoked(caller)),
    count: () => lists.reduce((sum, list) => sum + list().size, 0),
    revoke: database && createTokenRevoker(database.revoke, config.token.clockToleranceSeconds),
  }
}
