/**
 * Reads the settings file.
 *
 * A group or list that is named but left empty (`token:`) means its defaults, as happens when every line of it
 * is commented out; a single setting left empty is a mistake. Every value keeps its line and column.
 *
 * @module
 */
import { fileErrorCode } from '../reload/files.ts'
import { parseYaml, type YamlDocument } from '../yaml/yaml-text.ts'
import { nearest } from './nearest.ts'
import { type Problem, type Step, writePath } from './problem.ts'
import type { Given, Reading } from './reading.ts'
import { isSection, SECTIONS, SETTINGS, type Section, type Setting } from './settings.ts'

/** What can name the settings file. */
const FILE_NAMED_BY = '--config or SIDECAR_CONFIG'

/** Reads a file whole; throws what `node:fs` throws. */
export type ReadFile = (path: string) => Uint8Array

/** Reads the settings that a file gives. A file that cannot be read is one problem. */
export function readConfigFile(file: string, readFile: ReadFile): Reading {
  const unreadable = (problems: readonly Problem[]): Reading => ({ given: [], problems, readable: false })
  if (file === '')
    return unreadable([{ path: '', message: 'must be the path of a settings file', origin: FILE_NAMED_BY }])
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(readFile(file))
  } catch (error) {
    return unreadable([
      { path: '', message: `cannot read the configuration: ${reason(error)}`, origin: file },
    ])
  }
  const yaml = parseYaml(text)
  if (!yaml.ok) {
    return unreadable(
      yaml.mistakes.map(({ message, position: { line, column } }) => ({
        path: '',
        message: `not valid YAML: ${message}`,
        origin: `${file}:${line}:${column}`,
      })),
    )
  }
  const given: Given[] = []
  const problems: Problem[] = []
  readSection(SECTIONS, yaml.value, [], { file, yaml, given, problems })
  return { given, problems, readable: yaml.value === null || isMap(yaml.value) }
}

interface Target {
  readonly file: string
  readonly yaml: YamlDocument
  readonly given: Given[]
  readonly problems: Problem[]
}

function readSection(section: Section, value: unknown, steps: readonly string[], target: Target): void {
  const place = (to: readonly Step[], key?: 'key') => {
    const { line, column } = target.yaml.position(to, key)
    return `${target.file}:${line}:${column}`
  }
  if (value === null) return
  if (!isMap(value)) {
    const message = `must be a map of settings: ${[...section.members.keys()].join(', ')}`
    target.problems.push({ path: writePath(steps), message, origin: place(steps) })
    return
  }
  for (const [name, inner] of Object.entries(value)) {
    const path = [...steps, name]
    const member = section.members.get(name)
    if (member === undefined) {
      target.problems.push({
        path: writePath(path),
        message: `unknown setting; ${hint(section, name)}`,
        origin: place(path, 'key'),
      })
    } else if (isSection(member)) {
      readSection(member, inner, path, target)
    } else if (!isEmptyList(member, inner)) {
      target.given.push({
        setting: member,
        value: inner,
        origin: place(path),
        place: (below, key) => place([...path, ...below], key),
      })
    }
  }
}

const isMap = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const isEmptyList = ({ kind }: Setting, value: unknown) =>
  value === null && (kind === 'list' || kind === 'texts')

/** Helps with an unknown name: the one that was meant, here or elsewhere, or all that are known here. */
function hint({ path, members }: Section, name: string): string {
  const names = [...members.keys()]
  const here = nearest(name, names)
  if (here !== undefined) return `did you mean ${path === '' ? here : `${path}.${here}`}?`
  const elsewhere = SETTINGS.filter(({ steps }) => steps.at(-1) === name).map((setting) => setting.path)
  if (elsewhere.length > 0) return `did you mean ${elsewhere.join(' or ')}?`
  return `known here: ${names.join(', ')}`
}

function reason(error: unknown): string {
  const code = fileErrorCode(error)
  return REASONS.get(code) ?? code
}

const REASONS: ReadonlyMap<string, string> = new Map([
  ['ENOENT', 'no such file'],
  ['ENOTDIR', 'no such file'],
  ['EACCES', 'permission denied'],
  ['EISDIR', 'it is a directory'],
  ['ENOTREGULAR', 'it is not a file'],
  ['EFBIG', 'it is too large'],
  // What TextDecoder says of bytes that are no UTF-8.
  ['ERR_ENCODING_INVALID_ENCODED_DATA', 'not UTF-8 text'],
])
