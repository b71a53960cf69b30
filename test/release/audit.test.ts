import { resolve } from 'node:path'
import t, { type Test } from 'tap'
import { run } from './run.ts'

const SCRIPT = resolve('scripts/audit.mjs')
const ADVISORY = { title: 'Prototype pollution', url: 'https://github.com/advisories/GHSA-x' }

/** Runs the script on two shipped packages and a development one, with an npm that prints what it is given. */
function audit(t: Test, prints: string, about: Record<string, unknown> = {}) {
  const packages = {
    '': {},
    'node_modules/a': { version: '1.0.0', ...about },
    'node_modules/a/node_modules/@b/c': { version: '2.0.0' },
    'node_modules/tool': { version: '3.0.0', dev: true, deprecated: 'old' },
  }
  const cwd = t.testdir({
    'package-lock.json': JSON.stringify({ packages }),
    'npm-cli.js': `console.log(${JSON.stringify(prints)})\nprocess.exit(1)`,
  })
  return run(process.execPath, [SCRIPT], { cwd, env: { npm_execpath: `${cwd}/npm-cli.js` } })
}

t.test('what is shipped now has no known fault', async (t) => {
  const { code, stdout } = run(process.execPath, [SCRIPT])
  t.equal(code, 0, stdout)
  t.match(stdout, /^\d+ packages shipped: 0 deprecated; (?:0 with advisories|the registry gave no answer)/m)
})

t.test('a registry that does not answer is no fault of the packages', async (t) => {
  for (const [name, prints] of [
    ['an error', '{"message":"405 Method Not Allowed","statusCode":405}'],
    ['nothing', ''],
    ['something else', '<html>'],
  ] as const) {
    const { code, stdout } = audit(t, prints)
    t.same(
      [code, stdout],
      [0, '2 packages shipped: 0 deprecated; the registry gave no answer about advisories\n'],
      name,
    )
  }
})

t.test('advisories fail it, and are told with where to read on', async (t) => {
  const a = { name: 'a', severity: 'high', range: '<1.0.1', via: [ADVISORY, '@b/c'] }
  const { code, stdout } = audit(t, JSON.stringify({ vulnerabilities: { a } }))
  t.equal(code, 1)
  t.match(stdout, 'a <1.0.1: high: Prototype pollution https://github.com/advisories/GHSA-x\n')
  t.match(stdout, '2 packages shipped: 0 deprecated; 1 with advisories')
  t.match(audit(t, '{"vulnerabilities":{}}'), { code: 0, stdout: /; 0 with advisories$/m })
})

t.test('a deprecated package that is shipped fails it; one of the tools does not', async (t) => {
  const { code, stdout } = audit(t, '', { deprecated: 'Use b.' })
  t.equal(code, 1)
  t.match(stdout, 'a 1.0.0 is deprecated: Use b.\n2 packages shipped: 1 deprecated;')
  t.notMatch(stdout, 'tool')
})
