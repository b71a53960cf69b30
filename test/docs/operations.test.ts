/** Compares the tables of docs/operations.md with the metrics and access lines of a running sidecar. */
import { readFileSync } from 'node:fs'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { codeIn, tableUnder } from '../support/markdown.ts'
import { parseMetrics } from '../support/prometheus.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'

const PAGE = 'docs/operations.md'
const TRACEPARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
/** Documented, but only with a setting that this test does not use. */
const CONDITIONAL = /jwks|worker|certificate/

/** Names and label names of the sidecar's own series. */
async function scrape({ adminPort }: TestSidecar): Promise<Map<string, Map<string, Set<string>>>> {
  const text = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text()
  const found = new Map<string, Map<string, Set<string>>>()
  for (const { name: series, labels } of parseMetrics(text)) {
    if (!series.startsWith('auth_sidecar_')) continue
    const name = series.replace(/(?<=_seconds)_(?:bucket|sum|count)$/, '')
    const values = found.get(name) ?? new Map<string, Set<string>>()
    found.set(name, values)
    for (const [label, value] of Object.entries(labels)) {
      if (label !== 'le') values.set(label, (values.get(label) ?? new Set()).add(value))
    }
  }
  return found
}

t.test('the page has every metric, label and label value, and every access log field', async (t) => {
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url })
  const at = `http://127.0.0.1:${sidecar.port}/a`
  await fetch(at)
  await fetch(at, { headers: { Authorization: `Bearer ${sidecar.token}`, traceparent: TRACEPARENT } })
  const lines = () => sidecar.log.filter(({ msg }) => msg === 'request')
  await eventually(() => lines().length === 2, 'both access lines')

  const metrics = await scrape(sidecar)
  const documented = tableUnder(PAGE, '## Metrics').filter((row) => 'metric' in row && row['meaning'])
  const rows = documented.flatMap(({ metric, labels }) =>
    codeIn(metric).map((name) => [name, codeIn(labels)] as const),
  )
  const names = rows.map(([name]) => name).filter((name) => !CONDITIONAL.test(name))
  t.strictSame(names.sort(), [...metrics.keys()].filter((name) => !CONDITIONAL.test(name)).sort())
  for (const [name, labels] of rows) {
    const actual = metrics.get(name)
    if (actual?.size) t.strictSame([...labels].sort(), [...actual.keys()].sort(), name)
  }

  const text = readFileSync(PAGE, 'utf8')
  const [, outcomes = ''] = /^\| `outcome` \| (.*) \|$/m.exec(text) ?? []
  const valuesOf = (name: string, label: string) => [...(metrics.get(name)?.get(label) ?? [])].sort()
  t.strictSame(codeIn(outcomes).sort(), valuesOf('auth_sidecar_upstream_requests_total', 'outcome'))
  for (const [title, name] of [
    ['token checks', 'auth_sidecar_token_checks_total'],
    ['failed logins', 'auth_sidecar_token_issue_failures_total'],
  ]) {
    const [, reasons = ''] = new RegExp(`^\\| \`reason\` of ${title} \\| (.*) \\|$`, 'm').exec(text) ?? []
    t.strictSame(codeIn(reasons).sort(), valuesOf(name ?? '', 'reason'))
  }

  const fields = new Set(lines().flatMap((line) => Object.keys(line)))
  for (const field of ['level', 'time', 'msg']) fields.delete(field)
  const table = tableUnder(PAGE, '## Logs').flatMap(({ field }) => codeIn(field))
  t.strictSame(table.sort(), [...fields].sort())
})
