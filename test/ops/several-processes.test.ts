import { AggregatorRegistry, Registry } from 'prom-client'
import t from 'tap'
import { createJwksMetrics } from '../../src/ops/jwks-metrics.ts'
import { createMetrics, type MetricSources, type Metrics } from '../../src/ops/metrics.ts'
import { registerProcessMetrics } from '../../src/ops/process-metrics.ts'
import { createReloadMetrics } from '../../src/ops/reload-metrics.ts'
import { parseMetrics } from '../support/prometheus.ts'

/** Two processes of one sidecar: one that is well, and one that lags behind in everything. */
const WELL = { ready: true, createdAt: 1000, seconds: 50, revocations: 3, jwksAge: 2, reload: 'ok' } as const
const BEHIND = {
  ready: false,
  createdAt: 900,
  seconds: 86_400,
  revocations: 2,
  jwksAge: 700,
  reload: 'failed',
} as const

function processOf(state: typeof WELL | typeof BEHIND): Metrics {
  const sources: MetricSources = {
    cache: () => ({ hits: 10, misses: 1, evictions: 0, size: 4 }),
    listener: () => ({ inFlight: 2, connections: 3, droppedConnections: 1 }),
    signingKey: () => ({ kid: 'k1', createdAt: state.createdAt }),
    tokenLifetimes: () => [{ kid: 'k1', seconds: state.seconds }],
    revocations: () => state.revocations,
    pools: () => [{ upstream: '/', connections: 5, queued: 6 }],
    ready: () => state.ready,
    logLinesDropped: () => 7,
  }
  const metrics = createMetrics({ version: '1.2.3', upstreams: ['/'], sources, now: () => 2_000_000 })
  const { registry } = metrics
  let time = 3_000_000
  const { onReload } = createReloadMetrics({ registry, subjects: ['keys'], now: () => time })
  time = 4_000_000
  onReload('keys', state.reload, 0.2)
  createJwksMetrics({ registry, state: () => ({ loaded: true, ageSeconds: state.jwksAge }) })
  metrics.onRequest('proxy', 'GET', 200, 0.3)
  return metrics
}

/** What a scrape of several processes gives. */
async function scrapeOf(registries: readonly Registry[]): Promise<string> {
  const each = await Promise.all(registries.map((registry) => registry.getMetricsAsJSON()))
  return AggregatorRegistry.aggregate(each).metrics()
}

t.test('what is counted adds up; a state is that of the process that is worst off', async (t) => {
  const text = await scrapeOf([processOf(WELL), processOf(BEHIND)].map(({ registry }) => registry))
  parseMetrics(text)
  const lines = text.split('\n')
  for (const line of [
    'auth_sidecar_requests_total{route="proxy",method="GET",status="200"} 2',
    'auth_sidecar_request_duration_seconds_bucket{route="proxy",le="0.25"} 0',
    'auth_sidecar_request_duration_seconds_bucket{route="proxy",le="0.5"} 2',
    'auth_sidecar_request_duration_seconds_count{route="proxy"} 2',
    'auth_sidecar_requests_in_flight 4',
    'auth_sidecar_client_connections 6',
    'auth_sidecar_client_connections_dropped_total 2',
    'auth_sidecar_token_cache_hits_total 20',
    'auth_sidecar_token_cache_entries 8',
    'auth_sidecar_upstream_connections{upstream="/"} 10',
    'auth_sidecar_upstream_queue{upstream="/"} 12',
    'auth_sidecar_signing_key_age_seconds{kid="k1"} 1100',
    'auth_sidecar_key_token_lifetime_seconds{kid="k1"} 86400',
    'auth_sidecar_revocations 3',
    'auth_sidecar_log_lines_dropped_total 14',
    'auth_sidecar_ready 0',
    `auth_sidecar_build_info{version="1.2.3",node="${process.version}"} 1`,
    'auth_sidecar_reloads_total{subject="keys",result="failed"} 1',
    'auth_sidecar_reload_last_good_timestamp_seconds{subject="keys"} 3000',
    'auth_sidecar_reload_failing{subject="keys"} 1',
    'auth_sidecar_jwks_age_seconds 700',
  ]) {
    t.ok(lines.includes(line), line)
  }
})

t.test(
  'the process that hangs is not hidden by those that do not, and the start is the first one',
  async (t) => {
    const registries = [1, 2].map((value) => {
      const registry = new Registry()
      registerProcessMetrics(registry)
      for (const name of ['nodejs_eventloop_lag_p99_seconds', 'process_start_time_seconds']) {
        const metric = registry.getSingleMetric(name)
        if (metric === undefined) throw new Error(`there is no ${name}`)
        const { get } = metric
        metric.get = async () => ({ ...(await get.call(metric)), values: [{ labels: {}, value }] })
      }
      return registry
    })
    const text = await scrapeOf(registries)
    t.match(text, '\nnodejs_eventloop_lag_p99_seconds 2\n')
    t.match(text, '\nprocess_start_time_seconds 1\n')
  },
)
