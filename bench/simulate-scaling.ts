/**
 * `npm run bench:scaling`: prints the tables of docs/scaling.md; with `-- --write` puts them there.
 *
 * @module
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { SCALING_DOCUMENT, withGeneratedPart } from './scaling/document.ts'
import { scalingTables } from './scaling/tables.ts'

const tables = await scalingTables()
if (process.argv.includes('--write')) {
  writeFileSync(SCALING_DOCUMENT, withGeneratedPart(readFileSync(SCALING_DOCUMENT, 'utf8'), tables))
} else {
  console.log(tables)
}
