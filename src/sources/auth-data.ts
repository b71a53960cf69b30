/**
 * What is loaded again while the sidecar runs: keys, credentials and revocations, which decide on access, and certificates.
 * `auth-sources.ts` opens their sources. `app.ts` empties the token cache after each new version of keys or credentials.
 */
import type { Logger } from '../base/log.ts'
import { type Config, formatProblems, type Problem } from '../config/config.ts'
import { type CredentialChecks, createCredentialChecks } from '../credentials/credential-checks.ts'
import { createTokenRevoker, type RevokeToken } from '../credentials/revocation-list.ts'
import { publicJwks, tokenLifetimes } from '../keys/key-ring.ts'
import type { RemoteKeys } from '../keys/remote-keys.ts'
import type { CertificateSets } from '../tls/certificates.ts'
import type { RevocableToken } from '../token/caller.ts'
import { createIssuers, type TokenIssuer } from '../token/issuers.ts'
import type { AuthCondition, OnReload, OwnKeys, ReloadSubject } from './auth-sources.ts'
import { databaseProblems, openSources } from './auth-sources.ts'

/** Each function returns the value that is active when it is called. */
export interface AuthData {
  readonly keys: Pick<OwnKeys, 'ring'> & {
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
  subscribe(onChange: (subject: ReloadSubject) => void): void
  start(): void
  /** True once the JWK Set at `keys.jwksUrl` and the database are loaded. False if stopped earlier. @throws InvalidAuthData */
  whenLoaded(): Promise<boolean>
  /** Loads all sources again, even if nothing has changed. Never rejects. */
  reload(): Promise<unknown>
  /** Stops polling. The active values stay usable. */
  stop(): Promise<unknown>
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
  const sources = await openSources(config, log, now, onReload)
  const { keys, keySets, revocationLists, certificateSets, subjects, polled, problems, warnings } = sources
  if (problems.length > 0) throw new InvalidAuthData(problems)
  for (const warning of warnings) log.warn(warning)
  const { maxLifetimeSeconds, clockToleranceSeconds } = config.token
  const onError = (error: unknown) => log.error({ err: error }, 'a login could not be checked')
  const credentials = sources.credentials && createCredentialChecks(sources.credentials, now, onError)
  const needed = [keys, ...(sources.credentials ? [sources.credentials] : [])]
  return {
    keys: {
      ring: keys.ring,
      publicJwks: () => (keys.condition().ok ? publicJwks(keys.ring()) : undefined),
      tokenLifetimes: () => tokenLifetimes(keys.ring(), maxLifetimeSeconds + clockToleranceSeconds, now()),
    },
    keySets,
    issuers: createIssuers(config, keys.findKey, keySets, credentials),
    credentials,
    revocations: {
      isRevoked: (token) => revocationLists.some((list) => list().isRevoked(token)),
      count: () => revocationLists.reduce((sum, list) => sum + list().size, 0),
      revoke: sources.revoke && createTokenRevoker(sources.revoke, clockToleranceSeconds),
    },
    certificateSets,
    subjects,
    conditions: () => needed.map(({ condition }) => condition()),
    subscribe: sources.subscribe,
    start() {
      for (const source of polled) source.start()
    },
    async whenLoaded() {
      for (const source of needed) {
        const first = await source.whenLoaded
        if (!first.ok) throw new InvalidAuthData(databaseProblems(first.problems))
        if (!first.value) return false
      }
      return true
    },
    reload: () => Promise.all(polled.map((source) => source.reload())),
    stop: () => Promise.all(polled.map((source) => source.stop())),
  }
}
