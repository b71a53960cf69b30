/**
 * The expressions that pages show: PromQL, over metrics and labels that are there.
 */
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { codeIn, tableUnder } from '../support/markdown.ts'

/** Every expression in a block of PromQL, and in the table of questions. */
function expressions(): readonly (readonly [page: string, expression: string])[] {
  const blocks = readdirSync('docs')
    .filter((name) => name.endsWith('.md'))
    .flatMap((name) =>
      [...readFileSync(`docs/${name}`, 'utf8').matchAll(/^ *```promql\n([\s\S]*?)^ *```/gm)].map(
        ([, block = '']) => [name, block.trim()] as const,
      ),
    )
  const questions = tableUnder('docs/metrics.md', '## Questions they answer').map(
    ({ expression }) => ['metrics.md', (codeIn(expression)[0] ?? '').replaceAll('\\|', '|')] as const,
  )
  return [...questions, ...blocks]
}

t.test('every expression names metrics that are there', async (t) => {
  const known = tableUnder('docs/metrics.md', '# Metrics').map(({ metric }) => codeIn(metric)[0])
  const series = new Set(known.flatMap((name) => [name, `${name}_bucket`, `${name}_sum`, `${name}_count`]))
  t.ok(expressions().length > 10)
  for (const [page, expression] of expressions()) {
    for (const [name] of expression.matchAll(/auth_sidecar_\w+/g)) t.ok(series.has(name), `${page}: ${name}`)
  }
})

t.test('promtool understands every expression', { skip: absent() }, async (t) => {
  const rules = expressions().map(([, expr], index) => ({ record: `shown:${index}`, expr }))
  const file = join(t.testdir(), 'rules.yaml') // JSON is YAML
  writeFileSync(file, JSON.stringify({ groups: [{ name: 'shown', rules }] }))
  const { status, stdout, stderr } = spawnSync('promtool', ['check', 'rules', file], { encoding: 'utf8' })
  t.equal(status, 0, stderr)
  t.match(stdout, `${rules.length} rules found`)
})

function absent(): string | false {
  return spawnSync('promtool', ['--version']).status === 0 ? false : 'promtool is not on this machine'
}
