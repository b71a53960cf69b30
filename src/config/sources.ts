/**
 * Reads the sources of settings: the YAML file, environment variables and flags.
 * In: their text. Out: one tree of unchecked values, and where each of them stands.
 */
import { fileErrorCode } from '../reload/files.ts'
import { parseYaml, type Step } from '../reload/yaml-text.ts'
import { nearest, type Problem } from './problem.ts'
import { namesBelow, SETTINGS, type Setting, valueAt } from './settings.ts'

/** Names and their values; undefined is as good as absent. */
export type Named = Readonly<Record<string, string | undefined>>

/** The variable that names the settings file; the only one that is no setting. */
export const FILE_VARIABLE = 'SIDECAR_CONFIG'

/** Short names, and the settings that they stand for. `SIDECAR_UPSTREAM_URL` is one upstream at prefix `/`. */
const SHORT = {
  env: new Map([['SIDECAR_UPSTREAM_URL', 'upstreams']]),
  flag: new Map([
    ['--upstream-url', 'upstreams'],
    ['--port', 'listen.port'],
  ]),
} as const

export const SHORT_FLAGS: readonly string[] = [...SHORT.flag.keys()]

/** What the settings file holds. */
export interface FileValues {
  /** Maps as plain objects; an empty group or list is left out, which means its defaults. */
  readonly tree: unknown
  readonly problems: readonly Problem[]
  /** `file:line:column` of the value at `steps` or of the group around it; with `key`, of its name. */
  readonly place: (steps: readonly Step[], key?: 'key') => string
}

/** Reads the settings file. A file that cannot be used has no tree. */
export function readFile(file: string, read: (path: string) => Uint8Array): FileValues {
  const unusable = (problems: readonly Problem[]) => ({ tree: undefined, problems, place: () => 'default' })
  if (file === '') {
    const origin = `--config or ${FILE_VARIABLE}`
    return unusable([{ path: '', message: 'must be the path of a settings file', origin }])
  }
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(read(file))
  } catch (error) {
    const code = fileErrorCode(error)
    const message = `cannot read the configuration: ${REASONS.get(code) ?? code}`
    return unusable([{ path: '', message, origin: file }])
  }
  const yaml = parseYaml(text)
  if (!yaml.ok) {
    return unusable(
      yaml.mistakes.map(({ message, position: { line, column } }) => ({
        path: '',
        message: `not valid YAML: ${message}`,
        origin: `${file}:${line}:${column}`,
      })),
    )
  }
  const tree = withoutEmpty(yaml.value ?? {}, [])
  const place = (steps: readonly Step[], key?: 'key') => {
    if (steps.length > 0 && valueAt(tree, steps.slice(0, 1)) === undefined) return 'default'
    const { line, column } = yaml.position(steps, key)
    return `${file}:${line}:${column}`
  }
  return { tree, problems: [], place }
}

const REASONS: ReadonlyMap<string, string> = new Map([
  ['ENOENT', 'no such file'],
  ['ENOTDIR', 'no such file'],
  ['EACCES', 'permission denied'],
  ['EISDIR', 'it is a directory'],
  ['ENOTREGULAR', 'it is not a file'],
  ['EFBIG', 'it is too large'],
  ['ERR_ENCODING_INVALID_ENCODED_DATA', 'not UTF-8 text'],
])

const isMap = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Leaves out groups and lists without a value: `token:` with every line below it commented out. */
function withoutEmpty(value: unknown, steps: readonly string[]): unknown {
  if (!isMap(value) || namesBelow(steps).length === 0) return value
  const mayBeEmpty = (path: readonly string[]) =>
    namesBelow(path).length > 0 ||
    SETTINGS.some((setting) => setting.path === path.join('.') && /list|texts/.test(setting.kind))
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name, inner]) => inner !== null || !mayBeEmpty([...steps, name]))
      .map(([name, inner]) => [name, withoutEmpty(inner, [...steps, name])]),
  )
}

/** A value that a variable or flag gives to a setting. Not checked yet. */
export interface NamedValue {
  readonly setting: Setting
  readonly value: unknown
  readonly kind: 'env' | 'flag'
  /** The variable or flag. */
  readonly name: string
}

/** Puts values into a copy of the tree. A group that holds something else than a map is left as it is. */
export function withValues(tree: unknown, values: Iterable<NamedValue>): unknown {
  let result = tree
  for (const { setting, value } of values) result = withValue(result, setting.steps, value)
  return result
}

function withValue(branch: unknown = {}, [step, ...below]: readonly string[], value: unknown): unknown {
  if (step === undefined) return value
  return isMap(branch) ? { ...branch, [step]: withValue(valueAt(branch, [step]), below, value) } : branch
}

/** Reads `SIDECAR_*` variables. An unknown one is a problem: a typing mistake must not be ignored. */
export function readEnvironment(environment: Named) {
  const own = Object.entries(environment).filter(
    ([name, value = '']) =>
      name.startsWith('SIDECAR_') && name !== FILE_VARIABLE && !isServiceLink(name, value),
  )
  return readNamed(own, 'env', 'SIDECAR_')
}

/** Reads flags, by their full name (`--listen-port`). */
export function readFlags(flags: Named) {
  return readNamed(Object.entries(flags), 'flag', '--')
}

/**
 * Whether Kubernetes sets a variable for a Service of the namespace: one called `sidecar-admin` adds
 * `SIDECAR_ADMIN_PORT=tcp://10.0.0.7:8081` to each pod, which must not keep the sidecar from starting.
 */
function isServiceLink(name: string, value: string): boolean {
  return (
    /_SERVICE_(?:HOST|PORT(?:_[A-Z0-9_]+)?)$/.test(name) ||
    /_PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?$/.test(name) ||
    (name.endsWith('_PORT') && /^(?:tcp|udp|sctp):\/\//.test(value))
  )
}

function readNamed(
  entries: readonly [string, string | undefined][],
  kind: NamedValue['kind'],
  prefix: string,
) {
  const nameOf = (setting: Setting) => (kind === 'env' ? setting.variable : setting.flag)
  const short = SHORT[kind]
  const given = entries.flatMap(([name, text]) => (text === undefined ? [] : [{ name, text }]))
  const values: NamedValue[] = []
  const problems: Problem[] = []
  for (const { name, text } of given) {
    const setting = SETTINGS.find((one) => nameOf(one) === name || one.path === short.get(name))
    if (setting === undefined) {
      const known = [...SETTINGS.map(nameOf), ...short.keys(), ...(kind === 'env' ? [FILE_VARIABLE] : [])]
      // The common prefix would make any two names look alike.
      const candidates = known.map((one) => one.slice(prefix.length))
      const meant = nearest(name.slice(prefix.length), candidates)
      const hint = meant === undefined ? '' : `; did you mean ${prefix}${meant}?`
      problems.push({ path: '', message: `${name} is not a setting${hint}`, origin: name })
    } else if (short.has(name) && given.some((other) => other.name === nameOf(setting))) {
      problems.push({ path: setting.path, message: `cannot be used with ${nameOf(setting)}`, origin: name })
    } else {
      const isUpstreamUrl = short.has(name) && setting.path === 'upstreams'
      const value = isUpstreamUrl ? [{ prefix: '/', url: text }] : decode(text, setting.kind)
      values.push({ setting, value, kind, name })
    }
  }
  return { values, problems }
}

/** Text that is not of its kind stays text, and the schema then reports what it must be. */
function decode(text: string, kind: Setting['kind']): unknown {
  const list = () => {
    const yaml = parseYaml(text)
    return yaml.ok ? yaml.value : text
  }
  switch (kind) {
    case 'text':
      return text
    case 'number':
      // Not Number(text) alone: that takes '', ' 1 ', 0x10, 1e3 and Infinity.
      return /^-?(?:0|[1-9]\d*)(?:\.\d+)?$/.test(text) ? Number(text) : text
    case 'boolean':
      return text === 'true' || (text === 'false' ? false : text)
    case 'texts':
      if (text.trim() === '') return []
      return text.trimStart().startsWith('[') ? list() : text.split(',').map((item) => item.trim())
    case 'list':
      return list()
  }
}
