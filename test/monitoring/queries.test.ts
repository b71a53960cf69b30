/**
 * Every query of the dashboard and every alert, run by a real Prometheus that scrapes real sidecars under traffic.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { makeCertificate } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { makeKey } from '../support/keys.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { queriesOf, readDashboard } from './dashboard-queries.ts'
import { alertsOf, readRules } from './prometheus-rules.ts'
import { type RealPrometheus, startPrometheus, whyNoPrometheus } from './real-prometheus.ts'

/** Series that this test does not have, and why. */
const MAY_BE_EMPTY: Readonly<Record<string, string>> = {
  ALERTS: 'nothing is wrong for long enough to fire',
}

const skip = whyNoPrometheus()
const rules = readRules()

/** Sends one request; resolves with the status. */
async function send({ port }: TestSidecar, path: string, init: RequestInit = {}): Promise<number> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, init)
  await response.arrayBuffer()
  return response.status
}

const bearer = (token: string) => ({ Authorization: `Bearer ${token}` })

/** Something of everything a sidecar can see; what it was answered, in order. */
async function traffic(sidecar: TestSidecar): Promise<number[]> {
  const { token } = sidecar
  const login = (fields: object) =>
    send(sidecar, '/v2/auth/token', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(fields),
    })
  const [good = {}] = sidecar.logins
  const expired = await sidecar.mint({ now: Date.now() - 7_200_000 })
  const unknown = await sidecar.mint({ key: await makeKey('ES256', 'nobodys') })
  const forged = await sidecar.mint({ hmacSecret: 'x'.repeat(32) })
  return [
    await login(good),
    await login({ ...good, secret: 'wrong' }),
    await login({ ...good, accountId: 'nobody' }),
    await login({}),
    await send(sidecar, '/v2/auth/token', { headers: bearer(token) }),
    await send(sidecar, '/o', { headers: bearer(token) }),
    await send(sidecar, '/o', { method: 'PUT', headers: bearer(token), body: 'hello' }),
    await send(sidecar, '/public'),
    await send(sidecar, '/o'),
    await send(sidecar, '/o', { headers: bearer('no.to.ken') }),
    await send(sidecar, '/o', { headers: bearer(expired) }),
    await send(sidecar, '/o', { headers: bearer(unknown) }),
    await send(sidecar, '/o', { headers: bearer(forged) }),
    await send(sidecar, '/dead', { headers: bearer(token) }),
  ]
}

/**
 * Three that are scraped: an issuer with two upstreams, one of them down, a sidecar that takes its keys from it, and
 * one that speaks TLS, which gets no traffic.
 */
async function scraped(t: Test): Promise<{ sidecars: TestSidecar[]; prometheus: RealPrometheus }> {
  const upstream = await recordingUpstream(t)
  const settings = {
    upstreams: JSON.stringify([
      { prefix: '/', url: upstream.url },
      { prefix: '/dead', url: 'http://127.0.0.1:1' },
    ]),
    'public-routes': '[{ "method": "GET", "path": "/public" }]',
  }
  const issuer = await startSidecar(t, { settings })
  const verifier = await startSidecar(t, {
    settings,
    jwksUrl: `http://127.0.0.1:${issuer.adminPort}/.well-known/jwks.json`,
  })
  const { cert, key } = makeCertificate({ commonName: 'sidecar' })
  const files = await temporaryDirectory(t)
  writeFileSync(join(files, 'tls.crt'), cert)
  writeFileSync(join(files, 'tls.key'), key, { mode: 0o600 })
  const secure = await startSidecar(t, {
    upstreamUrl: upstream.url,
    settings: {
      'listen-tls-cert-file': join(files, 'tls.crt'),
      'listen-tls-key-file': join(files, 'tls.key'),
    },
  })
  const sidecars = [issuer, verifier, secure]
  const jobs = ['issuer', 'verifier', 'secure']
  const prometheus = await startPrometheus(t, {
    rules,
    targets: sidecars.map(({ adminPort: port }, at) => ({
      port,
      labels: { job: jobs[at] ?? '', namespace: 'test', pod: `pod-${at}` },
    })),
  })
  return { sidecars, prometheus }
}

/** The names of metrics in an expression, with their selectors. */
const selectors = (expression: string) =>
  [...expression.matchAll(/\b(?:(?:auth_sidecar|process|nodejs)_\w+|up\b|\w+:\w+:\w+)(?:\{[^}]*\})?/g)].map(
    ([selector]) => selector,
  )

t.test('every query of the dashboard and every alert finds what it looks for', { skip }, async (t) => {
  const { sidecars, prometheus } = await scraped(t)
  const [issuer, verifier] = sidecars
  if (issuer === undefined || verifier === undefined) throw new Error('they are the first two')
  t.strictSame(
    await traffic(issuer),
    [200, 403, 403, 400, 200, 200, 200, 200, 400, 400, 400, 400, 400, 503],
    'each request gets what it is about to be counted as',
  )
  // A change of keys, so that there is a reload.
  const { kid, publicJwk } = await makeKey('ES256', 'second')
  writeFileSync(join(issuer.key.directory, `${kid}.jwk.json`), JSON.stringify(publicJwk), { mode: 0o600 })
  // Rates want two samples of each series, and rules an evaluation behind that.
  await eventually(async () => {
    for (const sidecar of [issuer, verifier]) await traffic(sidecar)
    const enough = await prometheus.query(
      'count(count_over_time(auth_sidecar_requests_total{route="proxy",status="503"}[1m]) >= 3) == 2 ' +
        'and sum(increase(auth_sidecar_upstream_requests_total{job="issuer",upstream="/dead"}[5m])) > 15',
    )
    return enough.ok && enough.found.length > 0
  }, 'Prometheus to have scraped it all')
  await eventually(
    async () => (await prometheus.rules()).every(({ health }) => health === 'ok'),
    'every rule to have been evaluated',
  )

  let empty = 0
  const check = async (t: Test, what: string, expression: string) => {
    const queried = await prometheus.query(expression)
    if (!queried.ok) return t.fail(`${what}: ${queried.error}`, { expression })
    const why = Object.keys(MAY_BE_EMPTY).find((name) => expression.includes(name))
    if (queried.found.length === 0 && why !== undefined) {
      empty++
      return t.pass(`${what}: empty, as ${MAY_BE_EMPTY[why]}`)
    }
    return t.ok(queried.found.length > 0, what, { expression })
  }

  await t.test('every query of the dashboard has data', async (t) => {
    const queries = queriesOf(readDashboard(), '10s')
    for (const { title, expression } of queries) await check(t, title, expression)
    t.comment(
      `${queries.length} queries of the dashboard: ${queries.length - empty} with data, ${empty} may be empty`,
    )
  })

  await t.test('every rule is evaluated', async (t) => {
    const evaluated = await prometheus.rules()
    for (const { name, health, lastError } of evaluated) t.equal(health, 'ok', `${name}: ${lastError}`)
    const written = rules.groups.flatMap((group) => group.rules)
    t.equal(evaluated.length, written.length)
    t.comment(`${evaluated.length} rules evaluated without an error`)
  })

  await t.test('what the alerts look at', async (t) => {
    empty = 0
    let looked = 0
    for (const { alert, expr } of alertsOf(rules)) {
      const whole = await prometheus.query(expr)
      t.ok(whole.ok, `${alert} is evaluated`, whole)
      const found = selectors(expr)
      t.ok(found.length > 0, `${alert} looks at something`)
      for (const selector of new Set(found)) {
        looked++
        await check(t, `${alert}: ${selector}`, selector)
      }
    }
    t.comment(`${alertsOf(rules).length} alerts evaluated, ${looked} selectors: ${looked - empty} with data`)
  })

  await t.test('an alert whose condition holds shows what it says it shows', async (t) => {
    const dead = await prometheus.query(
      alertsOf(rules).find(({ alert }) => alert === 'AuthSidecarUpstreamUnreachable')?.expr ?? '',
    )
    t.match(dead, { ok: true, found: [{ metric: { namespace: 'test', upstream: '/dead' } }] })
    for (const sidecar of sidecars) await sidecar.stop()
    await eventually(async () => {
      const down = await prometheus.query(
        alertsOf(rules).find(({ alert }) => alert === 'AuthSidecarNoneReady')?.expr ?? '',
      )
      return down.ok && down.found.length === 3
    }, 'the services to have no replica that is ready')
    t.pass('all are missed')
  })
})

t.test('the dashboard can be loaded anywhere', async (t) => {
  const dashboard = readDashboard()
  const { panels, templating } = dashboard
  t.notOk('uid' in dashboard, 'Grafana gives it an identity')
  t.notOk('id' in dashboard)
  t.strictSame(
    templating.list.map(({ name }) => name),
    ['datasource', 'namespace', 'job', 'pod'],
  )
  t.strictSame(
    panels.filter(({ type }) => type === 'row').map(({ title }) => title),
    [
      'Overview',
      'Traffic',
      'Rejections by reason',
      'Latency',
      'Token cache',
      'Logins',
      'Upstream',
      'Keys',
      'Reloads',
      'Process',
    ],
  )
  t.equal(new Set(panels.map(({ id }) => id)).size, panels.length, 'no id stands twice')
  for (const { title, type, description, datasource, targets = [], gridPos } of panels) {
    t.ok(gridPos.x + gridPos.w <= 24, `${title} is on the page`)
    if (type === 'row') continue
    t.ok(description, `${title} says what it shows`)
    for (const source of [datasource, ...targets.map(({ datasource }) => datasource)]) {
      t.strictSame(source, { type: 'prometheus', uid: '$' + '{datasource}' }, title)
    }
    for (const { expr } of targets) {
      const selected = expr.match(/auth_sidecar_\w+(?=\{)/g)?.length ?? 0
      const chosen = expr.match(/namespace=~"\$namespace",job=~"\$job",pod=~"\$pod"/g)?.length ?? 0
      t.ok(chosen >= selected && chosen > 0, `${title} obeys the variables`)
    }
  }
  for (const a of panels) {
    for (const b of panels) {
      const apart =
        a === b ||
        a.gridPos.x + a.gridPos.w <= b.gridPos.x ||
        b.gridPos.x + b.gridPos.w <= a.gridPos.x ||
        a.gridPos.y + a.gridPos.h <= b.gridPos.y ||
        b.gridPos.y + b.gridPos.h <= a.gridPos.y
      if (!apart) t.fail(`${a.title} covers ${b.title}`)
    }
  }
})

t.test('every metric that rules and dashboard name is documented', async (t) => {
  const documented = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8')
  const expressions = [
    ...rules.groups.flatMap(({ rules }) => rules.map(({ expr }) => expr)),
    ...queriesOf(readDashboard(), '5m').map(({ expression }) => expression),
  ].join('\n')
  const names = new Set(expressions.match(/(?<![:\w])auth_sidecar_\w+/g))
  t.ok(names.size > 20)
  for (const name of names) {
    if (name in MAY_BE_EMPTY) continue
    const base = name.replace(/_(?:bucket|sum|count)$/, '')
    t.ok(documented.includes(`| \`${base}\` |`), name)
  }
})
