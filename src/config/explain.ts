/**
 * Shows the effective configuration: every value and where it came from. Settings hold names of files, not secrets;
 * what could be a secret all the same (a password or query in a URL) is masked.
 */
import { z } from 'zod'
import type { Origins } from './load.ts'
import { type Config, settingsSchema } from './schema.ts'
import { SETTINGS, valueAt } from './settings.ts'

export interface Effective {
  readonly setting: string
  readonly value: unknown
  /** `default`, `file:line:column`, `env NAME` or `flag --name`. */
  readonly origin: string
}

/** Every setting that has a value, in the order of the documentation. */
export function explain(config: Config, origins: Origins): Effective[] {
  return SETTINGS.flatMap(({ path, steps }) => {
    const origin = origins.get(path)
    return origin === undefined ? [] : [{ setting: path, value: mask(valueAt(config, steps)), origin }]
  })
}

function mask(value: unknown): unknown {
  if (typeof value === 'string') {
    return value.replace(/^(\w+:\/\/)[^/@]*@/, '$1***@').replace(/^(\w+:\/\/[^?]*\?).*$/, '$1***')
  }
  if (Array.isArray(value)) return value.map(mask)
  if (!(value instanceof Object)) return value
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, mask(inner)]))
}

/** The settings file as a JSON Schema (draft 2020-12): names, types and bounds, without the rules across settings. */
export function configJsonSchema(): string {
  return `${JSON.stringify(z.toJSONSchema(settingsSchema, { target: 'draft-2020-12', io: 'input' }), null, 2)}\n`
}
