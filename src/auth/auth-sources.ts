/**
 * Opens the sources of auth data that the settings name, with one function for each: files,
 * the database, the feed and key sets.
 */
import type { Logger } from '../base/log.ts'
import { type Loaded, notLoaded } from '../base/result.ts'
import { type Config, configWarnings, keySetsOf, type Problem, problemsAt } from '../config/config.ts'
import type { CredentialList } from '../credentials/credential-list.ts'
import { FeedFollower } from '../credentials/feed/follower.ts'
import { loadCredentialsFile, loadRevocationsFile } from '../credentials/list-files.ts'
import type { CredentialsDatabase } from '../credentials/postgres/database.ts'
import type { EndedTokens, RevocationList } from '../credentials/revocation-list.ts'
import { readBearerToken } from '../files/bearer-token.ts'
import { isKeyFileName, loadKeyRing } from '../keys/key-directory.ts'
import type { KeyRing } from '../keys/key-ring.ts'
import { RemoteKeys } from '../keys/remote-keys.ts'
import { openPolledFiles } from '../reload/polled-files.ts'
import type { Reloadable, ReloadResult } from '../reload/reloadable.ts'
import type { CertificateName, CertificateSet, CertificateSets } from '../tls/certificates.ts'
import {
  activeContextOf,
  certificateFiles,
  FEED_SET,
  issuerSetName,
  openCertificateSet,
} from '../tls/certificates.ts'

export type ReloadSubject = 'keys' | 'credentials' | 'revocations' | 'certificates'

/**
 * Called after the start for each new version of files or the database (`credentials`), and
 * when the latter goes down or is back.
 */
export type OnReload = (subject: ReloadSubject, result: ReloadResult, certificate?: CertificateName) => void

export interface SourceOptions {
  readonly config: Config
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly now: () => number
  readonly onReload?: OnReload
}

type Opening = SourceOptions & { readonly results: Loaded<unknown, Problem>[] }

/** A source that the settings do not name, or that has problems, is undefined or left out. */
export interface AuthSources {
  readonly keyFiles: Reloadable<KeyRing> | undefined
  readonly credentialsFile: Reloadable<CredentialList> | undefined
  readonly revocationsFile: Reloadable<RevocationList> | undefined
  /** In place of the credentials file, and with revocations. */
  readonly database: CredentialsDatabase | undefined
  /** In place of both, where key files are fetched, too. */
  readonly feed: FeedFollower | undefined
  readonly certificateSets: CertificateSets
  /** That at `keys.jwksUrl`, in place of key files, and those of trusted issuers. */
  readonly keySets: readonly RemoteKeys[]
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
}

/** Opens the sources in the order in which their problems are reported. Never rejects. */
export async function openSources(options: SourceOptions): Promise<AuthSources> {
  const opening: Opening = { ...options, results: [] }
  const keyFiles = await openKeyFiles(opening)
  const credentialsFile = await openCredentialsFile(opening)
  const revocationsFile = await openRevocationsFile(opening)
  const database = await openCredentialsDatabase(opening)
  const certificateSets = await openCertificateSets(opening)
  const feed = await openFeed(opening, certificateSets)
  const keySets = await openKeySets(opening, certificateSets)
  const problems = opening.results.flatMap((result) => (result.ok ? [] : result.problems))
  const ofSources = opening.results.flatMap((result) => (result.ok ? result.warnings : []))
  const warnings = [...new Set([...ofSources, ...configWarnings(options.config)])]
  const files = { keyFiles, credentialsFile, revocationsFile, certificateSets }
  return { ...files, database, feed, keySets, problems, warnings }
}

function openKeyFiles(opening: Opening) {
  const { keys, identity, trustedIssuers } = opening.config
  const load = (directory: string, active?: KeyRing) => {
    // Tokens of trusted issuers need no key of the sidecar. A directory that loses its last key is a mistake.
    const mayBeEmpty = trustedIssuers.length > 0 && (active?.keys.size ?? 0) === 0
    return loadKeyRing(directory, { signsAssertions: identity.assertion.enabled, mayBeEmpty })
  }
  return openFiles(opening, 'keys', 'keys.directory', keys.directory, load, isKeyFileName)
}

function openCredentialsFile(opening: Opening) {
  const { file } = opening.config.credentials
  return openFiles(opening, 'credentials', 'credentials.file', file, loadCredentialsFile)
}

function openRevocationsFile(opening: Opening) {
  const { file, required } = opening.config.revocations
  const load = (path: string, active?: RevocationList) => loadRevocationsFile(path, required, active)
  return openFiles(opening, 'revocations', 'revocations.file', file, load)
}

/** `path`: a file or directory. Undefined if `setting` has no value. */
async function openFiles<T>(
  opening: Opening,
  subject: ReloadSubject,
  setting: string,
  path: string | undefined,
  load: (path: string, active: T | undefined) => Promise<Loaded<T>>,
  includes?: (name: string) => boolean,
) {
  if (path === undefined) {
    return undefined
  }
  const loadNamed = (active?: T) => withSetting(setting, load(path, active))
  const onReload = (result: ReloadResult) => opening.onReload?.(subject, result)
  const options = { subject, paths: [path], includes, load: loadNamed, onReload, log: opening.log }
  return collect(opening, await openPolledFiles(options))
}

/** Of a database whose state is served to a fleet, which waits for it. */
const FEED_POLL_MS = 200

export const DATABASE_SETTING = 'credentials.postgres.urlFile'

async function openCredentialsDatabase(opening: Opening) {
  const { credentials, feed } = opening.config
  const { postgres } = credentials
  if (postgres === undefined) {
    return undefined
  }
  // Imported on demand: the PostgreSQL client loads slowly, and most sidecars do not need it.
  const { openDatabase } = await import('../credentials/postgres/database.ts')
  const onReload = (result: ReloadResult) => opening.onReload?.('credentials', result)
  const endedTokens = () => endedTokensOf(opening)
  const pollMs = feed.enabled ? FEED_POLL_MS : undefined
  const database = openDatabase({ ...postgres, log: opening.log, onReload, endedTokens, pollMs })
  return collect(opening, await withSetting(DATABASE_SETTING, database))
}

/** Tokens need no revocation once the longest lifetime since their issue has passed. */
export function endedTokensOf({ config, now }: Pick<SourceOptions, 'config' | 'now'>): EndedTokens {
  const nowMs = now()
  return { nowMs, issuedBeforeMs: nowMs - config.token.maxSignedSeconds * 1000 }
}

async function openCertificateSets(opening: Opening): Promise<CertificateSets> {
  const { config, log, now } = opening
  const sets = new Map<CertificateName, Reloadable<CertificateSet>>()
  for (const files of certificateFiles(config)) {
    const onReload = (result: ReloadResult) => opening.onReload?.('certificates', result, files.name)
    const set = collect(opening, await openCertificateSet(files, log, now, onReload))
    if (set !== undefined) {
      sets.set(files.name, set)
    }
  }
  return sets
}

async function openFeed(opening: Opening, certificateSets: CertificateSets) {
  const { config, log, now } = opening
  const { feed } = config.credentials
  if (feed === undefined) {
    return undefined
  }
  collect(opening, await withSetting('credentials.feed.tokenFile', readBearerToken(feed.tokenFile)))
  const certificates = certificateSets.get(FEED_SET)
  const onReload = (result: ReloadResult) => opening.onReload?.('credentials', result)
  const secureContext = activeContextOf(certificates)
  const follower = new FeedFollower({ ...feed, secureContext, log, now, onReload })
  certificates?.subscribe(() => follower.reconnect())
  return follower
}

async function openKeySets(opening: Opening, certificateSets: CertificateSets): Promise<RemoteKeys[]> {
  const { config, log, now } = opening
  const keySets: RemoteKeys[] = []
  for (const { setting, ...keySet } of keySetsOf(config)) {
    const { bearerTokenFile: path } = keySet
    if (path) {
      collect(opening, await withSetting(`${setting}.bearerTokenFile`, readBearerToken(path)))
    }
    const secureContext = activeContextOf(certificateSets.get(issuerSetName(setting)))
    keySets.push(new RemoteKeys({ ...keySet, secureContext, log, now }))
  }
  return keySets
}

/** Notes the problems and warnings. Returns undefined if there are problems. */
function collect<T>({ results }: Opening, result: Loaded<T, Problem>): T | undefined {
  results.push(result)
  return result.ok ? result.value : undefined
}

async function withSetting<T>(setting: string, loading: Promise<Loaded<T>>) {
  const result = await loading
  return result.ok ? result : notLoaded(problemsAt(setting, result.problems), result.kind)
}
