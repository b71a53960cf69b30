/**
 * Loads the configuration: defaults, then the file, then the environment, then flags; the later wins.
 * Out: a complete, frozen configuration with the origin of every value, or every problem at once.
 */
import type { z } from 'zod'
import { type Step, writePath } from '../files/yaml-text.ts'
import type { Problem } from '../values/problem.ts'
import { type Config, configSchema } from './config.ts'
import { completed, namesBelow, SETTINGS, valueAt } from './settings.ts'
import {
  FILE_VARIABLE,
  type NamedValues,
  NO_FILE,
  ownVariables,
  readFile,
  readNamed,
  withValue,
} from './sources.ts'

interface Origins {
  /** The source of the value of a setting: `file:line:column`, a variable, a flag or `default`. */
  readonly originOf: (path: string) => string
}

export interface LoadedConfig extends Origins {
  readonly ok: true
  readonly config: Config
  /** Undefined without a settings file. */
  readonly file: string | undefined
}

export interface NotLoaded extends Origins {
  readonly ok: false
  readonly problems: readonly Problem[]
}

export interface LoadOptions {
  /** The settings file; default: the one that `SIDECAR_CONFIG` names, if any. */
  readonly file?: string | undefined
  readonly env: NamedValues
  /** Such as `{ '--listen-port': '8080' }`. */
  readonly flags: NamedValues
  /** Whether a configuration without an upstream is a problem; default true. */
  readonly needsUpstream?: boolean
}

/** Never throws. */
export function loadConfig(options: LoadOptions): LoadedConfig | NotLoaded {
  const { env, flags, file = env[FILE_VARIABLE], needsUpstream = true } = options
  const fromFile = file === undefined ? NO_FILE : readFile(file)
  const named = readNamed({ ...ownVariables(env), ...flags })
  const tree = named.values.reduce<unknown>(
    (tree, { setting, value }) => withValue(tree, setting.steps, value),
    fromFile.tree ?? {},
  )
  const locationOf: LocationOf = (steps, key) =>
    named.values.findLast(({ setting }) => setting.steps.every((step, at) => step === steps[at]))?.name ??
    fromFile.locationOf(steps, key)
  const originOf = (path: string) => {
    const steps = path.split(/\W+/)
    return valueAt(tree, steps) === undefined ? 'default' : locationOf(steps)
  }
  const result = configSchema(needsUpstream && fromFile.tree !== undefined).safeParse(tree)
  const invalid = problemsOf(result.error?.issues ?? [], locationOf)
  const problems = [...fromFile.problems, ...named.problems, ...invalid]
  if (result.success && problems.length === 0)
    return { ok: true, config: freeze(result.data), file, originOf }
  return { ok: false, problems, originOf }
}

type LocationOf = (steps: readonly Step[], key?: 'key') => string

/** Of one map. Finding the place of a name takes time in proportion to the map. */
const MAX_UNKNOWN_NAMES = 100

/** One problem for each value, although it may violate its requirement in several ways. */
function problemsOf(issues: readonly z.core.$ZodIssue[], locationOf: LocationOf): Problem[] {
  const problems = new Map<string, Problem>()
  for (const issue of issues) {
    const above = issue.path.map((step): Step => (typeof step === 'number' ? step : String(step)))
    const keys = issue.code === 'unrecognized_keys' ? issue.keys.slice(0, MAX_UNKNOWN_NAMES) : [undefined]
    for (const key of keys) {
      const steps = key === undefined ? above : [...above, key]
      const path = writePath(steps)
      const message = key === undefined ? issue.message : `unknown setting; ${hint(above, key)}`
      const origin = locationOf(steps, key === undefined ? undefined : 'key')
      problems.set(`${path}: ${message}`, { path, message, origin })
    }
  }
  return [...problems.values()]
}

/** The end of the message for an unknown name: a setting of such a name, or all names that are known here. */
function hint(above: readonly Step[], key: string): string {
  const names = namesBelow(above)
  const here = completed(key, names)
  const isInList = above.some((step) => typeof step === 'number')
  if (here !== undefined) return `did you mean ${isInList ? here : writePath([...above, here])}?`
  const elsewhere = SETTINGS.filter(({ steps }) => steps.at(-1) === key).map(({ path }) => path)
  if (elsewhere.length > 0 && !isInList) return `did you mean ${elsewhere.join(' or ')}?`
  return `known here: ${names.join(', ')}`
}

function freeze<T>(value: T): T {
  if (value instanceof Object) for (const inner of Object.values(value)) freeze(inner)
  return Object.freeze(value)
}

/** Every setting that has a value and where it came from, in the order of the documentation. */
export function explain({ config, originOf }: LoadedConfig) {
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
