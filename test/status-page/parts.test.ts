import t from 'tap'
import type { Status } from '../../src/ops/status/status.ts'
import { renderParts } from '../../src/status-page/parts.ts'
import { statusScene } from '../support/status-scene.ts'

/** A status, with whatever a test wants otherwise. */
async function status(over: Partial<Status> = {}): Promise<Status> {
  return { ...(await statusScene().reporter.report()), ...over }
}

/** The text of a part, tags and all space taken together. */
async function textOf(part: string, over: Partial<Status> = {}): Promise<string> {
  const html = renderParts(await status(over))[part] ?? ''
  return html
    .replace(/<[^>]+>/g, ' ')
    .replace(/\s+/g, ' ')
    .replace(/ ([,.])/g, '$1')
    .trim()
}

t.test('ready is said in words, or which checks fail', async (t) => {
  t.equal(await textOf('verdict'), '✓ Ready ✓ keys ok ✓ credentials ok')
  const checks = [
    { name: 'keys', ok: true, state: 'current' },
    { name: 'credentials', ok: false, state: 'waiting' },
    { name: 'accepting', ok: false },
  ]
  t.equal(
    await textOf('verdict', { ready: false, checks }),
    '✕ Not ready: credentials, accepting ✓ keys current ✕ credentials waiting ✕ accepting failing',
  )
})

t.test('version, Node and age are told', async (t) => {
  t.equal(await textOf('about', { uptimeSeconds: 7500, node: 'v20.1.0' }), '1.2.3 Node v20.1.0 up 2 h 5 min')
})

t.test('before there are rates the page says that they are being collected', async (t) => {
  t.match(await textOf('figures'), 'Requests – /s collecting')
  for (const part of ['requests', 'latency']) {
    t.equal(await textOf(part), 'Collecting: the first rates come 5 s after the start.')
  }
})

t.test('key figures are those of the status', async (t) => {
  const { reporter, metrics, step, cache } = statusScene({ sources: { logLinesDropped: () => 12 } })
  await reporter.sample()
  for (let i = 0; i < 95; i++) metrics.onRequest('proxy', 'GET', 200, 0.004)
  for (let i = 0; i < 5; i++) metrics.onRequest('proxy', 'GET', 503, 0.004)
  for (let i = 0; i < 10; i++) metrics.onTokenCheck('revoked')
  cache.hits = 3
  cache.misses = 1
  cache.size = 4
  await step(5)
  const report = await reporter.report()
  const text = await textOf('figures', report)
  t.match(text, 'Requests 20 /s 100 in 5 s')
  t.match(text, 'Errors (5xx) 5.0 % 5 in 5 s')
  t.match(text, 'Refusals 2 /s 10 in 5 s')
  t.match(text, 'Latency p99 5.0 ms p50 3.8 ms')
  t.match(text, 'Cache hits 75.0 % 4 of 10,000')
  t.match(text, 'In flight 3 7 connections')
  t.match(text, '12 log lines lost')
  t.match(await textOf('requests', report), 'all 20 errors (5xx) 1 20 10 0 1 min ago 30 s now')
  t.match(await textOf('latency', report), 'p99 5.0 ms p90 4.8 ms p50 3.8 ms')
  t.match(await textOf('rejections', report), 'revoked 2 10')
  t.match(await textOf('rejections', report), 'in 5 s, full height 2/s')
  t.match(
    await textOf('routes', report),
    'proxy 100 3.8 ms 4.8 ms 5.0 ms Answers 2xx 95 · 5xx 5 Logins 0 tokens issued · 0 failed',
  )
})

t.test('every reason of refusal has its row, used or not', async (t) => {
  const text = await textOf('rejections')
  for (const reason of [
    'missing',
    'malformed',
    'expired',
    'signature',
    'unknown_key',
    'algorithm',
    'claims',
    'revoked',
  ]) {
    t.match(text, `${reason} – 0`)
  }
  t.notMatch(text, 'full height')
})

t.test('failed logins are told by reason, those that occurred', async (t) => {
  const logins = { issued: 2, failed: 5, byReason: { rejected: 4, throttled: 1, busy: 0 } }
  t.match(
    await textOf('routes', { logins }),
    'Answers none Logins 2 tokens issued · 5 failed: rejected 4, throttled 1',
  )
})

t.test('of a full window it is said that it is ten minutes long', async (t) => {
  const window = { seconds: 604.1, everySeconds: 5, collecting: false }
  t.match(await textOf('upstreams', { window }), 'Upstreams in 10 min')
})

t.test('upstreams are told with their state, their last fault and what clients left', async (t) => {
  const upstream = (await status()).upstreams[0]
  if (upstream === undefined) throw new Error('no upstream')
  const head = 'Upstream State Requests Failed First byte Pool'
  t.equal(
    await textOf('upstreams'),
    `Upstreams in 0 s ${head} / http://127.0.0.1:9000 – no requests 0 0 – – p99 – 4 1 queued`,
  )
  const bad = {
    ...upstream,
    state: 'failing',
    count: 1000,
    failed: 250,
    failedRatio: 0.25,
    outcomes: { ok: 740, client_aborted: 7, client_idle: 3, dns_error: 250 },
    lastFault: { outcome: 'dns_error', time: '2026-11-20T12:34:56.000Z' },
  } as const
  t.match(
    await textOf('upstreams', { upstreams: [bad] }),
    '✕ failing dns_error at 12:34:56 UTC 1,000 10 left by clients 250 25.0 %',
  )
  t.match(await textOf('upstreams', { upstreams: [{ ...bad, state: 'degraded' }] }), '! degraded')
  t.match(await textOf('upstreams', { upstreams: [{ ...bad, state: 'ok' }] }), '✓ ok')
})

t.test('keys are told with their use, their age and how long their tokens live', async (t) => {
  const key = { alg: 'ES256', createdAt: '2026-11-20T00:00:00.000Z', ageSeconds: 7200 }
  const keys = [
    { ...key, kid: 'new', signs: true, tokensLiveSeconds: 86_400 },
    { ...key, kid: '<old>', signs: false, tokensLiveSeconds: 0 },
  ]
  t.equal(
    await textOf('keys', { keys }),
    'Keys Key Algorithm Use Age Tokens live for new ES256 ✓ signs 2 h 1 d &lt;old&gt; ES256 – verifies 2 h none left',
  )
  t.match(await textOf('keys'), 'No keys are loaded.')
  t.match(await textOf('keys', { issuer: { ageSeconds: null } }), 'From another issuer; no set received yet.')
  t.match(await textOf('keys', { issuer: { ageSeconds: 61 } }), 'last set received 1 min ago.')
})

t.test('credentials, revocations and reloads are told', async (t) => {
  const time = '2026-11-20T12:10:00.000Z'
  const subject = {
    subject: 'keys',
    ok: 0,
    failed: 0,
    failing: false,
    lastGoodAt: '2026-11-20T12:00:00.000Z',
  }
  const reloads = [
    subject,
    { ...subject, subject: 'credentials', ok: 3, lastGoodAt: '2026-11-20T12:10:01.000Z' },
    { ...subject, subject: 'revocations', failed: 2, failing: true, lastGoodAt: null },
  ]
  t.equal(
    await textOf('trust', { time, reloads, credentials: { kind: 'postgres', state: 'current' } }),
    'Credentials PostgreSQL · current Revocations 2 in force Reloads Subject Result Ok / failed In force since ' +
      'keys ✓ as started 0 / 0 10 min ago credentials ✓ last ok 3 / 0 0 s ago revocations ✕ last failed 0 / 2 –',
  )
})

t.test('no text of a status becomes HTML', async (t) => {
  const evil = `<img src=x onerror=alert(1)>"'`
  const replacer = (name: string, value: unknown) =>
    typeof value === 'string' && !['kind', 'lastGoodAt', 'time', 'createdAt'].includes(name) ? evil : value
  const { reporter, metrics, step } = statusScene({
    keys: () => [{ kid: 'k', alg: 'a', signs: true, createdAt: 'c', ageSeconds: 1, tokensLiveSeconds: 1 }],
    ready: () => [{ name: 'n', ok: false, state: 's' }],
  })
  await reporter.sample()
  metrics.onUpstreamOutcome('/', 'dns_error')
  await step()
  const evilStatus = JSON.parse(JSON.stringify(await reporter.report(), replacer))
  const html = Object.values(
    renderParts({ ...evilStatus, rejections: { count: 1, perSecond: 1, byReason: { [evil]: 1 } } }),
  ).join('')
  t.notMatch(html, '<img')
  t.match(html, '&lt;img')
})
