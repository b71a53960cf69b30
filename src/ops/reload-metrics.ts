/**
 * Counts what became of new versions of keys, credentials, revocations and certificates, and how soon they were in force.
 *
 * In: the outcome of each reload. Out: series for a scrape, with the subject as their label.
 *
 * @module
 */
import type { Registry } from 'prom-client'
import { RELOAD_RESULTS, type ReloadResult } from '../reload/reloadable.ts'
import { registerSeries, SecondsTally, WordTally } from './tally.ts'

/** What can be reloaded; the label `subject`. */
export const RELOAD_SUBJECTS = ['keys', 'credentials', 'revocations', 'certificates'] as const

/** One of the subjects. */
export type ReloadSubject = (typeof RELOAD_SUBJECTS)[number]

/** Everything about reloads that is counted as it happens. */
export interface ReloadMetrics {
  /**
   * `seconds`: from the change to its being in force, where a change was the reason. `part`: which of several things
   * under the subject; the subject fails for as long as one of them does.
   */
  onReload(subject: ReloadSubject, result: ReloadResult, seconds?: number, part?: string): void
}

/** What the series are made of. */
export interface ReloadMetricsOptions {
  readonly registry: Registry
  /** What this sidecar reloads; it has been loaded once already. */
  readonly subjects: readonly ReloadSubject[]
  /** Epoch milliseconds. */
  readonly now: () => number
}

/** Upper bounds in seconds; what comes later than 1 breaks the promise. */
const SECONDS = [0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 10, 60]

/** Registers the series. */
export function createReloadMetrics({ registry, subjects, now }: ReloadMetricsOptions): ReloadMetrics {
  const start = now()
  const all = new Map(
    subjects.map((subject) => [
      subject,
      {
        results: new WordTally(RELOAD_RESULTS),
        seconds: new SecondsTally(SECONDS),
        goodSince: start,
        failing: new Set<string>(),
      },
    ]),
  )
  const entries = () => [...all].map(([subject, counted]) => ({ labels: { subject }, ...counted }))

  registerSeries(
    registry,
    {
      name: 'auth_sidecar_reloads_total',
      help: 'New versions that were put in force (ok) or could not be used (failed).',
      type: 'counter',
      aggregator: 'max', // each process of a sidecar loads the same version
    },
    () =>
      entries().flatMap(({ labels, results }) =>
        [...results.entries()].map(([result, value]) => ({ labels: { ...labels, result }, value })),
      ),
  )
  const name = 'auth_sidecar_reload_seconds'
  registerSeries(
    registry,
    { name, help: 'Seconds from the change to its being in force.', type: 'histogram' },
    () => entries().flatMap(({ labels, seconds }) => seconds.series(name, labels)),
  )
  registerSeries(
    registry,
    {
      name: 'auth_sidecar_reload_last_good_timestamp_seconds',
      help: 'When the version in force was loaded, in epoch seconds.',
      type: 'gauge',
      aggregator: 'min',
    },
    () => entries().map(({ labels, goodSince }) => ({ labels, value: goodSince / 1000 })),
  )
  registerSeries(
    registry,
    {
      name: 'auth_sidecar_reload_failing',
      help: '1 while the newest version cannot be used and an older one is in force, else 0.',
      type: 'gauge',
      aggregator: 'max',
    },
    () => entries().map(({ labels, failing }) => ({ labels, value: failing.size > 0 ? 1 : 0 })),
  )

  return {
    onReload(subject, result, seconds, part = '') {
      const counted = all.get(subject)
      if (counted === undefined) return
      counted.results.add(result)
      if (result === 'ok') {
        counted.failing.delete(part)
        counted.goodSince = now()
      } else counted.failing.add(part)
      if (seconds !== undefined) counted.seconds.observe(seconds)
    },
  }
}
