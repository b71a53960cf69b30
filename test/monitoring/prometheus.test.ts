/**
 * A real Prometheus scrapes a sidecar: each query of the dashboard has data, each rule is evaluated.
 * promtool runs over the rules: each alert fires when it must and stays silent when it must not.
 */
import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { freePort, freePorts } from '../support/free-port.ts'
import { limitsFile } from '../support/limited-setup.ts'
import { tableUnder } from '../support/markdown.ts'
import { watchProcess, without } from '../support/other-programs.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'
import { ALERTS, monitoringFile, promtool, RULES, rulesFor } from './rules.ts'

interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly description?: string
  readonly links?: readonly { readonly url: string }[]
  readonly targets?: readonly { readonly expr: string }[]
}

const DASHBOARD: { panels: readonly Panel[] } = JSON.parse(
  monitoringFile('storage-auth-sidecar.dashboard.json'),
)
/** Series of a deployment with issuers, TLS or workers. */
const CONDITIONAL = /feed_age|jwks|certificate_|worker_/
const PANELS = DASHBOARD.panels.filter(({ type }) => type !== 'row')

/**
 * Runs a server of a Debian package until the end of the test, without the environment of the test runner.
 */
function run(t: Test, command: string, args: readonly string[]): void {
  watchProcess(t, spawn(command, args, { stdio: 'ignore', env: { PATH: process.env['PATH'] } }))
}

const json = async (url: string, init: RequestInit = {}): Promise<unknown> => (await fetch(url, init)).json()
const isUp = (url: string) =>
  fetch(url).then(
    ({ ok }) => ok,
    () => false,
  )

/** The queries of the dashboard with values for its variables, without those of other deployments. */
const panelQueries = () =>
  PANELS.flatMap(({ title, targets = [] }) =>
    targets
      .filter(({ expr }) => !CONDITIONAL.test(expr))
      .map(({ expr }) => ({
        title,
        expression: expr.replaceAll('$__rate_interval', '1m').replace(/=~"\$\w+"/g, '=~".*"'),
      })),
  )

/** The metrics that an expression names. */
const namesIn = (expression: string) =>
  Array.from(expression.matchAll(/(?<![:\w])(?:auth_sidecar|process|nodejs)_\w+/g), ([name]) => name)
/** Without those of other deployments. */
const metricsIn = (expression: string) => namesIn(expression).filter((name) => !CONDITIONAL.test(name))

t.test('the dashboard shows each metric that an alert reads', async (t) => {
  const shown = new Set(PANELS.flatMap(({ targets = [] }) => targets.flatMap(({ expr }) => namesIn(expr))))
  /** They only tell which targets are meant, or count what another metric shows. */
  const others = /build_info|reloads_total|jwks_fetches_total|_count$/
  for (const { alert, record, expr } of RULES.groups.flatMap(({ rules }) => rules)) {
    const missing = namesIn(expr).filter((name) => !shown.has(name) && !others.test(name))
    t.strictSame(missing, [], alert ?? record ?? '')
  }
})

t.test('queries and rules refer to existing series', { skip: without('prometheus') }, async (t) => {
  const upstream = await recordingUpstream(t)
  const upstreams = [
    { prefix: '/', url: upstream.url },
    { prefix: '/gone', url: 'http://127.0.0.1:1' },
  ]
  const limits = await limitsFile(t, 'default: { inFlight: 1000 }')
  const settings = {
    upstreams: JSON.stringify(upstreams),
    'fair-use-file': limits,
    'tracing-endpoint': 'http://127.0.0.1:1/v1/traces',
  }
  const sidecar = await startSidecar(t, { settings })
  const [port, gone] = await freePorts(2)
  const target = (port = 0) => ({
    targets: [`127.0.0.1:${port}`],
    labels: { job: 'api', namespace: 'shop', pod: `pod-${port}` },
  })
  const directory = t.testdir({ 'rules.json': JSON.stringify(RULES) })
  const config = {
    global: { scrape_interval: '1s', evaluation_interval: '1s' },
    rule_files: ['rules.json'],
    scrape_configs: [{ job_name: 'api', static_configs: [target(sidecar.adminPort), target(gone)] }],
  }
  writeFileSync(join(directory, 'prometheus.json'), JSON.stringify(config))
  run(t, 'prometheus', [
    `--config.file=${join(directory, 'prometheus.json')}`,
    `--storage.tsdb.path=${join(directory, 'data')}`,
    `--web.listen-address=127.0.0.1:${port}`,
  ])
  const at = `http://127.0.0.1:${port}`
  await eventually(() => isUp(`${at}/-/ready`), 'Prometheus')
  const query = async (query: string): Promise<readonly unknown[]> => {
    const init = { method: 'POST', body: new URLSearchParams({ query }) }
    const { data, error } = Object(await json(`${at}/api/v1/query`, init))
    if (data === undefined) {
      throw new Error(`${query}: ${error}`)
    }
    return data.result
  }
  /** A scrape that a busy machine delays ends the series until the next one. */
  const hasSeries = async (expression: string) => (await query(expression)).length > 0
  const [login = {}] = sidecar.logins
  const traffic = async () => {
    const data = `http://127.0.0.1:${sidecar.port}`
    const headers = { Authorization: `Bearer ${sidecar.token}` }
    for (const path of ['/a', '/gone']) {
      await fetch(data + path, { headers })
    }
    await fetch(`${data}/a`)
    for (const secret of [{}, { secret: 'wrong' }]) {
      await fetch(`${data}/v2/auth/token`, { method: 'POST', body: JSON.stringify({ ...login, ...secret }) })
    }
  }
  const scraped = 'min(count_over_time(auth_sidecar_requests_total{route="proxy",status="503"}[1m])) >= 4'
  await eventually(async () => {
    await traffic()
    return hasSeries(scraped)
  }, 'four scrapes under traffic')

  for (const { title, expression } of panelQueries()) {
    await eventually(async () => {
      await traffic() // its rate must not have gone meanwhile
      return hasSeries(expression)
    }, `${title}: ${expression}`)
  }
  for (const { alert, record, expr } of RULES.groups.flatMap(({ rules }) => rules)) {
    t.ok(await query(expr), alert ?? record ?? '')
    for (const name of metricsIn(expr)) {
      await eventually(() => hasSeries(name), `${alert ?? record}: ${name}`)
    }
  }
  const { data } = Object(await json(`${at}/api/v1/rules`))
  const rules = data.groups.flatMap((group: { rules: unknown[] }) => group.rules)
  for (const { name, health, lastError } of rules) {
    t.equal(health, 'ok', `${name}: ${lastError}`)
  }
  const alert = ALERTS.find((one) => one.alert === 'AuthSidecarUpstreamUnreachable')
  let found: unknown
  await eventually(async () => {
    await traffic()
    const series = await query(alert?.expr ?? '')
    found = series[0]
    return found
  }, 'the alert')
  t.match(found, { metric: { job: 'api', upstream: '/gone' } })
})

t.test(
  'one cause pages once: inhibition rules suppress its consequences',
  { skip: without('prometheus-alertmanager') },
  async (t) => {
    const directory = t.testdir({
      'alertmanager.yaml': `route: { receiver: none }\nreceivers: [{ name: none }]\n${monitoringFile('inhibit-rules.yaml')}`,
    })
    const port = await freePort()
    run(t, 'prometheus-alertmanager', [
      `--config.file=${join(directory, 'alertmanager.yaml')}`,
      `--storage.path=${directory}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--cluster.listen-address=',
    ])
    const at = `http://127.0.0.1:${port}/api/v2/alerts`
    await eventually(() => isUp(at), 'Alertmanager')
    const loud = async (service: string, ...names: readonly string[]) => {
      const alerts = names.map((name) => {
        const [alert, ...others] = name.split(' ')
        const labels = { alertname: `AuthSidecar${alert}`, namespace: 'shop', job: service }
        const pairs = others.map((other) => (other.includes('=') ? other.split('=') : ['upstream', other]))
        return { labels: { ...labels, ...Object.fromEntries(pairs) } }
      })
      const headers = { 'Content-Type': 'application/json' }
      await fetch(at, { method: 'POST', headers, body: JSON.stringify(alerts) })
      const active = async () => {
        const found = await json(`${at}?inhibited=false&filter=job=%22${service}%22`)
        return Array.isArray(found)
          ? found.map(({ labels: { alertname, upstream = '' } }) =>
              `${alertname.replace('AuthSidecar', '')} ${upstream}`.trim(),
            )
          : []
      }
      await eventually(async () => (await active()).length > 0, `the alerts of ${service}`)
      return (await active()).sort()
    }
    t.strictSame(await loud('a', 'Failing /a', 'UpstreamUnreachable /a', 'Overloaded', 'UpstreamSlow /a'), [
      'UpstreamUnreachable /a',
    ])
    t.strictSame(await loud('b', 'Down', 'Failing /', 'ReplicaUnhealthy', 'UpstreamUnreachable /'), ['Down'])
    t.strictSame(await loud('c', 'ReloadFailing', 'TokensRefused'), ['ReloadFailing'])
    t.strictSame(await loud('d', 'Failing /', 'FailingSlowly /', 'LoginsFailing'), [
      'Failing /',
      'LoginsFailing',
    ])
    t.strictSame(await loud('e', 'UpstreamUnreachable /a', 'Failing /'), [
      'Failing /',
      'UpstreamUnreachable /a',
    ])
    t.strictSame(await loud('f', 'ClientsRefused', 'TokensRefused', 'LoginsRefused'), ['ClientsRefused'])
    t.strictSame(await loud('g', 'LoginsFailing', 'ReloadFailing'), ['LoginsFailing'], 'a database is down')
    const feedAway = ['FeedStale', 'ReloadFailing subject=credentials']
    t.strictSame(await loud('k', ...feedAway), ['FeedStale'], 'no hub answers')
    t.strictSame(await loud('h', 'ReloadSuspect', 'StateDiffers'), ['ReloadSuspect'])
    const emptied = ['ReloadSuspect subject=credentials', 'ClientsRefused reason=revoked', 'LoginsRefused']
    t.strictSame(await loud('i', ...emptied), ['ReloadSuspect'], 'a credentials file is emptied')
    const others = ['ClientsRefused reason=unknown_key', 'ReloadSuspect subject=credentials']
    t.strictSame(await loud('j', ...others), ['ClientsRefused', 'ReloadSuspect'], 'keys are lost beside it')
  },
)

type Labels = Readonly<Record<string, string>>
type Series = Readonly<Record<string, string>>

const JOB = { namespace: 'shop', job: 'api' }
const POD = { ...JOB, pod: 'api-1', instance: '10.0.0.1:8081' }
const SECOND = { ...JOB, pod: 'api-2', instance: '10.0.0.2:8081' }

const of = (name: string, labels: Labels = {}, pod: Labels = POD) =>
  `${name}{${Object.entries({ ...pod, ...labels }).map(([label, value]) => `${label}="${value}"`)}}`
const checks = (reason: string) =>
  of('auth_sidecar_token_checks_total', { result: reason === 'ok' ? 'accepted' : 'rejected', reason })
const outcome = (name: string, upstream = '/') =>
  of('auth_sidecar_upstream_requests_total', { upstream, outcome: name })
const response = (status: string, upstream = '/') =>
  of('auth_sidecar_upstream_responses_total', { upstream, class: status })
/** Several series with the same samples. */
const each = (names: readonly string[], samples: string): Series =>
  Object.fromEntries(names.map((name) => [name, samples]))
/** Responses a minute, and those among them with 5xx, over all samples of the case. */
const served = (good: number, bad: number, samples: number, upstream = '/'): Series => ({
  [outcome('ok', upstream)]: `0+${good + bad}x${samples}`,
  [outcome('http_response_timeout', upstream)]: `0x${samples}`,
  [response('2xx', upstream)]: `0+${good}x${samples}`,
  [response('5xx', upstream)]: `0+${bad}x${samples}`,
})
const failed = (reason: string) => of('auth_sidecar_token_issue_failures_total', { reason })
const ready = (pod = POD) => of('auth_sidecar_ready', {}, pod)
const up = (pod = POD, labels: Labels = {}) => of('up', labels, pod)
/** A target of the operator: its label is the name of the container. */
const CONTAINER = { container: 'storage-auth-sidecar' }
const APP = { container: 'app' }
const issued = of('auth_sidecar_tokens_issued_total')
const SIGNING_KEY = 'auth_sidecar_signing_key_age_seconds'
const signingKey = of(SIGNING_KEY, { kid: 'k' })
const build = of('auth_sidecar_build_info')
const starts = of('process_start_time_seconds')
const certificate = of('auth_sidecar_certificate_not_after_timestamp_seconds', { certificate: 'listener' })
const enforcing = of('auth_sidecar_enforcing')
const reloadFailing = of('auth_sidecar_reload_failing', { subject: 'keys' })
const restarts = of('auth_sidecar_worker_restarts_total')
const ISSUER = { issuer: 'https://issuer.example' }
const jwksAge = of('auth_sidecar_jwks_age_seconds', ISSUER)
const reloaded = (subject: string) => of('auth_sidecar_reloads_total', { subject, result: 'ok' })
const fetches = of('auth_sidecar_jwks_fetches_total', { ...ISSUER, result: 'ok' })
const limited = of('auth_sidecar_fair_use_limited_total', { limit: 'requests' })
const spansDropped = of('auth_sidecar_spans_dropped_total')
const DAY = 86_400

/** An hour of good traffic, then every request finds the upstream gone. */
const OUTAGE: Series = {
  [response('2xx')]: '0+100x60 6000x30',
  [response('5xx')]: '0x90',
  [outcome('ok')]: '0+100x60 6000x30',
  [outcome('connection_refused')]: '0x60 0+100x30',
}
/** Eleven minutes of it, then good traffic again. */
const OVER: Series = {
  [response('2xx')]: '0+100x60 6000x11 6100+100x60',
  [response('5xx')]: '0x130',
  [outcome('ok')]: '0+100x60 6000x11 6100+100x60',
  [outcome('connection_refused')]: '0x60 0+100x11 1100x60',
}
/** Five hours of good checks, then none. A sample is of five minutes. */
const STOPPED = '0+300x60 18000x12'
const CAME = '0x60 0+300x12'
const good = checks('ok')
const MADE_UP = checks('unknown_key')
/** Clients with credentials stop, and strangers come. */
const NIGHT: Series = {
  ...each([good, issued], STOPPED),
  ...each([MADE_UP, checks('missing'), checks('malformed'), failed('rejected')], CAME),
  [checks('expired')]: '0+15x72',
  [reloaded('keys')]: '0x72',
}
/**
 * Floods that a client without credentials can cause: made-up tokens, guessed secrets, a full login queue.
 */
const FLOOD: Series = {
  ...served(20, 0, 90),
  ...each(['unknown_key', 'malformed', 'missing'].map(checks), '0+300x90'),
  ...each(['rejected', 'throttled', 'busy', 'invalid'].map(failed), '0+300x90'),
  [good]: '0+20x90',
  [issued]: '0+1x90',
  [signingKey]: '100x90',
  [ready()]: '1x90',
  [up()]: '1x90',
}
const state = (text: string, pod: Labels = POD) => ({ ...pod, state: text })
const NOT_READY = state('is not ready')
const SILENT = state('does not respond to its scrape')
const ISSUER_KEYS = { ...POD, ...ISSUER, subject: 'issuer keys' }
const PROCESS = { ...POD, what: 'process' }
const UPSTREAM = { ...JOB, upstream: '/' }
const OTHER_UPSTREAM = { ...JOB, upstream: '/b' }
/** The old pod ends at minute 10; a new one, which has never responded, is there from minute 5. */
const ROLLOUT: Series = {
  [of('auth_sidecar_build_info', CONTAINER)]: '1x10 stale',
  [ready()]: '1x10 stale',
  [up(POD, CONTAINER)]: '1x10 stale',
  [up(SECOND, CONTAINER)]: '_x5 0x30',
}
const STILL_THERE: Series = { [ready()]: '1x30', [up(POD, CONTAINER)]: '1x30' }
/** One of fifty requests takes as long as the bucket. */
const slow = (aMinute: number, bucket: string): Series => {
  const part = (name: string, labels: Labels) =>
    of(`auth_sidecar_upstream_response_seconds_${name}`, { upstream: '/', ...labels })
  const all = [part('count', {}), part('bucket', { le: '+Inf' }), part('bucket', { le: bucket })]
  return {
    ...each(all, `0+${aMinute}x60`),
    [part('bucket', { le: '0.5' })]: `0+${aMinute * 0.98}x60`,
  }
}
/** Half an hour of slow responses, then good ones. */
const slowThenGood = (): Series => {
  const part = (name: string, labels: Labels) =>
    of(`auth_sidecar_upstream_response_seconds_${name}`, { upstream: '/', ...labels })
  return {
    [part('count', {})]: '0+40x90',
    [part('bucket', { le: '+Inf' })]: '0+40x90',
    [part('bucket', { le: '5' })]: '0+40x90',
    [part('bucket', { le: '0.5' })]: '0+20x60 1200+40x30',
  }
}
const QUEUE = of('auth_sidecar_upstream_queue', { upstream: '/' })
/** Of 6,000 token checks a minute. */
function cacheChecks(evictions: number): Series {
  return {
    [of('auth_sidecar_token_cache_hits_total')]: `0+${6000 - evictions}x15`,
    [of('auth_sidecar_token_cache_misses_total')]: `0+${evictions}x15`,
    [of('auth_sidecar_token_cache_evictions_total')]: `0+${evictions}x15`,
  }
}
/** Shortages by the text of the alert. */
const OVERLOADED: Readonly<Record<string, Series>> = {
  'closes new connections because limits.connections are open': {
    [of('auth_sidecar_client_connections_dropped_total')]: '0+1x15',
  },
  'delays every hundredth request by more than 100 ms in its event loop': {
    [of('nodejs_eventloop_lag_p99_seconds')]: '0.21x15',
    [build]: '1x15',
  },
  'queues requests because limits.upstreamConnections are busy': { [QUEUE]: '3x15' },
  'drops log lines because its output takes none': { [of('auth_sidecar_log_lines_dropped_total')]: '0+1x15' },
  'verifies tokens again because more than cache.maxTokens are in use': cacheChecks(1200),
}

type Case = readonly [string, number, Series, ...Labels[]]

const REFUSED = (reason: string) => ({ ...JOB, what: 'token', reason })
/** An hour at 60 a minute, then ten minutes of none; and the opposite. */
const ENDED = '0+60x60 3600x10'
const BEGUN = '0x60 0+60x10'
const DATABASE_DOWN = of('auth_sidecar_reload_failing', { subject: 'credentials' })
const NO_KEY = { ...JOB, cause: 'no signing key, or a fault of the sidecar' }
const SUSPECT = of('auth_sidecar_reload_suspect', { subject: 'revocations' })
const fingerprint = (pod = POD) => of('auth_sidecar_state_fingerprint', { subject: 'keys' }, pod)
const DAYS_LEFT = (days: number): Series => ({ [certificate]: `${days * DAY}x90` })
const otherAge = (kid: string): Series => ({
  [signingKey]: '100+60x30',
  [of(SIGNING_KEY, { kid }, SECOND)]: '40+60x30',
})
/**
 * By alert: situation, minute of the check, series, labels of the alerts that fire. A series
 * has a sample a minute; where the check is after four hours one every 5 minutes, after a day every 30.
 */
const CASES_BY_ALERT: Readonly<Record<string, readonly Case[]>> = {
  Down: [
    ['no replica is ready', 10, { [ready()]: '0x10', [ready(SECOND)]: '0x10' }, JOB],
    ['no replica responds', 30, { [build]: '1x5', [up()]: '1x5 0x30' }, JOB],
    ['new pods never start, the old one has gone', 30, ROLLOUT, JOB],
    ['new pods never start, the old one still serves', 30, { ...ROLLOUT, ...STILL_THERE }],
    ['the first pods never start', 30, { [up(SECOND, CONTAINER)]: '0x30' }, JOB],
    ['the port of the app beside it responds', 30, { ...ROLLOUT, [up(POD, APP)]: '1x30' }, JOB],
    ['one of two is ready', 10, { [ready()]: '0x10', [ready(SECOND)]: '1x10' }],
    ['another program does not respond', 30, { [up()]: '0x30', [up(SECOND, APP)]: '0x30' }],
  ],
  UpstreamUnreachable: [
    ['the upstream is gone for three minutes', 63, OUTAGE, UPSTREAM],
    ['it is back for two minutes: it outlasts what it inhibits', 73, OVER, UPSTREAM],
    ['it is back for five minutes', 76, OVER],
    ['a tenth fails', 60, { [outcome('ok')]: '0+90x60', [outcome('connection_timeout')]: '0+10x60' }],
    ['clients leave', 60, { [outcome('ok')]: '0+1x60', [outcome('client_aborted')]: '0+10x60' }],
  ],
  Failing: [
    ['the upstream is gone for three minutes: its own alert is first', 63, OUTAGE],
    ['the upstream is gone for six minutes', 66, OUTAGE, UPSTREAM],
    ['it is back for three minutes: no second page', 74, OVER],
    ['two of a hundred fail', 90, served(98, 2, 90), UPSTREAM],
    ['another one fails beside it', 90, { ...OUTAGE, ...served(98, 2, 90, '/b') }, UPSTREAM, OTHER_UPSTREAM],
    ['four of a thousand fail', 90, served(996, 4, 90)],
    ['clients leave', 90, { ...served(98, 0, 90), [outcome('client_aborted')]: '0+9x90' }],
    ['three requests fail in an hour', 60, { ...served(0, 0, 60), [response('5xx')]: '0x20 3x40' }],
  ],
  FailingSlowly: [
    ['it has paged, and is over', 120, OVER],
    ['two of a thousand fail for three days', 4320, served(29940, 60, 150), UPSTREAM],
    ['one of ten thousand fails', 4320, served(29997, 3, 150)],
  ],
  UpstreamSlow: [
    ['the 99th percentile is between 2.5 and 5 s', 40, slow(40, '5'), UPSTREAM],
    ['it is good again for three minutes', 64, { ...slowThenGood() }],
    ['it is between 1 and 2.5 s', 40, slow(40, '2.5')],
    ['one request a minute', 40, slow(1, '5')],
  ],
  Absent: [
    ['all targets vanish', 20, { [build]: '1x10 stale', [up()]: '1x10 stale' }, JOB],
    ['one of two vanishes', 20, { [build]: '1x10 stale', [up()]: '1x10 stale', [up(SECOND)]: '1x20' }],
    ['they were removed two hours ago', 140, { [build]: '1x10 stale', [up()]: '1x10 stale' }],
  ],
  ClientsRefused: [
    [
      'the credentials file is emptied',
      65,
      { [good]: ENDED, [checks('revoked')]: BEGUN },
      REFUSED('revoked'),
    ],
    [
      'it is emptied, and clients wait before they try again, beside made-up tokens',
      65,
      { [good]: ENDED, [checks('revoked')]: '0x60 0+10x10', [MADE_UP]: '0+900x70' },
      REFUSED('revoked'),
    ],
    [
      'the keys are others: unknown_key for all, beside made-up tokens',
      65,
      { [good]: ENDED, [MADE_UP]: '0+900x60 54000+960x10', [reloaded('keys')]: '0x59 1x11' },
      REFUSED('unknown_key'),
    ],
    [
      'the clock of one of two replicas is 10 minutes wrong',
      65,
      { [good]: '0+60x60 3600+45x10', [checks('claims')]: '0x60 0+15x10' },
      REFUSED('claims'),
    ],
    [
      'no secret is right any more',
      66,
      { [issued]: ENDED, [failed('rejected')]: BEGUN, [reloaded('credentials')]: '0x59 1x11' },
      { ...JOB, what: 'login', reason: 'rejected' },
    ],
    [
      'the file is back for three minutes',
      74,
      { [good]: '0+60x60 3600x10 3660+60x10', [checks('revoked')]: '0x60 0+60x10 600x10' },
    ],
    [
      'one of ten is refused',
      65,
      { [good]: '0+60x60 3600+54x10', [checks('revoked')]: '0x60 0+6x10' },
      REFUSED('revoked'),
    ],
    ['one of fifty is refused', 65, { [good]: '0+60x60 3600+59x10', [checks('revoked')]: '0x60 0+1x10' }],
    ['a tenth has been expired for hours', 200, { [good]: '0+54x200', [checks('expired')]: '0+6x200' }],
    [
      'a flood of made-up tokens after a change of keys',
      90,
      { [good]: '0+60x90', [MADE_UP]: '0x60 0+9000x30', [reloaded('keys')]: '0x59 1x31' },
    ],
    ['clients stop for the night, and strangers come', 320, NIGHT],
    ['report mode', 65, { [good]: ENDED, [checks('revoked')]: BEGUN, [enforcing]: '0x70' }],
  ],
  LoginsFailing: [
    [
      'the store is away, secrets are guessed',
      20,
      {
        [issued]: '0x20',
        [failed('unavailable')]: '0+5x20',
        [failed('rejected')]: '0+500x20',
        [signingKey]: '1x20',
      },
      NO_KEY,
    ],
    [
      'the database is down: its name is in the text',
      6,
      { [issued]: '0x20', [failed('unavailable')]: '0+5x20', [signingKey]: '1x20', [DATABASE_DOWN]: '1x20' },
      { ...JOB, cause: 'the credentials database is down' },
    ],
    ['a verify-only sidecar is asked to issue', 20, { [failed('unavailable')]: '0+5x20' }],
  ],
  LoginsRefused: [
    ['secrets are guessed', 20, { [issued]: '0+2x20', [failed('rejected')]: '0+9x20' }, JOB],
    ['a few mistakes', 20, { [issued]: '0+9x20', [failed('rejected')]: '0+2x20' }],
  ],
  TokensRefused: [
    [
      'a third is expired',
      40,
      { [good]: '0+60x40', [checks('expired')]: '0+30x40' },
      { ...JOB, reason: 'expired' },
    ],
    ['no token', 40, { [good]: '0+6x40', [checks('missing')]: '0+90x40', [checks('malformed')]: '0+90x40' }],
  ],
  AccountLimited: [
    ['an account is over its rate', 20, { [limited]: '0+20x20' }, { ...JOB, limit: 'requests' }],
    ['it was, for five minutes', 20, { [limited]: '0+60x5 300x15' }],
    ['a client that comes too early now and then', 60, { [limited]: '0+5x60' }],
  ],
  ReloadFailing: [
    ['new keys cannot be loaded', 10, { [reloadFailing]: '1x10' }, { ...POD, subject: 'keys' }],
    ['the issuer is away', 10, { [jwksAge]: '301x10' }, ISSUER_KEYS],
    ['the issuer never responded', 20, { [fetches]: '0x20' }, ISSUER_KEYS],
    ['all is loaded', 10, { [reloadFailing]: '0x10', [jwksAge]: '59x10', [fetches]: '0+1x10' }],
  ],
  FeedStale: [
    ['no hub has answered for two minutes', 5, { [of('auth_sidecar_feed_age_seconds')]: '150x10' }, POD],
    ['hubs answer each half minute', 20, { [of('auth_sidecar_feed_age_seconds')]: '30x20' }],
    ['a hub restarts', 20, { [of('auth_sidecar_feed_age_seconds')]: '5x5 130 5x14' }],
  ],
  ReloadSuspect: [
    ['a restore un-revokes a customer', 3, { [SUSPECT]: '1x5' }, { ...POD, subject: 'revocations' }],
    ['nothing is suspect', 3, { [SUSPECT]: '0x5' }],
  ],
  StateDiffers: [
    [
      'replicas have other keys',
      8,
      { [fingerprint()]: '7x10', [fingerprint(SECOND)]: '8x10' },
      { ...JOB, subject: 'keys' },
    ],
    [
      'a change reaches one after the other',
      10,
      { [fingerprint()]: '7 8x10', [fingerprint(SECOND)]: '7x2 8x8' },
    ],
    [
      'one no longer follows the changes of the other',
      30,
      { [fingerprint()]: '7x30', [fingerprint(SECOND)]: '7x5 8+1x25' },
      { ...JOB, subject: 'keys' },
    ],
    [
      'both change all the time, and are scraped one after the other',
      30,
      { [fingerprint()]: '7+1x30', [fingerprint(SECOND)]: '8+1x30' },
    ],
  ],
  CertificateExpiring: [
    ['ten days are left', 90, DAYS_LEFT(10), { severity: 'warning' }],
    ['one day is left', 90, DAYS_LEFT(1), { severity: 'critical' }],
    ['a month is left', 90, DAYS_LEFT(30)],
  ],
  NotEnforcing: [
    ['one replica reports only', 90, { [enforcing]: '0x90' }, JOB],
    ['for half an hour', 90, { [enforcing]: '1x60 0x30' }],
    ['it enforces', 90, { [enforcing]: '1x90' }],
  ],
  ReplicaUnhealthy: [
    ['one of two is not ready', 10, { [ready()]: '0x10', [ready(SECOND)]: '1x10' }, NOT_READY],
    ['one does not respond', 30, { [build]: '1x5', [up()]: '1x5 0x30' }, SILENT],
    ['a new pod never starts', 30, { ...ROLLOUT, ...STILL_THERE }, { ...SILENT, ...SECOND }],
    ['it starts', 4, { [ready()]: '0 0 1x3', [build]: '1x4', [starts]: '60x4' }],
  ],
  Restarting: [
    ['the process does, every 5 minutes', 15, { [build]: '1x15', [starts]: '0x4 300x4 600x4' }, PROCESS],
    ['a worker did', 30, { [restarts]: '0x10 1x20' }, { ...POD, what: 'worker' }],
    ['once, no worker', 30, { [build]: '1x30', [starts]: '0x9 540x20', [restarts]: '0x30' }],
  ],
  ClockSkew: [
    ['a replica is a minute behind', 30, otherAge('k'), { ...JOB, kid: 'k', severity: 'warning' }],
    [
      'a replica is ten minutes behind',
      4,
      { [signingKey]: '700+60x30', [of(SIGNING_KEY, { kid: 'k' }, SECOND)]: '100+60x30' },
      { ...JOB, kid: 'k', severity: 'critical' },
    ],
    ['two keys of different age', 30, otherAge('l')],
  ],
  OpenFilesUsedUp: [
    ['no file is left', 3, { [of('auth_sidecar_open_files_used_up')]: '1x5' }, POD],
    ['one is free', 3, { [of('auth_sidecar_open_files_used_up')]: '0x5' }],
  ],
  Overloaded: [
    ...Object.entries(OVERLOADED).map(
      ([text, series]): Case => [
        text,
        15,
        series,
        { ...state(text), severity: text.startsWith('closes') ? 'critical' : 'warning' },
      ],
    ),
    [
      'connections were closed until three minutes ago',
      15,
      { [of('auth_sidecar_client_connections_dropped_total')]: '0+1x12 12x10' },
    ],
    ['a burst is over', 15, { [QUEUE]: '0x10 3 0x10' }],
    ['few tokens are evicted', 15, cacheChecks(590)],
  ],
  SpansDropped: [
    ['a collector is away', 15, { [spansDropped]: '0+4x20' }, JOB],
    ['a collector was away for four minutes', 20, { [spansDropped]: '0x5 4+4x3 16x15' }],
    ['it takes all', 20, { [spansDropped]: '0x20' }],
  ],
}
const CRITICAL = [
  'Down',
  'Absent',
  'ReloadSuspect',
  'OpenFilesUsedUp',
  'UpstreamUnreachable',
  'Failing',
  'LoginsFailing',
  'ClientsRefused',
]
const CASES: readonly (readonly [string, ...Case])[] = [
  ...Object.entries(CASES_BY_ALERT).flatMap(([alert, cases]) => cases.map((one) => [alert, ...one] as const)),
  ...CRITICAL.map((alert) => [alert, 'a flood without credentials: nothing critical', 90, FLOOD] as const),
]

const severityOf = (name: string) => ALERTS.find(({ alert }) => alert === name)?.labels?.['severity']

const skip = without('promtool')

t.test('promtool accepts the rules and their templates', { skip }, async (t) => {
  const file = join(t.testdir({ 'rules.json': JSON.stringify(RULES) }), 'rules.json')
  const { status, output } = promtool(['check', 'rules', '--lint-fatal', file])
  t.equal(status, 0, output)
})

/** The minutes between the samples of a case that lasts so many minutes. */
function stepFor(minutes: number): number {
  if (minutes > 1440) {
    return 30
  }
  return minutes > 240 ? 5 : 1
}

t.test('each alert fires under its condition and only then', { skip }, async (t) => {
  const directory = t.testdir({})
  const files = ALERTS.flatMap(({ alert = '', expr }) => {
    const all = CASES.filter(([name]) => `AuthSidecar${name}` === alert)
    t.ok(all.some((one) => one.length > 4) && all.some((one) => one.length === 4), `${alert} has both cases`)
    // Alone, unless it looks at others. promtool compares annotations too.
    const needed = rulesFor(alert)
    const groups = RULES.groups.map(({ name, rules }) => ({
      name,
      rules: rules
        .filter((rule) => needed.has(rule) || expr.includes('ALERTS{'))
        .map(({ annotations: _, ...rule }) => rule),
    }))
    writeFileSync(join(directory, `${alert}.json`), JSON.stringify({ groups }))
    return [1, 5, 30].flatMap((minutes) => {
      const cases = all.filter(([, , at]) => minutes === stepFor(at))
      const file = join(directory, `${alert}-${minutes}m.json`)
      const tests = cases.map(([, when, at, series, ...fires]) => ({
        name: `${alert}: ${when}`,
        interval: `${minutes}m`,
        input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
        alert_rule_test: [
          {
            eval_time: `${at}m`,
            alertname: alert,
            exp_alerts: fires.map((labels) => ({
              exp_labels: {
                severity: severityOf(alert),
                ...(alert.endsWith('CertificateExpiring') && { ...JOB, certificate: 'listener' }),
                ...labels,
              },
            })),
          },
        ],
      }))
      const order = { evaluation_interval: `${minutes}m`, group_eval_order: groups.map(({ name }) => name) }
      writeFileSync(file, JSON.stringify({ rule_files: [`${alert}.json`], ...order, tests }))
      return cases.length === 0 ? [] : [file]
    })
  })
  const { status, output } = promtool(['test', 'rules', ...files])
  t.equal(status, 0, output)
})

t.test('each alert has a row and a section in the runbook, and labels for its text', async (t) => {
  const runbook = readFileSync('docs/alerts.md', 'utf8')
  const rows = tableUnder('docs/alerts.md', '# Alerts').map(({ alert, severity, for: duration }) => [
    /\[(\w+)\]/.exec(alert ?? '')?.[1],
    /^\w+/.exec(severity ?? '')?.[0],
    duration,
  ])
  t.strictSame(
    rows.toSorted(),
    ALERTS.map(({ alert = '', labels, for: duration = '0m' }) => [
      alert.replace('AuthSidecar', ''),
      /critical$|warning/.exec(labels?.['severity'] ?? '')?.[0],
      duration,
    ]).toSorted(),
  )
  const sections = [...runbook.matchAll(/^#+ (AuthSidecar\w+)$/gm)].map(([, name]) => name)
  t.strictSame(sections.sort(), ALERTS.map(({ alert }) => alert).sort())
  for (const { alert = '', annotations = {} } of ALERTS) {
    t.match(annotations['runbook_url'], new RegExp(`^https://.+#${alert.toLowerCase()}$`))
    const [, , , , fired = {}] =
      CASES.find(([name, , , , fires]) => `AuthSidecar${name}` === alert && fires) ?? []
    const certificate = alert.endsWith('CertificateExpiring') && { ...JOB, certificate: '' }
    const labels = {
      pod: '',
      instance: '',
      ...fired,
      ...certificate,
      ...(alert.endsWith('ReloadFailing') && ISSUER),
    }
    const text = `${annotations['summary']} ${annotations['description']}`
    for (const [, label = ''] of text.matchAll(/\$labels\.(\w+)/g)) {
      t.ok(label in labels, `${alert}: ${label}`)
    }
  }
})
