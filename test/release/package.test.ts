import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const PACKAGE = JSON.parse(readFileSync('package.json', 'utf8'))

/** Runs a program without NODE_OPTIONS: coverage and loaders of the test run are not for it. */
const run = (command: string, args: readonly string[]) =>
  spawnSync(command, args, { encoding: 'utf8', env: { ...process.env, NODE_OPTIONS: '' } })
const root = await temporaryDirectory(t) // outside the checkout, which npm would find
const npm = run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', root])
const [{ filename, files }] = JSON.parse(npm.stdout)
/** The paths in the package, without the packages that it brings. */
const paths = files
  .map(({ path }: { path: string }) => path)
  .filter((path: string) => !path.startsWith('node_modules/'))

const noGit = spawnSync('git', ['rev-parse', 'HEAD']).status === 0 ? false : 'needs git, and a git checkout'
t.test('the package holds program, documents and examples, and nothing else', { skip: noGit }, async (t) => {
  const allowed =
    /^(?:dist|config|docs|examples)\/|^(?:README|CHANGELOG|SECURITY)\.md$|^LICENSE$|^package\.json$/
  for (const path of paths) {
    t.match(path, allowed)
    t.notMatch(path, /\.png$|\.ts$|\.test\.|__pycache__|\.pem$|private/)
  }
  const args = ['ls-files', 'config', 'docs', 'examples']
  const tracked = spawnSync('git', args, { encoding: 'utf8' }).stdout.split('\n').filter(Boolean)
  t.ok(tracked.length > 10)
  for (const path of tracked.filter((path) => !path.endsWith('.png'))) {
    t.ok(paths.includes(path), path)
  }
  for (const path of ['README.md', 'LICENSE']) {
    t.ok(paths.includes(path), path)
  }
})

const notBuilt = existsSync('dist/main.js') ? false : 'npm run build has not been run'
t.test('the package contains every compiled file', { skip: notBuilt }, async (t) => {
  t.ok(paths.includes(PACKAGE.bin['storage-auth-sidecar']), 'the command')
  const compiled = readdirSync('dist', { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  )
  for (const entry of compiled) {
    t.ok(paths.includes(join(entry.parentPath, entry.name)), entry.name)
  }
})

t.test('it brings its locked packages, and runs where it is unpacked', { skip: notBuilt }, async (t) => {
  t.match(run('tar', ['-xzf', join(root, filename), '-C', root]), { status: 0 })
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8'))
  const expected = Object.keys(packages).filter((path) => packages[path].inBundle)
  t.ok(expected.length >= Object.keys(PACKAGE.dependencies).length)
  for (const path of expected) {
    const { version } = JSON.parse(readFileSync(join(root, 'package', path, 'package.json'), 'utf8'))
    t.equal(version, packages[path].version, path)
  }
  const main = join(root, 'package', PACKAGE.bin['storage-auth-sidecar'])
  t.equal(run(process.execPath, [main, '--version']).stdout.trim(), PACKAGE.version)
})

t.test('dependencies are pinned', async (t) => {
  for (const [name, version] of Object.entries({ ...PACKAGE.dependencies, ...PACKAGE.devDependencies })) {
    t.match(version, /^\d+\.\d+\.\d+(?:-[\w.]+)?$/, name)
  }
})
