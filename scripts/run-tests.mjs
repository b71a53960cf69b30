/**
 * Runs tap with the given arguments and prints a line for each test file, every failure in full, the coverage
 * table, and as the very last line `N passed, N failed` (with `, N skipped`), counted in assertions.
 * Without a test file in the arguments it runs all of them, and requires 95 % of all lines to be covered.
 * The exit code is 0 only when something passed and nothing failed.
 */
import { spawn } from 'node:child_process'
import { Parser } from 'tap-parser'

/** Diagnostics about the process of a test file: the same for every file. */
const NOISE = new Set(['stdio', 'cwd', 'externalID', 'command', 'args'])

const MIN_COVERED_LINES = 95

const args = process.argv.slice(2)
const isWhole = args.every((arg) => arg.startsWith('-'))
const command = [
  'node_modules/tap/dist/esm/run.mjs',
  '--reporter=tap',
  '--allow-incomplete-coverage',
  ...args,
]
if (!isWhole) {
  command.push('--allow-empty-coverage')
}
let coveredLines
const count = { passed: 0, failed: 0, skipped: 0 }

if (isWhole) {
  console.log(
    'Running all tests: about 5 minutes on two idle cores. A file alone: npm test -- test/e2e/routes.test.ts',
  )
}

// With TAP=1 in the environment tap would take itself for a subtest.
const { TAP: _, ...env } = process.env
const tap = spawn(process.execPath, command, { stdio: ['ignore', 'pipe', 'inherit'], env })
// Ctrl-C reaches tap as well, which ends its tests and reports; `kill` reaches this process only.
process.on('SIGINT', () => {})
process.on('SIGTERM', () => tap.kill('SIGTERM'))

const report = new Parser()
watch(report, [])
report.on('extra', (text) => {
  process.stdout.write(text) // output of tests, and the coverage table
  const [, lines] = /^All files\s*(?:\|\s*[\d.]+\s*){3}\|\s*([\d.]+)/.exec(text) ?? []
  if (lines !== undefined) {
    coveredLines = Number(lines)
  }
})
report.on('bailout', (reason) => {
  count.failed++
  console.log(`\nbailed out: ${reason}`)
})
tap.stdout.pipe(report)

const [code, signal] = await new Promise((resolve) => {
  tap.on('close', (...ended) => resolve(ended))
})
const isCovered = !isWhole || coveredLines >= MIN_COVERED_LINES
const isGood = count.failed === 0 && count.passed > 0 && isCovered
if (!isCovered) {
  console.log(`\n${coveredLines} % of the lines are covered, not ${MIN_COVERED_LINES} %`)
}
if (isGood && code !== 0) {
  console.log(`\ntap ended with ${signal ?? `exit code ${code}`}`)
}
const skipped = count.skipped > 0 ? `, ${count.skipped} skipped` : ''
console.log(`\n${count.passed} passed, ${count.failed} failed${skipped}`)
process.exitCode = isGood && code === 0 ? 0 : 1

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
    // A subtest's result repeats its assertions,
    // unless it ended badly without a failed one (a crash, a timeout).
    const hasAssertions = subtest !== undefined && subtest.count > 0
    const repeatsAssertions = hasAssertions && (result.ok || count.failed > failedBefore)
    if (!repeatsAssertions) {
      countResult(result, path)
    }
  })
}

function countResult(result, path) {
  if (result.skip || result.todo) {
    count.skipped++
  } else if (result.ok) {
    count.passed++
  } else {
    count.failed++
    console.log(`\nnot ok  ${[...path, result.name].join(' > ')}\n${detail(result.diag ?? {})}`)
  }
}

function detail(diagnostics) {
  const fields = Object.entries(diagnostics).filter(([key]) => !NOISE.has(key))
  return fields
    .map(([key, value]) => {
      const text = typeof value === 'string' ? value.trimEnd() : JSON.stringify(value)
      return text.includes('\n') ? `  ${key}:\n${text.replace(/^/gm, '    ')}\n` : `  ${key}: ${text}\n`
    })
    .join('')
}
