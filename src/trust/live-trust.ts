/**
 * What decides who gets in, kept in force while it changes: keys, credentials, revocations; and certificates.
 *
 * In: settings. Out: functions that give what is in force at the moment they are called. Files must be good to begin
 * with; another issuer or a database may be away, and is waited for before anybody is let in.
 *
 * @module
 */
import { certificateSets } from '../certificates/certificate-sets.ts'
import {
  type LiveCertificates,
  type LiveCertificatesOptions,
  loadCertificateSets,
} from '../certificates/live-certificates.ts'
import type { Problem } from '../config/problem.ts'
import type { Config } from '../config/schema.ts'
import { createFileStore } from '../credentials/file-store.ts'
import type { CredentialStore } from '../credentials/store.ts'
import type { Following, ReloadResult } from '../files/follow-files.ts'
import { type FirstLoad, loadThenFollow } from '../files/load-then-follow.ts'
import type { KeyRing } from '../keys/key-ring.ts'
import { createRemoteKeys, type FetchResult, type RemoteKeysState } from '../keys/remote-keys.ts'
import type { ReadyCheck } from '../ops/admin.ts'
import type { Logger } from '../ops/log.ts'
import type { ReloadSubject } from '../ops/reload-metrics.ts'
import type { IsRevoked } from '../token/revocations.ts'
import { openDatabase } from './database.ts'
import { accountsIn, type FileSource, keysIn, problemsOf, revocationsIn } from './file-sources.ts'

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
  readonly certificates: Pick<LiveCertificates, 'listener' | 'upstream' | 'expiries'>
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

/** What it works with. */
export interface LiveTrustOptions extends Pick<LiveCertificatesOptions, 'onListenerCertificates'> {
  readonly log: Logger
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called right after anything else has come into force: whoever remembers verdicts must forget them now. */
  readonly onChange: () => void
  /** `part`: which of several things under the same subject, as there are certificates. */
  readonly onReload: (subject: ReloadSubject, result: ReloadResult, seconds?: number, part?: string) => void
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

/** Keys that follow their directory, or another issuer. */
interface FollowedKeys {
  readonly current: () => KeyRing
  readonly issuer?: Pick<LiveTrust, 'refreshKeys' | 'remoteKeys'>
}

/** Loads what is in files, and begins to follow all of it. Never rejects. */
export async function openLiveTrust(config: Config, options: LiveTrustOptions): Promise<OpenedTrust> {
  const { log, now, onChange } = options
  const sources: Source[] = []

  function added<S extends Source>(source: S): S {
    sources.push(source)
    return source
  }

  /** Loads one file or directory. It is followed once all the others could be loaded, too, and not before. */
  async function firstLoad<T>(source: FileSource<T>): Promise<FirstLoad<Following<T>, Problem>> {
    const { subject, path, isPart, load } = source
    const first = await loadThenFollow<T, Problem>({
      subject,
      paths: [path],
      ...(isPart && { isPart }),
      async loadFirst() {
        const loaded = await load()
        return loaded.ok ? loaded : { ok: false, problems: problemsOf(source, loaded) }
      },
      load,
      onChange,
      onReload: (result, seconds) => options.onReload(subject, result, seconds),
      log,
      now,
    })
    if (!first.ok) return first
    const check = CONDITIONS.has(subject) && { check: () => ({ name: subject, ok: true }) }
    return { ...first, follow: () => added({ ...first.follow(), ...check }) }
  }

  const { keys, credentials } = config
  const [ringLoad, accountsLoad, revokedLoad, certificatesLoad] = await Promise.all([
    keys.directory === undefined
      ? { ok: true as const, warnings: [], follow: () => added(openRemoteKeys(keys.jwksUrl, options)) }
      : firstLoad(keysIn(keys.directory)),
    credentials.file === undefined ? NOT_NAMED : firstLoad(accountsIn(credentials.file)),
    firstLoad(revocationsIn(config.revocations)),
    loadCertificateSets(certificateSets({ tls: config.listen.tls, upstreams: config.upstreams }), {
      ...options,
      onReload: (result, seconds, set) => options.onReload('certificates', result, seconds, set),
    }),
  ])
  if (!ringLoad.ok || !accountsLoad.ok || !revokedLoad.ok || !certificatesLoad.ok) {
    const all = [ringLoad, accountsLoad, revokedLoad, certificatesLoad]
    return { ok: false, problems: all.flatMap((load) => (load.ok ? [] : load.problems)) }
  }
  const warnings = [ringLoad, accountsLoad, revokedLoad, certificatesLoad].flatMap((load) => load.warnings)
  const ring: FollowedKeys = ringLoad.follow()
  const accounts = accountsLoad.follow()
  const revoked = revokedLoad.follow()
  const certificates = added(certificatesLoad.follow())

  const onFault = (cause: unknown) => log.error({ err: cause }, 'a login could not be checked')
  const database =
    credentials.postgres &&
    added(
      openDatabase({
        ...credentials.postgres,
        log,
        now,
        onChange,
        onReload: (result, seconds) => options.onReload('credentials', result, seconds),
        onFault,
      }),
    )
  const fileStore = accounts && createFileStore({ accounts: accounts.current, now, onFault })

  const trust: LiveTrust = {
    keys: ring.current,
    ...ring.issuer,
    credentials: fileStore ?? database?.store,
    isRevoked: (token) =>
      revoked.current().isRevoked(token) || database?.opened()?.revocations().isRevoked(token) === true,
    revocations: () => revoked.current().size + (database?.opened()?.revocations().size ?? 0),
    certificates,
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
const NOT_NAMED: FirstLoad<undefined, Problem> = { ok: true, warnings: [], follow: () => undefined }

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
