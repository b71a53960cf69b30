/**
 * Looks for known faults in the packages that the program is shipped with.
 *
 * In: package-lock.json in the working directory, and what the registry knows of the packages in it that are not
 * for development only. Out: a line for each package that is deprecated or has an advisory, and one that sums up;
 * exit code 1 if there is any. A registry that does not answer is no fault of the packages: that is said, with
 * exit code 0.
 *
 *     node scripts/audit.mjs
 *
 * @module
 */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { npm } from './npm.mjs'

/** How long the registry is waited for. */
const PATIENCE_MS = 30_000

const locked = Object.entries(JSON.parse(readFileSync('package-lock.json', 'utf8')).packages)
const shipped = locked.filter(([path, { dev }]) => path !== '' && dev !== true)
const deprecated = shipped.filter(([, about]) => about.deprecated !== undefined)
for (const [path, about] of deprecated) {
  console.log(`${path.replace(/^.*node_modules\//, '')} ${about.version} is deprecated: ${about.deprecated}`)
}

const advisories = askRegistry()
for (const { name, severity, range, via } of advisories ?? []) {
  // An entry of `via` that is a text names a package below, which has its own line.
  for (const { title, url } of via.filter((cause) => typeof cause === 'object')) {
    console.log(`${name} ${range}: ${severity}: ${title} ${url}`)
  }
}

const said =
  advisories === undefined
    ? 'the registry gave no answer about advisories'
    : `${advisories.length} with advisories`
console.log(`${shipped.length} packages shipped: ${deprecated.length} deprecated; ${said}`)
process.exitCode = deprecated.length > 0 || (advisories?.length ?? 0) > 0 ? 1 : 0

/** What the registry knows, a package each; undefined when it does not say. */
function askRegistry() {
  const [command, ...args] = [
    ...npm(),
    'audit',
    '--omit=dev',
    '--json',
    '--package-lock-only',
    '--fetch-retries=1',
  ]
  const options = { encoding: 'utf8', timeout: PATIENCE_MS, stdio: ['ignore', 'pipe', 'ignore'] }
  const { stdout } = spawnSync(command, args, options)
  try {
    const { vulnerabilities } = JSON.parse(stdout)
    return vulnerabilities === undefined ? undefined : Object.values(vulnerabilities)
  } catch {
    return undefined
  }
}
