/**
 * Writes the bill of materials: every package that the program is shipped with, as CycloneDX 1.5 JSON on stdout.
 *
 * In: package.json and package-lock.json in the working directory. Out: what `npm sbom` says of the packages that
 * are not for development only. Its own `--omit dev` leaves out packages that the program needs as soon as a
 * development tool needs them too, here 18 of 44 (npm 11.19): so the lock file decides.
 *
 *     node scripts/sbom.mjs > sbom.cdx.json
 *
 * @module
 */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { npm } from './npm.mjs'

const { name, version } = JSON.parse(readFileSync('package.json', 'utf8'))
const locked = Object.entries(JSON.parse(readFileSync('package-lock.json', 'utf8')).packages)
const shipped = new Set(
  locked
    .filter(([path, { dev }]) => path !== '' && dev !== true)
    .map(([path, about]) => `${path.replace(/^.*node_modules\//, '')}@${about.version}`),
)

const wanted = ['sbom', '--sbom-format=cyclonedx', '--sbom-type=application', '--package-lock-only']
const [command, ...args] = [...npm(), ...wanted]
const options = { encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'inherit'] }
const { stdout, status } = spawnSync(command, args, options)
if (status !== 0) {
  console.error('npm sbom failed')
  process.exit(1)
}

const bill = JSON.parse(stdout)
const self = `${name}@${version}`
bill.metadata.component.name = name // npm takes the name of the directory
bill.components = bill.components.filter((component) => shipped.has(component['bom-ref']))
const kept = new Set([self, ...bill.components.map((component) => component['bom-ref'])])
bill.dependencies = bill.dependencies
  .filter(({ ref }) => kept.has(ref))
  .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((dependency) => kept.has(dependency)) }))
if (bill.components.length !== shipped.size) {
  console.error(`npm sbom knows ${bill.components.length} of ${shipped.size} packages`)
  process.exit(1)
}
console.log(JSON.stringify(bill, null, 2))
