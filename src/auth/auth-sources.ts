/**
 * The sources of auth data (`auth-data.ts`), which the settings name:
 *
 *   keys           the files of `keys.directory`, or the JWK Set at `keys.jwksUrl`
 *   key sets       the JWK Sets of `trustedIssuers`, and the one at `keys.jwksUrl`
 *   credentials    `credentials.file`, or the database
 *   revocations    `revocations.file`, and the database
 *   certificates   the PEM files of each listener, upstream and issuer
 *
 * Each source is polled, and each good new version replaces the active one. A changed file is loaded after 0.2 to 0.4 s.
 * A worker thread parses large files.
 */
import type { Logger } from '../base/log.ts'
import { type Loaded, notLoaded } from '../base/result.ts'
import { type Config, insecureKeySets, keySetsOf, type Problem, problemsAt } from '../config/config.ts'
import type { CredentialList } from '../credentials/credential-list.ts'
import { loadCredentialsFile, loadRevocationsFile } from '../credentials/list-files.ts'
import type { CredentialsDatabase } from '../credentials/postgres/database.ts'
import type { RevocationList } from '../credentials/revocation-list.ts'
import { readBearerToken } from '../keys/jwk-set.ts'
import { isKeyFileName, loadKeyRing } from '../keys/key-directory.ts'
import type { KeyRing } from '../keys/key-ring.ts'
import { RemoteKeys } from '../keys/remote-keys.ts'
import { openPolledFiles } from '../reload/polled-files.ts'
import type { Reloadable, ReloadResult } from '../reload/reloadable.ts'
import type { CertificateName, CertificateSet } from '../tls/certificates.ts'
import { activeContextOf, certificateFiles, openCertificateSet } from '../tls/certificates.ts'

export type ReloadSubject = 'keys' | 'credentials' | 'revocations' | 'certificates'

/** Called for each new version of a source after the start. */
export type OnReload = (subject: ReloadSubject, result: ReloadResult, certificate?: CertificateName) => void

export const databaseProblems = (problems: readonly string[]) =>
  problemsAt('credentials.postgres.urlFile', problems)

type Polled = Pick<RemoteKeys, 'start' | 'reload' | 'stop' | 'subscribe'>

/** A source is undefined if no setting names it, or if it has problems. */
export interface AuthSources {
  readonly files: {
    readonly keys: Reloadable<KeyRing> | undefined
    readonly credentials: Reloadable<CredentialList> | undefined
    readonly revocations: Reloadable<RevocationList> | undefined
  }
  readonly database: CredentialsDatabase | undefined
  readonly certificateSets: ReadonlyMap<CertificateName, Reloadable<CertificateSet>>
  readonly keySets: readonly RemoteKeys[]
  /** The set at `keys.jwksUrl`. */
  readonly ownKeySet: RemoteKeys | undefined
  /** All but the database, which has two subjects. */
  readonly bySubject: Readonly<Record<ReloadSubject, readonly Polled[]>>
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
}

/** Opens the sources that the settings name, and collects the problems and warnings of all of them. Never rejects. */
export async function openSources(
  config: Config,
  log: Logger,
  now: () => number,
  onReload: OnReload = () => {},
): Promise<AuthSources> {
  const { keys, identity, revocations, trustedIssuers } = config
  const { file, postgres } = config.credentials
  const results: Loaded<unknown, Problem>[] = []
  const collect = <T>(result: Loaded<T, Problem>): T | undefined => {
    results.push(result)
    return result.ok ? result.value : undefined
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
    const onResult = (result: ReloadResult) => onReload(subject, result)
    const options = { subject, paths: [path], includes, load: loadNamed, onReload: onResult, log }
    return collect(await openPolledFiles(options))
  }
  const loadKeys = (directory: string, active: KeyRing | undefined) => {
    // Tokens of trusted issuers need no key of the sidecar. A directory that loses its last key is a mistake.
    const mayBeEmpty = trustedIssuers.length > 0 && (active?.keys.size ?? 0) === 0
    return loadKeyRing(directory, { signsAssertions: identity.assertion.enabled, mayBeEmpty })
  }
  const loadRevocations = (path: string, active: RevocationList | undefined) =>
    loadRevocationsFile(path, revocations.required, active)
  const files = {
    keys: await openFile('keys', 'keys.directory', keys.directory, loadKeys, isKeyFileName),
    credentials: await openFile('credentials', 'credentials.file', file, loadCredentialsFile),
    revocations: await openFile('revocations', 'revocations.file', revocations.file, loadRevocations),
  }

  let database: CredentialsDatabase | undefined
  if (postgres !== undefined) {
    // Imported on demand: the PostgreSQL client loads slowly, and most sidecars do not need it.
    const { openDatabase } = await import('../credentials/postgres/database.ts')
    const onResult = (result: ReloadResult) => onReload('credentials', result)
    const opening = openDatabase({ ...postgres, log, onReload: onResult })
    database = collect(await withSetting('credentials.postgres.urlFile', opening))
  }

  const certificateSets = new Map<CertificateName, Reloadable<CertificateSet>>()
  for (const files of certificateFiles(config)) {
    const onResult = (result: ReloadResult) => onReload('certificates', result, files.name)
    const set = collect(await openCertificateSet(files, log, now, onResult))
    if (set !== undefined) certificateSets.set(files.name, set)
  }

  const keySets: RemoteKeys[] = []
  for (const { setting, ...keySet } of keySetsOf(config)) {
    const { bearerTokenFile: path } = keySet
    if (path) collect(await withSetting(`${setting}.bearerTokenFile`, readBearerToken(path)))
    const secureContext = activeContextOf(certificateSets.get(`issuer:${setting}`))
    keySets.push(new RemoteKeys({ ...keySet, secureContext, log, now }))
  }
  const problems = results.flatMap((result) => (result.ok ? [] : result.problems))
  const ofSources = results.flatMap((result) => (result.ok ? result.warnings : []))
  const warnings = [...new Set([...ofSources, ...insecureKeySets(config)])]
  const ownKeySet = keySets.find(({ issuer }) => issuer === config.token.issuer)
  const bySubject = {
    keys: [files.keys, ...keySets].flatMap((source) => source ?? []),
    credentials: files.credentials ? [files.credentials] : [],
    revocations: files.revocations ? [files.revocations] : [],
    certificates: [...certificateSets.values()],
  }
  return { files, database, certificateSets, ownKeySet, keySets, bySubject, problems, warnings }
}

async function withSetting<T>(setting: string, loading: Promise<Loaded<T>>): Promise<Loaded<T, Problem>> {
  const result = await loading
  if (result.ok) return result
  return notLoaded(problemsAt(setting, result.problems))
}
