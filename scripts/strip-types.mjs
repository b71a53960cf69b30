/** Lets Node 20 run TypeScript files: `node --import=./scripts/strip-types.mjs FILE`. */
import { register } from 'node:module'

register('./strip-types-hooks.mjs', import.meta.url)
