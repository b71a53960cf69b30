import t from 'tap'
import { registerSeries } from '../../../src/ops/tally.ts'
import { codeIn, tableUnder } from '../../support/markdown.ts'
import { tenBusyMinutes } from '../../support/status-scene.ts'

/** Fields whose own fields depend on what happened. */
const COUNTS_BY_NAME = new Set([
  'requests.byStatus',
  'rejections.byReason',
  'logins.byReason',
  'upstreams[].outcomes',
  'series.rejectionsPerSecond',
])

/** May be null, or have fields. */
const SOMETIMES = ['issuer', 'upstreams[].lastFault']

/** The names of all fields of a value: `a.b`, `list[].c`. */
function fieldsOf(value: unknown, name = ''): string[] {
  if (Array.isArray(value)) return value.flatMap((member) => fieldsOf(member, `${name}[]`))
  if (value === null || typeof value !== 'object' || COUNTS_BY_NAME.has(name)) return [name]
  return Object.entries(value).flatMap(([member, inner]) =>
    fieldsOf(inner, name === '' ? member : `${name}.${member}`),
  )
}

t.test('docs/status-page.md has every field of /status.json and no other', async (t) => {
  const { reporter, registry } = await tenBusyMinutes()
  registerSeries(
    registry,
    { name: 'auth_sidecar_jwks_age_seconds', help: 'x', type: 'gauge', aggregator: 'max' },
    () => [{ labels: {}, value: 1 }],
  )
  const fields = new Set(fieldsOf(await reporter.report()))
  for (const name of SOMETIMES) fields.delete(name)
  const documented = tableUnder('docs/status-page.md', '## /status.json').flatMap(({ field }) =>
    codeIn(field),
  )
  t.strictSame(documented.filter((name) => !SOMETIMES.includes(name)).sort(), [...fields].sort())
  for (const name of SOMETIMES) t.ok(documented.includes(name), name)
})

t.test('a whole window of samples stays small, as the page says', async (t) => {
  const { reporter } = await tenBusyMinutes()
  const { series, window } = await reporter.report()
  t.equal(series.times.length, 120)
  t.equal(window.seconds, 600)
  const bytes = JSON.stringify(await reporter.report()).length
  t.ok(bytes < 32_768, `${bytes} bytes of JSON`)
})
