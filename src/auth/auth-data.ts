/**
 * What is loaded again while the sidecar runs: keys, credentials, revocations and certificates.
 * `auth-sources.ts` opens their sources. `reload/` polls each, and activates good new versions. A bad one is reported, and
 * changes nothing: a token of a credential that only this version disables is accepted. Of a database, only bad rows are left out.
 *
 *   source                polled each                     subject        then (`Gate.onAuthDataChange`)
 *   key files             0.2 s, active at the 2nd poll   keys           the cache is emptied, tunnels are checked again
 *   credentials file      the same                        credentials    the same
 *   revocations file      the same                        revocations    tunnels are checked again, tokens with each request
 *   rows of the database  0.25 s, each login and logout   both of these  the same as for files
 *   key set of an issuer  60 s, and for an unknown kid    keys           the same as for key files
 *   certificate files     the same as for key files       certificates   nothing: they are for new connections
 *
 * Then `checkStatus` of `token/verify.ts` refuses the token of a disabled credential (`revoked`). Waiting requests are checked
 * like tunnels. A change ends no transfer in progress. Without a database, a sidecar that fetches its keys learns of no disabled
 * credential. `polled-files.ts`, `database.ts` and `remote-keys.ts` set the times above.
 */
import { loaded } from '../base/result.ts'
import { formatProblems, type Problem, problemsAt } from '../config/config.ts'
import { type CredentialChecks, createCredentialChecks } from '../credentials/credential-checks.ts'
import type { DatabaseState } from '../credentials/postgres/database.ts'
import { limitRevocations, type RevokeToken } from '../credentials/revocation-limit.ts'
import { type FindKey, findInRing, type KeyRing, publicJwks, tokenLifetimes } from '../keys/key-ring.ts'
import type { KeySetState, RemoteKeys } from '../keys/remote-keys.ts'
import type { Reloadable } from '../reload/reloadable.ts'
import type { IsRevoked } from '../token/caller.ts'
import { createIssuers, type TokenIssuer } from '../token/issuers.ts'
import type { AuthSources, ReloadSubject, SourceOptions } from './auth-sources.ts'
import { DATABASE_SETTING, openSources } from './auth-sources.ts'

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
export async function openAuthData(options: SourceOptions): Promise<AuthData> {
  const { config, log, now } = options
  const sources = await openSources(options)
  if (sources.problems.length > 0) {
    throw new InvalidAuthData(sources.problems)
  }
  for (const warning of sources.warnings) {
    log.warn(warning)
  }
  const { keyFiles, credentialsFile, revocationsFile, database, certificateSets, keySets } = sources
  // All sources but the database, which has two subjects.
  const bySubject = {
    keys: [keyFiles, ...keySets],
    credentials: [credentialsFile],
    revocations: [revocationsFile],
    certificates: [...certificateSets.values()],
  }
  const polled = [...Object.values(bySubject).flat(), database].filter((source) => source !== undefined)
  const ownKeySet = keySets.find(({ issuer }) => issuer === config.token.issuer)
  const keys = ownKeysIn(options, keyFiles, ownKeySet)
  const logins = database ?? (credentialsFile && { list: credentialsFile.current, refresh: async () => true })
  const onError = (error: unknown) => log.error({ err: error }, 'a login could not be checked')
  const credentials = logins && createCredentialChecks(logins, now, onError)
  const revocations = [revocationsFile?.current, database?.revocations].flatMap((list) => list ?? [])
  const subjects: ReloadSubject[] = ['revocations'] // a file of them is polled even while it is missing
  if (keyFiles) {
    subjects.push('keys')
  }
  if (credentials) {
    subjects.push('credentials')
  }
  if (certificateSets.size > 0) {
    subjects.push('certificates')
  }
  return {
    keys,
    keySets,
    issuers: createIssuers(config, keys.findKey, keySets, credentials),
    credentials,
    revocations: {
      isRevoked: (token, issuer) => revocations.some((list) => list().isRevoked(token, issuer)),
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
      for (const subject of ['keys', 'credentials', 'revocations'] as const) {
        for (const source of bySubject[subject]) {
          source?.subscribe(() => onChange(subject))
        }
      }
      database?.subscribe(onChange)
    },
    start() {
      for (const source of polled) {
        source.start()
      }
    },
    async whenLoaded() {
      const awaited = { 'keys.jwksUrl': ownKeySet, [DATABASE_SETTING]: database }
      const pending = Object.entries(awaited).map(async ([setting, source]) => {
        const first = (await source?.whenLoaded) ?? loaded(true)
        if (!first.ok) {
          throw new InvalidAuthData(problemsAt(setting, first.problems))
        }
        return first.value
      })
      return (await Promise.all(pending)).every(Boolean)
    },
    reload: () => Promise.all(polled.map((source) => source.reload())),
    stop: () => Promise.all(polled.map((source) => source.stop())),
  }
}

/** The keys of the sidecar's own issuer. */
function ownKeysIn({ config, now }: SourceOptions, keyFiles?: Reloadable<KeyRing>, keySet?: RemoteKeys) {
  const ring = keySet?.ring ?? keyFiles?.current ?? (() => ({ keys: new Map() }))
  const findKey: FindKey = keySet?.findKey ?? ((kid, alg) => findInRing(ring(), kid, alg))
  return {
    ring,
    findKey,
    publicJwks: () => (keySet?.state().loaded === false ? undefined : publicJwks(ring())),
    tokenLifetimes: () => tokenLifetimes(ring(), config.token.maxSignedSeconds, now()),
  }
}
