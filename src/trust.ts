/**
 * Keys, credentials, revocations and certificates: loads them, and keeps them current while the sidecar runs.
 * Files must be good at the start. Another issuer or a database may be away: `whenComplete` waits for it.
 */
import type { SecureContext } from 'node:tls'
import { fileProblem, type Problem } from './config/problem.ts'
import type { Config } from './config/schema.ts'
import { loadCredentialsFile } from './credentials/credentials-file.ts'
import type { PostgresStoreOptions } from './credentials/postgres/store.ts'
import type { IsRevoked } from './credentials/revocations.ts'
import { createRevocationsLoader } from './credentials/revocations-file.ts'
import { type CredentialStore, createCredentialStore } from './credentials/store.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import type { KeyRing } from './keys/key-ring.ts'
import { createRemoteKeys, type FetchResult, type RemoteKeysState } from './keys/remote-keys.ts'
import type { Logger } from './ops/log.ts'
import type { ReloadSubject } from './ops/metrics.ts'
import type { ReadyCheck } from './ops/status.ts'
import {
  type CertificateMaterial,
  type CertificateSet,
  type Certificates,
  certificateSets,
  LISTENER,
  loadCertificates,
  upstreamName,
} from './reload/certificates.ts'
import type { Loaded } from './reload/loaded.ts'
import {
  createReloadable,
  type Reloadable,
  type ReloadableOptions,
  type ReloadResult,
} from './reload/reloadable.ts'

/** Keys, credentials, revocations or certificates that cannot be used. The message has a line for each problem. */
export class UnusableTrust extends Error {
  override readonly name = 'UnusableTrust'
}

/** The active values; each function returns the current one. */
export interface Trust {
  readonly keys: () => KeyRing
  /** Looks for a kid that is not known; only where keys come from another issuer. */
  readonly refreshKeys?: (kid: string) => Promise<boolean>
  /** Absent in a verify-only sidecar. */
  readonly credentials: CredentialStore | undefined
  readonly isRevoked: IsRevoked
  /** How many revocations are active. */
  readonly revocations: () => number
  readonly certificates: {
    /** Undefined where the data listener does not speak TLS. */
    readonly listener: () => CertificateMaterial | undefined
    /** Returns what connections to an upstream use; undefined where the settings name no file. */
    readonly upstream: (prefix: string) => (() => SecureContext) | undefined
    /** When the certificates that the sidecar presents expire, in epoch milliseconds, by the name of their set. */
    readonly expiries: () => { readonly certificate: string; readonly expiresAt: number }[]
  }
  /** Only where keys come from another issuer. */
  readonly remoteKeys?: () => RemoteKeysState
  readonly checks: () => readonly ReadyCheck[]
  /**
   * Waits for the other issuer and the database. Resolves with false when it is stopped before they answer.
   *
   * @throws UnusableTrust where the database cannot be used as it is
   */
  whenComplete(): Promise<boolean>
  /** Loads everything again, changed or not. Never rejects. */
  refresh(): Promise<void>
  stop(): Promise<void>
}

export interface TrustOptions {
  readonly log: Logger
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called right after keys, credentials or revocations changed: cached verdicts are void. */
  readonly onChange: () => void
  /** Called right after the data listener's certificates changed. */
  readonly onListenerCertificates: (material: CertificateMaterial) => void
  /** `part`: the name of the certificate set. */
  readonly onReload: (subject: ReloadSubject, result: ReloadResult, seconds?: number, part?: string) => void
  readonly onFetch: (result: FetchResult) => void
}

export type OpenedTrust =
  | { readonly ok: true; readonly trust: Trust; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly Problem[] }

/** One value that is kept current. */
interface Part {
  readonly whenComplete?: () => Promise<boolean>
  start?(): void
  reload(): Promise<void>
  stop(): void | Promise<void>
}

interface KeysPart extends Part {
  readonly current: () => KeyRing
  readonly check?: () => ReadyCheck
  readonly issuer?: Pick<Trust, 'refreshKeys' | 'remoteKeys'>
}

/** The settings that name files. Problems of certificates name theirs themselves. */
const SETTINGS = {
  keys: 'keys.directory',
  credentials: 'credentials.file',
  revocations: 'revocations.file',
  certificates: '',
} as const

const problemsOf = (subject: keyof typeof SETTINGS, loaded: Loaded<unknown>): readonly Problem[] =>
  loaded.ok ? [] : loaded.problems.map((message) => fileProblem(SETTINGS[subject], message))

/** Loads what is in files; nothing is polled or fetched unless all of them are good. Never rejects. */
export async function openTrust(config: Config, options: TrustOptions): Promise<OpenedTrust> {
  const { log, now, onChange, onReload } = options
  const { keys, credentials, revocations } = config

  async function open<T>(
    files: Pick<ReloadableOptions<T>, 'paths' | 'includes' | 'load' | 'onChange'> & {
      readonly subject: ReloadSubject
    },
    part?: string,
  ): Promise<Loaded<Reloadable<T>, Problem>> {
    const { subject } = files
    const opened = await createReloadable({
      onChange,
      ...files,
      onReload: (result, seconds) => onReload(subject, result, seconds, part),
      log,
    })
    return opened.ok ? opened : { ok: false, problems: problemsOf(subject, opened) }
  }

  const openKeys = (directory: string) =>
    open({
      subject: 'keys',
      paths: [directory],
      includes: isKeyFileName,
      load: () => loadKeyRing(directory),
    })
  const openCredentials = (file: string) =>
    open({ subject: 'credentials', paths: [file], load: () => loadCredentialsFile(file) })
  const active = new Map<string, Reloadable<Certificates>>()
  const openCertificates = async (set: CertificateSet) => {
    const opened = await open(
      {
        subject: 'certificates',
        paths: [set.cert, set.key, set.ca].flatMap((file) => file?.path ?? []),
        load: () => loadCertificates(set, now()),
        onChange({ material }) {
          if (set.name === LISTENER) options.onListenerCertificates(material)
        },
      },
      set.name,
    )
    if (opened.ok) active.set(set.name, opened.value)
    return opened
  }

  const sets = certificateSets({ tls: config.listen.tls, upstreams: config.upstreams })
  const [ring, accounts, revoked, certificates] = await Promise.all([
    keys.directory === undefined ? keys.jwksUrl : openKeys(keys.directory),
    credentials.file === undefined ? undefined : openCredentials(credentials.file),
    open({
      subject: 'revocations',
      paths: [revocations.file],
      load: createRevocationsLoader(revocations),
    }),
    Promise.all(sets.map(openCertificates)),
  ])
  const opened = [ring, accounts, revoked, ...certificates].filter((one) => typeof one === 'object')
  const problems = opened.flatMap((one) => (one.ok ? [] : one.problems))
  if (
    (typeof ring === 'object' && !ring.ok) ||
    accounts?.ok === false ||
    !revoked.ok ||
    problems.length > 0
  ) {
    return { ok: false, problems }
  }

  const onFault = (cause: unknown) => log.error({ err: cause }, 'a login could not be checked')
  const database = credentials.postgres && (await openDatabase(credentials.postgres, options, onFault))
  const fileStore = accounts && createCredentialStore({ credentials: accounts.value.current, now, onFault })
  const keysPart: KeysPart = typeof ring === 'string' ? openRemoteKeys(ring, options) : ring.value
  const parts: Part[] = [keysPart, revoked.value, ...active.values()]
  parts.push(...[accounts?.value, database].filter((part) => part !== undefined))
  for (const part of parts) part.start?.()

  const trust: Trust = {
    keys: keysPart.current,
    ...keysPart.issuer,
    credentials: fileStore ?? database?.store,
    isRevoked: (token) =>
      revoked.value.current().isRevoked(token) || database?.revocations().isRevoked(token) === true,
    revocations: () => revoked.value.current().size + (database?.revocations().size ?? 0),
    certificates: {
      listener: () => active.get(LISTENER)?.current().material,
      upstream(prefix) {
        const set = active.get(upstreamName(prefix))
        return set && (() => set.current().context)
      },
      expiries: () =>
        [...active].flatMap(([certificate, set]) => {
          const { expiresAt } = set.current()
          return expiresAt === undefined ? [] : [{ certificate, expiresAt }]
        }),
    },
    checks: () => [
      keysPart.check?.() ?? { name: 'keys', ok: true },
      ...(accounts ? [{ name: 'credentials', ok: true }] : []),
      ...(database ? [database.check()] : []),
    ],
    async whenComplete() {
      for (const part of parts) {
        if ((await part.whenComplete?.()) === false) return false
      }
      return true
    },
    refresh: async () => void (await Promise.all(parts.map((part) => part.reload()))),
    stop: async () => void (await Promise.all(parts.map((part) => part.stop()))),
  }
  return { ok: true, trust, warnings: opened.flatMap((one) => (one.ok ? one.warnings : [])) }
}

function openRemoteKeys(url: string, { log, now, onChange, onFetch }: TrustOptions): KeysPart {
  const remote = createRemoteKeys({ url, log, now, onChange, onFetch })
  return {
    current: remote.ring,
    issuer: { refreshKeys: remote.refresh, remoteKeys: remote.state },
    check: () => ({ name: 'keys', ok: remote.state().loaded, ...remote.state() }),
    whenComplete: remote.firstSet,
    reload: remote.refetch,
    stop: remote.stop,
  }
}

async function openDatabase(
  postgres: Pick<PostgresStoreOptions, 'urlFile' | 'poolSize'>,
  { log, now, onChange, onReload }: TrustOptions,
  onFault: (cause: unknown) => void,
) {
  // Loaded when needed: most sidecars have no database, and its client takes a while.
  const { openPostgresStore } = await import('./credentials/postgres/store.ts')
  const database = openPostgresStore({
    ...postgres,
    log,
    now,
    onChange,
    onReload: (result, seconds) => onReload('credentials', result, seconds),
    onFault,
  })
  return {
    ...database,
    async whenComplete() {
      const opened = await database.opened
      if (opened.ok) for (const warning of opened.warnings) log.warn(warning)
      else if (opened.problems.length > 0) throw new UnusableTrust(opened.problems.join('\n'))
      return opened.ok
    },
  }
}
