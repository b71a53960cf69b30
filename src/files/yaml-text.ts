/**
 * Parses a YAML 1.2 document. Repeated keys, unknown tags and aliases that multiply are mistakes.
 * Messages never quote the text, because a wrong file may hold secrets.
 */
import { isUtf8 } from 'node:buffer'
import type { Document, Node, YAMLError } from 'yaml'
import { isAlias, isMap, isNode, isScalar, LineCounter, parseDocument, visit } from 'yaml'
import type { z } from 'zod'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'

export type Step = string | number

/** Writes a path such as `upstreams[0].url`. Unusual names are quoted and truncated. */
export function writePath(steps: readonly Step[]): string {
  let path = ''
  for (const step of steps) {
    if (typeof step === 'number') path += `[${step}]`
    else path += (path === '' ? '' : '.') + (/^[\w-]+$/.test(step) ? step : JSON.stringify(step)).slice(0, 80)
  }
  return path
}

interface Position {
  readonly line: number
  readonly column: number
}

interface YamlDocument {
  /** Maps as plain objects; null for an empty document. */
  readonly content: unknown
  /** Returns where the value at `steps` begins, or the nearest value around it. With `key`: where its name begins. */
  readonly positionOf: (steps: readonly Step[], key?: 'key') => Position
}

interface YamlProblem extends Position {
  readonly message: string
}

/** Maximum unknown names that are reported for one map: the position of each name takes a search of the map. */
export const MAX_UNKNOWN_NAMES = 100

/** The bound that `yaml` documents for nodes that aliases multiply. */
const MAX_ALIASES = 100

export function parseYaml(text: string): Loaded<YamlDocument, YamlProblem> {
  const lines = new LineCounter()
  const positionAt = (offset: number): Position => {
    const { line, col } = lines.linePos(offset)
    return { line: Math.max(line, 1), column: Math.max(col, 1) } // `linePos` returns 0 before the first line is parsed
  }
  const problems: YamlProblem[] = []
  const report: Report = (message, offset) => void problems.push({ message, ...positionAt(offset) })
  try {
    // `uniqueKeys` would take time quadratic in the members of a map. The default `logLevel` prints warnings that quote text.
    const options = { lineCounter: lines, merge: true, uniqueKeys: false, logLevel: 'error' } as const
    const document = parseDocument(text, { ...options, prettyErrors: false })
    reportErrors(document, report)
    if (problems.length === 0) reportNames(document, report)
    if (problems.length > 0) return notLoaded(problems)
    const content: unknown = document.toJS({ maxAliasCount: MAX_ALIASES })
    return loaded({ content, positionOf: (steps, key) => positionAt(offsetOf(document, steps, key)) })
  } catch {
    report('too many aliases, or a merge (`<<`) of what is no map', 0)
    return notLoaded(problems)
  }
}

type Report = (message: string, offset: number) => void

function reportErrors({ errors, warnings }: Document, report: Report): void {
  const overflow = errors.find(({ code }) => code === 'RESOURCE_EXHAUSTION')
  for (const error of overflow ? [overflow] : [...errors, ...warnings]) report(messageOf(error), error.pos[0])
}

function messageOf({ code, message }: YAMLError): string {
  if (code === 'RESOURCE_EXHAUSTION') return 'nested too deeply'
  if (code === 'MULTIPLE_DOCS') return 'more than one YAML document'
  return message.replace(/(?<=\S): .*$/s, '') // the parser ends some messages with a colon and a piece of the text
}

/** Reports repeated names, and aliases without an anchor. */
function reportNames(document: Document, reportAt: Report): void {
  const report = (message: string, { range }: Node) => reportAt(message, range?.[0] ?? 0)
  const anchors = new Set<string>()
  visit(document, {
    Node(_key, node) {
      if (node.anchor !== undefined) anchors.add(node.anchor)
      if (isAlias(node) && !anchors.has(node.source)) report('alias without an anchor before it', node)
      if (!isMap(node)) return
      const names = new Set<string>()
      for (const { key } of node.items) {
        if (!isScalar(key)) continue
        const name = String(key.value)
        if (names.has(name)) report(`Map keys must be unique${isPlainName(name) ? `: ${name}` : ''}`, key)
        names.add(name)
      }
    },
  })
}

/** Messages quote only names in this form, because a hash or a token may stand where a name belongs. */
const isPlainName = (name: string) => /^[A-Za-z_-]{1,32}$/.test(name)

function offsetOf(document: Document, steps: readonly Step[], key?: 'key'): number {
  const around = key && document.getIn(steps.slice(0, -1), true)
  const pair = isMap(around)
    ? around.items.find((item) => isScalar(item.key) && item.key.value === steps.at(-1))
    : undefined
  const node = pair?.key ?? document.getIn(steps, true)
  if (isNode(node) && node.range) return node.range[0]
  return steps.length === 0 ? 0 : offsetOf(document, steps.slice(0, -1))
}

/** Problems are sorted lines, `line:column: path message`. */
export type Parse<T> = (bytes: Uint8Array) => Loaded<readonly T[]>

/** Parses a file and checks it against a schema. Problems are those of {@link Parse}. */
export function parseFile<T>(bytes: Uint8Array, schema: z.ZodType<T>): Loaded<T> {
  if (!isUtf8(bytes)) return notLoaded(['1:1: is not UTF-8 text'])
  const yaml = parseYaml(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString())
  const lineOf = ({ line, column }: Position, message: string) => `${line}:${column}: ${message}`
  if (!yaml.ok) return notLoaded(yaml.problems.map((at) => lineOf(at, `is not valid YAML: ${at.message}`)))
  const { content, positionOf } = yaml.value
  const parsed = schema.safeParse(content)
  if (parsed.success) return loaded(parsed.data)
  const problems = parsed.error.issues.flatMap((issue) => {
    const path = issue.path.map((step) => (typeof step === 'number' ? step : String(step)))
    const name = path.length === 0 ? '' : `${writePath(path)} `
    if (issue.code !== 'unrecognized_keys') return [{ ...positionOf(path), message: name + issue.message }]
    return issue.keys.slice(0, MAX_UNKNOWN_NAMES).map((key) => ({
      ...positionOf([...path, key], 'key'),
      message: `${name}has a member that is not known here${isPlainName(key) ? `: ${key}` : ''}`,
    }))
  })
  problems.sort((a, b) => a.line - b.line || a.column - b.column)
  return notLoaded(problems.map((at) => lineOf(at, at.message)))
}
