/**
 * Makes a checkout ready to run, doing only what is missing.
 *
 * In: the package in the working directory (npm runs scripts there), in any state from a bare clone on.
 * Out: the locked packages in node_modules, dist compiled from the sources as they stand, and with `--tests`
 * the test runner with the plugins that .taprc names. Nothing is done when nothing changed; what is done is
 * announced on stderr in one line. A step that fails ends this with exit code 1.
 *
 * Runs before anything is installed: plain JavaScript that imports nothing but Node's own modules and npm.mjs.
 *
 *     node scripts/prepare-checkout.mjs [--tests] [--rebuild]
 *
 * @module
 */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { npm } from './npm.mjs'

/** What each step was last done for, kept where a reinstall wipes it: a lost stamp costs a repetition. */
const STAMPS = 'node_modules/.cache/storage-auth-sidecar'

requireNode(20, 18)
if (!lockedPackagesInstalled()) {
  // NODE_ENV=production, an `omit` in somebody's npmrc, or the --dry-run of the `npm pack` that runs this would
  // leave out the compiler.
  const options = ['--include=dev', '--dry-run=false', '--no-audit', '--no-fund']
  run('installing the locked packages', [...npm(), 'ci', ...options])
}
if (process.argv.includes('--tests')) {
  const wanted = digest(['.taprc', 'package-lock.json'])
  if (stamp('runner') !== wanted) {
    run('building the test runner', [process.execPath, 'node_modules/tap/dist/esm/run.mjs', 'build'])
    writeStamp('runner', wanted)
  }
}
const sources = digest(['package-lock.json', 'package.json', 'tsconfig.json', ...filesBelow('src')])
if (process.argv.includes('--rebuild') || stamp('dist') !== `${sources} ${digest(filesBelow('dist'))}`) {
  // From nothing: a module whose source is gone must not stay importable.
  rmSync('dist', { recursive: true, force: true })
  run('compiling', [process.execPath, 'node_modules/typescript/bin/tsc'])
  // The status page's own files, which are served as they are.
  cpSync('src/status-page', 'dist/status-page', { recursive: true, filter: (path) => !path.endsWith('.ts') })
  // With the output in the stamp, a dist that somebody compiled from other sources is seen, too.
  writeStamp('dist', `${sources} ${digest(filesBelow('dist'))}`)
}

/** Ends with one clear line where Node is too old; npm only warns of `engines`, and not on `npm start`. */
function requireNode(major, minor) {
  const [haveMajor, haveMinor] = process.versions.node.split('.').map(Number)
  if (haveMajor > major || (haveMajor === major && haveMinor >= minor)) return
  /* c8 ignore next 2 -- the tests themselves need a newer Node */
  console.error(`Node ${major}.${minor} or newer is needed; this is ${process.versions.node}.`)
  process.exit(1)
}

/**
 * Whether node_modules holds what package-lock.json names, and nothing else. npm writes down what it
 * installed in node_modules/.package-lock.json, last of all: an interrupted install has none. Optional
 * packages may be absent (they are made for other platforms).
 */
function lockedPackagesInstalled() {
  if (!existsSync('node_modules/.package-lock.json')) return false
  const locked = packagesOf('package-lock.json')
  const installed = packagesOf('node_modules/.package-lock.json')
  for (const [path, { version, integrity, optional }] of Object.entries(locked)) {
    const found = installed[path]
    if (path === '' || (found === undefined && optional === true)) continue
    if (found?.version !== version || found?.integrity !== integrity) return false
    if (!existsSync(join(path, 'package.json'))) return false
  }
  return Object.keys(installed).every((path) => path in locked)
}

function packagesOf(lockfile) {
  return JSON.parse(readFileSync(lockfile, 'utf8')).packages
}

/** Runs one step: quiet on stdout, which belongs to the command that follows. */
function run(what, [command, ...args]) {
  console.error(`${what} …`)
  const { status, signal, error } = spawnSync(command, args, { stdio: ['ignore', 2, 2] })
  if (status === 0) return
  console.error(`${what} failed: ${error?.message ?? signal ?? `exit code ${status}`}`)
  process.exit(1)
}

/** The files below a directory, sorted; none when it is missing. */
function filesBelow(directory) {
  if (!existsSync(directory)) return []
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
}

/** One digest over names and contents: times say nothing after a `git checkout`. */
function digest(files) {
  const hash = createHash('sha256')
  for (const file of files) {
    const bytes = readFileSync(file)
    hash.update(`${file}\n${bytes.length}\n`).update(bytes)
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
