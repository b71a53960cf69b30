/**
 * Reads accounts in any form that YAML has for them.
 *
 * In: YAML 1.2 (core schema), a whole file or the part of one account. Out: accounts, or every problem with its line
 * and column. A problem names where it is and what is wanted there, and repeats nothing of the file: a hash or a
 * mislaid secret must not reach a log. It is all done at once, at some millisecond for each kilobyte.
 *
 * @module
 */
import { type Document, isCollection, isMap, isNode, isScalar, LineCounter, parseDocument, visit } from 'yaml'
import type { Account } from './accounts.ts'
import { checkAccounts, namesIn, type Path, type Problem } from './accounts-schema.ts'

/** What was read; each problem is one line, `line:column: path what`. */
export interface YamlAccounts {
  /** None where there is a problem. */
  readonly accounts: readonly Account[]
  readonly problems: readonly string[]
  /** The names of the accounts as far as they can be told, those with a problem included, and `line:column`. */
  readonly names: readonly { readonly accountId: string; readonly place: string }[]
}

/** Where a part stands in its file: the line it begins in, counted from 1, and how many accounts are before it. */
export interface Part {
  readonly line: number
  readonly index: number
}

/** Reads a whole file. */
export function readAccountsYaml(text: string): YamlAccounts {
  return read(text, { line: 1, index: 0 })
}

/** Reads the member of a block list that is one account. */
export function readAccountYaml(text: string, { line, index }: Part): YamlAccounts {
  return read(`accounts:\n${text}`, { line: line - 1, index })
}

function read(text: string, part: Part): YamlAccounts {
  const lines = new LineCounter()
  // Pretty errors would quote the line at fault, and warnings would go to stderr.
  const document = parseDocument(text, {
    lineCounter: lines,
    prettyErrors: false,
    logLevel: 'error',
    stringKeys: true,
  })
  const placeAt = (offset: number) => {
    const { line, col } = lines.linePos(offset)
    return `${line + part.line - 1}:${col}`
  }
  const at = (offset: number, what: string) => `${placeAt(offset)}: ${what}`
  const refused = (problems: readonly string[], names: YamlAccounts['names'] = []) => ({
    accounts: [],
    problems,
    names,
  })

  const notYaml = [...document.errors, ...document.warnings]
  if (notYaml.length > 0) {
    // The library's messages may quote the text; its codes never do.
    const problems = notYaml.map(({ code, pos }) => at(pos[0], `is not valid YAML here (${words(code)})`))
    return refused(problems)
  }
  const shared = aliases(document)
  if (shared.length > 0) {
    return refused(shared.map((offset) => at(offset, 'must not use YAML aliases')))
  }
  const value: unknown = document.toJS()
  if (value === null) return refused([at(0, 'is empty; without accounts, write `accounts: []`')])
  const names = namesIn(value).flatMap((accountId, index) => {
    if (typeof accountId !== 'string') return []
    const offset = offsetOf(document, { path: ['accounts', index, 'accountId'] })
    return [{ accountId, place: placeAt(offset) }]
  })
  const checked = checkAccounts(value)
  if (checked.ok) return { accounts: checked.accounts, problems: [], names }
  const problems = checked.problems.map((problem) => ({ problem, offset: offsetOf(document, problem) }))
  problems.sort((one, other) => one.offset - other.offset)
  const told = problems.map(({ problem, offset }) => at(offset, sentence(problem, part)))
  return refused(told, names)
}

function words(code: string): string {
  return code.toLowerCase().replaceAll('_', ' ')
}

function sentence({ path, message, unknownMember }: Problem, { index }: Part): string {
  // A member's name is told only if it looks like one: a hash may have lost its indent or its key.
  const name =
    unknownMember !== undefined && /^[A-Za-z_-]{1,32}$/.test(unknownMember) ? `: ${unknownMember}` : ''
  const inFile = path.map((step, at) => (at === 1 && typeof step === 'number' ? step + index : step))
  return `${pathText(inFile)} ${message}${name}`.trimStart()
}

function pathText(path: Path): string {
  return path
    .map((step, index) =>
      typeof step === 'number' ? `[${step}]` : `${index === 0 ? '' : '.'}${String(step)}`,
    )
    .join('')
}

/**
 * Where the document uses aliases. They are refused because disabling or removing what two places share
 * would change both, and because nested aliases grow without bound when they are resolved.
 */
function aliases(document: Document.Parsed): number[] {
  const offsets: number[] = []
  visit(document, {
    Alias: (_key, alias) => {
      offsets.push(startOf(alias))
    },
  })
  return offsets
}

/** The offset of the deepest node there is on the way to the problem. */
function offsetOf(
  document: Document.Parsed,
  { path, unknownMember }: Pick<Problem, 'path' | 'unknownMember'>,
): number {
  let node: unknown = document.contents
  for (const step of path) {
    const next: unknown = isCollection(node) && node.get(step, true)
    if (!isNode(next)) break
    node = next
  }
  if (unknownMember !== undefined && isMap(node)) {
    const keys = node.items.map(({ key }) => key)
    return startOf(keys.find((key) => isScalar(key) && key.value === unknownMember))
  }
  return startOf(node)
}

function startOf(node: unknown): number {
  return (isNode(node) && node.range?.[0]) || 0
}
