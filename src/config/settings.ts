/**
 * The settings as one flat list, each with its names: `token.lifetimeSeconds` is the variable
 * `SIDECAR_TOKEN_LIFETIME_SECONDS` and the flag `--token-lifetime-seconds`.
 * A list such as `upstreams` is one setting.
 */
import { z } from 'zod'
import type { Step } from '../files/yaml-text.ts'
import { settingsSchema } from './schema.ts'

export type Settings = z.output<typeof settingsSchema>

export interface Setting {
  readonly path: string
  readonly steps: readonly string[]
  readonly variable: string
  readonly flag: string
  readonly description: string
  readonly schema: z.core.$ZodType
  /** Undefined if there is none. */
  readonly default: unknown
}

/** A member of the maps in a list of settings, such as `upstreams[].url`. */
export interface ListMember {
  readonly path: string
  readonly description: string
  readonly schema: z.core.$ZodType
  readonly default: unknown
  readonly required: boolean
}

export const SETTINGS: readonly Setting[] = flatten(settingsSchema, [])

const SHORT_NAMES: Readonly<Record<string, readonly string[]>> = {
  upstreams: ['SIDECAR_UPSTREAM_URL', '--upstream-url'], // one upstream, with the prefix `/`
  'listen.port': ['--port'],
}

export const SETTING_OF_NAME = new Map(
  SETTINGS.flatMap((setting) => {
    const names = [setting.variable, setting.flag, ...(SHORT_NAMES[setting.path] ?? [])]
    return names.map((name) => [name, setting] as const)
  }),
)

export const FLAGS: readonly string[] = [...SETTING_OF_NAME.keys()].filter((name) => name.startsWith('--'))

/** Returns the names of the members of the group at the steps. Empty if there is no group. */
export function namesBelow(steps: readonly Step[]): readonly string[] {
  let schema: z.core.$ZodType | undefined = settingsSchema
  for (const step of steps) {
    if (schema instanceof z.ZodArray) {
      schema = valueSchemaOf(schema.element)
    } else if (schema instanceof z.ZodObject && Object.hasOwn(schema.shape, step)) {
      schema = valueSchemaOf(schema.shape[step])
    } else {
      return []
    }
  }
  return schema instanceof z.ZodObject ? Object.keys(schema.shape) : []
}

export function valueAt(value: unknown, steps: readonly Step[]): unknown {
  let inner = value
  for (const step of steps) {
    if (!(inner instanceof Object) || !Object.hasOwn(inner, step)) {
      return undefined
    }
    inner = Reflect.get(inner, step)
  }
  return inner
}

/** Returns the only candidate that begins with the name. Case and separators do not count. */
export function onlyMatch(name: string, candidates: readonly string[]): string | undefined {
  const plain = (text: string) => text.toLowerCase().replace(/[._-]/g, '')
  const [found, ...others] = candidates.filter((candidate) => plain(candidate).startsWith(plain(name)))
  return others.length === 0 ? found : undefined
}

function flatten(schema: z.ZodObject, above: readonly string[]): Setting[] {
  return Object.entries(schema.shape).flatMap(([name, member]) => {
    const inner = valueSchemaOf(member)
    const steps = [...above, name]
    return inner instanceof z.ZodObject ? flatten(inner, steps) : [settingOf(member, inner, steps)]
  })
}

/** @param schema - that of the value of the member */
function settingOf(member: z.core.$ZodType, schema: z.core.$ZodType, steps: readonly string[]): Setting {
  const name = steps.map((step) => step.replace(/[A-Z]/g, '_$&').toUpperCase()).join('_')
  return {
    path: steps.join('.'),
    steps,
    variable: `SIDECAR_${name}`,
    flag: `--${name.toLowerCase().replaceAll('_', '-')}`,
    description: descriptionOf(member),
    schema,
    default: defaultOf(member),
  }
}

/** Returns the members of a list of maps. Empty for every other setting. */
export function listMembers({ path, schema }: Setting): readonly ListMember[] {
  if (!(schema instanceof z.ZodArray) || !(schema.element instanceof z.ZodObject)) {
    return []
  }
  return Object.entries(schema.element.shape).map(([name, member]) => ({
    path: `${path}[].${name}`,
    description: descriptionOf(member),
    schema: valueSchemaOf(member),
    default: defaultOf(member),
    required: !(member instanceof z.ZodDefault || member instanceof z.ZodOptional),
  }))
}

function descriptionOf(member: z.core.$ZodType): string {
  return String(z.globalRegistry.get(member)?.description)
}

/** A default that depends on other settings stands in the metadata. */
function defaultOf(member: z.core.$ZodType): unknown {
  return member instanceof z.ZodDefault ? member.def.defaultValue : z.globalRegistry.get(member)?.['default']
}

/** Returns the schema of the value of a member that may have a default or be optional. */
function valueSchemaOf(schema: z.core.$ZodType): z.core.$ZodType {
  return schema instanceof z.ZodDefault || schema instanceof z.ZodOptional || schema instanceof z.ZodPrefault
    ? schema.unwrap()
    : schema
}

/** Returns the JSON Schema of the settings, without the rules between settings. Helm reads draft 7. */
export function configJsonSchema(target: 'draft-2020-12' | 'draft-7' = 'draft-2020-12'): string {
  return `${JSON.stringify(z.toJSONSchema(settingsSchema, { target, io: 'input' }), null, 2)}\n`
}
