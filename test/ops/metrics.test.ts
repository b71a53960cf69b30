import { AggregatorRegistry } from 'prom-client'
import t from 'tap'
import { UPSTREAM_OUTCOMES } from '../../src/http/upstream-failures.ts'
import { createMetrics, type MeasuredAuthData } from '../../src/ops/metrics.ts'
import { ISSUE_FAILURES } from '../../src/request/context.ts'
import { REFUSAL_REASONS } from '../../src/token/verify.ts'
import { VERSION } from '../../src/version.ts'
import { parseMetrics, type Sample } from '../support/prometheus.ts'

const ROUTES = ['token_issue', 'token_check', 'proxy', 'public', 'forward_auth']

function keySet(issuer: string, age: () => number | undefined) {
  return { issuer, state: () => ({ ageSeconds: age() }) }
}

const AUTH_DATA: MeasuredAuthData = {
  subjects: ['keys', 'credentials', 'revocations', 'certificates'],
  keys: {
    signing: () => ({ kid: 'k1', createdAtSeconds: 1000 }),
    tokenLifetimes: () => [
      { kid: 'k1', seconds: 86_400 },
      { kid: 'k0', seconds: 12 },
    ],
  },
  certificates: new Map([
    ['listener', { current: () => ({ endsAtSeconds: 1.5 }) }],
    ['admin', { current: () => ({}) }],
  ]),
  keySets: [keySet('idp', () => 1), keySet('other', () => undefined)],
  revocations: { count: () => 13 },
}

interface Changes {
  readonly authData?: Partial<MeasuredAuthData>
  readonly isReady?: boolean
  readonly now?: () => number
}

/** Metrics, and the result of a scrape. */
function metricsOf({ authData, isReady = true, now = () => 61_500_000 }: Changes = {}) {
  const upstreams = ['/', '/b'].map((prefix) => ({ prefix, url: 'http://127.0.0.1:9' }))
  const metrics = createMetrics({ upstreams, enforcement: 'enforce' }, { ...AUTH_DATA, ...authData }, now)
  const pools = [
    { upstream: '/', connections: 5, queued: 9 },
    { upstream: '/b', connections: 0, queued: 0 },
  ]
  metrics.readFrom({
    cache: { hits: 7, misses: 3, evictions: 2, size: 1 },
    listener: { inFlight: 4, connections: 6, droppedConnections: 8 },
    forwarder: { pools: () => pools },
    isReady: () => isReady,
    logLinesDropped: () => 11,
  })
  const scrape = async () => parseMetrics(await metrics.registry.metrics())
  return { metrics, scrape }
}

/** The value of the sample with these labels; undefined when there is none. */
function sampleValue(samples: readonly Sample[], name: string, labels: Sample['labels'] = {}) {
  return samples.find((sample) => sample.name === name && sorted(sample.labels) === sorted(labels))?.value
}

const sorted = (labels: Sample['labels']) => JSON.stringify(Object.entries(labels).sort())

t.test('every series with closed label sets starts at zero', async (t) => {
  const samples = await metricsOf().scrape()
  const results = (reason: string) => ({ result: reason === 'ok' ? 'accepted' : 'rejected', reason })
  for (const [name, labels] of [
    ['tokens_issued_total', [{}]],
    ['links_issued_total', [{}]],
    ['token_checks_total', ['ok', ...REFUSAL_REASONS].map(results)],
    ['token_issue_failures_total', ISSUE_FAILURES.map((reason) => ({ reason }))],
    ['upstream_requests_total', UPSTREAM_OUTCOMES.map((outcome) => ({ upstream: '/b', outcome }))],
    ['upstream_response_seconds_count', [{ upstream: '/' }, { upstream: '/b' }]],
    ['request_duration_seconds_count', ROUTES.map((route) => ({ route }))],
    ['transferred_bytes_total', [{ direction: 'in' }, { direction: 'out' }]],
  ] as const)
    for (const series of labels)
      t.equal(sampleValue(samples, `auth_sidecar_${name}`, series), 0, `${name} ${JSON.stringify(series)}`)
})

t.test('reloads are counted, and a subject is failing while any of its parts fails', async (t) => {
  let time = 1_000_000
  const { metrics, scrape } = metricsOf({ authData: { subjects: ['certificates'] }, now: () => time })
  const values = async () => {
    const samples = await scrape()
    const value = (name: string, labels = {}) =>
      sampleValue(samples, `auth_sidecar_${name}`, { subject: 'certificates', ...labels })
    return {
      ok: value('reloads_total', { result: 'ok' }),
      failed: value('reloads_total', { result: 'failed' }),
      failing: value('reload_failing'),
      lastGood: value('reload_last_good_timestamp_seconds'),
    }
  }
  t.strictSame(await values(), { ok: 0, failed: 0, failing: 0, lastGood: 1000 })
  time = 2_000_000
  metrics.onReload('certificates', 'failed', 'listener')
  metrics.onReload('certificates', 'ok', 'upstream:/')
  t.strictSame(await values(), { ok: 1, failed: 1, failing: 1, lastGood: 2000 })
  metrics.onReload('certificates', 'ok', 'listener')
  t.strictSame(await values(), { ok: 2, failed: 1, failing: 0, lastGood: 2000 })
})

t.test('fetches of a JWK Set are counted, and its age is absent before the first', async (t) => {
  let age: number | undefined
  const keySets = [keySet('idp', () => age), keySet('other', () => undefined)]
  const { metrics, scrape } = metricsOf({ authData: { keySets } })
  metrics.onFetch('idp', 'failed')
  t.equal(sampleValue(await scrape(), 'auth_sidecar_jwks_age_seconds'), undefined)
  age = 7
  const samples = await scrape()
  t.equal(sampleValue(samples, 'auth_sidecar_jwks_age_seconds', { issuer: 'idp' }), 7)
  t.equal(sampleValue(samples, 'auth_sidecar_jwks_fetches_total', { issuer: 'idp', result: 'failed' }), 1)
  t.equal(sampleValue(samples, 'auth_sidecar_jwks_fetches_total', { issuer: 'other', result: 'ok' }), 0)
})

t.test('with several processes counters are summed and gauges take the worst state', async (t) => {
  const processOf = (isReady: boolean, ageSeconds: number, revocations: number) => {
    const keySets = [keySet('idp', () => ageSeconds)]
    const authData = { keySets, revocations: { count: () => revocations } }
    const { metrics } = metricsOf({ authData, isReady })
    metrics.onRequest('proxy', 'GET', 200, 0.3)
    metrics.onReload('keys', 'ok')
    return metrics.registry.getMetricsAsJSON()
  }
  const [well, behind] = [processOf(true, 2, 3), processOf(false, 700, 2)]
  const samples = parseMetrics(await AggregatorRegistry.aggregate([await well, await behind]).metrics())
  for (const [name, value, labels] of [
    ['requests_total', 2, { route: 'proxy', method: 'GET', status: '200' }],
    ['request_duration_seconds_bucket', 2, { route: 'proxy', le: '0.5' }],
    ['requests_in_flight', 8, {}],
    ['client_connections', 12, {}],
    ['client_connections_dropped_total', 16, {}],
    ['token_cache_hits_total', 14, {}],
    ['token_cache_misses_total', 6, {}],
    ['token_cache_evictions_total', 4, {}],
    ['token_cache_entries', 2, {}],
    ['log_lines_dropped_total', 22, {}],
    ['key_token_lifetime_seconds', 12, { kid: 'k0' }],
    ['upstream_queue', 18, { upstream: '/' }],
    ['enforcing', 1, {}],
    ['upstream_connections', 10, { upstream: '/' }],
    ['signing_key_age_seconds', 60_500, { kid: 'k1' }],
    ['certificate_not_after_timestamp_seconds', 1.5, { certificate: 'listener' }],
    ['revocations', 3, {}],
    ['ready', 0, {}],
    ['jwks_age_seconds', 700, { issuer: 'idp' }],
    ['reloads_total', 1, { subject: 'keys', result: 'ok' }],
    ['build_info', 1, { version: VERSION, node: process.version }],
  ] as const) {
    t.equal(sampleValue(samples, `auth_sidecar_${name}`, labels), value, name)
  }
})
