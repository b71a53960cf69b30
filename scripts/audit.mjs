/**
 * Lists known advisories on the packages that the program ships; exit code 1 if there are any.
 * Without an answer of the registry the last line says "not checked", and in CI (variable
 * CI) the exit code is 1 unless AUDIT_MAY_BE_UNCHECKED=1.
 */
import { spawnSync } from 'node:child_process'

const args = ['audit', '--omit=dev', '--json', '--package-lock-only', '--fetch-retries=1']
const { stdout } = spawnSync('npm', args, {
  encoding: 'utf8',
  timeout: 30_000,
  stdio: ['ignore', 'pipe', 'ignore'],
})
const advisories = vulnerabilities(stdout)
for (const { name, severity, range, via } of Object.values(advisories ?? {})) {
  // An entry of `via` that is a text names a package below, which has its own line.
  for (const { title, url } of via.filter((cause) => typeof cause === 'object')) {
    console.log(`${name} ${range}: ${severity}: ${title} ${url}`)
  }
}
const count = Object.keys(advisories ?? {}).length
const { CI, AUDIT_MAY_BE_UNCHECKED } = process.env
const mustBeChecked = Boolean(CI) && AUDIT_MAY_BE_UNCHECKED !== '1'
console.log(advisories ? `${count} packages with advisories` : 'not checked: the registry gave no advisories')
process.exitCode = count > 0 || (advisories === undefined && mustBeChecked) ? 1 : 0

function vulnerabilities(json) {
  try {
    return JSON.parse(json).vulnerabilities
  } catch {
    return undefined
  }
}
