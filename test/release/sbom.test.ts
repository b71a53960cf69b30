import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import t from 'tap'
import { run } from './run.ts'

const SCRIPT = resolve('scripts/sbom.mjs')

t.test('npm run sbom lists every package that is shipped, with its version, and no other', async (t) => {
  const { stdout, code } = run(process.execPath, [SCRIPT])
  t.equal(code, 0)
  const bill = JSON.parse(stdout)
  t.match(bill, {
    bomFormat: 'CycloneDX',
    specVersion: /^1\.\d$/,
    metadata: { component: { name: 'storage-auth-sidecar', type: 'application' } },
  })
  const listed = bill.components.map(({ purl }: { purl: string }) => decodeURIComponent(purl)).sort()
  const locked: [path: string, about: { version: string; dev?: boolean }][] = Object.entries(
    JSON.parse(readFileSync('package-lock.json', 'utf8')).packages,
  )
  const shipped = locked
    .filter(([path, { dev }]) => path !== '' && dev !== true)
    .map(([path, { version }]) => `pkg:npm/${path.slice(path.lastIndexOf('node_modules/') + 13)}@${version}`)
  t.strictSame(listed, [...new Set(shipped)].sort())
  const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8'))
  for (const [name, version] of Object.entries(dependencies)) {
    t.ok(listed.includes(`pkg:npm/${name}@${version}`), name)
  }
  const refs = new Set(bill.dependencies.map(({ ref }: { ref: string }) => ref))
  for (const { ref, dependsOn } of bill.dependencies) {
    for (const dependency of dependsOn) t.ok(refs.has(dependency), `${ref} -> ${dependency}`)
  }
})

t.test('it fails rather than leave a package out', async (t) => {
  const lines = { metadata: { component: {} }, components: [], dependencies: [] }
  const directory = t.testdir({
    'package.json': '{"name":"x","version":"1.0.0"}',
    'package-lock.json': JSON.stringify({ packages: { '': {}, 'node_modules/a': { version: '1.0.0' } } }),
    'npm-cli.js': `if (process.env.FAILS) process.exit(3)\nconsole.log(${JSON.stringify(JSON.stringify(lines))})`,
  })
  const env = { npm_execpath: `${directory}/npm-cli.js` }
  const short = run(process.execPath, [SCRIPT], { cwd: directory, env })
  t.match(short, { code: 1, stdout: '', stderr: /knows 0 of 1 packages/ })
  const failed = run(process.execPath, [SCRIPT], { cwd: directory, env: { ...env, FAILS: '1' } })
  t.match(failed, { code: 1, stdout: '', stderr: /npm sbom failed/ })
})
