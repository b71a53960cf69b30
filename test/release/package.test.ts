import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { run } from './run.ts'

const ABOUT = JSON.parse(readFileSync('package.json', 'utf8'))

/** The files below some directories of the repository, as git knows them. */
const tracked = (...paths: string[]) =>
  spawnSync('git', ['ls-files', ...paths], { encoding: 'utf8' })
    .stdout.split('\n')
    .filter(Boolean)

t.test('the package holds the program, its documents and examples, and nothing else', async (t) => {
  const { stdout, code } = run('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'])
  t.equal(code, 0)
  const [{ name, files }] = JSON.parse(stdout)
  const packed: string[] = files.map(({ path }: { path: string }) => path)
  t.equal(name, 'storage-auth-sidecar')
  for (const path of packed) {
    t.match(
      path,
      /^(?:dist|config|docs|examples)\/|^(?:README|CHANGELOG|SECURITY)\.md$|^LICENSE$|^package\.json$/,
    )
    t.notMatch(path, /\.png$|\.ts$|\.test\.|__pycache__|\.pem$|private/)
  }
  for (const path of ['README.md', 'CHANGELOG.md', 'SECURITY.md', 'LICENSE', 'package.json']) {
    t.ok(packed.includes(path), path)
  }
  const wanted = tracked('config', 'docs', 'examples').filter((path) => !path.endsWith('.png'))
  t.ok(wanted.length > 10)
  for (const path of wanted) t.ok(packed.includes(path), path)
})

t.test('the package holds what was compiled, all of it', { skip: notBuilt() }, async (t) => {
  const { stdout } = run('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'])
  const packed = new Set(JSON.parse(stdout)[0].files.map(({ path }: { path: string }) => path))
  t.ok(packed.has(ABOUT.bin['storage-auth-sidecar']), 'the command')
  const compiled = readdirSync('dist', { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
  for (const path of compiled) t.ok(packed.has(path), path)
})

t.test('package.json says what a registry, an auditor and a user want to know', async (t) => {
  t.match(ABOUT, {
    license: 'Apache-2.0',
    description: /\w/,
    engines: { node: '>=20.18.0' },
    bin: { 'storage-auth-sidecar': 'dist/main.js' },
  })
  for (const [name, version] of Object.entries({ ...ABOUT.dependencies, ...ABOUT.devDependencies })) {
    t.match(version, /^\d+\.\d+\.\d+(?:-[\w.]+)?$/, `${name} is pinned`)
  }
})

t.test('the changelog has the version of the package, or what is to come', async (t) => {
  const text = readFileSync('CHANGELOG.md', 'utf8')
  const headings = [...text.matchAll(/^## (.+)$/gm)].map(([, heading = '']) => heading)
  t.equal(headings[0], '[Unreleased]')
  for (const heading of headings.slice(1)) t.match(heading, /^\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}$/)
  for (const [, kind = ''] of text.matchAll(/^### (.+)$/gm)) {
    t.match(kind, /^(?:Added|Changed|Deprecated|Removed|Fixed|Security)$/)
  }
})

function notBuilt(): string | false {
  return existsSync('dist/main.js') ? false : 'npm run build has not been run'
}
