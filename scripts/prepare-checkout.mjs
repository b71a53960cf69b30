/**
 * Makes a checkout ready to run, and does only what is missing: installs the locked packages,
 * compiles `src` to `dist`, and with `--tests` builds the test runner. `--rebuild` compiles anyway.
 * Runs from a bare clone on, before anything is installed, so it imports Node's own modules only.
 */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** What each step was last done for. A reinstall removes it, which costs one repetition. */
const STAMPS = 'node_modules/.cache/storage-auth-sidecar'

const [major, minor] = process.versions.node.split('.').map(Number)
if (major < 20 || (major === 20 && minor < 18)) {
  console.error(`Node 20.18 or newer is needed; this is ${process.versions.node}.`)
  process.exit(1)
}
if (!lockedPackagesInstalled()) {
  // NODE_ENV=production, or the --dry-run of the `npm pack` that runs this, would leave out the compiler.
  const options = ['--include=dev', '--dry-run=false', '--no-audit', '--no-fund', '--loglevel=error']
  run('installing the locked packages', 'npm', ['ci', ...options])
}
const runner = digest(['.taprc', 'package-lock.json'])
if (process.argv.includes('--tests') && stamp('runner') !== runner) {
  run('building the test runner', process.execPath, ['node_modules/tap/dist/esm/run.mjs', 'build'])
  writeStamp('runner', runner)
}
const sources = digest(['package-lock.json', 'package.json', 'tsconfig.json', ...filesBelow('src')])
// The output is part of the stamp, too: `dist` may have been compiled from other sources.
if (process.argv.includes('--rebuild') || stamp('dist') !== `${sources} ${digest(filesBelow('dist'))}`) {
  rmSync('dist', { recursive: true, force: true })
  run('compiling', process.execPath, ['node_modules/typescript/bin/tsc'])
  // The files of the status page, and the script of the database.
  cpSync('src', 'dist', { recursive: true, filter: (path) => !path.endsWith('.ts') })
  writeStamp('dist', `${sources} ${digest(filesBelow('dist'))}`)
}

/**
 * Compares the lock file with npm's record of what it installed, which an interrupted install does not write.
 */
function lockedPackagesInstalled() {
  if (!existsSync('node_modules/.package-lock.json')) {
    return false
  }
  const packagesIn = (file) => JSON.parse(readFileSync(file, 'utf8')).packages
  const locked = packagesIn('package-lock.json')
  const installed = packagesIn('node_modules/.package-lock.json')
  const isInstalled = ([path, { version, optional }]) =>
    path === '' || (installed[path] ? installed[path].version === version : optional === true)
  return Object.entries(locked).every(isInstalled) && Object.keys(installed).every((path) => path in locked)
}

/** Runs one step with its output on stderr: stdout belongs to the command that follows. */
function run(what, command, args) {
  console.error(`${what} …`)
  const { status, signal, error } = spawnSync(command, args, { stdio: ['ignore', 2, 2] })
  if (status === 0) {
    return
  }
  console.error(`${what} failed: ${error?.message ?? signal ?? `exit code ${status}`}`)
  process.exit(1)
}

function filesBelow(directory) {
  if (!existsSync(directory)) {
    return []
  }
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true })
  return entries.flatMap((entry) => (entry.isFile() ? [join(entry.parentPath, entry.name)] : [])).sort()
}

/** Covers names and contents; times say nothing after a `git checkout`. */
function digest(files) {
  const hash = createHash('sha256')
  for (const file of files) {
    hash.update(`${file}\n`).update(createHash('sha256').update(readFileSync(file)).digest())
  }
  return hash.digest('hex')
}

function stamp(name) {
  return existsSync(`${STAMPS}/${name}`) ? readFileSync(`${STAMPS}/${name}`, 'utf8') : undefined
}

function writeStamp(name, text) {
  mkdirSync(STAMPS, { recursive: true })
  writeFileSync(`${STAMPS}/${name}`, text)
}
