/**
 * Opens the files and the database that decide on access. Every problem of all of them is reported at once.
 */
import type { CertificateName, Certificates } from './certificates.ts'
import { certificateFiles, openCertificates } from './certificates.ts'
import { type Config, insecureKeySets } from './config/config.ts'
import { loadCredentialsFile } from './credentials/credentials-file.ts'
import type { CredentialsDatabase } from './credentials/postgres/database.ts'
import { loadRevocationsFile, type RevocationList } from './credentials/revocation-list.ts'
import type { CredentialIndex } from './credentials/store.ts'
import { isKeyFileName, loadKeyRing } from './keys/key-directory.ts'
import type { KeyRing } from './keys/key-ring.ts'
import { readBearerToken } from './keys/key-set.ts'
import type { Logger } from './log.ts'
import { openPolledFiles } from './reload/polled-files.ts'
import type { Reloadable, ReloadResult, ReloadSubject } from './reload/reloadable.ts'
import { fileProblem, type Loaded, type Problem } from './values/problem.ts'

/** Undefined is a source that the settings do not name. */
export interface AuthSources {
  readonly keyFiles: Reloadable<KeyRing> | undefined
  readonly credentialsFile: Reloadable<CredentialIndex> | undefined
  readonly revocationsFile: Reloadable<RevocationList> | undefined
  readonly database: CredentialsDatabase | undefined
  readonly certificates: ReadonlyMap<CertificateName, Reloadable<Certificates>>
}

interface OpenedSources extends AuthSources {
  /** The sources with problems are undefined. */
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
}

/** Called from the first poll on. The new version is active before. */
interface SourceEvents {
  /** Verdicts may have changed: those on the revoked tokens, or without the argument all of them. */
  onChange(revokedTokens?: readonly string[]): void
  onReload(subject: ReloadSubject, result: ReloadResult, certificate?: CertificateName): void
}

/** Opens what the settings name; nothing is polled yet. Never rejects. `now`: epoch milliseconds. */
export async function openAuthSources(
  config: Config,
  log: Logger,
  now: () => number,
  events: SourceEvents = { onChange() {}, onReload() {} },
): Promise<OpenedSources> {
  const opener = new SourceOpener(config, log, now, events)
  const keyFiles = await opener.openKeyFiles()
  const credentialsFile = await opener.openCredentialsFile()
  const revocationsFile = await opener.openRevocationsFile()
  const database = await opener.openDatabase()
  const certificates = await opener.openCertificates()
  await opener.checkBearerTokens()
  keyFiles?.subscribe(() => events.onChange())
  credentialsFile?.subscribe(() => events.onChange())
  revocationsFile?.subscribe((fresh, former) => events.onChange(fresh.addedSince(former)))
  const { problems } = opener
  const warnings = [...new Set([...opener.warnings, ...insecureKeySets(config)])]
  return { keyFiles, credentialsFile, revocationsFile, database, certificates, problems, warnings }
}

/** Opens single sources, and collects their problems and warnings. */
class SourceOpener {
  problems: readonly Problem[] = []
  warnings: readonly string[] = []
  readonly #config: Config
  readonly #log: Logger
  readonly #now: () => number
  readonly #events: SourceEvents

  constructor(config: Config, log: Logger, now: () => number, events: SourceEvents) {
    this.#config = config
    this.#log = log
    this.#now = now
    this.#events = events
  }

  openKeyFiles() {
    const { keys, identity, trustedIssuers } = this.#config
    const load = (directory: string, active?: KeyRing) => {
      // Tokens of trusted issuers need no key of ours. Once it has had a key, an empty directory is a mistake.
      const mayBeEmpty = trustedIssuers.length > 0 && (active?.keys.size ?? 0) === 0
      return loadKeyRing(directory, identity.assertion.enabled, mayBeEmpty)
    }
    return this.#openFile('keys', 'keys.directory', keys.directory, load, isKeyFileName)
  }

  openCredentialsFile() {
    const { file } = this.#config.credentials
    return this.#openFile('credentials', 'credentials.file', file, loadCredentialsFile)
  }

  openRevocationsFile() {
    const { file, required } = this.#config.revocations
    const load = (path: string, active?: RevocationList) => loadRevocationsFile(path, required, active)
    return this.#openFile('revocations', 'revocations.file', file, load)
  }

  async openDatabase() {
    const { postgres } = this.#config.credentials
    if (postgres === undefined) return undefined
    // Imported on demand: most sidecars have no database, and its client loads slowly.
    const { openDatabase } = await import('./credentials/postgres/database.ts')
    const opening = openDatabase({
      ...postgres,
      log: this.#log,
      onChange: this.#events.onChange,
      onReload: (result) => this.#events.onReload('credentials', result),
    })
    return this.#unwrap(await withSetting('credentials.postgres.urlFile', opening))
  }

  async openCertificates() {
    const opened = new Map<CertificateName, Reloadable<Certificates>>()
    for (const files of certificateFiles(this.#config)) {
      const onReload = (result: ReloadResult) => this.#events.onReload('certificates', result, files.name)
      const certificates = this.#unwrap(await openCertificates(files, this.#log, this.#now, onReload))
      if (certificates !== undefined) opened.set(files.name, certificates)
    }
    return opened
  }

  /** They are read anew for each fetch. */
  async checkBearerTokens() {
    for (const [index, { bearerTokenFile }] of this.#config.trustedIssuers.entries()) {
      const setting = `trustedIssuers[${index}].bearerTokenFile`
      if (bearerTokenFile !== undefined)
        this.#unwrap(await withSetting(setting, readBearerToken(bearerTokenFile)))
    }
  }

  async #openFile<T>(
    subject: ReloadSubject,
    setting: string,
    path: string | undefined,
    load: (path: string, active: T | undefined) => Promise<Loaded<T>>,
    includes?: (name: string) => boolean,
  ) {
    if (path === undefined) return undefined
    const opened = await openPolledFiles<T>({
      subject,
      paths: [path],
      includes,
      load: (active) => withSetting(setting, load(path, active)),
      onReload: (result) => this.#events.onReload(subject, result),
      log: this.#log,
    })
    return this.#unwrap(opened)
  }

  #unwrap<T>(loaded: Loaded<T, Problem>): T | undefined {
    // Not `push`: 130,000 arguments, as many as a file may have problems, overflow the stack.
    if (loaded.ok) this.warnings = this.warnings.concat(loaded.warnings)
    else this.problems = this.problems.concat(loaded.problems)
    return loaded.ok ? loaded.value : undefined
  }
}

/** Names the setting in the problems of a loader. */
async function withSetting<T>(setting: string, loading: Promise<Loaded<T>>): Promise<Loaded<T, Problem>> {
  const loaded = await loading
  if (loaded.ok) return loaded
  return { ok: false, problems: loaded.problems.map((problem) => fileProblem(setting, problem)) }
}
