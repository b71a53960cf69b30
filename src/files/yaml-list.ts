/**
 * Parses the YAML file of a list, and checks it against a schema, a part of the list at a time.
 * In: the bytes of a file such as `accounts:` with a list below it. Out: for each part its rows,
 * or the problems of the file. A whole file of some megabytes would take hundreds of megabytes to parse.
 */
import { isUtf8 } from 'node:buffer'
import type { z } from 'zod'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import { readPlainYaml } from './plain-yaml.ts'
import { isPlainName, listedNames, type Position, parseYaml, type Step, writePath } from './yaml-text.ts'

/** Problems are sorted lines, `line:column: path message`. */
export type Parse<T> = (bytes: Uint8Array) => Loaded<readonly T[]>

export interface ListFormat<T> {
  /** The name of the one member of the file: the list. */
  readonly member: string
  /**
   * Creates the schema of one file. It is called once for each part, in order, and may remember
   * what must not be repeated.
   */
  readonly createSchema: () => z.ZodType<T[]>
}

/** Parsed alone, so many items take a few milliseconds and megabytes, whatever their layout. */
const PART_ITEMS = 50

/** Later parts of a file with many problems are not read. */
const MAX_PROBLEMS = 100

/**
 * Anchors, aliases and tags, and the ends of documents may concern other parts.
 * A file that has them is one part.
 */
const CONCERNS_OTHER_PARTS = /^(?:---|\.\.\.)|[\s[{,][&*!]\S/m

interface Part {
  /** A document of its own: the first lines of the file, then some items of the list. */
  readonly text: string
  readonly headLines: number
  /** The number of lines between the first lines of the file and the first item of this part. */
  readonly skippedLines: number
  /** The number of items of the list before this part. */
  readonly skippedItems: number
}

export function parseList<T>(bytes: Uint8Array, format: ListFormat<T>): Loaded<readonly T[]> {
  const rows: T[] = []
  for (const part of parseListInParts(bytes, format)) {
    if (!part.ok) {
      return part
    }
    rows.push(...part.value)
  }
  return loaded(rows)
}

/** Parses a small file that is no list. Problems are those of {@link Parse}. */
export function parseDocument<T>(bytes: Uint8Array, schema: z.ZodType<T>): Loaded<T> {
  if (!isUtf8(bytes)) {
    return notLoaded(['1:1: is not UTF-8 text'])
  }
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString()
  return parsePartAsDocument({ text, headLines: 0, skippedLines: 0, skippedItems: 0 }, schema)
}

/**
 * Yields the rows of each part. If the file has problems, the last value is all of them,
 * and the rows are not valid.
 */
export function* parseListInParts<T>(
  bytes: Uint8Array,
  format: ListFormat<T>,
): Generator<Loaded<readonly T[]>> {
  if (!isUtf8(bytes)) {
    yield notLoaded(['1:1: is not UTF-8 text'])
    return
  }
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString()
  const schema = format.createSchema()
  const problems: string[] = []
  for (const part of partsOf(text, format.member)) {
    const parsed = parsePart(part, schema)
    if (!parsed.ok) {
      problems.push(...parsed.problems)
    } else if (problems.length === 0) {
      yield parsed
    }
    if (problems.length >= MAX_PROBLEMS) {
      break
    }
  }
  if (problems.length > 0) {
    yield notLoaded(problems)
  }
}

/**
 * Splits a file before items of its list.
 * A line that begins with the indentation of the first item and a dash begins an item: whatever
 * an item holds, even a text of several lines, is indented further (YAML 1.2, section 8.2).
 */
function* partsOf(text: string, member: string): Generator<Part> {
  const start = listStart(text, member)
  if (start === undefined || CONCERNS_OTHER_PARTS.test(text.slice(start.head.length))) {
    yield { text, headLines: 0, skippedLines: 0, skippedItems: 0 }
    return
  }
  const { head, indentation } = start
  const headLines = countLines(head)
  const itemStart = new RegExp(`^${indentation}-(?=\\s)`, 'gm')
  itemStart.lastIndex = head.length
  let partStart = head.length
  let skippedLines = 0
  let skippedItems = 0
  let items = 0
  for (const { index } of text.matchAll(itemStart)) {
    if (items === PART_ITEMS) {
      const partText = text.slice(partStart, index)
      yield { text: head + partText, headLines, skippedLines, skippedItems }
      partStart = index
      skippedLines += countLines(partText)
      skippedItems += items
      items = 0
    }
    items++
  }
  yield { text: head + text.slice(partStart), headLines, skippedLines, skippedItems }
}

/**
 * Returns the lines before the first item, and its indentation.
 * Undefined if they have more than the name of the list.
 */
function listStart(text: string, member: string) {
  const ignored = '(?:[ \\t]*(?:#.*)?\\n)*'
  const start = new RegExp(
    `^${ignored}(?:---\\n${ignored})?${member}:[ \\t]*(?:#.*)?\\n${ignored}(?=( *)-\\s)`,
  ).exec(text)
  return start === null ? undefined : { head: start[0], indentation: start[1] ?? '' }
}

function countLines(text: string): number {
  let lines = 0
  let at = text.indexOf('\n')
  while (at >= 0) {
    lines++
    at = text.indexOf('\n', at + 1)
  }
  return lines
}

function parsePart<T>(part: Part, schema: z.ZodType<T[]>): Loaded<readonly T[]> {
  const plain = readPlainYaml(part.text)
  if (plain !== undefined) {
    const parsed = schema.safeParse(plain)
    if (parsed.success) {
      return loaded(parsed.data)
    }
  }
  return parsePartAsDocument(part, schema)
}

/** Only a parsed document knows the positions of its values. */
function parsePartAsDocument<T>(part: Part, schema: z.ZodType<T>): Loaded<T> {
  const lineOf = ({ line, col }: Position, message: string) => {
    const lineInFile = line > part.headLines ? line + part.skippedLines : line
    return `${lineInFile}:${col}: ${message}`
  }
  const yaml = parseYaml(part.text)
  if (!yaml.ok) {
    return notLoaded(yaml.problems.map((at) => lineOf(at, `is not valid YAML: ${at.message}`)))
  }
  const { content, positionOf } = yaml.value
  const parsed = schema.safeParse(content)
  if (parsed.success) {
    return loaded(parsed.data)
  }
  const problems = parsed.error.issues.flatMap((issue) => {
    const path = issue.path.map((step) => (typeof step === 'number' ? step : String(step)))
    const [member, item, ...below] = path
    const pathInFile = typeof item === 'number' ? [member ?? '', item + part.skippedItems, ...below] : path
    const name = path.length === 0 ? '' : `${writePath(pathInFile)} `
    const problemAt = (position: Position, message: string) => ({ ...position, message: name + message })
    if (issue.code !== 'unrecognized_keys') {
      return [problemAt(positionOf(path), issue.message)]
    }
    return unknownMembers(path, issue.keys, positionOf).map(({ position, message }) =>
      problemAt(position, message),
    )
  })
  problems.sort((a, b) => a.line - b.line || a.col - b.col)
  return notLoaded(problems.map((at) => lineOf(at, at.message)))
}

function unknownMembers(
  path: readonly Step[],
  keys: readonly string[],
  positionOf: (steps: readonly Step[], key?: 'key') => Position,
) {
  const { listed, others } = listedNames(keys)
  const problems = listed.map((key) => {
    const named = isPlainName(key) ? `: ${key}` : ''
    return {
      position: positionOf([...path, key], 'key'),
      message: `has a member that is not known here${named}`,
    }
  })
  if (others > 0) {
    problems.push({
      position: positionOf(path),
      message: `has ${others} members that are not known and not listed`,
    })
  }
  return problems
}
