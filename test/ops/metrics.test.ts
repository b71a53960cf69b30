import t from 'tap'
import { ACCESS_FAILURES, LOGIN_FAILURES, UPSTREAM_OUTCOMES } from '../../src/base/errors.ts'
import { VERSION } from '../../src/base/version.ts'
import type { RouteLabel } from '../../src/gate/route.ts'
import { exposition, storedFamilies } from '../../src/ops/exposition.ts'
import { type AuthDataSource, Metrics } from '../../src/ops/metrics.ts'
import type { ReadyCondition } from '../../src/ops/status.ts'
import { aggregate } from '../../src/workers/aggregate.ts'
import { parseMetrics, type Sample } from '../support/prometheus.ts'
import { NOON, statusSetup } from '../support/status-setup.ts'

const ROUTES = ['token_issue', 'token_check', 'proxy', 'public', 'forward_auth']

function keySet(issuer: string, age: () => number | undefined, failed = 0) {
  const state = () => ({ loaded: true, ageSeconds: age(), lastFetch: undefined })
  return { issuer, fetches: { ok: 0, failed }, state }
}

const AUTH_DATA: AuthDataSource = {
  suspicions: { suspect: () => [['credentials', 1]], fingerprints: () => [['credentials', 77]] },
  activeCredentials: () => 13,
  subjects: ['keys', 'credentials', 'revocations', 'certificates'],
  keys: {
    ring: () => ({ signing: { kid: 'k1', createdAtSeconds: 1000 } }),
    tokenLifetimes: () => [
      { kid: 'k1', seconds: 86_400 },
      { kid: 'k0', seconds: 12 },
    ],
  },
  certificateSets: new Map([
    ['listener', { current: () => ({ endsAtSeconds: 1.5 }) }],
    ['admin', { current: () => ({}) }],
  ]),
  keySets: [keySet('idp', () => 1), keySet('other', () => undefined)],
  revocations: { count: () => 13 },
}

interface Changes {
  readonly authData?: Partial<AuthDataSource>
  readonly isReady?: boolean
  readonly now?: () => number
}

/** Metrics, and the result of a scrape. */
function metricsOf({ authData, isReady = true, now = () => 61_500_000 }: Changes = {}) {
  const metrics = new Metrics(now)
  for (const prefix of ['/', '/b']) {
    metrics.ofUpstream(prefix)
  }
  const pools = [
    { prefix: '/', connections: 5, queued: 9 },
    { prefix: '/b', connections: 0, queued: 0 },
  ]
  const read = metrics.readFrom({
    config: { enforcement: 'enforce' },
    authData: { ...AUTH_DATA, ...authData },
    tokenCache: { counts: { hits: 7, misses: 3, evictions: 2, size: 1 } },
    listener: {
      inFlight: 4,
      connections: 6,
      connectionCounts: { dropped: 8, droppedByAddress: 9, evicted: 7 },
    },
    openFiles: { areUsedUp: false },
    forwarder: { pools: () => pools },
    isReady: () => isReady,
    processCounts: () => ({ log_lines_dropped_total: 11, uncaught_exceptions_total: 12 }),
  })
  const scrape = async () => parseMetrics(String(await exposition(await read('all'))))
  return { metrics, read, scrape }
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
    ['token_checks_total', ['ok', ...ACCESS_FAILURES].map(results)],
    ['token_issue_failures_total', LOGIN_FAILURES.map((reason) => ({ reason }))],
    ['upstream_requests_total', UPSTREAM_OUTCOMES.map((outcome) => ({ upstream: '/b', outcome }))],
    ['upstream_response_seconds_count', [{ upstream: '/' }, { upstream: '/b' }]],
    ['request_duration_seconds_count', ROUTES.map((route) => ({ route }))],
    ['transferred_bytes_total', [{ direction: 'in' }, { direction: 'out' }]],
  ] as const) {
    for (const series of labels) {
      t.equal(sampleValue(samples, `auth_sidecar_${name}`, series), 0, `${name} ${JSON.stringify(series)}`)
    }
  }
})

t.test('an upstream cannot choose the number of series, or hide statuses of the sidecar', async (t) => {
  const { metrics, scrape } = metricsOf()
  for (const status of [...Array(1000).keys(), 503]) {
    metrics.onRequest('proxy', 'GET', status, 0.1)
  }
  const samples = (await scrape()).filter(({ name }) => name === 'auth_sidecar_requests_total')
  t.equal(samples.length, 65)
  const count = (status: string) =>
    sampleValue(samples, 'auth_sidecar_requests_total', { route: 'proxy', method: 'GET', status })
  t.equal(count('99'), undefined)
  t.equal(count('100'), 1)
  t.equal(count('503'), 2)
  t.equal(count('other'), 1001 - 65)
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
  const keySets = [keySet('idp', () => age, 1), keySet('other', () => undefined)]
  const { scrape } = metricsOf({ authData: { keySets } })
  t.equal(sampleValue(await scrape(), 'auth_sidecar_jwks_age_seconds'), undefined)
  age = 7
  const samples = await scrape()
  t.equal(sampleValue(samples, 'auth_sidecar_jwks_age_seconds', { issuer: 'idp' }), 7)
  t.equal(sampleValue(samples, 'auth_sidecar_jwks_fetches_total', { issuer: 'idp', result: 'failed' }), 1)
  t.equal(sampleValue(samples, 'auth_sidecar_jwks_fetches_total', { issuer: 'other', result: 'ok' }), 0)
})

t.test('with several processes counters are summed and gauges take the worst state', async (t) => {
  const processOf = async (isReady: boolean, ageSeconds: number, revocations: number) => {
    const keySets = [keySet('idp', () => ageSeconds)]
    const authData = { keySets, revocations: { count: () => revocations } }
    const { metrics, read } = metricsOf({ authData, isReady })
    metrics.onRequest('proxy', 'GET', 200, 0.3)
    metrics.onReload('keys', 'ok')
    return storedFamilies(await read('all'))
  }
  const well = processOf(true, 2, 3)
  const behind = processOf(false, 700, 2)
  const samples = parseMetrics(String(await exposition(await aggregate([await well, await behind]))))
  for (const [name, value, labels] of [
    ['requests_total', 2, { route: 'proxy', method: 'GET', status: '200' }],
    ['request_duration_seconds_bucket', 2, { route: 'proxy', le: '0.5' }],
    ['requests_in_flight', 8, {}],
    ['client_connections', 12, {}],
    ['client_connections_dropped_total', 16, {}],
    ['client_connections_dropped_by_address_total', 18, {}],
    ['client_connections_evicted_total', 14, {}],
    ['token_cache_hits_total', 14, {}],
    ['token_cache_misses_total', 6, {}],
    ['token_cache_evictions_total', 4, {}],
    ['token_cache_entries', 2, {}],
    ['log_lines_dropped_total', 22, {}],
    ['uncaught_exceptions_total', 24, {}],
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

/** The texts of the problems, the head line first. */
async function problems(setup: ReturnType<typeof statusSetup>) {
  return (await setup.report()).problems.map(({ severity, text }) => `${severity}: ${text}`)
}

/** Counts a request that the upstream has answered. */
function forward({ metrics }: ReturnType<typeof statusSetup>, status: number, route: RouteLabel = 'proxy') {
  metrics.onRequest(route, 'GET', status, 0.01)
  metrics.ofUpstream('/').onOutcome('ok')
}

t.test('rates cover the last 30 seconds, counts the last ten minutes', async (t) => {
  const setup = statusSetup()
  await setup.samples.sample()
  for (let step = 0; step < 200; step++) {
    const busy = step < 190
    for (let i = 0; i < (busy ? 10 : 1); i++) {
      forward(setup, busy ? 503 : 200)
    }
    if (busy) {
      setup.metrics.onTokenCheck('expired')
    }
    await setup.step()
  }
  const { requests, rejections, window, series } = await setup.report()
  t.match(window, { seconds: 600, nowSeconds: 30 })
  t.match(requests, { perSecond: 0.2, count: 110 * 10 + 10, failing: 1100, failingRatio: 0 })
  t.match(requests.byStatus, { 200: 10, 503: 1100 })
  t.match(rejections, { perSecond: 0, count: 110 })
  t.equal(series.times.length, 120)
  t.equal(series.failingPerSecond[0], 2)
  t.equal(series.requestsPerSecond.at(-1), 0.2)
  setup.clock.ms -= 3_456_000_000
  t.match((await setup.report()).window, { seconds: 0, nowSeconds: 0 }, 'the clock was set back')
})

t.test('the CPU time is measured for the status page, even if nothing scrapes the metrics', async (t) => {
  const setup = statusSetup()
  await setup.step()
  const end = process.cpuUsage().user + 50_000
  while (process.cpuUsage().user < end) {}
  setup.clock.ms += 5000
  t.ok(Number((await setup.report()).process.cpuRatio) > 0.001)
})

t.test('only 5xx of forwarded requests count as failures, on public routes too', async (t) => {
  const setup = statusSetup()
  await setup.samples.sample()
  for (let i = 0; i < 10; i++) {
    setup.metrics.onRequest('token_issue', 'POST', 503, 0.01)
  }
  for (let i = 0; i < 9; i++) {
    forward(setup, 200)
  }
  await setup.step()
  t.match(await setup.report(), { requests: { failing: 0, failingRatio: 0 } })
  t.strictSame(await problems(setup), [])
  forward(setup, 500, 'public')
  await setup.step()
  t.match(await setup.report(), { requests: { failing: 1, failingRatio: 0.1 } })
  t.strictSame(await problems(setup), ['critical: 10 % of forwarded requests fail (5xx) in 10 s'])
})

t.test('refused requests do not hide that all others fail; refused tokens are a problem', async (t) => {
  const setup = statusSetup()
  await setup.samples.sample()
  for (let i = 0; i < 25; i++) {
    setup.metrics.onRequest('proxy', 'GET', 400, 0.01)
  }
  for (let i = 0; i < 25; i++) {
    setup.metrics.onTokenCheck('revoked')
  }
  for (let i = 0; i < 5; i++) {
    forward(setup, 500)
  }
  await setup.step()
  t.strictSame(await problems(setup), [
    'critical: Every token is refused: 25 revoked in 5 s',
    'critical: 100 % of forwarded requests fail (5xx) in 5 s',
  ])
  for (let i = 0; i < 95; i++) {
    forward(setup, 200)
  }
  for (let i = 0; i < 1000; i++) {
    setup.metrics.onTokenCheck('missing')
  }
  setup.metrics.onTokenCheck('ok')
  await setup.step()
  t.strictSame(await problems(setup), [
    'critical: 96 % of the tokens are refused: 25 revoked in 10 s',
    'critical: 5 % of forwarded requests fail (5xx) in 10 s',
  ])
})

t.test('the headline shows the most severe current problem', async (t) => {
  const setup = statusSetup({
    enforcement: 'report',
    upstreams: [
      { prefix: '/', url: 'http://127.0.0.1:9000' },
      { prefix: '/b', url: 'http://user:canary@10.0.0.1:9000/x' },
    ],
    authData: {
      certificateSets: new Map([
        ['listener', { current: () => ({ endsAtSeconds: NOON / 1000 + 3 * 86_400 }) }],
      ]),
      keys: {
        ring: () => ({ signing: { kid: 'k1', createdAtSeconds: NOON / 1000 - 91 * 86_400 } }),
        tokenLifetimes: () => [{ kid: 'k1', seconds: 60 }],
      },
      keySets: [keySet('idp', () => 400), keySet('other', () => undefined, 1)],
    },
  })
  const { metrics, checks } = setup
  await setup.samples.sample()
  t.strictSame(await problems(setup), [
    'warning: Certificate "listener" expires in 3 d',
    'warning: No good keys from idp for more than 5 min; the last ones are active',
    'warning: No keys from other yet: its tokens are refused',
    'warning: Signing key "k1" is older than 90 d',
    'warning: Report mode: refused tokens are forwarded',
  ])
  metrics.onReload('credentials', 'failed')
  checks.push({ name: 'accepting', ok: false, state: 'draining' })
  for (let i = 0; i < 97; i++) {
    forward(setup, 200)
  }
  metrics.onRequest('proxy', 'GET', 503, 0.1)
  metrics.ofUpstream('/').onOutcome('http_response_timeout')
  metrics.ofUpstream('/b').onOutcome('client_aborted')
  metrics.ofUpstream('/b').onOutcome('connection_refused')
  await setup.step()
  const [first, ...others] = await problems(setup)
  t.equal(first, 'critical: Upstream "/b" fails: connection_refused, last 0 s ago')
  t.strictSame(others.slice(0, 3), [
    'warning: Draining: 3 requests in flight',
    'warning: Upstream "/" fails at times: http_response_timeout',
    'warning: 1 % of forwarded requests fail (5xx) in 5 s',
  ])
  t.ok(others.includes('warning: The newest credentials cannot be used, or not in full: see the log'))
  checks.push({ name: 'keys', ok: false })
  t.match(await problems(setup), [first, 'critical: Not ready: keys'])
  const report = await setup.report()
  t.match(report, { ready: false, enforcing: false, upstreams: [{}, { address: 'http://10.0.0.1:9000' }] })
  t.notMatch(JSON.stringify(report), /canary/)
})

t.test('an upstream is failing until it responds again or the traffic stops', async (t) => {
  const setup = statusSetup()
  const state = async () => (await setup.report()).upstreams[0]
  const steps = async (count: number) => {
    for (let step = 0; step < count; step++) {
      await setup.step()
    }
  }
  await setup.samples.sample()
  t.match(await state(), { state: 'idle', lastFault: null })
  setup.metrics.ofUpstream('/').onOutcome('connection_refused')
  await steps(10)
  t.match(await state(), { state: 'failing', lastFault: { outcome: 'connection_refused', secondsAgo: 45 } })
  const text = 'critical: Upstream "/" fails: connection_refused, last 45 s ago'
  t.strictSame(await problems(setup), [text])
  await steps(4)
  t.match(await state(), { state: 'ok', lastFault: { secondsAgo: 65 } }, 'no more traffic')
  t.strictSame(await problems(setup), [])
  setup.metrics.ofUpstream('/').onOutcome('connection_refused')
  await setup.step()
  t.match(await state(), { state: 'failing' })
  setup.metrics.ofUpstream('/').onOutcome('ok')
  t.match(await state(), { state: 'degraded', count: 3, failed: 2 }, 'at once')
  setup.metrics.ofUpstream('/').onOutcome('client_aborted')
  await steps(7)
  t.match(await state(), { state: 'ok' }, 'what a client did is no fault')
})

t.test('each shortage and outage has a headline of its own', async (t) => {
  const connectionCounts = { dropped: 0, droppedByAddress: 0, evicted: 0 }
  const listener = { inFlight: 0, connections: 0, connectionCounts }
  let dropped = 0
  let uncaught = 0
  const openFiles = { areUsedUp: false }
  const checks: ReadyCondition[] = [{ name: 'credentials', ok: true, state: 'current' }]
  const setup = statusSetup({
    checks,
    upstreams: [
      { prefix: '/', url: 'http://127.0.0.1:9000' },
      { prefix: '/archive', url: 'http://127.0.0.1:9001' },
    ],
    parts: {
      listener,
      openFiles,
      processCounts: () => ({ log_lines_dropped_total: dropped, uncaught_exceptions_total: uncaught }),
    },
  })
  const { metrics } = setup
  /** The problems after a cause, once the previous one is over. */
  const after = async (cause: () => void) => {
    for (let step = 0; step < 121; step++) {
      await setup.step()
    }
    cause()
    await setup.step()
    return problems(setup)
  }
  const rejected = (count: number) => {
    for (let i = 0; i < count; i++) {
      metrics.onEvent({ event: 'login_failed', method: 'token', reason: 'rejected' })
    }
  }
  const respond = (prefix: string, status: number, count: number) => {
    for (let i = 0; i < count; i++) {
      metrics.ofUpstream(prefix).onOutcome('ok')
      metrics.ofUpstream(prefix).onResponse(status, 0.01)
    }
  }
  const cases: readonly (readonly [cause: () => void, problems: readonly string[]])[] = [
    [
      () => (connectionCounts.dropped = 3),
      ['critical: 3 connections closed in 30 s: limits.connections are open'],
    ],
    [
      () => (openFiles.areUsedUp = true),
      ['critical: No open file is left (ulimit -n): new clients are refused'],
    ],
    [
      () => {
        openFiles.areUsedUp = false
        dropped = 7
      },
      ['warning: 7 log lines lost in 10 min'],
    ],
    [() => (uncaught = 2), ['critical: 2 uncaught exceptions in 10 min: the log has them']],
    [
      () => metrics.ofUpstream('/').onOutcome('connection_limit_reached'),
      ['critical: Upstream "/" is overloaded: 1 requests refused in 30 s, its queue is full or too slow'],
    ],
    [
      () => metrics.onEvent({ event: 'login_failed', method: 'token', reason: 'unavailable' }),
      ['critical: Logins fail: 1 in 30 s, by a fault of this side'],
    ],
    [() => rejected(4), []],
    [() => rejected(5), ['warning: Every login fails: 5 rejected and none accepted in 30 s']],
    [
      () => {
        respond('/', 500, 9)
        respond('/', 200, 1)
        metrics.ofUpstream('/archive').onOutcome('connection_refused')
      },
      [
        'critical: Upstream "/" responds with 5xx to 90 % of requests in 30 s',
        'critical: Upstream "/archive" fails: connection_refused, last 0 s ago',
      ],
    ],
    [
      () => {
        checks.splice(0, 1, { name: 'credentials', ok: true, state: 'database down, last snapshot active' })
        metrics.onReload('credentials', 'failed')
        metrics.onEvent({ event: 'login_failed', method: 'token', reason: 'unavailable' })
      },
      ['critical: The credentials database is down: no logins; token checks use its last state'],
    ],
  ]
  for (const [cause, expected] of cases) {
    t.strictSame(await after(cause), expected)
  }
})

t.test('percentiles are interpolated within their bucket', async (t) => {
  const setup = statusSetup()
  await setup.samples.sample()
  for (let i = 0; i < 50; i++) {
    setup.metrics.onRequest('proxy', 'GET', 200, 0.02)
  }
  for (let i = 0; i < 50; i++) {
    setup.metrics.onRequest('token_check', 'GET', 200, 0.2)
  }
  for (let i = 0; i < 10; i++) {
    setup.metrics.onRequest('public', 'GET', 200, 1000)
  }
  await setup.step()
  t.strictSame((await setup.report()).latency, { p50Seconds: 0.115, p99Seconds: 60 })
})
