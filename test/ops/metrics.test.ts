import { AggregatorRegistry } from 'prom-client'
import t, { type Test } from 'tap'
import {
  createMetrics,
  ISSUE_FAILURES,
  type MetricSources,
  type MetricsOptions,
} from '../../src/ops/metrics.ts'
import { UPSTREAM_OUTCOMES } from '../../src/proxy/upstream-errors.ts'
import { REJECT_REASONS } from '../../src/token/verdict.ts'
import { type Family, parseMetrics, type Sample } from '../support/prometheus.ts'

const ROUTES = ['token_issue', 'token_check', 'proxy', 'public', 'forward_auth']
const SUBJECTS = ['keys', 'credentials', 'revocations', 'certificates'] as const

const SOURCES: MetricSources = {
  cache: () => ({ hits: 7, misses: 3, evictions: 2, size: 1 }),
  listener: () => ({ inFlight: 4, connections: 6, droppedConnections: 8 }),
  signingKey: () => ({ kid: 'k1', createdAt: 1000 }),
  tokenLifetimes: () => [
    { kid: 'k1', seconds: 86_400 },
    { kid: 'k0', seconds: 12 },
  ],
  certificates: () => [{ certificate: 'listener', expiresAt: 1_500 }],
  remoteKeys: () => ({ ageSeconds: 1 }),
  revocations: () => 13,
  pools: () => [
    { upstream: '/', connections: 5, queued: 9 },
    { upstream: '/b', connections: 0, queued: 0 },
  ],
  ready: () => true,
  logLinesDropped: () => 11,
}

/** Metrics, and the result of a scrape. */
function metricsOf(sources: Partial<MetricSources> = {}, options: Partial<MetricsOptions> = {}) {
  const metrics = createMetrics({
    version: '1.2.3',
    upstreams: ['/', '/b'],
    subjects: SUBJECTS,
    enforcing: true,
    sources: { ...SOURCES, ...sources },
    now: () => 61_500_000,
    ...options,
  })
  const scrape = async () => parseMetrics(await metrics.registry.metrics())
  return { metrics, scrape }
}

/** The value of the sample with these labels; undefined when there is none. */
function sampleValue(families: Map<string, Family>, name: string, labels: Sample['labels'] = {}) {
  const family = families.get(name) ?? families.get(name.replace(/_(?:bucket|sum|count)$/, ''))
  return family?.samples.find((sample) => sample.name === name && sorted(sample.labels) === sorted(labels))
    ?.value
}

const sorted = (labels: Sample['labels']) => JSON.stringify(Object.entries(labels).sort())

t.test('every series of a closed set is there, at zero, before anything has happened', async (t) => {
  const families = await metricsOf().scrape()
  for (const reason of ['ok', ...REJECT_REASONS]) {
    const result = reason === 'ok' ? 'accepted' : 'rejected'
    t.equal(sampleValue(families, 'auth_sidecar_token_checks_total', { result, reason }), 0, reason)
  }
  for (const reason of ISSUE_FAILURES) {
    t.equal(sampleValue(families, 'auth_sidecar_token_issue_failures_total', { reason }), 0, reason)
  }
  for (const upstream of ['/', '/b']) {
    for (const outcome of UPSTREAM_OUTCOMES) {
      t.equal(
        sampleValue(families, 'auth_sidecar_upstream_requests_total', { upstream, outcome }),
        0,
        outcome,
      )
    }
    t.equal(sampleValue(families, 'auth_sidecar_upstream_response_seconds_count', { upstream }), 0)
  }
  for (const route of ROUTES) {
    t.equal(sampleValue(families, 'auth_sidecar_request_duration_seconds_count', { route }), 0, route)
  }
  for (const direction of ['in', 'out']) {
    t.equal(sampleValue(families, 'auth_sidecar_transferred_bytes_total', { direction }), 0, direction)
  }
  t.equal(sampleValue(families, 'auth_sidecar_tokens_issued_total'), 0)
})

t.test('values of other parts are read at each scrape', async (t) => {
  const families = await metricsOf().scrape()
  for (const [name, value] of [
    ['auth_sidecar_requests_in_flight', 4],
    ['auth_sidecar_client_connections', 6],
    ['auth_sidecar_client_connections_dropped_total', 8],
    ['auth_sidecar_token_cache_hits_total', 7],
    ['auth_sidecar_token_cache_misses_total', 3],
    ['auth_sidecar_token_cache_evictions_total', 2],
    ['auth_sidecar_token_cache_entries', 1],
    ['auth_sidecar_log_lines_dropped_total', 11],
    ['auth_sidecar_revocations', 13],
  ] as const) {
    t.equal(sampleValue(families, name), value, name)
  }
  for (const [kid, seconds] of [
    ['k1', 86_400],
    ['k0', 12],
  ] as const) {
    t.equal(sampleValue(families, 'auth_sidecar_key_token_lifetime_seconds', { kid }), seconds, kid)
  }
  t.equal(sampleValue(families, 'auth_sidecar_upstream_connections', { upstream: '/' }), 5)
  t.equal(sampleValue(families, 'auth_sidecar_upstream_queue', { upstream: '/' }), 9)
  t.equal(sampleValue(families, 'auth_sidecar_build_info', { version: '1.2.3', node: process.version }), 1)
  for (const name of [
    'process_resident_memory_bytes',
    'process_open_fds',
    'nodejs_eventloop_lag_p99_seconds',
  ]) {
    t.ok(families.has(name), name)
  }
})

t.test('the age of the signing key is never below zero', async (t) => {
  const age = async (sources: Partial<MetricSources>, now = 61_500_000) =>
    sampleValue(
      await metricsOf(sources, { now: () => now }).scrape(),
      'auth_sidecar_signing_key_age_seconds',
      { kid: 'k1' },
    )
  t.equal(await age({}), 60_500)
  t.equal(await age({}, 999_000), 0, 'a key from a machine whose clock is ahead')
  t.equal(await age({ signingKey: () => undefined }), undefined, 'nothing signs')
})

t.test('events are counted under their labels', async (t: Test) => {
  const { metrics, scrape } = metricsOf()
  metrics.onRequest('proxy', 'GET', 200, 0.0015)
  metrics.onRequest('proxy', 'GET', 200, 0.3)
  metrics.onRequest('token_issue', 'POST', 403, 120)
  metrics.onTokenCheck('ok')
  metrics.onTokenCheck('expired')
  metrics.onTokenIssued()
  metrics.onIssueFailure('throttled')
  metrics.onUpstreamOutcome('/b', 'dns_error')
  metrics.onFirstByte('/b', 0.004)
  metrics.onBytes('in', 10)
  metrics.onBytes('out', 2 ** 40)
  const families = await scrape()
  const expect = (name: string, labels: Sample['labels'], value: number) =>
    t.equal(sampleValue(families, name, labels), value, `${name} ${JSON.stringify(labels)}`)
  expect('auth_sidecar_requests_total', { route: 'proxy', method: 'GET', status: '200' }, 2)
  expect('auth_sidecar_requests_total', { route: 'token_issue', method: 'POST', status: '403' }, 1)
  const duration = 'auth_sidecar_request_duration_seconds'
  expect(`${duration}_bucket`, { route: 'proxy', le: '0.001' }, 0)
  expect(`${duration}_bucket`, { route: 'proxy', le: '0.0025' }, 1)
  expect(`${duration}_bucket`, { route: 'proxy', le: '0.5' }, 2)
  expect(`${duration}_sum`, { route: 'proxy' }, 0.3015)
  expect(`${duration}_bucket`, { route: 'token_issue', le: '60' }, 0)
  expect(`${duration}_bucket`, { route: 'token_issue', le: '+Inf' }, 1)
  expect('auth_sidecar_token_checks_total', { result: 'accepted', reason: 'ok' }, 1)
  expect('auth_sidecar_token_checks_total', { result: 'rejected', reason: 'expired' }, 1)
  expect('auth_sidecar_tokens_issued_total', {}, 1)
  expect('auth_sidecar_token_issue_failures_total', { reason: 'throttled' }, 1)
  expect('auth_sidecar_upstream_requests_total', { upstream: '/b', outcome: 'dns_error' }, 1)
  expect('auth_sidecar_upstream_requests_total', { upstream: '/', outcome: 'dns_error' }, 0)
  expect('auth_sidecar_upstream_response_seconds_bucket', { upstream: '/b', le: '0.005' }, 1)
  expect('auth_sidecar_transferred_bytes_total', { direction: 'in' }, 10)
  expect('auth_sidecar_transferred_bytes_total', { direction: 'out' }, 2 ** 40)
})

t.test('a method that a client invents adds no series', async (t) => {
  const { metrics, scrape } = metricsOf()
  for (const method of ['PROPFIND', 'get', 'X'.repeat(1000), '', undefined]) {
    metrics.onRequest('proxy', method, 400, 0)
  }
  const families = await scrape()
  t.strictSame(families.get('auth_sidecar_requests_total')?.samples, [
    {
      name: 'auth_sidecar_requests_total',
      labels: { route: 'proxy', method: 'other', status: '400' },
      value: 5,
    },
  ])
})

t.test('an unknown upstream adds no series', async (t) => {
  const { metrics, scrape } = metricsOf()
  const before = await scrape()
  metrics.onUpstreamOutcome('/other', 'ok')
  metrics.onFirstByte('/other', 1)
  const name = 'auth_sidecar_upstream_requests_total'
  t.strictSame((await scrape()).get(name)?.samples, before.get(name)?.samples)
})

t.test('reloads are counted, and a subject is failing while one of its parts is', async (t) => {
  let time = 1_000_000
  const { metrics, scrape } = metricsOf({}, { subjects: ['certificates'], now: () => time })
  const values = async () => {
    const families = await scrape()
    const value = (name: string, labels = {}) =>
      sampleValue(families, `auth_sidecar_${name}`, { subject: 'certificates', ...labels })
    return {
      ok: value('reloads_total', { result: 'ok' }),
      failed: value('reloads_total', { result: 'failed' }),
      failing: value('reload_failing'),
      lastGood: value('reload_last_good_timestamp_seconds'),
      inTime: value('reload_seconds_bucket', { le: '1' }),
    }
  }
  t.strictSame(await values(), { ok: 0, failed: 0, failing: 0, lastGood: 1000, inTime: 0 })
  time = 2_000_000
  metrics.onReload('certificates', 'failed', undefined, 'listener')
  metrics.onReload('certificates', 'ok', 0.6, 'upstream:/')
  t.strictSame(await values(), { ok: 1, failed: 1, failing: 1, lastGood: 2000, inTime: 1 })
  metrics.onReload('certificates', 'ok', 4, 'listener')
  t.strictSame(await values(), { ok: 2, failed: 1, failing: 0, lastGood: 2000, inTime: 1 })
  metrics.onReload('keys', 'ok')
  t.strictSame(
    (await scrape()).get('auth_sidecar_reload_failing')?.samples.length,
    1,
    'what is not reloaded here',
  )
})

t.test('fetches of a JWK Set are counted, and its age is absent before the first', async (t) => {
  const state: { ageSeconds?: number } = {}
  const { metrics, scrape } = metricsOf({ remoteKeys: () => state })
  metrics.onFetch('failed')
  t.equal(sampleValue(await scrape(), 'auth_sidecar_jwks_age_seconds'), undefined)
  state.ageSeconds = 7
  const families = await scrape()
  t.equal(sampleValue(families, 'auth_sidecar_jwks_age_seconds'), 7)
  t.equal(sampleValue(families, 'auth_sidecar_jwks_fetches_total', { result: 'failed' }), 1)
  t.equal(sampleValue(families, 'auth_sidecar_jwks_fetches_total', { result: 'ok' }), 0)
  const { scrape: scrapeOwn } = metricsOf({ remoteKeys: undefined })
  t.notOk((await scrapeOwn()).has('auth_sidecar_jwks_age_seconds'), 'only with keys.jwksUrl')
})

t.test('enforcing is 0 in report mode', async (t) => {
  for (const enforcing of [true, false]) {
    const families = await metricsOf({}, { enforcing }).scrape()
    t.equal(sampleValue(families, 'auth_sidecar_enforcing'), enforcing ? 1 : 0)
  }
})

t.test('with several processes counts add up, and a state is that of the worst one', async (t) => {
  const processOf = (sources: Partial<MetricSources>) => {
    const { metrics } = metricsOf(sources)
    metrics.onRequest('proxy', 'GET', 200, 0.3)
    metrics.onReload('keys', 'ok')
    return metrics.registry.getMetricsAsJSON()
  }
  const well = processOf({ ready: () => true, remoteKeys: () => ({ ageSeconds: 2 }), revocations: () => 3 })
  const behind = processOf({
    ready: () => false,
    remoteKeys: () => ({ ageSeconds: 700 }),
    revocations: () => 2,
  })
  const families = parseMetrics(await AggregatorRegistry.aggregate([await well, await behind]).metrics())
  for (const [name, value, labels] of [
    ['requests_total', 2, { route: 'proxy', method: 'GET', status: '200' }],
    ['request_duration_seconds_bucket', 2, { route: 'proxy', le: '0.5' }],
    ['requests_in_flight', 8, {}],
    ['token_cache_hits_total', 14, {}],
    ['upstream_connections', 10, { upstream: '/' }],
    ['signing_key_age_seconds', 60_500, { kid: 'k1' }],
    ['certificate_not_after_timestamp_seconds', 1.5, { certificate: 'listener' }],
    ['revocations', 3, {}],
    ['ready', 0, {}],
    ['jwks_age_seconds', 700, {}],
    ['reloads_total', 1, { subject: 'keys', result: 'ok' }],
    ['build_info', 1, { version: '1.2.3', node: process.version }],
  ] as const) {
    t.equal(sampleValue(families, `auth_sidecar_${name}`, labels), value, name)
  }
})
