/**
 * The settings as one flat list, each with the names it goes by.
 *
 * `token.lifetimeSeconds` is the variable `SIDECAR_TOKEN_LIFETIME_SECONDS` and the flag
 * `--token-lifetime-seconds`. A list such as `upstreams` is one setting.
 *
 * @module
 */
import { z } from 'zod'
import { settingsSchema } from './schema.ts'

/** One setting, as files, variables, flags and documentation know it. */
export interface Setting {
  /** `limits.loginFailures.count`. */
  readonly path: string
  readonly steps: readonly string[]
  /** `SIDECAR_LIMITS_LOGIN_FAILURES_COUNT`. */
  readonly variable: string
  /** `--limits-login-failures-count`. */
  readonly flag: string
  /** What it means, with its unit; one line. */
  readonly description: string
  /** The phrase that says which values it takes: `must be an integer from 1 to 1000000`. */
  readonly wants: string
  /** How a text from a variable or flag is read. */
  readonly kind: 'text' | 'number' | 'boolean' | 'texts' | 'list'
  /** The names that stand in each member of a list of maps; empty for all else. */
  readonly memberNames: readonly string[]
  /** Undefined where nothing, or something that depends on other settings, holds. */
  readonly default: unknown
  /** The group that exists only when one of its members is given, or the setting itself. */
  readonly unit: string
}

/** A group of settings: what may stand in it. */
export interface Section {
  readonly path: string
  readonly members: ReadonlyMap<string, Section | Setting>
}

/** The whole tree; its path is ''. */
export const SECTIONS: Section = describeSection(settingsSchema, [], undefined)

/** Every setting, in the order of the schema. */
export const SETTINGS: readonly Setting[] = flatten(SECTIONS)

/** Tells a group from a setting. */
export function isSection(member: Section | Setting): member is Section {
  return 'members' in member
}

/** The value that `steps` lead to, undefined where there is none. */
export function valueAt(value: unknown, steps: readonly string[]): unknown {
  return steps.reduce(
    (inner: unknown, step) => (inner instanceof Object ? Reflect.get(inner, step) : undefined),
    value,
  )
}

function flatten(section: Section): Setting[] {
  return [...section.members.values()].flatMap((member) => (isSection(member) ? flatten(member) : [member]))
}

function describeSection(schema: z.ZodObject, steps: readonly string[], unit: string | undefined): Section {
  const members = new Map<string, Section | Setting>()
  for (const [name, member] of Object.entries(schema.shape)) {
    members.set(name, describeMember(member, [...steps, name], unit))
  }
  return { path: steps.join('.'), members }
}

function describeMember(
  schema: z.core.$ZodType,
  steps: readonly string[],
  unit: string | undefined,
): Section | Setting {
  const path = steps.join('.')
  const inner = bare(schema)
  if (inner instanceof z.ZodObject) {
    return describeSection(inner, steps, unit ?? (schema instanceof z.ZodOptional ? path : undefined))
  }
  const words = steps.map((step) => step.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase())
  const name = words.join('_')
  return {
    path,
    steps,
    variable: `SIDECAR_${name}`,
    flag: `--${name.toLowerCase().replaceAll('_', '-')}`,
    description: String(z.globalRegistry.get(schema)?.description),
    wants: wants(inner),
    kind: kind(inner),
    memberNames: memberNames(inner),
    default: schema instanceof z.ZodDefault ? schema.def.defaultValue : undefined,
    unit: unit ?? path,
  }
}

/** Takes off what only says that a value may be left out. */
function bare(schema: z.core.$ZodType): z.core.$ZodType {
  return schema instanceof z.ZodDefault || schema instanceof z.ZodOptional || schema instanceof z.ZodPrefault
    ? schema.unwrap()
    : schema
}

/** Asks the schema what it wants, by giving it what no setting takes. */
function wants(schema: z.core.$ZodType): string {
  return String(z.safeParse(schema, Symbol('nothing')).error?.issues[0]?.message)
}

function kind(schema: z.core.$ZodType): Setting['kind'] {
  if (schema instanceof z.ZodNumber || schema instanceof z.ZodUnion || schema instanceof z.ZodLiteral)
    return 'number'
  if (schema instanceof z.ZodBoolean) return 'boolean'
  if (schema instanceof z.ZodArray) return schema.element instanceof z.ZodString ? 'texts' : 'list'
  return 'text'
}

function memberNames(schema: z.core.$ZodType): string[] {
  return schema instanceof z.ZodArray && schema.element instanceof z.ZodObject
    ? Object.keys(schema.element.shape)
    : []
}
