import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import t, { type Test } from 'tap'

const SCRIPT = resolve('scripts/run-tests.mjs')

/** Stands for tap: notes how it was called, prints the results in `out.tap`, ends with the code in `code`. */
const TAP = `
import { readFileSync, writeFileSync } from 'node:fs'
writeFileSync('called', JSON.stringify({ args: process.argv.slice(2), TAP: process.env.TAP ?? null }))
process.stdout.write(readFileSync('out.tap'))
const code = readFileSync('code', 'utf8')
if (code === 'wait') setInterval(() => {}, 1000)
else if (code.startsWith('SIG')) process.kill(process.pid, code)
else process.exitCode = Number(code)
`

const GOOD = `TAP version 14
# Subtest: test/a.test.ts
    # Subtest: adds
        ok 1 - one
        ok 2 - two
        1..2
    ok 1 - adds # time=1ms
    ok 2 - later # SKIP no
    ok 3 - some day # TODO
    # Subtest: asserts nothing
        1..0
    ok 4 - asserts nothing # time=1ms
    1..4
ok 1 - test/a.test.ts # time=12.6ms
1..1
`

function runner(t: Test, { out, code = '0' }: { out: string; code?: string }) {
  const directory = t.testdir({
    'out.tap': out,
    code,
    node_modules: { tap: { dist: { esm: { 'run.mjs': TAP } } } },
  })
  const run = (...args: string[]) => {
    const env = { ...process.env, TAP: '1' }
    const { status, stdout } = spawnSync(process.execPath, [SCRIPT, ...args], {
      cwd: directory,
      encoding: 'utf8',
      env,
    })
    const called = JSON.parse(readFileSync(join(directory, 'called'), 'utf8'))
    return { status, stdout, last: stdout.trimEnd().split('\n').at(-1), called }
  }
  return { directory, run }
}

t.test('says in one line for each file, and in the last line, that all is well', async (t) => {
  const { run } = runner(t, { out: GOOD })
  const { status, stdout, called } = run()
  t.equal(stdout, '    ok  test/a.test.ts  13 ms\n\n3 passed, 0 failed, 2 skipped\n')
  t.equal(status, 0)
  t.strictSame(called, { args: ['--reporter=tap'], TAP: null })
})

t.test('asks for coverage of everything only when everything runs', async (t) => {
  const { run } = runner(t, { out: GOOD })
  t.strictSame(run('--jobs=1').called.args, ['--reporter=tap', '--jobs=1'])
  t.strictSame(run('test/a.test.ts', '--bail').called.args, [
    '--reporter=tap',
    'test/a.test.ts',
    '--bail',
    '--allow-incomplete-coverage',
    '--allow-empty-coverage',
  ])
})

t.test('shows a failure in full, with the names of the tests around it', async (t) => {
  const out = `TAP version 14
# Subtest: test/a.test.ts
    printed by a test
    # Subtest: adds
        ok 1 - one
        not ok 2 - two
          ---
          compare: ===
          at:
            lineNumber: 3
          diff: |
            -2
            +1
          ...
        1..2
    not ok 1 - adds # time=1ms
    1..1
not ok 1 - test/a.test.ts # time=12ms
1..1
`
  const { status, stdout, last } = runner(t, { out, code: '1' }).run()
  t.equal(status, 1)
  t.equal(last, '1 passed, 1 failed')
  t.match(stdout, 'printed by a test\n')
  t.match(
    stdout,
    `
not ok  test/a.test.ts > adds > two
  compare: ===
  at: {"lineNumber":3}
  diff:
    -2
    +1
`,
  )
  t.match(stdout, '\nnot ok  test/a.test.ts  12 ms\n')
})

t.test('counts what failed without a failed assertion', async (t) => {
  const table: [string, string, string][] = [
    [
      'a file that crashed before its first test',
      '# Subtest: a\n    1..0\nnot ok 1 - a\n  ---\n  command: node\n  exitCode: 3\n  ...\n1..1\n',
      '0 passed, 1 failed',
    ],
    [
      'a file that crashed after some assertions',
      '# Subtest: a\n    ok 1 - one\nnot ok 1 - a\n1..1\n',
      '1 passed, 1 failed',
    ],
    [
      'a plan that was not kept',
      '# Subtest: a\n    ok 1 - one\n    1..2\nnot ok 1 - a\n1..1\n',
      '1 passed, 1 failed',
    ],
    ['a run that was given up', 'ok 1 - one\nBail out! why\n', '1 passed, 1 failed'],
  ]
  for (const [what, out, last] of table) {
    const ended = runner(t, { out: `TAP version 14\n${out}`, code: '1' }).run()
    t.equal(ended.last, last, what)
    t.equal(ended.status, 1, what)
    t.notMatch(ended.stdout, 'command', what)
  }
})

t.test('a file crash says how the process ended', async (t) => {
  const out = 'TAP version 14\n# Subtest: a\n    1..0\nnot ok 1 - a\n  ---\n  exitCode: 3\n  ...\n1..1\n'
  t.match(runner(t, { out, code: '1' }).run().stdout, 'not ok  a\n  exitCode: 3\n')
})

t.test('fails when nothing failed but coverage is incomplete, or the runner ended badly', async (t) => {
  const incomplete = runner(t, { out: `${GOOD}a.ts | 99 | 7\n`, code: '1' }).run()
  t.equal(incomplete.status, 1)
  t.match(incomplete.stdout, 'a.ts | 99 | 7\n')
  t.match(incomplete.stdout, 'tap ended with exit code 1: coverage is not complete, or see above')
  t.equal(incomplete.last, '3 passed, 0 failed, 2 skipped')
  const killed = runner(t, { out: GOOD, code: 'SIGKILL' }).run()
  t.equal(killed.status, 1)
  t.match(killed.stdout, 'tap ended with SIGKILL')
})

t.test('fails when no test ran', async (t) => {
  const { status, last } = runner(t, { out: '' }).run('test/none.test.ts')
  t.equal(status, 1)
  t.match(last, '0 passed, ')
})

t.test('when it is told to stop, it stops tap and still reports', async (t) => {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    const { directory } = runner(t, { out: GOOD, code: 'wait' })
    const child = spawn(process.execPath, [SCRIPT], { cwd: directory, stdio: ['ignore', 'pipe', 'inherit'] })
    await once(child.stdout, 'data') // the first result has arrived
    // Ctrl-C reaches the whole group at once; here only the script gets it, and must wait for tap.
    child.kill(signal)
    if (signal === 'SIGINT') child.kill('SIGTERM')
    const printed = Buffer.concat(await child.stdout.toArray()).toString()
    t.match(printed, '3 passed, 0 failed, 2 skipped', signal)
    t.equal(child.exitCode ?? (await once(child, 'exit'))[0], 1, signal)
  }
})
