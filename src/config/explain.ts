/**
 * Shows the effective configuration: every value and where it came from. Settings hold names of files, not secrets.
 */
import { z } from 'zod'
import type { LoadedConfig } from './load.ts'
import { SETTINGS, valueAt } from './settings.ts'
import { settingsSchema } from './settings-schema.ts'

export interface Effective {
  readonly setting: string
  readonly value: unknown
  /** `default`, `file:line:column`, `env NAME` or `flag --name`. */
  readonly origin: string
}

/** Every setting that has a value, in the order of the documentation. */
export function explain({ config, origins }: Pick<LoadedConfig, 'config' | 'origins'>): Effective[] {
  return SETTINGS.flatMap(({ path, steps }) => {
    const origin = origins.get(path)
    return origin === undefined ? [] : [{ setting: path, value: mask(valueAt(config, steps)), origin }]
  })
}

/** The query of a URL may hold a secret. */
function mask(value: unknown): unknown {
  return typeof value === 'string' ? value.replace(/^(https?:[^?]*\?).*$/i, '$1***') : value
}

/** The settings file as a JSON Schema (draft 2020-12): names, types and bounds, without the rules across settings. */
export function configJsonSchema(): string {
  return `${JSON.stringify(z.toJSONSchema(settingsSchema, { target: 'draft-2020-12', io: 'input' }), null, 2)}\n`
}
