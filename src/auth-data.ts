/**
 * Everything that decides on access (keys, credentials, revocations), and the certificates, kept current from files,
 * database and issuers. In: settings. Out: functions that return the active values.
 */
import type { SecureContext } from 'node:tls'
import { type Clock, DATABASE_SETTING, type FileEvents, InvalidAuthData, openFiles } from './auth-files.ts'
import { type Config, keySetsOf } from './config/config.ts'
import { fileProblem } from './config/problem.ts'
import type { PostgresStore } from './credentials/postgres/store.ts'
import type { IsRevoked } from './credentials/revocations.ts'
import { type CredentialStore, createCredentialStore } from './credentials/store.ts'
import { createTokenRevoker, type RevokeToken } from './credentials/throttles.ts'
import { findKeyIn, type KeyRing } from './keys/key-ring.ts'
import { createRemoteKeys } from './keys/remote-keys.ts'
import type { ReloadSubject } from './ops/metrics.ts'
import type { ReadyCheck } from './ops/status.ts'
import {
  type CertificateMaterial,
  type Certificates,
  issuerName,
  upstreamName,
} from './reload/certificates.ts'
import type { Reloadable, ReloadResult } from './reload/reloadable.ts'
import { ownIssuer, trustedIssuer } from './token/issuers.ts'
import type { TokenIssuer } from './token/verify.ts'

export interface AuthData {
  /** The labels `subject` of reloads. */
  readonly subjects: readonly ReloadSubject[]
  readonly keys: () => KeyRing
  /** Whose tokens are accepted; our own first. */
  readonly issuers: readonly [TokenIssuer, ...TokenIssuer[]]
  /** Those whose keys are fetched. */
  readonly keySets: () => readonly { readonly issuer: string; readonly ageSeconds?: number }[]
  /** Absent in a sidecar that only verifies and has no database. */
  readonly credentials: CredentialStore | undefined
  readonly isRevoked: IsRevoked
  /** Absent without a database. */
  readonly revokeToken: RevokeToken | undefined
  /** How many there are. */
  readonly revocations: () => number
  readonly certificates: {
    /** Undefined where the listener of this name does not speak TLS. */
    material(name: string): CertificateMaterial | undefined
    /** Undefined where the settings name no file. */
    upstream(prefix: string): (() => SecureContext) | undefined
    /** When they expire, in epoch milliseconds. */
    expiries(): readonly { readonly certificate: string; readonly expiresAt: number }[]
  }
  /** Conditions of readiness. */
  checks(): readonly ReadyCheck[]
  /** Polls from now on. Called once. */
  start(events?: AuthDataEvents): void
  /** Waits for issuer or database; false if stopped before. @throws InvalidAuthData if an operator must act */
  whenComplete(): Promise<boolean>
  /** Waits until each key set has been fetched once, well or not. */
  whenFetched(): Promise<unknown>
  /** Loads everything again, changed or not. Never rejects. */
  reload(): Promise<void>
  /** Ends the polling. The values stay. */
  stop(): Promise<void>
}

export interface AuthDataEvents extends FileEvents {
  readonly onFetch?: (issuer: string, result: ReloadResult) => void
}

const NO_KEYS: KeyRing = { verification: new Map() }

type CertificateMap = ReadonlyMap<string, Reloadable<Certificates>>

function contextOf(certificates: CertificateMap, name: string): (() => SecureContext) | undefined {
  const set = certificates.get(name)
  return set && (() => set.current().context)
}

/** Reads the files; nothing is polled, fetched or connected before `start`. @throws InvalidAuthData with every problem */
export async function openAuthData(config: Config, { log, now }: Clock): Promise<AuthData> {
  let events: AuthDataEvents = {}
  const opened = await openFiles(config, { log, now }, () => events)
  const { keyRing, accounts, revoked, certificates, problems, warnings } = opened
  if (problems.length > 0) throw new InvalidAuthData(problems)
  for (const warning of warnings) log.warn(warning)
  const onChange = (revokedTokens?: readonly string[]) => events.onChange?.(revokedTokens)
  const onFault = (cause: unknown) => log.error({ err: cause }, 'a login could not be checked')
  let database: PostgresStore | undefined
  if (config.credentials.postgres !== undefined) {
    // Imported on demand: most sidecars have no database, and its client loads slowly.
    const { openPostgresStore } = await import('./credentials/postgres/store.ts')
    const onReload = (result: ReloadResult) => events.onReload?.('credentials', result)
    database = openPostgresStore({ ...config.credentials.postgres, log, now, onChange, onReload, onFault })
  }
  const fileStore = accounts && createCredentialStore({ credentials: accounts.current, now, onFault })
  const credentials = fileStore ?? database?.store
  const files = [keyRing, accounts, revoked, ...certificates.values()].filter((file) => file !== undefined)

  const subjects: ReloadSubject[] = ['revocations']
  if (keyRing) subjects.push('keys')
  if (accounts ?? database) subjects.push('credentials')
  if (certificates.size > 0) subjects.push('certificates')

  const keySets = keySetsOf(config).map(({ setting, ...source }) => {
    const onFetch = (...fetched: [string, ReloadResult]) => events.onFetch?.(...fetched)
    const secureContext = contextOf(certificates, issuerName(setting))
    return createRemoteKeys({ ...source, secureContext, log, now, onChange: () => onChange(), onFetch })
  })
  const remote = config.keys.jwksUrl === undefined ? undefined : keySets[0]
  const keys = remote?.ring ?? keyRing?.current ?? (() => NO_KEYS)
  const own = ownIssuer({
    ...config.token,
    maxLinkLifetimeSeconds: config.links.enabled ? config.links.maxLifetimeSeconds : undefined,
    findKey: remote?.findKey ?? findKeyIn(keys),
    credentialStatus: credentials?.credentialStatus,
  })
  const isOwnAccount = (accountId: string) => credentials?.hasAccount(accountId) === true
  const trusted = config.trustedIssuers.flatMap((entry) => {
    const keySet = keySets.find(({ issuer }) => issuer === entry.issuer)
    return keySet === undefined ? [] : [trustedIssuer(entry, keySet.findKey, isOwnAccount)]
  })

  return {
    subjects,
    keys,
    issuers: [own, ...trusted],
    keySets: () => keySets.map(({ issuer, state }) => ({ issuer, ...state() })),
    credentials,
    isRevoked: (token) =>
      revoked?.current().isRevoked(token) === true || database?.revocations().isRevoked(token) === true,
    revokeToken: database && createTokenRevoker(database.revoke, config.token.clockToleranceSeconds),
    revocations: () => (revoked?.current().size ?? 0) + (database?.revocations().size ?? 0),
    certificates: {
      material: (name) => certificates.get(name)?.current().material,
      upstream: (prefix) => contextOf(certificates, upstreamName(prefix)),
      expiries: () =>
        [...certificates].flatMap(([certificate, set]) => {
          const { expiresAt } = set.current()
          return expiresAt === undefined ? [] : [{ certificate, expiresAt }]
        }),
    },
    checks: () => [
      { name: 'keys', ok: remote?.state().loaded ?? true, ...remote?.state() },
      ...(accounts ? [{ name: 'credentials', ok: true }] : []),
      ...(database ? [database.check()] : []),
    ],
    start(subscribed = {}) {
      events = subscribed
      for (const file of files) file.start()
      for (const keySet of keySets) keySet.start()
    },
    whenFetched: () => Promise.all(keySets.map((keySet) => keySet.fetched())),
    async whenComplete() {
      if ((await remote?.firstSet()) === false) return false
      const { ok, problems } = (await database?.opened) ?? { ok: true, problems: [] }
      if (problems.length > 0)
        throw new InvalidAuthData(problems.map((problem) => fileProblem(DATABASE_SETTING, problem)))
      return ok
    },
    async reload() {
      const reloadables = [...files, ...keySets]
      await Promise.all([...reloadables.map((one) => one.reload()), database?.reload()])
    },
    async stop() {
      for (const file of files) file.stop()
      for (const keySet of keySets) keySet.stop()
      await database?.stop()
    },
  }
}
