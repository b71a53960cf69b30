/**
 * Shows the configuration in force: every value and where it came from.
 *
 * Settings hold no secrets, only names of files that do; what could be one all the same (a password or query
 * in a URL) is masked.
 *
 * @module
 */
import type { Origins } from './load.ts'
import type { Config } from './schema.ts'
import { SETTINGS, valueAt } from './settings.ts'

/** One setting in force. */
export interface Effective {
  readonly setting: string
  readonly value: unknown
  /** `default`, `file:line:column`, `env NAME` or `flag --name`. */
  readonly origin: string
}

/** Lists every setting that has a value, in the order of the documentation. */
export function explain(config: Config, origins: Origins): Effective[] {
  return SETTINGS.flatMap(({ path, steps }) => {
    const origin = origins.get(path)
    return origin === undefined ? [] : [{ setting: path, value: mask(valueAt(config, steps)), origin }]
  })
}

/** The list as a table for people: setting, value as JSON, origin. */
export function explainText(effective: readonly Effective[]): string {
  const rows = [
    ['SETTING', 'VALUE', 'FROM'] as const,
    ...effective.map(({ setting, value, origin }) => [setting, JSON.stringify(value), origin] as const),
  ]
  const [first, second] = [0, 1].map((column) => Math.max(...rows.map((row) => String(row[column]).length)))
  return rows
    .map(
      ([setting, value, origin]) =>
        `${setting.padEnd(Number(first))}  ${value.padEnd(Number(second))}  ${origin}\n`,
    )
    .join('')
}

/** The list as one object by setting, for programs. */
export function explainJson(effective: readonly Effective[]): string {
  const entries = effective.map(({ setting, value, origin }) => [setting, { value, origin }] as const)
  return `${JSON.stringify(Object.fromEntries(entries), null, 2)}\n`
}

function mask(value: unknown): unknown {
  if (typeof value === 'string') {
    return value.replace(/^(\w+:\/\/)[^/@]*@/, '$1***@').replace(/^(\w+:\/\/[^?]*\?).*$/, '$1***')
  }
  if (Array.isArray(value)) return value.map(mask)
  if (!(value instanceof Object)) return value
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, mask(inner)]))
}
