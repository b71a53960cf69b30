/**
 * The certificates of the data listener and of upstreams, kept in force while their files change.
 *
 * In: which files belong together. Out: functions that give what is in force at the moment they are called. All must be
 * good to begin with. After that each set follows its own files: one that cannot be used leaves that set as it was and
 * holds up no other.
 *
 * @module
 */
import type { SecureContext } from 'node:tls'
import { formatProblem, type Problem } from '../config/problem.ts'
import { versionOf } from '../files/files-version.ts'
import { type Following, followFiles, type ReloadResult } from '../files/follow-files.ts'
import type { Load } from '../loaded.ts'
import type { Logger } from '../ops/log.ts'
import { type CertificateMaterial, type Certificates, loadCertificates } from './certificate-files.ts'
import { type CertificateSet, filesOf, LISTENER_SET, upstreamSet } from './certificate-sets.ts'

/** A certificate that we show, and when it expires. */
export interface CertificateExpiry {
  /** The name of its set. */
  readonly certificate: string
  /** Epoch milliseconds. */
  readonly expiresAt: number
}

/** What is in force. */
export interface LiveCertificates {
  /** What the data listener shows; undefined where it does not speak TLS. */
  readonly listener: () => CertificateMaterial | undefined
  /** Gives what connections to an upstream are made with; undefined where the settings name no file. */
  readonly upstream: (prefix: string) => (() => SecureContext) | undefined
  /** The certificates that we show. */
  readonly expiries: () => CertificateExpiry[]
  /** Loads all of them anew, changed or not. Never rejects. */
  refresh(): Promise<void>
  /** Nothing changes any more from now on. */
  stop(): void
}

/** What they work with. */
export interface LiveCertificatesOptions {
  readonly log: Logger
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called right after the data listener's have changed. */
  readonly onListenerCertificates: (material: CertificateMaterial) => void
  /** Told what became of a new version of a set. */
  readonly onReload: (result: ReloadResult, seconds: number | undefined, set: string) => void
}

/** The outcome of loading all sets; nothing is followed before `follow` is called. */
export type LoadedCertificateSets =
  | { readonly ok: true; readonly warnings: readonly string[]; readonly follow: () => LiveCertificates }
  | { readonly ok: false; readonly problems: readonly Problem[] }

/** Loads all sets. Never rejects. */
export async function loadCertificateSets(
  sets: readonly CertificateSet[],
  options: LiveCertificatesOptions,
): Promise<LoadedCertificateSets> {
  const { log, now, onListenerCertificates, onReload } = options
  const warnings: string[] = []

  async function firstLoad(set: CertificateSet): Promise<FirstLoad> {
    const { name } = set
    const paths = filesOf(set).map(({ path }) => path)
    const version = await versionOf(paths)
    const first = await loadCertificates(set, now())
    if (!first.ok) return first
    warnings.push(...first.warnings)
    const { value: initial } = first
    const load: Load<Certificates> = async () => {
      const loaded = await loadCertificates(set, now())
      return loaded.ok ? loaded : { ok: false, problems: loaded.problems.map(formatProblem) }
    }
    const onChange = ({ material }: Certificates) => {
      if (name === LISTENER_SET) onListenerCertificates(material)
    }
    const told = (result: ReloadResult, seconds?: number) => onReload(result, seconds, name)
    const common = { subject: 'certificates', paths, initial, version, load, onChange, log, now }
    return { ok: true, follow: () => [name, followFiles({ ...common, onReload: told })] }
  }

  const loads = await Promise.all(sets.map(firstLoad))
  const problems: Problem[] = []
  const follows: Follow[] = []
  for (const load of loads) {
    if (load.ok) follows.push(load.follow)
    else problems.push(...load.problems)
  }
  if (problems.length > 0) return { ok: false, problems }
  return { ok: true, warnings, follow: () => inForce(new Map(follows.map((follow) => follow()))) }
}

/** Begins to follow a set, and says its name. */
type Follow = () => readonly [string, Following<Certificates>]

/** What was loaded of one set, and how to go on following it. */
type FirstLoad =
  | { readonly ok: true; readonly follow: Follow }
  | { readonly ok: false; readonly problems: readonly Problem[] }

function inForce(sets: ReadonlyMap<string, Following<Certificates>>): LiveCertificates {
  return {
    listener: () => sets.get(LISTENER_SET)?.current().material,
    upstream: (prefix) => {
      const set = sets.get(upstreamSet(prefix))
      return set && (() => set.current().context)
    },
    expiries: () =>
      [...sets].flatMap(([certificate, set]) => {
        const { expiresAt } = set.current()
        return expiresAt === undefined ? [] : [{ certificate, expiresAt }]
      }),
    async refresh() {
      await Promise.all([...sets.values()].map((set) => set.refresh()))
    },
    stop() {
      for (const set of sets.values()) set.stop()
    },
  }
}
