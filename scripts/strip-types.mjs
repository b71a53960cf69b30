/** Lets Node 20 run TypeScript files: `node --import=./scripts/strip-types.mjs FILE`. */
import { register } from 'node:module'

register('./strip-types-hooks.mjs', import.meta.url)
// tap enables them. Nothing here needs any, and Node reads those of all packages: a tenth
// of the start of a test file.
process.setSourceMapsEnabled(false)
