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

/** Ten minutes of a sidecar that has much to do, with an upstream that fails now and then. The same each time. */
export async function tenBusyMinutes() {
  const key = { alg: 'ES256', createdAt: '', tokensLiveSeconds: 86_400 }
  const dayOf = (days: number) => ({
    createdAt: new Date(NOON - days * 86_400_000).toISOString(),
    ageSeconds: days * 86_400 + 12_345,
  })
  const scene = statusScene({
    upstreams: [
      { prefix: '/', url: 'http://127.0.0.1:9000' },
      { prefix: '/archive', url: 'https://archive.storage.example' },
      { prefix: '/thumbnails', url: 'unix:/run/thumbnails/api.sock' },
    ],
    ready: () => [
      { name: 'keys', ok: true },
      { name: 'credentials', ok: true, state: 'current' },
      { name: 'accepting', ok: true },
    ],
    credentials: { postgres: {} },
    keys: () => [
      { ...key, kid: 'rotation-2026-11', signs: true, ...dayOf(12) },
      { ...key, kid: 'rotation-2026-08', signs: false, ...dayOf(103), tokensLiveSeconds: 0 },
    ],
    sources: {
      pools: () => [
        { upstream: '/', connections: 24, queued: 0 },
        { upstream: '/archive', connections: 3, queued: 0 },
        { upstream: '/thumbnails', connections: 0, queued: 0 },
      ],
    },
  })
  const { metrics, reporter, cache, reloads } = scene
  // A generator of its own (a linear congruential one), so that pictures differ only where the page does.
  let seed = 7
  const random = () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return seed / 2_147_483_648
  }
  const times = (mean: number, act: () => void) => {
    const count = Math.floor(mean * (0.8 + 0.4 * random()) + random())
    for (let i = 0; i < count; i++) act()
  }
  const took = (seconds: number) => seconds * (0.4 + 1.6 * random() ** 3)
  await reporter.sample()
  for (let step = 0; step < 120; step++) {
    const wave = 1 + 0.35 * Math.sin(step / 17) + (step > 70 && step < 82 ? 0.8 : 0)
    const slow = step > 70 && step < 82 ? 6 : 1
    times(240 * wave, () => {
      metrics.onRequest('proxy', 'GET', 200, took(0.006) * slow * (random() > 0.985 ? 8 : 1))
      metrics.onUpstreamOutcome('/', random() > 0.999 ? 'client_aborted' : 'ok')
      metrics.onFirstByte('/', took(0.004) * slow)
      metrics.onTokenCheck('ok')
      cache.hits++
    })
    times(12, () => {
      const down = step > 72 && step < 80
      metrics.onRequest('proxy', 'PUT', down ? 503 : 200, took(0.03))
      metrics.onUpstreamOutcome('/archive', down ? 'connection_refused' : 'ok')
      if (!down) metrics.onFirstByte('/archive', took(0.02))
      metrics.onTokenCheck('ok')
    })
    times(3, () => {
      metrics.onRequest('token_issue', 'POST', 200, took(0.0009))
      metrics.onTokenIssued()
      cache.misses++
      cache.size++
    })
    const refuse = (mean: number, reason: Parameters<typeof metrics.onTokenCheck>[0]) =>
      times(mean, () => {
        metrics.onRequest('proxy', 'GET', 400, took(0.0005))
        metrics.onTokenCheck(reason)
      })
    refuse(step > 30 && step < 44 ? 16 : 3, 'expired')
    refuse(1.2, 'missing')
    refuse(step > 95 ? 7 : 0.1, 'unknown_key')
    refuse(0.15, 'malformed')
    times(step > 95 ? 1.4 : 0.1, () => metrics.onIssueFailure('rejected'))
    await scene.step()
    if (step === 40) reloads.onReload('keys', 'ok', 0.2)
    if (step === 100) reloads.onReload('revocations', 'failed', 0.1)
  }
  return scene
}
