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
import type { Following, ReloadResult } from '../files/follow-files.ts'
import { type FirstLoad, loadThenFollow } from '../files/load-then-follow.ts'
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
export type LoadedCertificateSets = FirstLoad<LiveCertificates, Problem>

/** Loads all sets. Never rejects. */
export async function loadCertificateSets(
  sets: readonly CertificateSet[],
  options: LiveCertificatesOptions,
): Promise<LoadedCertificateSets> {
  const { log, now, onListenerCertificates, onReload } = options

  const firstLoad = (set: CertificateSet) => {
    const { name } = set
    const loadFirst = () => loadCertificates(set, now())
    return loadThenFollow<Certificates, Problem>({
      subject: 'certificates',
      paths: filesOf(set).map(({ path }) => path),
      loadFirst,
      async load() {
        const loaded = await loadFirst()
        return loaded.ok ? loaded : { ok: false, problems: loaded.problems.map(formatProblem) }
      },
      onChange({ material }) {
        if (name === LISTENER_SET) onListenerCertificates(material)
      },
      onReload: (result, seconds) => onReload(result, seconds, name),
      log,
      now,
    })
  }

  const loads = await Promise.all(sets.map(async (set) => [set.name, await firstLoad(set)] as const))
  const warnings: string[] = []
  const problems: Problem[] = []
  const follows: (() => readonly [string, Following<Certificates>])[] = []
  for (const [name, load] of loads) {
    if (load.ok) {
      warnings.push(...load.warnings)
      follows.push(() => [name, load.follow()])
    } else {
      problems.push(...load.problems)
    }
  }
  if (problems.length > 0) return { ok: false, problems }
  return { ok: true, warnings, follow: () => inForce(new Map(follows.map((follow) => follow()))) }
}

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
