/** The version of the sidecar, from package.json. */
import { readFileSync } from 'node:fs'

const manifest = readFileSync(new URL('../../package.json', import.meta.url), 'utf8')
export const VERSION = String(JSON.parse(manifest).version)
