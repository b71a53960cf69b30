/**
 * promtool plays each incident against the shipped rules: its alert fires at the minute that
 * the runbook says, and no earlier.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { tableUnder } from '../support/markdown.ts'
import { without } from '../support/other-programs.ts'
import { INCIDENTS, type Incident, ONSET_MINUTES } from './incidents.ts'
import { promtool, RULES, rulesFor } from './rules.ts'

const ROWS = tableUnder('docs/alerts.md', '## Incidents')

/** Whether the alert fires so many minutes after the onset. */
function firing({ alert, severity }: Incident, minutes: number, expected: 0 | 1) {
  const series = `ALERTS{alertname="AuthSidecar${alert}",alertstate="firing",severity="${severity}"}`
  return {
    expr: `sgn(count(${series}) or vector(0))`,
    eval_time: `${ONSET_MINUTES + minutes}m`,
    exp_samples: [{ labels: '{}', value: expected }],
  }
}

t.test('the runbook has the alert of each incident', (t) => {
  t.strictSame(
    ROWS.map(({ incident = '', alert = '' }) => [incident, /\[(\w+)\]/.exec(alert)?.[1]]),
    Object.entries(INCIDENTS).map(([incident, { alert }]) => [incident, alert]),
  )
  t.end()
})

t.test('each alert fires at the minute that the runbook says', { skip: without('promtool') }, (t) => {
  const directory = t.testdir({})
  const files = Object.entries(INCIDENTS).map(([name, incident], at) => {
    const minutes = Number(ROWS.find((row) => row['incident'] === name)?.['minutes'])
    t.ok(minutes > 0, name)
    const needed = rulesFor(`AuthSidecar${incident.alert}`)
    const groups = RULES.groups.map((group) => ({
      name: group.name,
      rules: group.rules.filter((rule) => needed.has(rule)),
    }))
    writeFileSync(join(directory, `rules-${at}.json`), JSON.stringify({ groups }))
    const test = {
      name,
      interval: '30s',
      input_series: Object.entries(incident.series).map(([series, values]) => ({ series, values })),
      promql_expr_test: [
        firing(incident, 0, 0),
        firing(incident, minutes - 1, 0),
        firing(incident, minutes, 1),
      ],
    }
    const order = groups.map((group) => group.name)
    const rules = { rule_files: [`rules-${at}.json`], evaluation_interval: '30s', group_eval_order: order }
    const file = join(directory, `incident-${at}.json`)
    writeFileSync(file, JSON.stringify({ ...rules, tests: [test] }))
    return file
  })
  const { status, output } = promtool(['test', 'rules', ...files])
  t.equal(status, 0, output)
  t.end()
})
