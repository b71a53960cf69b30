import t from 'tap'
import { registerSeries } from '../../../src/ops/tally.ts'
import { REJECT_REASONS } from '../../../src/token/verdict.ts'
import { NOON, statusScene } from '../../support/status-scene.ts'

t.test('right after the start everything is there, and what cannot be known is null', async (t) => {
  const { reporter } = statusScene()
  const status = await reporter.report()
  t.match(status, {
    time: '2026-11-20T12:00:00.000Z',
    version: '1.2.3',
    node: process.version,
    startedAt: '2026-11-20T12:00:00.000Z',
    uptimeSeconds: 0,
    ready: true,
    window: { seconds: 0, everySeconds: 5, collecting: true },
    requests: { count: 0, perSecond: null, errorRatio: null, inFlight: 3, connections: 7 },
    rejections: { count: 0, perSecond: null },
    latency: [{ route: 'all', count: 0, p50Seconds: null, p90Seconds: null, p99Seconds: null }],
    cache: { hits: 0, misses: 0, hitRatio: null, entries: 0, capacity: 10_000, evictions: 0 },
    upstreams: [{ state: 'idle', count: 0, failedRatio: null, lastFault: null }],
    revocations: { inForce: 2 },
    issuer: null,
    series: { times: [], requestsPerSecond: [], p99Seconds: [] },
  })
  t.notMatch(JSON.stringify(status), /NaN|Infinity/)
})

t.test('with one sample counts are known, and rates are not yet', async (t) => {
  const { reporter, metrics, clock } = statusScene()
  await reporter.sample()
  clock.ms += 2000
  metrics.onRequest('proxy', 'GET', 200, 0.002)
  const { window, requests } = await reporter.report()
  t.strictSame(window, { seconds: 2, everySeconds: 5, collecting: true })
  t.match(requests, { count: 1, perSecond: null })
})

t.test('counts are of the window, and rates of its last step', async (t) => {
  const { reporter, metrics, step, cache } = statusScene()
  metrics.onRequest('proxy', 'GET', 200, 0.002) // before the window
  await reporter.sample()
  for (let i = 0; i < 10; i++) metrics.onRequest('proxy', 'GET', 200, 0.002)
  cache.hits = 9
  cache.misses = 1
  await step()
  for (let i = 0; i < 20; i++) metrics.onRequest('token_check', 'GET', 400, 0.02)
  for (let i = 0; i < 10; i++) metrics.onRequest('proxy', 'PUT', 503, 0.2)
  for (let i = 0; i < 15; i++) metrics.onTokenCheck('expired')
  metrics.onTokenCheck('ok')
  metrics.onTokenCheck('missing')
  metrics.onTokenIssued()
  metrics.onIssueFailure('throttled')
  await step()
  const status = await reporter.report()
  t.strictSame(status.window, { seconds: 10, everySeconds: 5, collecting: false })
  t.match(status.requests, {
    count: 40,
    perSecond: 6,
    byStatus: { '2xx': 10, '4xx': 20, '5xx': 10 },
    errorRatio: 0.25,
  })
  t.match(status.rejections, { count: 16, perSecond: 3.2, byReason: { expired: 15, missing: 1, revoked: 0 } })
  t.strictSame(
    Object.keys(status.rejections.byReason).sort(),
    [...REJECT_REASONS].sort(),
    'the good ones are not among them',
  )
  t.strictSame(
    status.latency.map(({ route, count }) => [route, count]),
    [
      ['all', 40],
      ['token_check', 20],
      ['proxy', 20],
    ],
  )
  t.match(status.cache, { hits: 9, misses: 1, hitRatio: 0.9 })
  t.match(status.logins, { issued: 1, failed: 1, byReason: { throttled: 1 } })
  t.match(status.series, {
    times: [NOON / 1000 + 5, NOON / 1000 + 10],
    requestsPerSecond: [2, 6],
    errorsPerSecond: [0, 2],
    rejectionsPerSecond: { expired: [0, 3], missing: [0, 0.2] },
  })
})

t.test('what happened since the last sample is counted already', async (t) => {
  const { reporter, metrics, step, clock } = statusScene()
  await reporter.sample()
  await step()
  clock.ms += 1000
  metrics.onRequest('proxy', 'GET', 200, 0.002)
  metrics.onUpstreamOutcome('/', 'connection_refused')
  const { requests, upstreams, series, window } = await reporter.report()
  t.equal(requests.count, 1)
  t.equal(requests.perSecond, 0)
  t.equal(series.times.length, 1)
  t.equal(window.seconds, 6)
  t.match(upstreams, [{ state: 'failing', lastFault: { time: '2026-11-20T12:00:06.000Z' } }])
})

t.test(
  'percentiles come from the buckets of the window, each route by itself and all together',
  async (t) => {
    const { reporter, metrics, step } = statusScene()
    for (let i = 0; i < 1000; i++) metrics.onRequest('proxy', 'GET', 200, 30) // before the window
    await reporter.sample()
    for (let i = 0; i < 98; i++) metrics.onRequest('proxy', 'GET', 200, 0.004)
    for (let i = 0; i < 2; i++) metrics.onRequest('token_issue', 'POST', 200, 0.4)
    await step()
    const { latency, series } = await reporter.report()
    t.match(latency, [
      { route: 'all', count: 100, p50Seconds: 0.003776, p99Seconds: 0.375 },
      { route: 'token_issue', count: 2, p50Seconds: 0.375 },
      { route: 'proxy', count: 98, p99Seconds: 0.004975 },
    ])
    t.strictSame(series.p99Seconds, [0.375])
    await step()
    t.strictSame((await reporter.report()).series.p99Seconds, [0.375, null], 'no request, no percentile')
  },
)

t.test('a counter that fell belongs to a process that started anew: it counts from zero', async (t) => {
  const { reporter, step, cache } = statusScene()
  cache.hits = 100
  await reporter.sample()
  cache.hits = 110
  await step()
  cache.hits = 4
  await step()
  t.equal((await reporter.report()).cache.hits, 14)
})

t.test('two samples at one moment divide nothing by zero', async (t) => {
  const { reporter, metrics, step } = statusScene()
  await reporter.sample()
  metrics.onRequest('proxy', 'GET', 200, 0.002)
  await step(0)
  const { requests, series } = await reporter.report()
  t.equal(requests.perSecond, null)
  t.strictSame(series.requestsPerSecond, [null])
})

t.test('an upstream is ok, degraded, failing or idle; what clients did is no fault', async (t) => {
  const { reporter, metrics, step } = statusScene({
    upstreams: [
      { prefix: '/', url: 'https://user:canary@storage.example:9443/canary?canary' },
      { prefix: '/b', url: 'unix:/run/storage.sock' },
    ],
  })
  const upstream = async (at = 0) => (await reporter.report()).upstreams[at]
  await reporter.sample()
  metrics.onUpstreamOutcome('/', 'ok')
  metrics.onUpstreamOutcome('/', 'client_aborted')
  metrics.onFirstByte('/', 0.004)
  await step()
  t.match(await upstream(), {
    prefix: '/',
    address: 'https://storage.example:9443',
    state: 'ok',
    connections: 4,
    queued: 1,
    count: 2,
    failed: 0,
    failedRatio: 0,
    outcomes: { ok: 1, client_aborted: 1 },
    lastFault: null,
    firstByte: { p50Seconds: 0.00375 },
  })
  t.match(await upstream(1), { address: 'unix:/run/storage.sock', state: 'idle', count: 0 })
  metrics.onUpstreamOutcome('/', 'dns_error')
  metrics.onUpstreamOutcome('/', 'connection_refused')
  metrics.onUpstreamOutcome('/', 'connection_refused')
  await step()
  t.match(await upstream(), {
    state: 'failing',
    failed: 3,
    failedRatio: 0.6,
    lastFault: { outcome: 'connection_refused', time: '2026-11-20T12:00:10.000Z' },
  })
  await step()
  t.match(await upstream(), { state: 'failing' }, 'nothing has come since')
  metrics.onUpstreamOutcome('/', 'ok')
  await step()
  t.match(await upstream(), {
    state: 'degraded',
    lastFault: { outcome: 'connection_refused', time: '2026-11-20T12:00:10.000Z' },
  })
  t.notMatch(JSON.stringify(await reporter.report()), 'canary')
})

t.test('reloads are told by subject', async (t) => {
  const { reporter, reloads, clock } = statusScene()
  clock.ms += 60_000
  reloads.onReload('keys', 'ok', 0.2)
  reloads.onReload('credentials', 'failed', 0.2)
  const start = '2026-11-20T12:00:00.000Z'
  t.strictSame((await reporter.report()).reloads, [
    { subject: 'revocations', ok: 0, failed: 0, failing: false, lastGoodAt: start },
    { subject: 'keys', ok: 1, failed: 0, failing: false, lastGoodAt: '2026-11-20T12:01:00.000Z' },
    { subject: 'credentials', ok: 0, failed: 1, failing: true, lastGoodAt: start },
  ])
})

t.test(
  'credentials are in a file, in a database or nowhere; their state is what readiness says of them',
  async (t) => {
    const credentials = async (...[options]: Parameters<typeof statusScene>) =>
      (await statusScene(options).reporter.report()).credentials
    t.strictSame(await credentials(), { kind: 'file', state: 'loaded' })
    const away = 'database away, last snapshot in force'
    t.strictSame(
      await credentials({
        credentials: { postgres: {} },
        ready: () => [{ name: 'credentials', ok: true, state: away }],
      }),
      { kind: 'postgres', state: away },
    )
    t.strictSame(
      await credentials({ credentials: { postgres: {} }, ready: () => [{ name: 'credentials', ok: false }] }),
      { kind: 'postgres', state: 'not loaded' },
    )
    t.strictSame(await credentials({ credentials: {} }), {
      kind: 'none',
      state: 'this sidecar only verifies',
    })
  },
)

t.test(
  'where keys come from another issuer, the age of its last set is told once there is one',
  async (t) => {
    const { reporter, registry } = statusScene()
    let age: number | undefined
    registerSeries(
      registry,
      { name: 'auth_sidecar_jwks_age_seconds', help: 'x', type: 'gauge', aggregator: 'max' },
      () => (age === undefined ? [] : [{ labels: {}, value: age }]),
    )
    t.strictSame((await reporter.report()).issuer, { ageSeconds: null })
    age = 12
    t.strictSame((await reporter.report()).issuer, { ageSeconds: 12 })
  },
)

t.test('not ready is said as soon as one check fails', async (t) => {
  const checks = [{ name: 'accepting', ok: false }]
  const { reporter } = statusScene({ ready: () => checks })
  t.match(await reporter.report(), { ready: false, checks })
})

t.test('metrics that belong to nobody leave everything empty', async (t) => {
  const { registry, reporter } = statusScene()
  registry.clear()
  t.match(await reporter.report(), { requests: { count: 0, inFlight: 0 }, reloads: [], issuer: null })
})

t.test('samples are taken from the start on, the event loop is measured, and both end', async (t) => {
  const { reporter, faults, registry } = statusScene({ everyMs: 1 })
  reporter.start()
  reporter.start()
  t.teardown(() => reporter.stop())
  while ((await reporter.report()).window.collecting) await new Promise((resolve) => setTimeout(resolve, 1))
  t.type((await reporter.report()).process.eventLoopLagP99Seconds, 'number')
  registry.registerMetric({
    name: 'auth_sidecar_jwks_age_seconds',
    get: () => Promise.reject(new Error('no')),
  } as never)
  await reporter.sample()
  t.ok(faults.length > 0, 'a fault is told')
  await t.rejects(reporter.report(), { message: 'no' })
  reporter.stop()
  reporter.stop()
})

t.test('what is not known of reloads is nothing', async (t) => {
  const { reporter, registry } = statusScene()
  registry.removeSingleMetric('auth_sidecar_reload_last_good_timestamp_seconds')
  registry.removeSingleMetric('auth_sidecar_reload_failing')
  registry.removeSingleMetric('auth_sidecar_reloads_total')
  registerSeries(registry, { name: 'auth_sidecar_reloads_total', help: 'x', type: 'counter' }, () => [
    { labels: { subject: 'keys', result: 'ok' }, value: 3 },
  ])
  t.match(await reporter.report(), {
    reloads: [{ subject: 'keys', ok: 3, failed: 0, failing: false, lastGoodAt: null }],
  })
})
