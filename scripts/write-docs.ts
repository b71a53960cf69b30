/**
 * Writes what the repository keeps of the settings' description: the table in `docs/configuration.md` and the
 * JSON Schema. Run it after changing `src/config/schema.ts`:
 *
 *     node --import=ts-blank-space/register scripts/write-docs.ts
 *
 * @module
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { configJsonSchema } from '../src/config/explain.ts'
import { withSettingsTable } from './settings-table.ts'

const document = new URL('../docs/configuration.md', import.meta.url)
writeFileSync(document, withSettingsTable(readFileSync(document, 'utf8')))
writeFileSync(new URL('../config/sidecar.schema.json', import.meta.url), configJsonSchema())
