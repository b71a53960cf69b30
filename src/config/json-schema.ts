/**
 * The settings file as a JSON Schema (draft 2020-12), for editors and pipelines.
 *
 * It knows names, types and bounds. What JSON Schema cannot say (rules across settings, the parts of a URL) is
 * checked by `config check` only.
 *
 * @module
 */
import { z } from 'zod'
import { settingsSchema } from './schema.ts'

/** The schema's text, as `config schema` prints it and as `config/sidecar.schema.json` holds it. */
export function configJsonSchema(): string {
  return `${JSON.stringify(z.toJSONSchema(settingsSchema, { target: 'draft-2020-12', io: 'input' }), null, 2)}\n`
}
