/** A real Prometheus scrapes a sidecar: each query of the dashboard has data, each rule is evaluated. */
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { freePort, freePorts } from '../support/free-port.ts'
import { watchProcess, without } from '../support/other-programs.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'
import { ALERTS, monitoringFile, RULES } from './rules.ts'

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
const CONDITIONAL = /jwks|certificate_|worker_/
const PANELS = DASHBOARD.panels.filter(({ type }) => type !== 'row')

/** Runs a server of a Debian package until the end of the test, without the environment of the test runner. */
function run(t: Test, command: string, args: readonly string[]): void {
  watchProcess(t, spawn(command, args, { stdio: 'ignore', env: { PATH: process.env['PATH'] } }))
}

const json = async (url: string, init: RequestInit = {}): Promise<unknown> => (await fetch(url, init)).json()
const isUp = (url: string) =>
  fetch(url).then(
    ({ ok }) => ok,
    () => false,
  )

t.test('queries and rules refer to existing series', { skip: without('prometheus') }, async (t) => {
  const upstream = await recordingUpstream(t)
  const upstreams = [
    { prefix: '/', url: upstream.url },
    { prefix: '/gone', url: 'http://127.0.0.1:1' },
  ]
  const sidecar = await startSidecar(t, { settings: { upstreams: JSON.stringify(upstreams) } })
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
    if (data === undefined) throw new Error(`${query}: ${error}`)
    return data.result
  }
  const [login = {}] = sidecar.logins
  const traffic = async () => {
    const data = `http://127.0.0.1:${sidecar.port}`
    const headers = { Authorization: `Bearer ${sidecar.token}` }
    for (const path of ['/a', '/gone']) await fetch(data + path, { headers })
    await fetch(`${data}/a`)
    for (const secret of [{}, { secret: 'wrong' }]) {
      await fetch(`${data}/v2/auth/token`, {
        method: 'POST',
        body: JSON.stringify({ ...login, ...secret }),
      })
    }
  }
  const scraped = 'min(count_over_time(auth_sidecar_requests_total{route="proxy",status="503"}[1m])) >= 4'
  await eventually(async () => {
    await traffic()
    return (await query(scraped)).length > 0
  }, 'four scrapes under traffic')

  for (const { title, targets = [] } of PANELS) {
    for (const { expr } of targets) {
      if (CONDITIONAL.test(expr)) continue
      const written = expr.replaceAll('$__rate_interval', '10s').replace(/=~"\$\w+"/g, '=~".*"')
      t.ok((await query(written)).length > 0, `${title}: ${written}`)
    }
  }
  for (const { alert, record, expr } of RULES.groups.flatMap(({ rules }) => rules)) {
    t.ok(await query(expr), alert ?? record ?? '')
    // Every metric and label that the alert names exists, except for what another deployment has.
    for (const [name = ''] of expr.matchAll(/(?<![:\w])(?:auth_sidecar|process|nodejs)_\w+/g)) {
      if (CONDITIONAL.test(name)) continue
      t.ok((await query(name)).length > 0, `${alert ?? record}: ${name}`)
    }
  }
  const { data } = Object(await json(`${at}/api/v1/rules`))
  for (const { rules } of data.groups) {
    for (const { name, health, lastError } of rules) t.equal(health, 'ok', `${name}: ${lastError}`)
  }
  const alert = ALERTS.find((one) => one.alert === 'AuthSidecarUpstreamUnreachable')
  let found: unknown
  await eventually(async () => {
    await traffic()
    ;[found] = await query(alert?.expr ?? '')
    return found
  }, 'the alert')
  t.match(found, { metric: { job: 'api', upstream: '/gone' } })
})

const skip = without('prometheus-alertmanager')
t.test('one cause pages once: inhibition rules suppress its consequences', { skip }, async (t) => {
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
      const [alert, upstream] = name.split(' ')
      const labels = { alertname: `AuthSidecar${alert}`, namespace: 'shop', job: service }
      return { labels: { ...labels, ...(upstream && { upstream }) } }
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
})
