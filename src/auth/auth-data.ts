/**
 * Auth data decides on access: the active keys, credentials, revocations and certificates.
 * `auth-sources.ts` opens their sources. `app.ts` empties the token cache after each new version of keys or credentials.
 */
import type { Logger } from '../base/log.ts'
import { type Config, formatProblems, type Problem } from '../config/config.ts'
import { type CredentialChecks, createCredentialChecks } from '../credentials/credential-checks.ts'
import type { DatabaseState } from '../credentials/postgres/database.ts'
import { createTokenRevoker, type RevokeToken } from '../credentials/revocation-list.ts'
import { type FindKey, findInRing, type KeyRing, publicJwks, tokenLifetimes } from '../keys/key-ring.ts'
import type { KeySetState, RemoteKeys } from '../keys/remote-keys.ts'
import type { Reloadable } from '../reload/reloadable.ts'
import type { CertificateName, CertificateSet } from '../tls/certificates.ts'
import type { RevocableToken } from '../token/caller.ts'
import { createIssuers, type TokenIssuer } from '../token/issuers.ts'
import { databaseProblems, type OnReload, openSources, type ReloadSubject } from './auth-sources.ts'

/** Each function returns the value that is active when it is called. */
export interface AuthData {
  readonly keys: {
    /** Returns an empty ring until the JWK Set at `keys.jwksUrl` has been fetched. */
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
  readonly certificateSets: ReadonlyMap<CertificateName, Reloadable<CertificateSet>>
  readonly subjects: readonly ReloadSubject[]
  readonly conditions: () => readonly AuthCondition[]
  /** Calls `onChange` with the subject of each new version of keys, credentials or revocations. */
  subscribe(onChange: (subject: ReloadSubject) => void): void
  start(): void
  /** True once the JWK Set at `keys.jwksUrl` and the database are loaded. False if stopped earlier. @throws InvalidAuthData */
  whenLoaded(): Promise<boolean>
  /** Loads all sources again, even if nothing has changed. Never rejects. */
  reload(): Promise<unknown>
  /** Stops polling. The active values stay usable. */
  stop(): Promise<unknown>
}

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
export async function openAuthData(
  config: Config,
  log: Logger,
  now: () => number,
  onReload?: OnReload,
): Promise<AuthData> {
  const { problems, warnings, ...sources } = await openSources(config, log, now, onReload)
  if (problems.length > 0) throw new InvalidAuthData(problems)
  for (const warning of warnings) log.warn(warning)
  const { files, database, certificateSets, ownKeySet, keySets, bySubject } = sources
  const all = [...Object.values(bySubject).flat(), ...(database ? [database] : [])]
  const { maxLifetimeSeconds, clockToleranceSeconds } = config.token
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
      for (const subject of DECIDING)
        for (const source of bySubject[subject]) source.subscribe(() => onChange(subject))
      database?.subscribe(onChange)
    },
    start() {
      for (const source of all) source.start()
    },
    async whenLoaded() {
      if ((await ownKeySet?.whenLoaded) === false) return false
      const read = await database?.whenLoaded
      if (read?.ok === false) throw new InvalidAuthData(databaseProblems(read.problems))
      return read?.value ?? true
    },
    reload: () => Promise.all(all.map((source) => source.reload())),
    stop: () => Promise.all(all.map((source) => source.stop())),
  }
}

const NO_KEYS: KeyRing = { keys: new Map() }
const DECIDING = ['keys', 'credentials', 'revocations'] as const
