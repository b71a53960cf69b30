/**
 * Parses a YAML 1.2 document. Repeated keys, unknown tags and aliases that multiply are mistakes.
 * Messages quote no value, and only plain names, because a wrong file may hold secrets.
 */
import type { Node, YAMLMap } from 'yaml'
import { Composer, Document, isAlias, isMap, isNode, isScalar, Lexer, LineCounter, Parser, visit } from 'yaml'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'

export type Step = string | number

/** Writes a path such as `upstreams[0].url`. Unusual names are quoted and truncated. */
export function writePath(steps: readonly Step[]): string {
  let path = ''
  for (const step of steps) {
    if (typeof step === 'number') {
      path += `[${step}]`
    } else {
      const separator = path === '' ? '' : '.'
      const name = /^[\w-]+$/.test(step) ? step : JSON.stringify(step)
      path += separator + name.slice(0, 80)
    }
  }
  return path
}

export type Position = ReturnType<LineCounter['linePos']>

interface YamlDocument {
  /** Maps as plain objects; null for an empty document. */
  readonly content: unknown
  /**
   * Returns where the value at `steps` begins, or the nearest value around it.
   * With `key`: where its name begins.
   */
  readonly positionOf: (steps: readonly Step[], key?: 'key') => Position
}

type YamlProblem = Position & { readonly message: string }

/**
 * Of many unknown names in a map, the first are reported:
 * the position of each name takes a search of the map.
 */
export function listedNames(unknown: readonly string[]) {
  const listed = unknown.slice(0, 100)
  return { listed, others: unknown.length - listed.length }
}

/**
 * `%YAML 1.1` has no effect.
 * `uniqueKeys` would take time quadratic in the members of a map: see `normalizeNames`.
 */
export const YAML_RULES = { schema: 'core', merge: true, resolveKnownTags: false, uniqueKeys: false } as const

/** The bound that `yaml` documents for nodes that aliases multiply. */
const MAX_ALIASES = 100

/** Deeper text overflows the stack of `yaml`, which ends a process of Node 20. */
const MAX_DEPTH = 200

export function parseYaml(text: string): Loaded<YamlDocument, YamlProblem> {
  const lines = new LineCounter()
  lines.addNewLine(0)
  const problems: YamlProblem[] = []
  const report = (message: string, at: number) => {
    problems.push({ message, ...lines.linePos(at) })
  }
  const parser = new Parser(lines.addNewLine)
  function* tokens() {
    for (const lexeme of new Lexer().lex(text)) {
      yield* parser.next(lexeme)
      if (parser.stack.length > MAX_DEPTH) {
        return report('nested too deeply', parser.offset)
      }
    }
    yield* parser.end()
  }
  try {
    // The default prints warnings that quote text.
    const composer = new Composer({ ...YAML_RULES, logLevel: 'error' })
    const [document = new Document(), next] = composer.compose(tokens(), true, text.length)
    if (next) {
      report('more than one YAML document', next.range[0])
    }
    // The parser ends some messages with a colon and a piece of the text.
    for (const { message, pos } of [...document.errors, ...document.warnings]) {
      report(message.replace(/(?<=\S): .*$/s, ''), pos[0])
    }
    if (problems.length === 0) {
      normalizeNames(document, report)
    }
    if (problems.length > 0) {
      return notLoaded(problems)
    }
    const content: unknown = document.toJS({ maxAliasCount: MAX_ALIASES })
    return loaded({ content, positionOf: (steps, key) => lines.linePos(offsetOf(document, steps, key)) })
  } catch {
    report('too many aliases, or a merge (`<<`) of what is no map', 0)
    return notLoaded(problems)
  }
}

type ReportNode = (message: string, node: Node) => void

/**
 * Reports repeated names, and aliases without an anchor.
 * Makes each name but null a text: `404` would be a number.
 */
function normalizeNames(document: Document, reportAt: (message: string, offset: number) => void): void {
  const report: ReportNode = (message, { range }) => reportAt(message, range?.[0] ?? 0)
  const anchors = new Set<string>()
  visit(document, {
    Node(_key, node) {
      if (node.anchor !== undefined) {
        anchors.add(node.anchor)
      }
      if (isAlias(node) && !anchors.has(node.source)) {
        report('alias without an anchor before it', node)
      }
      if (isMap(node)) {
        normalizeNamesOf(node, report)
      }
    },
  })
}

function normalizeNamesOf({ items }: YAMLMap, report: ReportNode): void {
  const names = new Set<string>()
  for (const { key } of items) {
    if (!isScalar(key)) {
      continue
    }
    const name = String(key.value)
    if (names.has(name)) {
      const shown = isPlainName(name) ? `: ${name}` : ''
      report(`Map keys must be unique${shown}`, key)
    }
    names.add(name)
    if (key.value !== null && typeof key.value !== 'symbol') {
      key.value = name
    }
  }
}

/** Messages quote only names in this form, because a hash or a token may stand where a name belongs. */
export const isPlainName = (name: string) => /^[A-Za-z_-]{1,32}$/.test(name)

function offsetOf(document: Document, steps: readonly Step[], key?: 'key'): number {
  const around = key && document.getIn(steps.slice(0, -1), true)
  const pair = isMap(around)
    ? around.items.find((item) => isScalar(item.key) && item.key.value === steps.at(-1))
    : undefined
  const node = pair?.key ?? document.getIn(steps, true)
  if (isNode(node) && node.range) {
    return node.range[0]
  }
  return steps.length === 0 ? 0 : offsetOf(document, steps.slice(0, -1))
}
