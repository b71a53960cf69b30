import t from 'tap'
import { statusProblems } from '../../src/ops/problems.ts'
import { NOON, statusSetup } from '../support/status-setup.ts'

/** The texts of the problems, the head line first. */
async function problems(setup: ReturnType<typeof statusSetup>) {
  return statusProblems(await setup.reporter.report()).map(({ severity, text }) => `${severity}: ${text}`)
}

t.test('before the second sample there are counts but no rates', async (t) => {
  const { reporter, metrics, clock } = statusSetup()
  await reporter.sample()
  t.match(await reporter.report(), { requests: { perSecond: null, count: 0 }, series: { times: [] } })
  clock.ms += 1000
  metrics.onRequest('proxy', 'GET', 200, 0.01)
  t.match(await reporter.report(), { requests: { perSecond: 1, count: 1 } })
})

t.test('rates cover the last 30 seconds, counts the last ten minutes', async (t) => {
  const setup = statusSetup()
  await setup.reporter.sample()
  for (let step = 0; step < 200; step++) {
    const busy = step < 190
    for (let i = 0; i < (busy ? 10 : 1); i++) setup.metrics.onRequest('proxy', 'GET', busy ? 503 : 200, 0.01)
    if (busy) setup.metrics.onTokenCheck('expired')
    await setup.step()
  }
  const { requests, rejections, window, series } = await setup.reporter.report()
  t.match(window, { seconds: 600, nowSeconds: 30 })
  t.match(requests, { perSecond: 0.2, count: 110 * 10 + 10, failing: 1100, failingRatio: 0 })
  t.match(requests.byStatus, { '2xx': 10, '5xx': 1100 })
  t.match(rejections, { perSecond: 0, count: 110 })
  t.equal(series.times.length, 120)
  t.equal(series.failingPerSecond[0], 2)
  t.equal(series.requestsPerSecond.at(-1), 0.2)
})

t.test('only 5xx of forwarded requests count as failures, not throttled logins', async (t) => {
  const setup = statusSetup()
  await setup.reporter.sample()
  for (let i = 0; i < 10; i++) setup.metrics.onRequest('token_issue', 'POST', 503, 0.01)
  for (let i = 0; i < 9; i++) setup.metrics.onRequest('proxy', 'GET', 200, 0.01)
  await setup.step()
  t.match(await setup.reporter.report(), { requests: { failing: 0, failingRatio: 0 } })
  t.strictSame(await problems(setup), [])
  setup.metrics.onRequest('proxy', 'GET', 500, 0.01)
  await setup.step()
  t.match(await setup.reporter.report(), { requests: { failing: 1, failingRatio: 0.1 } })
  t.strictSame(await problems(setup), ['critical: 10 % of forwarded requests fail (5xx)'])
})

t.test('the headline shows the most severe current problem', async (t) => {
  const setup = statusSetup({
    enforcing: false,
    upstreams: [
      { prefix: '/', url: 'http://127.0.0.1:9000' },
      { prefix: '/b', url: 'http://user:canary@10.0.0.1:9000/x' },
    ],
    sources: {
      certificates: () => [{ certificate: 'listener', expiresAt: NOON + 3 * 86_400_000 }],
      signingKey: () => ({ kid: 'k1', createdAt: NOON / 1000 - 91 * 86_400 }),
      tokenLifetimes: () => [{ kid: 'k1', seconds: 60 }],
      keySets: () => [{ issuer: 'idp', ageSeconds: 400 }],
    },
  })
  const { metrics, checks } = setup
  await setup.reporter.sample()
  t.strictSame(await problems(setup), [
    'warning: Certificate listener expires in 3 d',
    'warning: No good keys from idp for more than 5 min; the last ones are active',
    'warning: Signing key k1 is older than 90 d',
    'warning: Report mode: refused tokens are forwarded',
  ])
  metrics.onReload('credentials', 'failed')
  checks.push({ name: 'accepting', ok: false, state: 'draining' })
  for (let i = 0; i < 99; i++) metrics.onRequest('proxy', 'GET', 200, 0.1)
  metrics.onRequest('proxy', 'GET', 503, 0.1)
  metrics.ofUpstream('/').onOutcome('ok')
  metrics.ofUpstream('/').onOutcome('http_response_timeout')
  metrics.ofUpstream('/b').onOutcome('client_aborted')
  metrics.ofUpstream('/b').onOutcome('connection_refused')
  await setup.step()
  const [first, ...others] = await problems(setup)
  t.equal(first, 'critical: Upstream /b is unreachable: connection_refused')
  t.strictSame(others.slice(0, 3), [
    'warning: Draining: 3 requests in flight',
    'warning: Upstream / fails at times: http_response_timeout',
    'warning: 1 % of forwarded requests fail (5xx)',
  ])
  t.ok(others.includes('warning: The newest credentials cannot be used; the last good version is active'))
  checks.push({ name: 'keys', ok: false })
  t.match(await problems(setup), [first, 'critical: Not ready: keys'])
  const report = await setup.reporter.report()
  t.match(report, {
    ready: false,
    draining: true,
    enforcing: false,
    upstreams: [{}, { address: 'http://10.0.0.1:9000' }],
  })
  t.notMatch(JSON.stringify(report), /canary/)
})

t.test('an upstream stays unreachable until it responds again, even if requests are rare', async (t) => {
  const setup = statusSetup()
  const state = async () => (await setup.reporter.report()).upstreams[0]
  await setup.reporter.sample()
  t.match(await state(), { state: 'idle', lastFault: null })
  setup.metrics.ofUpstream('/').onOutcome('connection_refused')
  await setup.step()
  for (let step = 0; step < 60; step++) await setup.step()
  t.match(await state(), {
    state: 'failing',
    lastFault: { outcome: 'connection_refused', seenAt: '2026-11-20T12:00:05.000Z' },
  })
  setup.metrics.ofUpstream('/').onOutcome('ok')
  t.match(await state(), { state: 'ok', count: 2, failed: 1, failedRatio: 0.5 }, 'at once')
  setup.metrics.ofUpstream('/').onOutcome('client_aborted')
  await setup.step()
  t.match(await state(), { state: 'ok' }, 'what a client did is no fault')
})

t.test('an expired certificate is critical', async (t) => {
  const setup = statusSetup({
    sources: { certificates: () => [{ certificate: 'listener', expiresAt: NOON - 1 }] },
  })
  await setup.reporter.sample()
  t.strictSame(await problems(setup), ['critical: Certificate listener has expired'])
})

t.test('percentiles are interpolated within their bucket', async (t) => {
  const setup = statusSetup()
  await setup.reporter.sample()
  for (let i = 0; i < 50; i++) setup.metrics.onRequest('proxy', 'GET', 200, 0.02)
  for (let i = 0; i < 50; i++) setup.metrics.onRequest('token_check', 'GET', 200, 0.2)
  for (let i = 0; i < 10; i++) setup.metrics.onRequest('public', 'GET', 200, 1000)
  await setup.step()
  const { latency } = await setup.reporter.report()
  t.match(latency, [
    { route: 'all', count: 110, p50Seconds: 0.115, p99Seconds: 60 },
    { route: 'token_check', count: 50, p50Seconds: 0.175 },
    { route: 'proxy', count: 50, p50Seconds: 0.0175 },
    { route: 'public', count: 10, p50Seconds: 60 },
  ])
})

t.test('a failed sample is reported, and sampling continues', async (t) => {
  let broken = true
  const setup = statusSetup({
    sources: {
      revocations: () => {
        if (broken) throw new Error('broken')
        return 1
      },
    },
  })
  await setup.reporter.sample()
  t.match(setup.faults, [{ message: 'broken' }])
  broken = false
  await setup.step()
  await setup.step()
  t.equal((await setup.reporter.report()).series.times.length, 1)
})

t.test('the state of credentials comes from their readiness check', async (t) => {
  for (const [credentials, expected] of [
    [{ file: 'credentials.yaml' }, { kind: 'file', state: 'loaded' }],
    [{ postgres: { urlFile: 'url', poolSize: 1 } }, { kind: 'PostgreSQL', state: 'loaded' }],
    [{}, { kind: 'none', state: 'this sidecar only verifies' }],
  ] as const)
    t.strictSame((await statusSetup({ credentials }).reporter.report()).credentials, expected)
})
