import { spawnSync } from 'node:child_process'
import { chmodSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import t, { type Test } from 'tap'

const SCRIPT = resolve('scripts/prepare-checkout.mjs')

/** Stands for npm: installs what package-lock.json names, with a compiler and a runner that only take notes. */
const NPM = `
import { appendFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
appendFileSync('steps', 'npm ' + process.argv.slice(2).join(' ') + '\\n')
console.log('noise')
if (existsSync('no-network')) process.exit(7)
rmSync('node_modules', { recursive: true, force: true })
const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8'))
delete packages['']
for (const path of Object.keys(packages)) {
  if (packages[path].optional) delete packages[path]
  else {
    mkdirSync(path, { recursive: true })
    writeFileSync(path + '/package.json', '{}')
  }
}
writeFileSync('node_modules/.package-lock.json', JSON.stringify({ packages }))
cpSync('tools', 'node_modules', { recursive: true })
`
const TSC = `
const { appendFileSync, cpSync, existsSync } = require('node:fs')
appendFileSync('steps', 'tsc\\n')
if (existsSync('type-error')) {
  console.log('src/main.ts: error TS1')
  process.exit(2)
}
cpSync('src', 'dist', { recursive: true })
`
const TAP = `
import { appendFileSync } from 'node:fs'
appendFileSync('steps', 'tap ' + process.argv[2] + '\\n')
`
const LOCKED = {
  '': { name: 'x', version: '1.0.0' },
  'node_modules/a': { version: '1.0.0', integrity: 'sha512-a' },
  'node_modules/other-platform': { version: '1.0.0', integrity: 'sha512-b', optional: true },
}

const INSTALL = 'npm ci --include=dev --dry-run=false --no-audit --no-fund'

/** A bare clone, and the script run in it: the steps it took since the last run, and how it ended. */
function bareClone(t: Test) {
  const directory = t.testdir({
    'package.json': '{}',
    'package-lock.json': JSON.stringify({ packages: LOCKED }),
    'tsconfig.json': '{}',
    '.taprc': 'plugin: []',
    'npm-cli.js': NPM,
    bin: { npm: `#!/bin/sh\nexec '${process.execPath}' npm-cli.js "$@"\n` },
    tools: {
      typescript: { bin: { tsc: TSC } },
      tap: { dist: { esm: { 'run.mjs': TAP } } },
    },
    src: { 'main.ts': 'one', cli: { 'demo.ts': 'two' } },
  })
  writeFileSync(join(directory, 'package.json'), '{"type":"module"}')
  writeFileSync(join(directory, 'tools', 'package.json'), '{"type":"commonjs"}')
  const file = (name: string) => join(directory, name)
  const prepare = (args: string[] = [], env: NodeJS.ProcessEnv = {}) => {
    rmSync(file('steps'), { force: true })
    writeFileSync(file('steps'), '')
    const { status, stdout, stderr } = spawnSync(process.execPath, [SCRIPT, ...args], {
      cwd: directory,
      encoding: 'utf8',
      env: { ...process.env, npm_execpath: file('npm-cli.js'), ...env },
    })
    const steps = readFileSync(file('steps'), 'utf8').split('\n').slice(0, -1)
    return { status, stdout, stderr, steps }
  }
  const edit = (name: string, text: string) => writeFileSync(file(name), text)
  const lock = (packages: object) => edit('package-lock.json', JSON.stringify({ packages }))
  return { prepare, edit, lock, file }
}

t.test('a bare clone is installed and built, once, without a word on stdout', async (t) => {
  const { prepare, file } = bareClone(t)
  const first = prepare()
  t.strictSame(first.steps, [INSTALL, 'tsc'])
  t.equal(first.status, 0)
  t.equal(first.stdout, '')
  t.match(first.stderr, 'installing the locked packages …')
  t.equal(readFileSync(file('dist/cli/demo.ts'), 'utf8'), 'two')
  const second = prepare()
  t.match(second, { status: 0, stdout: '', stderr: '', steps: [] })
})

t.test('the tests get their runner, built for the plugins .taprc names', async (t) => {
  const { prepare, edit } = bareClone(t)
  t.strictSame(prepare(['--tests']).steps, [INSTALL, 'tap build', 'tsc'])
  t.strictSame(prepare(['--tests']).steps, [])
  edit('.taprc', 'plugin: [other]')
  t.strictSame(prepare().steps, [], 'no need of it to start')
  t.strictSame(prepare(['--tests']).steps, ['tap build'])
})

t.test('installs again when node_modules is not what is locked', async (t) => {
  const { prepare, lock, file } = bareClone(t)
  prepare()
  const a = 'node_modules/a'
  const changes: [string, () => void][] = [
    ['another version', () => lock({ ...LOCKED, [a]: { version: '1.0.1', integrity: 'sha512-a' } })],
    ['another content', () => lock({ ...LOCKED, [a]: { version: '1.0.1', integrity: 'sha512-c' } })],
    ['one more', () => lock({ ...LOCKED, 'node_modules/c': { version: '1.0.0', integrity: 'sha512-c' } })],
    ['one less', () => lock(LOCKED)],
    ['a package removed by hand', () => rmSync(file(a), { recursive: true })],
    ['an install that was interrupted', () => rmSync(file('node_modules/.package-lock.json'))],
  ]
  for (const [what, change] of changes) {
    change()
    t.equal(prepare().steps[0], INSTALL, what)
  }
  t.strictSame(prepare().steps, [])
})

t.test('takes the npm on the path when another program runs it', async (t) => {
  const { prepare, file } = bareClone(t)
  chmodSync(file('bin/npm'), 0o755)
  const { steps, status } = prepare([], {
    npm_execpath: '/opt/yarn.js',
    PATH: `${file('bin')}:/bin:/usr/bin`,
  })
  t.equal(status, 0)
  t.strictSame(steps, [INSTALL, 'tsc'])
})

t.test('builds again when the sources or dist have changed, whatever their times say', async (t) => {
  const { prepare, edit, file } = bareClone(t)
  prepare()
  const changes: [string, () => void][] = [
    ['an edit', () => edit('src/main.ts', 'ONE')],
    ['a new module', () => edit('src/more.ts', 'three')],
    ['a module that is gone', () => rmSync(file('src/more.ts'))],
    ['other compiler options', () => edit('tsconfig.json', '{"a":1}')],
    ['dist is missing', () => rmSync(file('dist'), { recursive: true })],
    ['a part of dist is missing', () => rmSync(file('dist/main.ts'))],
    ['dist was built from something else', () => edit('dist/main.ts', 'other')],
    ['something old lies in dist', () => edit('dist/old.js', '')],
  ]
  for (const [what, change] of changes) {
    change()
    t.strictSame(prepare().steps, ['tsc'], what)
  }
  t.strictSame(prepare().steps, [])
  t.throws(() => readFileSync(file('dist/old.js')), { code: 'ENOENT' })
  t.throws(() => readFileSync(file('dist/more.ts')), { code: 'ENOENT' })
  t.strictSame(prepare(['--rebuild']).steps, ['tsc'], 'on request')
})

t.test('ends where a step fails, and tries it again the next time', async (t) => {
  const { prepare, edit, file } = bareClone(t)
  edit('no-network', '')
  const offline = prepare()
  t.equal(offline.status, 1)
  t.strictSame(offline.steps, [INSTALL])
  t.match(offline.stderr, /installing the locked packages failed: exit code 7\n$/)
  rmSync(file('no-network'))
  edit('type-error', '')
  const broken = prepare()
  t.equal(broken.status, 1)
  t.match(broken.stderr, /src\/main\.ts: error TS1\ncompiling failed: exit code 2\n$/)
  rmSync(file('type-error'))
  t.strictSame(prepare().steps, ['tsc'])
  t.equal(
    prepare([], { npm_execpath: undefined, PATH: '/nowhere' }).status,
    0,
    'nothing to do, nothing needed',
  )
  rmSync(file('node_modules'), { recursive: true })
  t.match(prepare([], { npm_execpath: undefined, PATH: '/nowhere' }), {
    status: 1,
    stderr: /installing the locked packages failed: spawnSync npm ENOENT\n$/,
  })
})

t.test('nothing of this runs when somebody installs the package, or only what it needs to run', async (t) => {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8'))
  for (const hook of [
    'preinstall',
    'install',
    'postinstall',
    'prepublish',
    'preprepare',
    'prepare',
    'postprepare',
  ])
    t.notOk(hook in scripts, hook)
})
