/**
 * Parses a YAML 1.2 document. Repeated keys, unknown tags and aliases that multiply are mistakes. Out: the value and
 * its positions, or every problem. Messages never repeat the text: it may be the wrong file, and hold secrets.
 */
import { isUtf8 } from 'node:buffer'
import {
  type Alias,
  Composer,
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  Parser,
  visit,
} from 'yaml'
import type { z } from 'zod'
import type { Loaded } from './files.ts'

/** A step into a value: a member name or a list index. */
export type Step = string | number

/** As the documentation does: `upstreams[0].url`. Unusual names are quoted and truncated. */
export function writePath(steps: readonly Step[]): string {
  let path = ''
  for (const step of steps) {
    if (typeof step === 'number') path += `[${step}]`
    else path += (path === '' ? '' : '.') + (/^[\w-]+$/.test(step) ? step : JSON.stringify(step)).slice(0, 80)
  }
  return path
}

/** Both counted from 1. */
interface Position {
  readonly line: number
  readonly column: number
}

type ParsedYaml =
  | {
      readonly ok: true
      /** Maps as plain objects; null for an empty document. */
      readonly value: unknown
      /** Of the value at `steps`, or of the nearest one around it; with `key`, of the name of the last step. */
      readonly position: (steps: readonly Step[], key?: 'key') => Position
    }
  | {
      readonly ok: false
      readonly mistakes: readonly { readonly message: string; readonly position: Position }[]
    }

type Mistake = readonly [message: string, offset: number]

/** The composer recurses: it reports an overflow of the stack hundreds of times, or ends the process. */
const MAX_DEPTH = 100
/** The composer compares each name of a map with all others: 90,000 took a minute. */
const MAX_MEMBERS = 1000
/** Half a million revocations have about one million. */
const MAX_LINES = 2_000_000
/** Resolving an alias takes time in proportion to the anchors of the document. */
const MAX_ALIASES = 100

export function parseYaml(text: string): ParsedYaml {
  const lines = new LineCounter()
  const positionAt = (offset: number): Position => {
    const { line, col } = lines.linePos(offset)
    return { line: Math.max(line, 1), column: Math.max(col, 1) } // 0 before the first line was looked at
  }
  const refuse = (mistakes: readonly Mistake[]): ParsedYaml => ({
    ok: false,
    mistakes: mistakes.map(([message, offset]) => ({ message, position: positionAt(offset) })),
  })
  try {
    const parser = new Parser(lines.addNewLine)
    const tokens = boundedTokens(text, parser, lines)
    // Its warnings on stderr repeat the text.
    const composer = new Composer({ merge: true, logLevel: 'error' })
    const [document, another] = composer.compose(tokens, true, text.length)
    const excess = excessOf(parser, lines)
    if (document === undefined || excess !== undefined) {
      return refuse([[excess ?? 'not a document', parser.offset]])
    }
    const aliases = resolveAliases(document)
    const mistakes = [...parserMistakes(document), ...aliases.mistakes]
    if (another !== undefined) mistakes.push(['more than one YAML document', another.range[0]])
    if (mistakes.length > 0) return refuse(mistakes)
    // Counts the anchor, too. Throws on aliases that multiply (a "billion laughs"), and on a wrong merge.
    const value: unknown = document.toJS({ maxAliasCount: MAX_ALIASES + 1 })
    const position = (steps: readonly Step[], key?: 'key') =>
      positionAt(offsetOf(document.contents, aliases.targets, steps, key))
    return { ok: true, value, position }
  } catch {
    return refuse([['aliases that multiply, or a merge (`<<`) of what is no map', 0]])
  }
}

function* boundedTokens(text: string, parser: Parser, lines: LineCounter) {
  lines.addNewLine(0)
  for (const lexeme of new Lexer().lex(text)) {
    yield* parser.next(lexeme)
    if (excessOf(parser, lines) !== undefined) return
  }
  yield* parser.end()
}

function excessOf({ stack }: Parser, { lineStarts }: LineCounter): string | undefined {
  if (lineStarts.length > MAX_LINES) return `more than ${MAX_LINES} lines`
  if (stack.length > MAX_DEPTH) return 'nested too deeply'
  const top = stack.at(-1)
  const isMap = top?.type === 'block-map' || (top?.type === 'flow-collection' && top.start.source === '{')
  return isMap && top.items.length > MAX_MEMBERS ? `a map of more than ${MAX_MEMBERS} members` : undefined
}

function parserMistakes({ errors, warnings }: Document): Mistake[] {
  return [...errors, ...warnings].map(({ message, pos }) => [
    // The parser ends some messages with a colon and a piece of the text.
    message.replace(/(?<=\S): .*$/s, ''),
    pos[0],
  ])
}

/** In one pass: `Alias.resolve` visits the whole document each time. */
function resolveAliases(document: Document) {
  const anchors = new Map<string, Node>()
  const targets = new Map<Alias, Node>()
  const mistakes: Mistake[] = []
  visit(document, {
    Node: (_key, node) => {
      if (!isAlias(node)) {
        if (node.anchor !== undefined) anchors.set(node.anchor, node)
        return undefined
      }
      const target = anchors.get(node.source)
      if (target === undefined) mistakes.push(['alias without an anchor before it', start(node, 0)])
      else targets.set(node, target)
      if (targets.size + mistakes.length <= MAX_ALIASES) return undefined
      mistakes.push([`more than ${MAX_ALIASES} aliases`, start(node, 0)])
      return visit.BREAK
    },
  })
  return { targets, mistakes }
}

function offsetOf(
  contents: unknown,
  targets: ReadonlyMap<unknown, Node>,
  steps: readonly Step[],
  key: 'key' | undefined,
): number {
  let node = contents
  let offset = start(node, 0)
  for (const [index, step] of steps.entries()) {
    const around = targets.get(node) ?? node
    if (isSeq(around)) {
      node = around.items[Number(step)]
      offset = start(node, offset)
    } else if (isMap(around)) {
      const pair = around.items.find((item) => isScalar(item.key) && String(item.key.value) === step)
      node = pair?.value
      offset = start(key && index === steps.length - 1 ? pair?.key : node, offset)
    }
  }
  return offset
}

const start = (node: unknown, otherwise: number) => (isNode(node) ? node.range?.[0] : undefined) ?? otherwise

/** Parses a file and checks it against a schema. Problems are sorted lines, `line:column: path message`. */
export function parseFile<T>(bytes: Uint8Array, schema: z.ZodType<T>): Loaded<T> {
  if (!isUtf8(bytes)) return { ok: false, problems: ['1:1: is not UTF-8 text'] }
  const problems: { readonly at: Position; readonly text: string }[] = []
  const yaml = parseYaml(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString())
  if (yaml.ok) {
    const parsed = schema.safeParse(yaml.value)
    if (parsed.success) return { ok: true, value: parsed.data, warnings: [] }
    for (const issue of parsed.error.issues) {
      const path = issue.path.map((step) => (typeof step === 'number' ? step : String(step)))
      const name = path.length === 0 ? '' : `${writePath(path)} `
      if (issue.code === 'unrecognized_keys') {
        for (const key of issue.keys) {
          // A name is repeated only if it looks like one: a hash or a token may have lost its key.
          const shown = /^[A-Za-z_-]{1,32}$/.test(key) ? `: ${key}` : ''
          const text = `${name}has a member that is not known here${shown}`
          problems.push({ at: yaml.position([...path, key], 'key'), text })
        }
      } else problems.push({ at: yaml.position(path), text: name + issue.message })
    }
    problems.sort((a, b) => a.at.line - b.at.line || a.at.column - b.at.column)
  } else {
    for (const { message, position } of yaml.mistakes) {
      problems.push({ at: position, text: `is not valid YAML: ${message}` })
    }
  }
  return { ok: false, problems: problems.map(({ at, text }) => `${at.line}:${at.column}: ${text}`) }
}
