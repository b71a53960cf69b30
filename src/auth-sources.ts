/** Opens the files, the database and the key sets that decide on access, and returns the problems of all of them. */
import { EventEmitter } from 'node:events'
import type { CertificateName, Certificates } from './certificates.ts'
import { certificateFiles, openCertificates, secureContextOf } from './certificates.ts'
import { type Config, insecureKeySets, keySetsOf } from './config/config.ts'
import { loadCredentialsFile } from './credentials/credentials-file.ts'
import type { CredentialsDatabase } from './credentials/postgres/database.ts'
import { loadRevocationsFile, type RevocationList } from './credentials/revocation-list.ts'
import type { CredentialIndex } from './credentials/store.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import type { KeyRing } from './keys/key-ring.ts'
import { readBearerToken } from './keys/key-set.ts'
import { createRemoteKeys, type RemoteKeys } from './keys/remote-keys.ts'
import type { Logger } from './log.ts'
import { openPolledFiles } from './reload/polled-files.ts'
import type { Reloadable, ReloadResult, ReloadSubject } from './reload/reloadable.ts'
import { fileProblem, type Problem } from './values/problem.ts'
import { type Loaded, notLoaded } from './values/result.ts'

/** What the settings name, opened and not polled yet. A source that they do not name, or with problems, is undefined. */
export interface AuthSources {
  readonly keyFiles: Reloadable<KeyRing> | undefined
  readonly credentialsFile: Reloadable<CredentialIndex> | undefined
  readonly revocationsFile: Reloadable<RevocationList> | undefined
  readonly database: CredentialsDatabase | undefined
  readonly certificates: ReadonlyMap<CertificateName, Reloadable<Certificates>>
  /** That of `keys.jwksUrl`. */
  readonly ownKeySet: RemoteKeys | undefined
  /** Those of `trustedIssuers`, and our own. */
  readonly keySets: readonly RemoteKeys[]
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
}

/** The arguments of each event. The new version is active before its event. */
interface AuthDataEvents {
  /** Cached verdicts may be wrong: those on the revoked tokens, or without the argument all of them. */
  change: [revokedTokens?: readonly string[]]
  reload: [subject: ReloadSubject, result: ReloadResult, certificate?: CertificateName]
  fetch: [issuer: string, result: ReloadResult]
}

export class AuthEvents extends EventEmitter<AuthDataEvents> {}

/** Never rejects. `now`: epoch milliseconds. */
export async function openAuthSources(
  config: Config,
  log: Logger,
  now: () => number,
  events = new AuthEvents(),
): Promise<AuthSources> {
  let problems: readonly Problem[] = []
  let warnings: readonly string[] = []
  const unwrap = <T>(opened: Loaded<T, Problem>): T | undefined => {
    // Not `push`: 130,000 arguments, as many as a file may have problems, overflow the stack.
    if (opened.ok) warnings = warnings.concat(opened.warnings)
    else problems = problems.concat(opened.problems)
    return opened.ok ? opened.value : undefined
  }
  async function openFile<T>(
    subject: ReloadSubject,
    setting: string,
    path: string | undefined,
    load: (path: string, active: T | undefined) => Promise<Loaded<T>>,
    includes?: (name: string) => boolean,
  ) {
    if (path === undefined) return undefined
    const loadNamed = (active?: T) => withSetting(setting, load(path, active))
    const onReload = (result: ReloadResult) => void events.emit('reload', subject, result)
    return unwrap(await openPolledFiles({ subject, paths: [path], includes, load: loadNamed, onReload, log }))
  }
  const { keys, identity, revocations, trustedIssuers } = config
  const { file, postgres } = config.credentials
  const loadKeys = (directory: string, active: KeyRing | undefined) => {
    // Tokens of trusted issuers need no key of ours. Once it has had a key, an empty directory is a mistake.
    const mayBeEmpty = trustedIssuers.length > 0 && (active?.keys.size ?? 0) === 0
    return loadKeyRing(directory, identity.assertion.enabled, mayBeEmpty)
  }
  const loadRevocations = (path: string, active: RevocationList | undefined) =>
    loadRevocationsFile(path, revocations.required, active)
  const keyFiles = await openFile('keys', 'keys.directory', keys.directory, loadKeys, isKeyFileName)
  const credentialsFile = await openFile('credentials', 'credentials.file', file, loadCredentialsFile)
  const revocationsFile = await openFile('revocations', 'revocations.file', revocations.file, loadRevocations)
  let database: CredentialsDatabase | undefined
  if (postgres !== undefined) {
    // Imported on demand: most sidecars have no database, and its client loads slowly.
    const { openDatabase } = await import('./credentials/postgres/database.ts')
    const onChange = (revokedTokens?: readonly string[]) => void events.emit('change', revokedTokens)
    const onReload = (result: ReloadResult) => void events.emit('reload', 'credentials', result)
    const opening = openDatabase({ ...postgres, log, onChange, onReload })
    database = unwrap(await withSetting('credentials.postgres.urlFile', opening))
  }
  const certificates = new Map<CertificateName, Reloadable<Certificates>>()
  for (const files of certificateFiles(config)) {
    const onReload = (result: ReloadResult) => void events.emit('reload', 'certificates', result, files.name)
    const opened = unwrap(await openCertificates(files, log, now, onReload))
    if (opened !== undefined) certificates.set(files.name, opened)
  }
  for (const [index, { bearerTokenFile }] of trustedIssuers.entries()) {
    const setting = `trustedIssuers[${index}].bearerTokenFile`
    if (bearerTokenFile !== undefined) unwrap(await withSetting(setting, readBearerToken(bearerTokenFile)))
  }
  keyFiles?.subscribe(() => events.emit('change'))
  credentialsFile?.subscribe(() => events.emit('change'))
  revocationsFile?.subscribe((fresh, former) => events.emit('change', fresh.addedSince(former)))
  warnings = [...new Set([...warnings, ...insecureKeySets(config)])]
  const keySets = keySetsOf(config).map(({ setting, ...source }) => {
    const secureContext = secureContextOf(certificates.get(`issuer:${setting}`))
    const onChange = () => void events.emit('change')
    const onFetch = (issuer: string, result: ReloadResult) => void events.emit('fetch', issuer, result)
    return createRemoteKeys({ ...source, secureContext, log, now, onChange, onFetch })
  })
  const ownKeySet = keys.jwksUrl === undefined ? undefined : keySets[0]
  const files = { keyFiles, credentialsFile, revocationsFile, certificates }
  return { ...files, database, ownKeySet, keySets, problems, warnings }
}

/** Names the setting in the problems of a loader. */
async function withSetting<T>(setting: string, loading: Promise<Loaded<T>>): Promise<Loaded<T, Problem>> {
  const result = await loading
  if (result.ok) return result
  return notLoaded(result.problems.map((problem) => fileProblem(setting, problem)))
}
