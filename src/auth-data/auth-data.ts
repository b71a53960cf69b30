/**
 * Everything that decides on access, by subject. `sources.ts` opens the sources:
 *
 *   keys           the files of `keys.directory`, or the JWK Set at `keys.jwksUrl`
 *   key sets       the JWK Sets of `trustedIssuers`, and the one at `keys.jwksUrl`
 *   credentials    `credentials.file`, or the database
 *   revocations    `revocations.file`, and the database
 *   certificates   the PEM files of each listener, upstream and issuer
 *
 * Each source is polled, and each good new version replaces the active one (files: within 0.2 to 0.4 s).
 * After a new version of keys or credentials, `app.ts` empties the token cache.
 */
import type { Config } from '../config/config.ts'
import { formatProblems, type Problem, problemsAt } from '../config/problems.ts'
import { type CredentialChecks, createCredentialChecks } from '../credentials/credential-checks.ts'
import type { CredentialsDatabase, DatabaseState } from '../credentials/postgres/database.ts'
import { createTokenRevoker, type RevocationList, type RevokeToken } from '../credentials/revocation-list.ts'
import { type FindKey, findInRing, type KeyRing, publicJwks, tokenLifetimes } from '../keys/key-ring.ts'
import type { KeySetState, RemoteKeys } from '../keys/remote-keys.ts'
import type { Logger } from '../log.ts'
import type { Reloadable } from '../reload/reloadable.ts'
import type { CertificateName, CertificateSet } from '../tls/certificates.ts'
import type { RevocableToken } from '../token/caller.ts'
import { createIssuers, type TokenIssuer } from '../token/issuers.ts'
import { type OnReload, openSources, type ReloadSubject } from './sources.ts'

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
  readonly revocations: Revocations
  readonly certificateSets: ReadonlyMap<CertificateName, Reloadable<CertificateSet>>
  readonly subjects: readonly ReloadSubject[]
  readonly conditions: () => readonly AuthCondition[]
  subscribe(onChange: OnChange): void
  start(): void
  /** Waits for the JWK Set at `keys.jwksUrl` and the database. False after a stop. @throws InvalidAuthData */
  whenLoaded(): Promise<boolean>
  /** Loads all sources again, even if nothing has changed. Never rejects. */
  reload(): Promise<unknown>
  /** The active values stay usable. */
  stop(): Promise<unknown>
}

interface Revocations {
  readonly isRevoked: (token: RevocableToken) => boolean
  readonly count: () => number
  /** Undefined without a database. */
  readonly revoke: RevokeToken | undefined
}

/** `onlyRevocations`: keys and credentials are unchanged. */
type OnChange = (onlyRevocations: boolean) => void

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
  const { keyFiles, credentialsFile, revocationsFile, database, certificateSets, keySets } = opened
  const files = [keyFiles, credentialsFile, revocationsFile, ...certificateSets.values()]
  const sources = [...files, database, ...keySets].filter((source) => source !== undefined)

  const { maxLifetimeSeconds, clockToleranceSeconds } = config.token
  const ownKeySet = keySets.find(({ issuer }) => issuer === config.token.issuer)
  const ring = ownKeySet?.ring ?? keyFiles?.current ?? (() => NO_KEYS)
  const list = credentialsFile?.current ?? database?.credentials
  const onError = (error: unknown) => log.error({ err: error }, 'a login could not be checked')
  const credentials = list && createCredentialChecks(list, now, onError, database?.refresh)
  const findInOwnRing: FindKey = (kid, alg) => findInRing(ring(), kid, alg)

  const subjects: ReloadSubject[] = ['revocations']
  if (keyFiles) subjects.push('keys')
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
    revocations: revocationsOf(revocationsFile, database, clockToleranceSeconds),
    certificateSets,
    subjects,
    conditions() {
      const keySet = ownKeySet?.state()
      const ofKeys: AuthCondition = { name: 'keys', ok: keySet?.loaded ?? true, ...keySet }
      const state = database?.state()
      const areCredentialsLoaded = database === undefined || state !== undefined
      return list ? [ofKeys, { name: 'credentials', ok: areCredentialsLoaded, state }] : [ofKeys]
    },
    subscribe(onChange) {
      for (const source of [keyFiles, credentialsFile, ...keySets]) source?.subscribe(() => onChange(false))
      revocationsFile?.subscribe(() => onChange(true))
      database?.subscribe(onChange)
    },
    start() {
      for (const source of sources) source.start()
    },
    whenLoaded: () => whenLoaded(ownKeySet, database),
    reload: () => Promise.all(sources.map((source) => source.reload())),
    stop: () => Promise.all(sources.map((source) => source.stop())),
  }
}

const NO_KEYS: KeyRing = { keys: new Map() }

async function whenLoaded(keySet: RemoteKeys | undefined, database: CredentialsDatabase | undefined) {
  if ((await keySet?.whenLoaded) === false) return false
  if (database === undefined || (await database.whenLoaded)) return true
  const problems = database.fatalProblems()
  if (problems.length > 0) throw new InvalidAuthData(databaseProblems(problems))
  return false
}

function revocationsOf(
  file: Reloadable<RevocationList> | undefined,
  database: CredentialsDatabase | undefined,
  clockToleranceSeconds: number,
): Revocations {
  const lists = [file?.current, database?.revocations].filter((list) => list !== undefined)
  return {
    isRevoked: (token) => lists.some((list) => list().isRevoked(token)),
    count: () => lists.reduce((sum, list) => sum + list().size, 0),
    revoke: database && createTokenRevoker(database.revoke, clockToleranceSeconds),
  }
}

export const databaseProblems = (problems: readonly string[]) =>
  problemsAt('credentials.postgres.urlFile', problems)
