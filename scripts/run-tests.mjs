/**
 * Runs the tests and says how they ended.
 *
 * In: test files or tap options from the command line, or none: then every test runs and all of the sources
 * must be covered. Out: one line for each test file as it ends, every failure in full, a table of what is not
 * covered, and as the very last line `N passed, N failed` (with `, N skipped` where some were), counted in
 * assertions. The exit code is 0 only when something passed, nothing failed and tap itself was content, which
 * includes coverage. Naming a test file runs that file alone and asks for no coverage.
 *
 * @module
 */
import { spawn } from 'node:child_process'
import { Parser } from 'tap-parser'

/** What tap says of the process that ran a test file; the same for every file, so no help to a reader. */
const NOISE = new Set(['stdio', 'cwd', 'externalID', 'command', 'args'])

const args = process.argv.slice(2)
const command = ['node_modules/tap/dist/esm/run.mjs', '--reporter=tap', ...args]
if (args.some((arg) => !arg.startsWith('-'))) {
  command.push('--allow-incomplete-coverage', '--allow-empty-coverage')
}
const count = { passed: 0, failed: 0, skipped: 0 }

// TAP=1 in the environment would make tap believe that it is a subtest of somebody.
const { TAP: _, ...env } = process.env
const tap = spawn(process.execPath, command, { stdio: ['ignore', 'pipe', 'inherit'], env })
// Ctrl-C reaches tap as well, which ends its tests and reports: wait for that. kill reaches us only.
process.on('SIGINT', () => {})
process.on('SIGTERM', () => tap.kill('SIGTERM'))

const report = new Parser()
watch(report, [])
report.on('extra', (text) => process.stdout.write(text)) // what tests print, and the table of coverage
report.on('bailout', (reason) => {
  count.failed++
  console.log(`\nbailed out: ${reason}`)
})
tap.stdout.pipe(report)

const [code, signal] = await new Promise((resolve) => {
  tap.on('close', (...how) => resolve(how))
})
const good = count.failed === 0 && count.passed > 0
if (good && code !== 0) {
  // Nothing failed, so tap objects to the coverage, or could not do its work: it has said which above.
  console.log(`\ntap ended with ${signal ?? `exit code ${code}`}: coverage is not complete, or see above`)
}
const skipped = count.skipped > 0 ? `, ${count.skipped} skipped` : ''
console.log(`\n${count.passed} passed, ${count.failed} failed${skipped}`)
process.exitCode = good && code === 0 ? 0 : 1

/** Counts and prints the results of one level of tests; `path` names the tests around it, the file first. */
function watch(level, path) {
  let inner // the subtest whose own result comes next
  let failedBefore = 0
  level.on('child', (child) => {
    inner = child
    failedBefore = count.failed
    watch(child, [...path, child.name])
  })
  level.on('assert', (result) => {
    const subtest = inner
    inner = undefined
    if (path.length === 0) {
      console.log(`${result.ok ? '    ok' : 'not ok'}  ${result.name}  ${Math.round(result.time ?? 0)} ms`)
    }
    // A subtest's result repeats what its assertions said, unless it ended badly without a failed one
    // (a crash, a timeout, a plan not kept), or had none at all.
    if (subtest !== undefined && subtest.count > 0 && (result.ok || count.failed > failedBefore)) return
    if (result.skip || result.todo) count.skipped++
    else if (result.ok) count.passed++
    else {
      count.failed++
      console.log(`\nnot ok  ${[...path, result.name].join(' > ')}\n${detail(result.diag ?? {})}`)
    }
  })
}

/** Everything tap knows of a failure, one indented block for each field. */
function detail(diagnostics) {
  return Object.entries(diagnostics)
    .filter(([key]) => !NOISE.has(key))
    .map(([key, value]) => {
      const text = typeof value === 'string' ? value.trimEnd() : JSON.stringify(value)
      return text.includes('\n') ? `  ${key}:\n${text.replace(/^/gm, '    ')}\n` : `  ${key}: ${text}\n`
    })
    .join('')
}
