/**
 * A sidecar's metrics without the sidecar: what a status is made of, at a set time.
 *
 * @module
 */
import { createMetrics, type MetricSources } from '../../src/ops/metrics.ts'
import { createReloadMetrics } from '../../src/ops/reload-metrics.ts'
import { statusMetricsOf } from '../../src/ops/status/metric-families.ts'
import { createStatusReporter, type StatusReporterOptions } from '../../src/ops/status/report.ts'

/** 2026-11-20T12:00:00Z. */
export const NOON = Date.UTC(2026, 10, 20, 12)

/** What a test may want otherwise. */
export type SceneOptions = Partial<Omit<StatusReporterOptions, 'source' | 'now'>> & {
  readonly sources?: Partial<MetricSources>
}

/** Makes the metrics and a reporter that reads them. */
export function statusScene({ sources, ...options }: SceneOptions = {}) {
  const clock = { ms: NOON }
  const now = () => clock.ms
  const upstreams = options.upstreams ?? [{ prefix: '/', url: 'http://127.0.0.1:9000' }]
  const cache = { hits: 0, misses: 0, evictions: 0, size: 0 }
  const metrics = createMetrics({
    version: '1.2.3',
    upstreams: upstreams.map(({ prefix }) => prefix),
    sources: {
      cache: () => cache,
      listener: () => ({ inFlight: 3, connections: 7, droppedConnections: 0 }),
      signingKey: () => undefined,
      tokenLifetimes: () => [],
      revocations: () => 2,
      ready: () => true,
      pools: () => upstreams.map(({ prefix: upstream }) => ({ upstream, connections: 4, queued: 1 })),
      logLinesDropped: () => 0,
      ...sources,
    },
    now,
  })
  const { registry } = metrics
  const reloads = createReloadMetrics({ registry, subjects: ['revocations', 'keys', 'credentials'], now })
  const faults: Error[] = []
  const reporter = createStatusReporter({
    version: '1.2.3',
    ready: () => [
      { name: 'keys', ok: true },
      { name: 'credentials', ok: true },
    ],
    keys: () => [],
    credentials: { file: 'credentials.yaml' },
    cacheCapacity: 10_000,
    rssBytes: process.memoryUsage.rss,
    onFault: (error) => void faults.push(error),
    ...options,
    upstreams,
    source: statusMetricsOf(registry),
    now,
  })
  return {
    clock,
    cache,
    metrics,
    registry,
    reloads,
    reporter,
    faults,
    /** Lets time pass, and takes a sample. */
    async step(seconds = 5) {
      clock.ms += seconds * 1000
      await reporter.sample()
    },
  }
}
