import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startSidecar } from '../support/sidecar.ts'
import { ALERT_CASES, type AlertCase } from './alert-cases.ts'
import {
  type AlertRule,
  alertsOf,
  promtool,
  type RuleFile,
  readRules,
  whyNoPromtool,
} from './prometheus-rules.ts'

const rules = readRules()
const alerts = alertsOf(rules)
const skip = await whyNoPromtool()

/** One alert with what it is computed from, without its texts for people, which promtool would compare, too. */
function rulesFor(wanted: AlertRule): RuleFile {
  const { annotations: _, ...alert } = wanted
  const recordings = rules.groups
    .flatMap(({ rules }) => rules)
    .filter(({ record }) => record !== undefined && wanted.expr.includes(record))
  return {
    groups: [
      { name: 'recordings', rules: recordings },
      { name: 'alert', rules: [alert] },
    ],
  }
}

const severityOf = (name: string) => alerts.find(({ alert }) => alert === name)?.labels?.['severity'] ?? ''

/** A case as promtool's unit tests have it. */
function promtoolTest(one: AlertCase) {
  const { alert, when, series, at, fires } = one
  return {
    name: when,
    interval: `${everyOf(one)}m`,
    input_series: series.map(([name, values]) => ({ series: name, values })),
    alert_rule_test: [
      {
        eval_time: `${at}m`,
        alertname: alert,
        exp_alerts: fires.map((labels) => ({ exp_labels: { ...labels, severity: severityOf(alert) } })),
      },
    ],
  }
}

const everyOf = ({ every = 1 }: AlertCase) => every

/** Has promtool try cases of one alert. */
async function runCases(t: Test, rule: AlertRule, every: number, cases: readonly AlertCase[]) {
  const directory = t.testdir({ 'rules.json': JSON.stringify(rulesFor(rule)) })
  const file = join(directory, 'tests.json')
  const tests = {
    rule_files: ['rules.json'],
    evaluation_interval: `${every}m`,
    tests: cases.map(promtoolTest),
  }
  writeFileSync(file, JSON.stringify(tests))
  return promtool(['test', 'rules', file])
}

t.test('promtool takes the rules and their templates', { skip }, async (t) => {
  const file = join(t.testdir({}), 'rules.json')
  writeFileSync(file, JSON.stringify(rules))
  const { code, output } = await promtool(['check', 'rules', '--lint-fatal', file])
  t.equal(code, 0, output)
  t.comment(output.trim().split('\n').at(-1)?.trim() ?? '')
})

for (const rule of alerts) {
  const { alert } = rule
  t.test(`${alert} fires when it should, and only then`, { skip }, async (t) => {
    const cases = ALERT_CASES.filter((one) => one.alert === alert)
    t.ok(
      cases.some(({ fires }) => fires.length > 0),
      'there is a case in which it fires',
    )
    t.ok(
      cases.some(({ fires }) => fires.length === 0),
      'there is a case in which it does not',
    )
    for (const every of new Set(cases.map(everyOf))) {
      const alike = cases.filter((one) => everyOf(one) === every)
      const together = await runCases(t, rule, every, alike)
      for (const one of alike) {
        // One by one only to learn which it is: to start promtool takes longer than most cases.
        const { code, output } = together.code === 0 ? together : await runCases(t, rule, every, [one])
        t.equal(code, 0, `${one.fires.length > 0 ? 'fires' : 'silent'}: ${one.when}`, { output })
      }
    }
  })
}

t.test('every case is about an alert that is there', async (t) => {
  for (const { alert, when } of ALERT_CASES) t.not(severityOf(alert), '', `${alert}: ${when}`)
  t.comment(`${alerts.length} alerts, ${ALERT_CASES.length} cases`)
})

t.test('each alert says what is wrong, how bad it is, and where to read on', async (t) => {
  const runbook = readFileSync(new URL('../../docs/alerts.md', import.meta.url), 'utf8')
  const sections = new Map(
    runbook
      .split('\n## ')
      .slice(1)
      .map((section) => [section.slice(0, section.indexOf('\n')), section]),
  )
  for (const { alert, labels = {}, annotations = {} } of alerts) {
    const { summary = '', description = '', runbook_url } = annotations
    t.match(labels, { severity: /^(?:critical|warning|info)$/ }, alert)
    t.equal(runbook_url, `docs/alerts.md#${alert.toLowerCase()}`)
    const section = sections.get(alert) ?? ''
    for (const part of ['Severity', 'Meaning', 'Impact', 'First looks', 'Remedy']) {
      t.ok(section.includes(`**${part}**`), `${alert}: ${part}`)
    }
    t.match(section, `**Severity** ${labels['severity']}`, alert)
    const fired = ALERT_CASES.find((one) => one.alert === alert && one.fires.length > 0)?.fires[0] ?? {}
    for (const [, label = ''] of `${summary} ${description}`.matchAll(/\$labels\.(\w+)/g)) {
      t.ok(label in fired, `${alert} has the label ${label} that its text speaks of`)
    }
    sections.delete(alert)
  }
  t.strictSame(
    [...sections.keys()].filter((title) => title.startsWith('AuthSidecar')),
    [],
    'no section is about an alert that has gone',
  )
})

t.test('promtool has nothing to say against the metrics of a sidecar', { skip }, async (t) => {
  const sidecar = await startSidecar(t, { upstreamUrl: 'http://127.0.0.1:1' })
  const response = await fetch(`http://127.0.0.1:${sidecar.adminPort}/metrics`)
  t.strictSame(await promtool(['check', 'metrics'], await response.text()), { code: 0, output: '' })
})
