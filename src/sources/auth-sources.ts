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
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import { type Config, insecureKeySets, keySetsOf, type Problem, problemsAt } from '../config/config.ts'
import type { CredentialSource } from '../credentials/credential-checks.ts'
import type { CredentialList } from '../credentials/credential-list.ts'
import { loadCredentialsFile, loadRevocationsFile } from '../credentials/list-files.ts'
import type { CredentialsDatabase, DatabaseState } from '../credentials/postgres/database.ts'
import type { RevocationList } from '../credentials/revocation-list.ts'
import { readBearerToken } from '../keys/jwk-set.ts'
import { isKeyFileName, loadKeyRing } from '../keys/key-directory.ts'
import { type FindKey, findInRing, type KeyRing } from '../keys/key-ring.ts'
import { type KeySetState, RemoteKeys } from '../keys/remote-keys.ts'
import { openPolledFiles } from '../reload/polled-files.ts'
import type { Reloadable, ReloadResult } from '../reload/reloadable.ts'
import type { CertificateName, CertificateSet } from '../tls/certificates.ts'
import { activeContextOf, certificateFiles, issuerSetName, openCertificateSet } from '../tls/certificates.ts'

export type ReloadSubject = 'keys' | 'credentials' | 'revocations' | 'certificates'

/** Called for each new version of a source after the start. */
export type OnReload = (subject: ReloadSubject, result: ReloadResult, certificate?: CertificateName) => void

export const databaseProblems = (problems: readonly string[]) =>
  problemsAt('credentials.postgres.urlFile', problems)

/** What readiness needs, as the health check shows it. */
export interface AuthCondition extends Partial<KeySetState> {
  readonly name: 'keys' | 'credentials'
  readonly ok: boolean
  readonly state?: DatabaseState | undefined
}

/** A source that is loaded before clients are accepted: files when they are opened, a JWK Set and the database after the start. */
interface NeededSource {
  readonly condition: () => AuthCondition
  /** Resolves with true once there is a first version, with false if stopped earlier, or with the problems of the database. */
  readonly whenLoaded: Promise<Loaded<boolean>>
}

/** The keys of the sidecar's own tokens, in files or in a JWK Set. */
export interface OwnKeys extends NeededSource {
  /** Returns an empty ring until the JWK Set has been fetched. */
  readonly ring: () => KeyRing
  readonly findKey: FindKey
}

/** Opens the sources that the settings name, and collects the problems and warnings of all of them. Never rejects. */
export async function openSources(config: Config, log: Logger, now: () => number, onReload?: OnReload) {
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
    const onResult = (result: ReloadResult) => onReload?.(subject, result)
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
  const keyFiles = await openFile('keys', 'keys.directory', keys.directory, loadKeys, isKeyFileName)
  const credentialsFile = await openFile('credentials', 'credentials.file', file, loadCredentialsFile)
  const revocationsFile = await openFile('revocations', 'revocations.file', revocations.file, loadRevocations)

  let database: CredentialsDatabase | undefined
  if (postgres !== undefined) {
    // Imported on demand: the PostgreSQL client loads slowly, and most sidecars do not need it.
    const { openDatabase } = await import('../credentials/postgres/database.ts')
    const onResult = (result: ReloadResult) => onReload?.('credentials', result)
    const opening = openDatabase({ ...postgres, log, onReload: onResult })
    database = collect(await withSetting('credentials.postgres.urlFile', opening))
  }

  const certificateSets = new Map<CertificateName, Reloadable<CertificateSet>>()
  for (const files of certificateFiles(config)) {
    const onResult = (result: ReloadResult) => onReload?.('certificates', result, files.name)
    const set = collect(await openCertificateSet(files, log, now, onResult))
    if (set !== undefined) certificateSets.set(files.name, set)
  }

  const keySets = new Map<string, RemoteKeys>()
  for (const { setting, ...keySet } of keySetsOf(config)) {
    const { bearerTokenFile: path } = keySet
    if (path) collect(await withSetting(`${setting}.bearerTokenFile`, readBearerToken(path)))
    const secureContext = activeContextOf(certificateSets.get(issuerSetName(setting)))
    keySets.set(setting, new RemoteKeys({ ...keySet, secureContext, log, now }))
  }
  const problems = results.flatMap((result) => (result.ok ? [] : result.problems))
  const ofSources = results.flatMap((result) => (result.ok ? result.warnings : []))
  const warnings = [...new Set([...ofSources, ...insecureKeySets(config)])]
  const credentials = database ?? (credentialsFile && credentialsOfFile(credentialsFile.current))
  const subjects: ReloadSubject[] = ['revocations']
  if (keyFiles) subjects.push('keys')
  if (credentials) subjects.push('credentials')
  if (certificateSets.size > 0) subjects.push('certificates')
  const files = [keyFiles, ...keySets.values(), credentialsFile, revocationsFile, ...certificateSets.values()]
  return {
    keys: keySets.get('keys') ?? keysOfFiles(keyFiles?.current),
    keySets: [...keySets.values()],
    credentials,
    revocationLists: [revocationsFile?.current, database?.revocations].flatMap((list) => list ?? []),
    revoke: database?.revoke,
    certificateSets,
    subjects,
    polled: [...files, database].flatMap((source) => source ?? []),
    subscribe(onChange: (subject: ReloadSubject) => void) {
      for (const source of [keyFiles, ...keySets.values()]) source?.subscribe(() => onChange('keys'))
      credentialsFile?.subscribe(() => onChange('credentials'))
      revocationsFile?.subscribe(() => onChange('revocations'))
      database?.subscribe(onChange)
    },
    problems,
    warnings,
  }
}

const loadedFiles = (name: AuthCondition['name']): NeededSource => ({
  condition: () => ({ name, ok: true }),
  whenLoaded: Promise.resolve(loaded(true)),
})

const keysOfFiles = (ring: () => KeyRing = () => ({ keys: new Map() })): OwnKeys => ({
  ...loadedFiles('keys'),
  ring,
  findKey: (kid, alg) => findInRing(ring(), kid, alg),
})

const credentialsOfFile = (list: () => CredentialList): CredentialSource & NeededSource => ({
  ...loadedFiles('credentials'),
  list,
  refresh: async () => true,
})

async function withSetting<T>(setting: string, loading: Promise<Loaded<T>>): Promise<Loaded<T, Problem>> {
  const result = await loading
  if (result.ok) return result
  return notLoaded(problemsAt(setting, result.problems))
}
