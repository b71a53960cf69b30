/** Reads settings from the YAML file, environment variables and flags. Out: unchecked values with their locations. */
import { closeSync, openSync, readSync } from 'node:fs'
import { z } from 'zod'
import { fileErrorReason } from '../files/files.ts'
import { parseYaml, type Step } from '../files/yaml-text.ts'
import type { Problem } from '../values/problem.ts'
import { completed, namesBelow, SETTINGS, type Setting, valueAt } from './settings.ts'

/** Texts by the name of the variable or flag. */
export type NamedValues = Readonly<Record<string, string | undefined>>

/** The variable that names the settings file; the only one that is no setting. */
export const FILE_VARIABLE = 'SIDECAR_CONFIG'

/** Short names of settings. A URL of an upstream means one upstream at prefix `/`. */
const SHORT = { SIDECAR_UPSTREAM_URL: 'upstreams', '--upstream-url': 'upstreams', '--port': 'listen.port' }

const NAMES = new Map(
  SETTINGS.flatMap((setting) => {
    const short = Object.entries(SHORT).flatMap(([name, path]) => (path === setting.path ? [name] : []))
    return [setting.variable, setting.flag, ...short].map((name) => [name, setting] as const)
  }),
)

const PREFIX = 'SIDECAR_'

const VARIABLES = [...NAMES.keys(), FILE_VARIABLE].filter((name) => name.startsWith(PREFIX))

export const FLAGS: readonly string[] = [...NAMES.keys()].filter((name) => name.startsWith('--'))

interface FileValues {
  /** Maps as plain objects; an empty group or list is left out, which means its defaults. */
  readonly tree: unknown
  readonly problems: readonly Problem[]
  /** `file:line:column` of the value at `steps` or of the group around it; with `key`, of its name. */
  readonly locationOf: (steps: readonly Step[], key?: 'key') => string
}

export const NO_FILE: FileValues = { tree: {}, problems: [], locationOf: () => 'default' }

const MAX_FILE_BYTES = 1_048_576

/** A pipe or device is read, too (`--config <(…)`), up to one byte more than allowed. */
function readBounded(file: string): Buffer {
  const descriptor = openSync(file, 'r')
  try {
    const bytes = Buffer.alloc(MAX_FILE_BYTES + 1)
    let length = 0
    let read: number
    do {
      read = readSync(descriptor, bytes, length, bytes.length - length, null)
      length += read
    } while (read > 0)
    return bytes.subarray(0, length)
  } finally {
    closeSync(descriptor)
  }
}

/** A file that cannot be used has no tree. */
export function readFile(file: string): FileValues {
  const problem = (message: string, origin: string): Problem => ({ path: '', message, origin })
  const unusable = (...problems: readonly Problem[]) => ({ ...NO_FILE, tree: undefined, problems })
  if (file === '')
    return unusable(problem('must be the path of a settings file', `--config or ${FILE_VARIABLE}`))
  let text: string
  try {
    const bytes = readBounded(file)
    if (bytes.length > MAX_FILE_BYTES)
      return unusable(problem(`is larger than ${MAX_FILE_BYTES} bytes`, file))
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch (error) {
    return unusable(problem(`cannot read the configuration: ${fileErrorReason(error)}`, file))
  }
  const yaml = parseYaml(text)
  if (!yaml.ok) {
    const problems = yaml.mistakes.map(({ message, position: { line, column } }) =>
      problem(`not valid YAML: ${message}`, `${file}:${line}:${column}`),
    )
    return unusable(...problems)
  }
  const tree = withoutEmpty(yaml.value ?? {}, [])
  const locationOf = (steps: readonly Step[], key?: 'key') => {
    if (steps.length > 0 && valueAt(tree, steps.slice(0, 1)) === undefined) return 'default'
    const { line, column } = yaml.position(steps, key)
    return `${file}:${line}:${column}`
  }
  return { tree, problems: [], locationOf }
}

const isMap = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Leaves out groups and lists without a value, such as `token:` with every line below it commented out. */
function withoutEmpty(value: unknown, steps: readonly string[]): unknown {
  if (!isMap(value) || namesBelow(steps).length === 0) return value
  const members = Object.entries(value).flatMap(([name, inner]) => {
    const path = [...steps, name]
    const isList = SETTINGS.find((one) => one.path === path.join('.'))?.schema instanceof z.ZodArray
    const isEmpty = inner === null && (isList || namesBelow(path).length > 0)
    return isEmpty ? [] : [[name, withoutEmpty(inner, path)]]
  })
  return Object.fromEntries(members)
}

/** Puts a value into a copy of the tree. A group that is not a map stays as it is. */
export function withValue(
  branch: unknown = {},
  [step, ...below]: readonly string[],
  value: unknown,
): unknown {
  if (step === undefined) return value
  return isMap(branch) ? { ...branch, [step]: withValue(valueAt(branch, [step]), below, value) } : branch
}

export function ownVariables(environment: NamedValues): NamedValues {
  const isOwn = ([name, value = '']: [string, string | undefined]) =>
    name.startsWith(PREFIX) && name !== FILE_VARIABLE && !isServiceLink(name, value)
  return Object.fromEntries(Object.entries(environment).filter(isOwn))
}

/** Kubernetes sets `SIDECAR_ADMIN_PORT=tcp://10.0.0.7:8081` in each pod beside a Service called `sidecar-admin`. */
function isServiceLink(name: string, value: string): boolean {
  if (/_SERVICE_(?:HOST|PORT(?:_[A-Z0-9_]+)?)$|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_[A-Z]+)?$/.test(name))
    return true
  return name.endsWith('_PORT') && /^(?:tcp|udp|sctp):\/\//.test(value)
}

/** A value that a variable or flag (`name`) gives to a setting. Not checked yet. */
export interface NamedValue {
  readonly setting: Setting
  readonly value: unknown
  readonly name: string
}

/** Reads variables and flags. An unknown variable is a problem: a typing mistake must not be ignored. */
export function readNamed(given: NamedValues) {
  const values: NamedValue[] = []
  const problems: Problem[] = []
  for (const [name, text] of Object.entries(given)) {
    if (text === undefined) continue
    const setting = NAMES.get(name)
    const fullName = setting?.[name.startsWith('--') ? 'flag' : 'variable'] ?? ''
    if (setting === undefined) {
      const meant = completed(name, VARIABLES)
      const hint = meant === undefined ? '' : `; did you mean ${meant}?`
      problems.push({ path: '', message: `${name} is not a setting${hint}`, origin: name })
    } else if (name !== fullName && given[fullName] !== undefined) {
      problems.push({ path: setting.path, message: `cannot be used with ${fullName}`, origin: name })
    } else {
      const isUpstreamUrl = name !== fullName && setting.path === 'upstreams'
      const value = isUpstreamUrl ? [{ prefix: '/', url: text }] : decode(text, setting.schema)
      values.push({ setting, value, name })
    }
  }
  return { values, problems }
}

/** Text that cannot be decoded stays text; the schema then reports the requirement. */
function decode(text: string, schema: z.core.$ZodType): unknown {
  if (!(schema instanceof z.ZodArray)) {
    // Not Number(text): that takes '', ' 1 ', 0x10, 1e3 and Infinity.
    const isPlain = /^(?:true|false|-?(?:0|[1-9]\d*)(?:\.\d+)?)$/.test(text)
    return isPlain && !z.safeParse(schema, text).success ? JSON.parse(text) : text
  }
  if (schema.element instanceof z.ZodString && !text.trimStart().startsWith('[')) {
    return text.trim() === '' ? [] : text.split(',').map((item) => item.trim())
  }
  const yaml = parseYaml(text)
  return yaml.ok ? yaml.value : text
}
