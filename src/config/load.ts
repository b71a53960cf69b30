/** Loads the configuration: defaults, YAML file, environment variables, flags. A later source wins. */
import { closeSync, openSync, readSync } from 'node:fs'
import { z } from 'zod'
import { isJsonObject } from '../base/json.ts'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import { fileErrorText } from '../files/files.ts'
import { listedNames, parseYaml, type Step, writePath } from '../files/yaml-text.ts'
import { type Config, configSchema, type Problem } from './config.ts'
import { filePath } from './setting-kinds.ts'
import { namesBelow, onlyMatch, SETTING_OF_NAME, SETTINGS, type Setting, valueAt } from './settings.ts'

export const FILE_VARIABLE = 'SIDECAR_CONFIG'

type NamedValues = Readonly<Record<string, string | undefined>>

export interface LoadOptions {
  readonly file?: string | undefined
  readonly env: NamedValues
  readonly flags: NamedValues
  /** Whether a configuration without an upstream is a problem; default: true. */
  readonly needsUpstream?: boolean
}

export interface LoadedConfig {
  readonly config: Config
  readonly file: string | undefined
  readonly originOf: (path: string) => string
}

export function loadConfig(options: LoadOptions): Loaded<LoadedConfig, Problem> {
  const { env, flags, file = env[FILE_VARIABLE], needsUpstream = true } = options
  const fromFile = file === undefined ? NO_FILE : readFile(file)
  const named = readNamed({ ...ownVariables(env), ...flags })
  let tree: unknown = fromFile.tree ?? {}
  for (const { setting, value } of named.values) {
    tree = withValue(tree, setting.steps, value)
  }
  const locationOf: LocationOf = (steps, key) =>
    named.values.findLast(({ setting }) => setting.steps.every((step, at) => step === steps[at]))?.name ??
    fromFile.locationOf(steps, key)
  // An unusable file may name upstreams.
  const mustHaveUpstream = needsUpstream && fromFile.tree !== undefined
  const result = configSchema(mustHaveUpstream).safeParse(tree)
  const invalid = problemsOf(result.error?.issues ?? [], locationOf)
  const problems = [...fromFile.problems, ...named.problems, ...invalid]
  if (!result.success || problems.length > 0) {
    return notLoaded(problems)
  }
  const originOf = (path: string) => {
    const steps = path.split(/\W+/)
    return valueAt(tree, steps) === undefined ? 'default' : locationOf(steps)
  }
  return loaded({ config: result.data, file, originOf })
}

/**
 * Returns where a value is set: `file:line:column`, a variable, a flag or `default`.
 * `key`: where its name stands.
 */
type LocationOf = (steps: readonly Step[], key?: 'key') => string

interface FileValues {
  /** Without empty groups and lists, which mean their defaults. Undefined if the file is unusable. */
  readonly tree: unknown
  readonly problems: readonly Problem[]
  readonly locationOf: LocationOf
}

const NO_FILE: FileValues = { tree: {}, problems: [], locationOf: () => 'default' }

function readFile(file: string): FileValues {
  const unusable = (message: string, origin = file) => ({
    ...NO_FILE,
    tree: undefined,
    problems: [{ path: '', message, origin }],
  })
  if (!filePath.safeParse(file).success) {
    return unusable('must be the path of a settings file', `--config or ${FILE_VARIABLE}`)
  }
  let text: string
  try {
    const bytes = readBounded(file)
    if (bytes.length > MAX_SETTINGS_BYTES) {
      return unusable(`is larger than ${MAX_SETTINGS_BYTES} bytes`)
    }
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch (error) {
    return unusable(`cannot read the configuration: ${fileErrorText(error)}`)
  }
  const yaml = parseYaml(text)
  if (!yaml.ok) {
    const problems = yaml.problems.map(({ message, line, col }) => {
      return { path: '', message: `not valid YAML: ${message}`, origin: `${file}:${line}:${col}` }
    })
    return { ...NO_FILE, tree: undefined, problems }
  }
  const { content, positionOf } = yaml.value
  const tree = withoutEmpty(content ?? {}, [])
  const locationOf: LocationOf = (steps, key) => {
    if (steps.length > 0 && valueAt(tree, steps.slice(0, 1)) === undefined) {
      return 'default'
    }
    const { line, col } = positionOf(steps, key)
    return `${file}:${line}:${col}`
  }
  return { tree, problems: [], locationOf }
}

const MAX_SETTINGS_BYTES = 1_048_576

/**
 * Reads pipes and devices, too (`--config <(…)`).
 * Reads at most one byte more than allowed, so that the caller can tell that a file is too large.
 */
function readBounded(file: string): Buffer {
  const descriptor = openSync(file, 'r')
  try {
    const bytes = Buffer.alloc(MAX_SETTINGS_BYTES + 1)
    let length = 0
    while (true) {
      const read = readSync(descriptor, bytes.subarray(length))
      if (read === 0) {
        return bytes.subarray(0, length)
      }
      length += read
    }
  } finally {
    closeSync(descriptor)
  }
}

/** Leaves out groups and lists without a value, such as `token:` with every line below it commented out. */
function withoutEmpty(value: unknown, steps: readonly string[]): unknown {
  if (!isJsonObject(value) || namesBelow(steps).length === 0) {
    return value
  }
  const members = Object.entries(value).flatMap(([name, inner]) => {
    const path = [...steps, name]
    const isList = SETTINGS.find((one) => one.path === path.join('.'))?.schema instanceof z.ZodArray
    const isEmpty = inner === null && (isList || namesBelow(path).length > 0)
    return isEmpty ? [] : [[name, withoutEmpty(inner, path)]]
  })
  return Object.fromEntries(members)
}

/** Returns a copy with the value at the steps. A group that is not a map stays as it is. */
function withValue(branch: unknown, steps: readonly string[], value: unknown): unknown {
  const [step, ...below] = steps
  if (step === undefined) {
    return value
  }
  const group = branch ?? {}
  if (!isJsonObject(group)) {
    return group
  }
  return { ...group, [step]: withValue(valueAt(group, [step]), below, value) }
}

function ownVariables(environment: NamedValues): NamedValues {
  const isOwn = ([name, value = '']: [string, string | undefined]) =>
    name.startsWith('SIDECAR_') && name !== FILE_VARIABLE && !isServiceLink(name, value)
  return Object.fromEntries(Object.entries(environment).filter(isOwn))
}

/** For a Service `sidecar-admin`, Kubernetes sets `SIDECAR_ADMIN_PORT=tcp://10.0.0.7:8081` in each pod. */
const isServiceLink = (name: string, value: string) =>
  /_SERVICE_(?:HOST|PORT(?:_[A-Z0-9_]+)?)$|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_[A-Z]+)?$/.test(name) ||
  (name.endsWith('_PORT') && /^(?:tcp|udp|sctp):\/\//.test(value))

interface NamedSettings {
  readonly values: { readonly setting: Setting; readonly value: unknown; readonly name: string }[]
  readonly problems: Problem[]
}

/** Returns the values of variables and flags, unchecked. */
function readNamed(given: NamedValues): NamedSettings {
  const named: NamedSettings = { values: [], problems: [] }
  for (const [name, text] of Object.entries(given)) {
    if (text !== undefined) {
      addNamed(named, name, text, given)
    }
  }
  return named
}

/** Reports an unknown name, which is most likely a typing mistake. */
function addNamed({ values, problems }: NamedSettings, name: string, text: string, given: NamedValues): void {
  const setting = SETTING_OF_NAME.get(name)
  if (setting === undefined) {
    const meant = onlyMatch(name, [...SETTING_OF_NAME.keys(), FILE_VARIABLE])
    const hint = meant === undefined ? 'docs/configuration.md has all' : `did you mean ${meant}?`
    problems.push({ path: '', message: `${name} is not a setting; ${hint}`, origin: name })
    return
  }
  const fullName = name.startsWith('--') ? setting.flag : setting.variable
  const isShort = name !== fullName
  if (isShort && given[fullName] !== undefined) {
    problems.push({ path: setting.path, message: `cannot be used with ${fullName}`, origin: name })
    return
  }
  const isUpstreamUrl = isShort && setting.path === 'upstreams'
  const value = isUpstreamUrl ? [{ prefix: '/', url: text }] : decodeValue(text, setting.schema)
  values.push({ setting, value, name })
}

/** Text that cannot be decoded stays text. The schema then reports the requirement. */
function decodeValue(text: string, schema: z.core.$ZodType): unknown {
  if (!(schema instanceof z.ZodArray)) {
    // Number(text) would take '', ' 1 ', 0x10, 1e3 and Infinity.
    const isPlain = /^(?:true|false|-?(?:0|[1-9]\d*)(?:\.\d+)?)$/.test(text)
    return isPlain && !z.safeParse(schema, text).success ? JSON.parse(text) : text
  }
  if (schema.element instanceof z.ZodString && !text.trimStart().startsWith('[')) {
    return text.trim() === '' ? [] : text.split(',').map((item) => item.trim())
  }
  const yaml = parseYaml(text)
  return yaml.ok ? yaml.value.content : text
}

/** Reports one problem for a value that violates its requirement in several ways. */
function problemsOf(issues: readonly z.core.$ZodIssue[], locationOf: LocationOf): Problem[] {
  const problems = new Map<string, Problem>()
  const report = (steps: readonly Step[], message: string, key?: 'key') => {
    const path = writePath(steps)
    problems.set(`${path}: ${message}`, { path, message, origin: locationOf(steps, key) })
  }
  for (const issue of issues) {
    const above = issue.path.map((step): Step => (typeof step === 'number' ? step : String(step)))
    const { listed, others } = listedNames(issue.code === 'unrecognized_keys' ? issue.keys : [])
    if (issue.code !== 'unrecognized_keys') {
      report(above, issue.message)
    }
    for (const key of listed) {
      report([...above, key], `unknown setting; ${hint(above, key)}`, 'key')
    }
    if (others > 0) {
      report(above, `${others} more unknown settings`)
    }
  }
  return [...problems.values()]
}

function hint(above: readonly Step[], key: string): string {
  const names = namesBelow(above)
  const here = onlyMatch(key, names)
  const isInList = above.some((step) => typeof step === 'number')
  if (here !== undefined) {
    return `did you mean ${isInList ? here : writePath([...above, here])}?`
  }
  const elsewhere = SETTINGS.filter(({ steps }) => steps.at(-1) === key).map(({ path }) => path)
  if (elsewhere.length > 0 && !isInList) {
    return `did you mean ${elsewhere.join(' or ')}?`
  }
  return `known here: ${names.join(', ')}`
}

export function effectiveSettings({ config, originOf }: LoadedConfig) {
  return SETTINGS.flatMap(({ path, steps }) => {
    const value = valueAt(config, steps)
    const origin = originOf(path)
      .replace(/^--/, 'flag $&')
      .replace(/^SIDECAR_\w+$/, 'env $&')
    // The query of a URL may hold a secret.
    const shown: unknown = JSON.parse(JSON.stringify(value ?? null), (_name, inner) =>
      typeof inner === 'string' ? inner.replace(/^(https?:[^?]*\?).*$/i, '$1***') : inner,
    )
    return value === undefined ? [] : [{ setting: path, value: shown, origin }]
  })
}

/** Returns the paths of the settings whose effective values differ. */
export function changedSettings(before: Config, after: Config): readonly string[] {
  const textAt = (config: Config, { steps }: Setting) => JSON.stringify(valueAt(config, steps))
  const changed = SETTINGS.filter((setting) => textAt(before, setting) !== textAt(after, setting))
  return changed.map(({ path }) => path)
}
