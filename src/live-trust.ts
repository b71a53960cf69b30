/**
 * What decides who gets in, kept in force while it changes: keys, credentials, revocations.
 *
 * In: settings. Out: functions that give what is in force at the moment they are called. Files must be good to begin
 * with; another issuer or a database may be away, and is waited for before anybody is let in.
 *
 * @module
 */
import type { Problem } from './config/problem.ts'
import type { Config } from './config/schema.ts'
import { type Accounts, createAccounts } from './credentials/accounts.ts'
import { readAccountsFile } from './credentials/accounts-file.ts'
import { createCredentialStore } from './credentials/credential-store.ts'
import { createHashQueue } from './credentials/hash-queue.ts'
import type { PostgresStore } from './credentials/postgres-store.ts'
import type { CredentialStore } from './credentials/store.ts'
import { loadKeyRing } from './keys/key-directory.ts'
import type { KeyRing } from './keys/key-ring.ts'
import { createRemoteKeys, type FetchResult, type RemoteKeysState } from './keys/remote-keys.ts'
import type { Load } from './loaded.ts'
import type { ReadyCheck } from './ops/admin.ts'
import { versionOf } from './ops/files-version.ts'
import { type Following, followFiles, type ReloadResult } from './ops/follow-files.ts'
import type { Logger } from './ops/log.ts'
import type { ReloadSubject } from './ops/reload-metrics.ts'
import type { IsRevoked } from './token/revocations.ts'
import { createRevocationsLoader } from './token/revocations-file.ts'
import { certificateProblems, problemOf } from './trust.ts'

/** What is in force. */
export interface LiveTrust {
  readonly keys: () => KeyRing
  /** Looks for newer keys; only where they come from another issuer. */
  readonly refreshKeys?: (kid: string) => Promise<boolean>
  /** Absent in a sidecar that only verifies. */
  readonly credentials: CredentialStore | undefined
  readonly isRevoked: IsRevoked
  /** How many revocations are in force. */
  readonly revocations: () => number
  /** The state of the other issuer's keys, where there is one. */
  readonly remoteKeys?: () => RemoteKeysState
  readonly checks: () => readonly ReadyCheck[]
  /**
   * Waits for what is elsewhere. Resolves with true once all of it is there, with false if it was stopped before.
   *
   * @throws UnusableTrust where waiting is of no use
   */
  whenComplete(): Promise<boolean>
  /** Loads everything anew, changed or not. Never rejects. */
  refresh(): Promise<void>
  /** Nothing changes any more from now on. */
  stop(): Promise<void>
}

/** Keys, credentials, revocations or certificates that cannot be used. The message has a line for each problem. */
export class UnusableTrust extends Error {
  override readonly name = 'UnusableTrust'
}

/** What it works with. */
export interface LiveTrustOptions {
  readonly log: Logger
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called right after anything else has come into force: whoever remembers verdicts must forget them now. */
  readonly onChange: () => void
  readonly onReload: (subject: ReloadSubject, result: ReloadResult, seconds?: number) => void
  readonly onFetch: (result: FetchResult) => void
}

/** One source of trust, running. */
interface Source {
  readonly check?: () => ReadyCheck
  whenComplete?(): Promise<boolean>
  refresh(): Promise<void>
  stop(): void | Promise<void>
}

/** The outcome of opening. */
export type OpenedTrust =
  | { readonly ok: true; readonly trust: LiveTrust; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly Problem[] }

/** What was loaded for the first time, and how to go on following it. */
type FirstLoad<Followed> =
  | { readonly ok: true; readonly follow: () => Followed }
  | { readonly ok: false; readonly problems: readonly Problem[] }

/** Keys that follow their directory, or another issuer. */
interface FollowedKeys {
  readonly current: () => KeyRing
  readonly issuer?: Pick<LiveTrust, 'refreshKeys' | 'remoteKeys'>
}

/** Loads what is in files, and begins to follow all of it. Never rejects. */
export async function openLiveTrust(config: Config, options: LiveTrustOptions): Promise<OpenedTrust> {
  const { log, now, onChange } = options
  const warnings: string[] = []
  const sources: Source[] = []

  function added<S extends Source>(source: S): S {
    sources.push(source)
    return source
  }

  /** Loads one file or directory. It is followed once all the others could be loaded, too, and not before. */
  async function firstLoad<T>(
    subject: ReloadSubject,
    setting: string,
    path: string,
    load: Load<T>,
  ): Promise<FirstLoad<Following<T>>> {
    const version = await versionOf([path])
    const loaded = await load()
    if (!loaded.ok) return { ok: false, problems: loaded.problems.map(problemOf(setting)) }
    warnings.push(...loaded.warnings)
    const { value: initial } = loaded
    const onReload = (result: ReloadResult, seconds?: number) => options.onReload(subject, result, seconds)
    const follow = () => {
      const paths = [path]
      const following = followFiles({ subject, paths, initial, version, load, onChange, onReload, log, now })
      const isCondition = CONDITIONS.has(subject)
      return added({ ...following, ...(isCondition && { check: () => ({ name: subject, ok: true }) }) })
    }
    return { ok: true, follow }
  }

  const { keys, credentials, revocations } = config
  const [ringLoad, accountsLoad, revokedLoad] = await Promise.all([
    keys.directory === undefined
      ? { ok: true as const, follow: () => added(openRemoteKeys(keys.jwksUrl, options)) }
      : firstLoad('keys', 'keys.directory', keys.directory, keyLoader(keys.directory)),
    credentials.file === undefined
      ? NOT_NAMED
      : firstLoad('credentials', 'credentials.file', credentials.file, accountsLoader(credentials.file)),
    firstLoad('revocations', 'revocations.file', revocations.file, createRevocationsLoader(revocations)),
  ])
  const problems = [
    ...[ringLoad, accountsLoad, revokedLoad].flatMap((load) => (load.ok ? [] : load.problems)),
    ...config.upstreams.flatMap(certificateProblems),
  ]
  if (!ringLoad.ok || !accountsLoad.ok || !revokedLoad.ok || problems.length > 0) {
    return { ok: false, problems }
  }
  const ring: FollowedKeys = ringLoad.follow()
  const accounts = accountsLoad.follow()
  const revoked = revokedLoad.follow()

  const database =
    credentials.postgres === undefined ? undefined : added(openDatabase(credentials.postgres, options))
  const fileStore =
    accounts &&
    createCredentialStore({
      accounts: accounts.current,
      hashQueue: createHashQueue(),
      now,
      onFault: (cause) => log.error({ err: cause }, 'a login could not be checked'),
    })

  const trust: LiveTrust = {
    keys: ring.current,
    ...ring.issuer,
    credentials: fileStore ?? database?.store,
    isRevoked: (token) =>
      revoked.current().isRevoked(token) || database?.opened()?.revocations().isRevoked(token) === true,
    revocations: () => revoked.current().size + (database?.opened()?.revocations().size ?? 0),
    checks: () => sources.flatMap(({ check }) => check?.() ?? []),
    async whenComplete() {
      for (const source of sources) {
        if ((await source.whenComplete?.()) === false) return false
      }
      return true
    },
    async refresh() {
      await Promise.all(sources.map((source) => source.refresh()))
    },
    async stop() {
      await Promise.all(sources.map((source) => source.stop()))
    },
  }
  return { ok: true, trust, warnings }
}

/** Without these nobody can be let in: once loaded they stay, whatever becomes of their files. */
const CONDITIONS: ReadonlySet<ReloadSubject> = new Set(['keys', 'credentials'])

/** What is loaded where the settings name no file. */
const NOT_NAMED: FirstLoad<undefined> = { ok: true, follow: () => undefined }

function keyLoader(directory: string): Load<KeyRing> {
  return async () => {
    const loaded = await loadKeyRing({ directory })
    return loaded.ok ? { ok: true, value: loaded.ring, warnings: loaded.warnings } : loaded
  }
}

function accountsLoader(file: string): Load<Accounts> {
  return async () => {
    const read = await readAccountsFile(file)
    return read.ok ? { ok: true, value: createAccounts(read.accounts), warnings: read.warnings } : read
  }
}

function openRemoteKeys(url: string, { log, now, onChange, onFetch }: LiveTrustOptions) {
  const remote = createRemoteKeys({ url, log, now, onChange, onFetch })
  return {
    current: remote.ring,
    issuer: { refreshKeys: remote.refresh, remoteKeys: remote.state },
    check: () => ({ name: 'keys', ok: remote.state().loaded, ...remote.state() }),
    whenComplete: remote.firstSet,
    refresh: remote.refetch,
    stop: remote.stop,
  }
}

/** The database, from when it is asked for the first time; it may take its time to answer. */
function openDatabase(settings: { urlFile: string; poolSize: number }, options: LiveTrustOptions) {
  const { log, now, onChange, onReload } = options
  const waiting = new AbortController()
  let opened: PostgresStore | undefined
  const opening = import('./credentials/postgres-store.ts').then(({ openPostgresStore }) =>
    openPostgresStore({
      ...settings,
      now,
      log,
      onChange,
      onReload: (result, seconds) => onReload('credentials', result, seconds),
      onFault: (cause) => log.error({ err: cause }, 'a login could not be checked'),
      signal: waiting.signal,
    }),
  )
  const store: CredentialStore = {
    authenticate: async (login) => (await opened?.store.authenticate(login)) ?? 'unavailable',
    hasAccount: (accountId) => opened?.store.hasAccount(accountId) ?? false,
    standing: (accountId, accessKey) => opened?.store.standing(accountId, accessKey) ?? { inForce: false },
  }
  return {
    store,
    opened: () => opened,
    check: () => opened?.ready() ?? { name: 'credentials', ok: false },
    async whenComplete() {
      const outcome = await opening
      if (outcome.ok) {
        opened = outcome
        for (const warning of outcome.warnings) log.warn(warning)
        return true
      }
      if (waiting.signal.aborted) return false
      throw new UnusableTrust(outcome.problems.join('\n'))
    },
    refresh: async () => opened?.refresh(),
    async stop() {
      waiting.abort()
      const outcome = await opening
      if (outcome.ok) await outcome.stop()
    },
  }
}
