/** Runs promtool over the rules: each alert fires when it must and stays silent when it must not. */
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ALERTS, RULES, skipWithout } from './rules.ts'

type Labels = Readonly<Record<string, string>>
type Series = Readonly<Record<string, string>>

const JOB = { namespace: 'shop', job: 'api' }
const POD = { ...JOB, pod: 'api-1', instance: '10.0.0.1:8081' }
const SECOND = { ...JOB, pod: 'api-2', instance: '10.0.0.2:8081' }

const of = (name: string, labels: Labels = {}, pod: Labels = POD) =>
  `${name}{${Object.entries({ ...pod, ...labels }).map(([label, value]) => `${label}="${value}"`)}}`
const requests = (status: number, route = 'proxy') =>
  of('auth_sidecar_requests_total', { route, method: 'GET', status: `${status}` })
const checks = (reason: string) =>
  of('auth_sidecar_token_checks_total', { result: reason === 'ok' ? 'accepted' : 'rejected', reason })
const outcome = (name: string) => of('auth_sidecar_upstream_requests_total', { upstream: '/', outcome: name })
const failed = (reason: string) => of('auth_sidecar_token_issue_failures_total', { reason })
const ready = (pod = POD) => of('auth_sidecar_ready', {}, pod)
const up = (pod = POD) => of('up', {}, pod)
const issued = of('auth_sidecar_tokens_issued_total')
const signingKey = of('auth_sidecar_signing_key_age_seconds', { kid: 'k' })
const build = of('auth_sidecar_build_info')
const starts = of('process_start_time_seconds')
const certificate = of('auth_sidecar_certificate_not_after_timestamp_seconds', { certificate: 'listener' })
const enforcing = of('auth_sidecar_enforcing')
const reloadFailing = of('auth_sidecar_reload_failing', { subject: 'keys' })
const jwksAge = of('auth_sidecar_jwks_age_seconds')
const DAY = 86_400

/** An hour of good traffic, then every request finds the upstream gone. */
const OUTAGE: Series = {
  [requests(200)]: '0+100x60 6000x30',
  [requests(503)]: '0x60 0+100x30',
  [outcome('ok')]: '0+100x60 6000x30',
  [outcome('connection_refused')]: '0x60 0+100x30',
}
/** Floods that a client without credentials can cause: made-up tokens, guessed secrets, a full login queue. */
const FLOOD: Series = {
  [requests(200)]: '0+20x90',
  [requests(400)]: '0+900x90',
  [requests(503, 'token_issue')]: '0+900x90',
  [checks('ok')]: '0+20x90',
  [checks('unknown_key')]: '0+300x90',
  [checks('malformed')]: '0+300x90',
  [checks('missing')]: '0+300x90',
  [issued]: '0+1x90',
  [failed('rejected')]: '0+300x90',
  [failed('throttled')]: '0+300x90',
  [failed('busy')]: '0+300x90',
  [failed('invalid')]: '0+300x90',
  [signingKey]: '100x90',
  [ready()]: '1x90',
  [up()]: '1x90',
}
const state = (text: string, pod: Labels = POD) => ({ ...pod, state: text })
const NOT_READY = state('is not ready')
const QUEUE = of('auth_sidecar_upstream_queue', { upstream: '/' })
/** Shortages by the text of the alert. */
const OVERLOADED: Readonly<Record<string, Series>> = {
  'closes new connections because limits.connections are open': {
    [of('auth_sidecar_client_connections_dropped_total')]: '0+1x15',
  },
  'delays every hundredth request by more than 100 ms in its event loop': {
    [of('nodejs_eventloop_lag_p99_seconds')]: '0.2x15',
    [build]: '1x15',
  },
  'queues requests because limits.upstreamConnections are busy': { [QUEUE]: '3x15' },
  'drops log lines because its output is not read in time': {
    [of('auth_sidecar_log_lines_dropped_total')]: '0+1x15',
  },
}

/**
 * Alert, situation, minute of the check, series, labels of the alerts that fire. A series has a sample a minute, or
 * one every 30 minutes where the check is after a day.
 */
const CASES: readonly (readonly [string, string, number, Series, ...Labels[]])[] = [
  ['Down', 'no replica is ready', 10, { [ready()]: '0x10', [ready(SECOND)]: '0x10' }, JOB],
  ['Down', 'no replica responds', 30, { [ready()]: '1x5', [up()]: '1x5 0x30' }, JOB],
  ['Down', 'one of two is ready', 10, { [ready()]: '0x10', [ready(SECOND)]: '1x10' }],
  ['Down', 'another program does not respond', 30, { [up()]: '0x30' }],
  ['UpstreamUnreachable', 'the upstream is gone for three minutes', 63, OUTAGE, { ...JOB, upstream: '/' }],
  ['Failing', 'the upstream is gone for three minutes: its own alert is first', 63, OUTAGE],
  ['Failing', 'the upstream is gone for six minutes', 66, OUTAGE, JOB],
  [
    'UpstreamUnreachable',
    'a tenth fails',
    60,
    { [outcome('ok')]: '0+90x60', [outcome('connection_timeout')]: '0+10x60' },
  ],
  [
    'UpstreamUnreachable',
    'clients leave',
    60,
    { [outcome('ok')]: '0+1x60', [outcome('client_aborted')]: '0+10x60' },
  ],
  ['Failing', 'two of a hundred fail', 90, { [requests(200)]: '0+98x90', [requests(500)]: '0+2x90' }, JOB],
  [
    'Failing',
    'two of a hundred fail beside a flood of made-up tokens',
    90,
    { [requests(200)]: '0+98x90', [requests(500)]: '0+2x90', [requests(400)]: '0+9000x90' },
    JOB,
  ],
  ['Failing', 'four of a thousand fail', 90, { [requests(200)]: '0+996x90', [requests(500)]: '0+4x90' }],
  ['Failing', 'it is over', 85, { [requests(200)]: '0+100x90', [requests(503)]: '0+20x50 1000x40' }],
  [
    'Failing',
    'three requests fail in an hour',
    60,
    { [requests(200)]: '0x60', [requests(503)]: '0x20 3x40' },
  ],
  [
    'FailingSlowly',
    'two of a thousand fail for three days',
    4320,
    { [requests(200)]: '0+29940x150', [requests(500)]: '0+60x150' },
    JOB,
  ],
  [
    'FailingSlowly',
    'one of ten thousand fails',
    4320,
    { [requests(200)]: '0+29997x150', [requests(500)]: '0+3x150' },
  ],
  [
    'LoginsFailing',
    'the store is away, secrets are guessed',
    20,
    {
      [issued]: '0x20',
      [failed('unavailable')]: '0+5x20',
      [failed('rejected')]: '0+500x20',
      [signingKey]: '1x20',
    },
    JOB,
  ],
  ['LoginsFailing', 'a verify-only sidecar is asked to issue', 20, { [failed('unavailable')]: '0+5x20' }],
  ['LoginsRefused', 'secrets are guessed', 20, { [issued]: '0+2x20', [failed('rejected')]: '0+9x20' }, JOB],
  ['LoginsRefused', 'a few mistakes', 20, { [issued]: '0+9x20', [failed('rejected')]: '0+2x20' }],
  [
    'TokensRefused',
    'a third of the tokens is expired',
    40,
    { [checks('ok')]: '0+60x40', [checks('expired')]: '0+30x40' },
    { ...JOB, reason: 'expired' },
  ],
  [
    'TokensRefused',
    'scanners send no token',
    40,
    { [checks('ok')]: '0+6x40', [checks('missing')]: '0+90x40', [checks('malformed')]: '0+90x40' },
  ],
  [
    'ReloadFailing',
    'new keys cannot be loaded',
    10,
    { [reloadFailing]: '1x10' },
    { ...POD, subject: 'keys' },
  ],
  ['ReloadFailing', 'the issuer is away', 10, { [jwksAge]: '301x10' }, { ...POD, subject: 'issuer keys' }],
  ['ReloadFailing', 'all is loaded', 10, { [reloadFailing]: '0x10', [jwksAge]: '59x10' }],
  [
    'CertificateExpiring',
    'ten days are left',
    90,
    { [certificate]: `${10 * DAY}x90` },
    { severity: 'warning' },
  ],
  ['CertificateExpiring', 'one day is left', 90, { [certificate]: `${DAY}x90` }, { severity: 'critical' }],
  ['CertificateExpiring', 'a month is left', 90, { [certificate]: `${30 * DAY}x90` }],
  ['NotEnforcing', 'one replica reports only', 90, { [enforcing]: '0x90' }, JOB],
  ['NotEnforcing', 'for half an hour', 90, { [enforcing]: '1x60 0x30' }],
  ['NotEnforcing', 'it enforces', 90, { [enforcing]: '1x90' }],
  [
    'ReplicaUnhealthy',
    'one of two is not ready',
    10,
    { [ready()]: '0x10', [ready(SECOND)]: '1x10' },
    NOT_READY,
  ],
  [
    'ReplicaUnhealthy',
    'one does not respond',
    30,
    { [build]: '1x5', [up()]: '1x5 0x30' },
    state('does not respond to its scrape'),
  ],
  [
    'ReplicaUnhealthy',
    'it restarts every five minutes',
    30,
    { [build]: '1x30', [starts]: '0x4 300x4 600x4 900x4 1200x4 1500x4' },
    state('has restarted more than twice in 30 minutes'),
  ],
  ['ReplicaUnhealthy', 'it starts', 4, { [ready()]: '0 0 1x3', [build]: '1x4', [starts]: '60x4' }],
  ...Object.entries(OVERLOADED).map(
    ([text, series]) => ['Overloaded', text, 15, series, state(text)] as const,
  ),
  ['Overloaded', 'a burst is over', 15, { [QUEUE]: '0x10 3 0x10' }],
  ...['Down', 'UpstreamUnreachable', 'Failing', 'LoginsFailing'].map(
    (critical) => [critical, 'a flood of requests without credentials: nothing critical', 90, FLOOD] as const,
  ),
]

const severityOf = (name: string) =>
  ALERTS.find(({ alert }) => alert === `AuthSidecar${name}`)?.labels?.['severity']

function promtool(args: readonly string[]) {
  const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8' })
  return { status, output: stdout + stderr }
}

const skip = skipWithout('promtool', 'prometheus')

t.test('promtool accepts the rules and their templates', { skip }, async (t) => {
  const file = join(t.testdir({ 'rules.json': JSON.stringify(RULES) }), 'rules.json')
  const { status, output } = promtool(['check', 'rules', '--lint-fatal', file])
  t.equal(status, 0, output)
})

t.test('each alert fires under its condition and only then', { skip }, async (t) => {
  // promtool compares annotations too: leave them out.
  const groups = RULES.groups.map(({ name, rules }) => ({
    name,
    rules: rules.map(({ annotations: _, ...rule }) => rule),
  }))
  const directory = t.testdir({ 'rules.json': JSON.stringify({ groups }) })
  for (const minutes of [1, 30]) {
    const tests = CASES.filter(([, , at]) => at > 1440 === minutes > 1).map(
      ([alert, when, at, series, ...fires]) => ({
        name: `${alert}: ${when}`,
        interval: `${minutes}m`,
        input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
        alert_rule_test: [
          {
            eval_time: `${at}m`,
            alertname: `AuthSidecar${alert}`,
            exp_alerts: fires.map((labels) => ({
              exp_labels: {
                severity: severityOf(alert),
                ...(alert === 'CertificateExpiring' && { ...JOB, certificate: 'listener' }),
                ...labels,
              },
            })),
          },
        ],
      }),
    )
    const file = join(directory, `every-${minutes}m.json`)
    const content = {
      rule_files: ['rules.json'],
      evaluation_interval: `${minutes}m`,
      group_eval_order: RULES.groups.map(({ name }) => name),
      tests,
    }
    writeFileSync(file, JSON.stringify(content))
    const { status, output } = promtool(['test', 'rules', file])
    t.equal(status, 0, output)
  }
  for (const { alert = '' } of ALERTS) {
    const cases = CASES.filter(([name]) => `AuthSidecar${name}` === alert)
    t.ok(
      cases.some((one) => one.length > 4) && cases.some((one) => one.length === 4),
      `${alert} has both cases`,
    )
  }
})

t.test('each alert has a section in the runbook, and labels for its text', async (t) => {
  const runbook = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8')
  const sections = [...runbook.matchAll(/^#+ (AuthSidecar\w+)$/gm)].map(([, name]) => name)
  t.strictSame(sections.sort(), ALERTS.map(({ alert }) => alert).sort())
  for (const { alert = '', annotations = {} } of ALERTS) {
    t.match(annotations['runbook_url'], new RegExp(`^https://.+#${alert.toLowerCase()}$`))
    const [, , , , fired = {}] =
      CASES.find(([name, , , , fires]) => `AuthSidecar${name}` === alert && fires) ?? []
    const labels = { ...fired, ...(alert.endsWith('CertificateExpiring') && { ...JOB, certificate: '' }) }
    const text = `${annotations['summary']} ${annotations['description']}`
    for (const [, label = ''] of text.matchAll(/\$labels\.(\w+)/g))
      t.ok(label in labels, `${alert}: ${label}`)
  }
})
