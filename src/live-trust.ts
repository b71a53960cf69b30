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

/** What is elsewhere and cannot be used: waiting does not help. The message has a line for each problem. */
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

/** Loads what is in files, and begins to follow all of it. Never rejects. */
export async function openLiveTrust(config: Config, options: LiveTrustOptions): Promise<OpenedTrust> {
  const { log, now } = options
  const warnings: string[] = []
  const sources: Source[] = []

  /** Loads and follows one file or directory; gives the problems of its setting where that cannot be done. */
  async function follow<T>(
    [subject, setting]: readonly [ReloadSubject, string],
    path: string | undefined,
    loaderOf: (path: string) => Load<T>,
  ): Promise<Following<T> | undefined | readonly Problem[]> {
    if (path === undefined) return undefined
    const load = loaderOf(path)
    const version = await versionOf([path])
    const loaded = await load()
    if (!loaded.ok) return loaded.problems.map(problemOf(setting))
    warnings.push(...loaded.warnings)
    const following = followFiles({
      subject,
      paths: [path],
      initial: loaded.value,
      version,
      load,
      onChange: options.onChange,
      onReload: (result, seconds) => options.onReload(subject, result, seconds),
      log,
      now,
    })
    sources.push(
      CONDITIONS.has(subject) ? { ...following, check: () => ({ name: subject, ok: true }) } : following,
    )
    return following
  }

  const { keys, credentials, revocations } = config
  const [ring, accounts, revoked] = await Promise.all([
    follow(['keys', 'keys.directory'], keys.directory, keyLoader),
    follow(['credentials', 'credentials.file'], credentials.file, accountsLoader),
    follow(['revocations', 'revocations.file'], revocations.file, () => createRevocationsLoader(revocations)),
  ])
  const problems = [ring, accounts, revoked, config.upstreams.flatMap(certificateProblems)].flatMap(
    problemsIn,
  )
  if (problems.length > 0 || isProblems(ring) || isProblems(accounts) || isProblems(revoked)) {
    for (const source of sources) await source.stop()
    return { ok: false, problems }
  }

  const remote = keys.jwksUrl === undefined ? undefined : openRemoteKeys(keys.jwksUrl, options)
  if (remote !== undefined) sources.push(remote)
  const database =
    credentials.postgres === undefined ? undefined : openDatabase(credentials.postgres, options)
  if (database !== undefined) sources.push(database)
  const fileStore =
    accounts &&
    createCredentialStore({
      accounts: accounts.current,
      hashQueue: createHashQueue(),
      now,
      onFault: (cause) => log.error({ err: cause }, 'a login could not be checked'),
    })

  const trust: LiveTrust = {
    keys: ring?.current ?? remote?.ring ?? (() => NO_KEYS),
    ...(remote && { refreshKeys: remote.refreshKid, remoteKeys: remote.state }),
    credentials: fileStore ?? database?.store,
    isRevoked: (token) =>
      revoked?.current().isRevoked(token) === true ||
      database?.opened()?.revocations().isRevoked(token) === true,
    revocations: () => (revoked?.current().size ?? 0) + (database?.opened()?.revocations().size ?? 0),
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

function isProblems(followed: unknown): followed is readonly Problem[] {
  return Array.isArray(followed)
}

function problemsIn(followed: unknown): readonly Problem[] {
  return isProblems(followed) ? followed : []
}

/** Without these nobody can be let in: once loaded they stay, whatever becomes of their files. */
const CONDITIONS: ReadonlySet<ReloadSubject> = new Set(['keys', 'credentials'])

const NO_KEYS: KeyRing = { verification: new Map() }

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
    ring: remote.ring,
    refreshKid: remote.refresh,
    state: remote.state,
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
