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
import { AuthEvents, type AuthSources, openAuthSources } from './auth-sources.ts'
import type { CertificateName } from './certificates.ts'
import { certificateFiles, openCertificates } from './certificates.ts'
import type { Config } from './config/config.ts'
import type { DatabaseState } from './credentials/postgres/database.ts'
import { countOf, createTokenRevoker, type RevokeToken } from './credentials/revocation-list.ts'
import { type CredentialStore, createCredentialStore } from './credentials/store.ts'
import { findKeyIn, type Key, type KeyRing, tokenLifetimes } from './keys/key-ring.ts'
import type { KeySetState } from './keys/remote-keys.ts'
import type { Logger } from './log.ts'
import type { ReloadSubject } from './reload/reloadable.ts'
import type { RevocableToken } from './token/caller.ts'
import { ownIssuer, type TokenIssuer, trustedIssuer } from './token/issuers.ts'
import { fileProblem, formatProblems, type Problem } from './values/problem.ts'

/** As `/readyz` shows it; `keys` with the state of the JWK Set at `keys.jwksUrl`. */
export interface ReadyCheck extends Partial<KeySetState> {
  readonly name: 'keys' | 'credentials' | 'accepting' | 'workers'
  readonly ok: boolean
  /** Of the database, of the listener, or how many of the workers respond. */
  readonly state?: DatabaseState | 'draining' | `${number} of ${number}` | undefined
}

/** What decides on access. Its functions return the values that are active when they are called. */
export interface AuthData {
  readonly events: AuthEvents
  readonly subjects: readonly ReloadSubject[]
  /** The ring is empty until the JWK Set at `keys.jwksUrl` has been fetched. */
  readonly keys: () => KeyRing
  readonly keysReady: () => boolean
  /** Undefined in a sidecar that only verifies. */
  readonly signingKey: () => Pick<Key, 'kid' | 'createdAtSeconds'> | undefined
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
  readonly revocations: () => number
  readonly certificates: AuthSources['certificates']
  /** When the first certificate of each chain expires, in epoch seconds; undefined of a set without a chain. */
  readonly certificateEnds: () => readonly (readonly [CertificateName, seconds: number | undefined])[]
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

/** Opens all sources. `now`: epoch milliseconds. @throws InvalidAuthData with every problem */
export async function openAuthData(config: Config, log: Logger, now: () => number): Promise<AuthData> {
  const events = new AuthEvents()
  const sources = await openAuthSources(config, log, now, events)
  if (sources.problems.length > 0) throw new InvalidAuthData(sources.problems)
  for (const warning of sources.warnings) log.warn(warning)
  const { keyFiles, credentialsFile, revocationsFile, database, certificates, ownKeySet, keySets } = sources
  const keys = ownKeySet?.ring ?? keyFiles?.current ?? (() => NO_KEYS)
  const keysReady = () => ownKeySet?.state().loaded ?? true
  const index = credentialsFile?.current ?? database?.credentials
  const onError = (error: unknown) => log.error({ err: error }, 'a login could not be checked')
  const credentials = index && createCredentialStore(index, now, onError, database?.refresh)
  const isOwnAccount = (accountId: string) => credentials?.hasAccount(accountId) === true
  const revocations = () => [revocationsFile?.current() ?? [], database?.revocations() ?? []].flat()
  const { maxLifetimeSeconds, clockToleranceSeconds } = config.token
  const subjects: ReloadSubject[] = ['revocations']
  if (keyFiles) subjects.push('keys')
  if (index) subjects.push('credentials')
  if (certificates.size > 0) subjects.push('certificates')
  const files = [keyFiles, credentialsFile, revocationsFile, ...certificates.values()]
  const polled = [...files, database, ...keySets].filter((one) => one !== undefined)
  const findKey = ownKeySet?.findKey ?? findKeyIn(keys)

  return {
    events,
    subjects,
    keys,
    signingKey: () => keys().signing,
    tokenLifetimes: () => tokenLifetimes(keys(), maxLifetimeSeconds + clockToleranceSeconds, now()),
    keysReady,
    keySetAges: () => keySets.map((keySet) => [keySet.issuer, keySet.state().ageSeconds]),
    issuers: [
      ownIssuer(config.token, config.links, findKey, credentials?.credentialStatus),
      ...config.trustedIssuers.flatMap((entry) => {
        const keySet = keySets.find(({ issuer }) => issuer === entry.issuer)
        return keySet === undefined ? [] : [trustedIssuer(entry, keySet.findKey, isOwnAccount)]
      }),
    ],
    credentials,
    isRevoked: (token) => revocations().some((list) => list.isRevoked(token)),
    revokeToken: database && createTokenRevoker(database.revoke, clockToleranceSeconds),
    revocations: () => countOf(revocations()),
    certificates,
    certificateEnds: () => [...certificates].map(([name, set]) => [name, set.current().endsAtSeconds]),
    checks() {
      const state = database?.state()
      const credentialsReady = database === undefined || state !== undefined
      const checks: ReadyCheck[] = [{ name: 'keys', ok: keysReady(), ...ownKeySet?.state() }]
      return index ? [...checks, { name: 'credentials', ok: credentialsReady, state }] : checks
    },
    start() {
      for (const one of polled) one.start()
    },
    async whenLoaded() {
      if ((await ownKeySet?.whenLoaded) === false) return false
      if (database === undefined || (await database.whenLoaded)) return true
      const problems = database.problems()
      if (problems.length > 0) throw new InvalidAuthData(databaseProblems(problems))
      return false
    },
    whenFetched: () => Promise.all(keySets.map((keySet) => keySet.whenFetched())),
    reload: () => Promise.all(polled.map((one) => one.reload())),
    stop: () => Promise.all(polled.map((one) => one.stop())),
  }
}

const NO_KEYS: KeyRing = { keys: new Map() }

export const databaseProblems = (problems: readonly string[]) =>
  problems.map((problem) => fileProblem('credentials.postgres.urlFile', problem))

/** The certificates of the admin listener, for the primary process; the workers count their reloads. @throws InvalidAuthData */
export async function openAdminCertificates(config: Config, log: Logger) {
  const files = certificateFiles(config).find(({ name }) => name === 'admin')
  const opened = files && (await openCertificates(files, log, Date.now, () => {}))
  if (opened?.ok === false) throw new InvalidAuthData(opened.problems)
  return opened?.value
}
