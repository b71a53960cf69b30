/**
 * Reads the text of a credentials file.
 *
 * In: YAML 1.2 (core schema). Out: accounts, or every problem with its line and column. A problem names where it
 * is and what is wanted there, and repeats nothing of the file: a hash or a mislaid secret must not reach a log.
 *
 * @module
 */
import { type Document, isCollection, isMap, isNode, isScalar, LineCounter, parseDocument, visit } from 'yaml'
import type { Account } from './accounts.ts'
import { checkAccounts, type Path, type Problem } from './accounts-schema.ts'

/** The outcome of reading; each problem is one line, `line:column: path what`. */
export type ParsedAccounts =
  | { readonly ok: true; readonly accounts: readonly Account[] }
  | { readonly ok: false; readonly problems: readonly string[] }

/** Reads the text of a credentials file. */
export function parseAccountsText(text: string): ParsedAccounts {
  const lines = new LineCounter()
  // Pretty errors would quote the line at fault, and warnings would go to stderr.
  const document = parseDocument(text, {
    lineCounter: lines,
    prettyErrors: false,
    logLevel: 'error',
    stringKeys: true,
  })
  const at = (offset: number, what: string) => {
    const { line, col } = lines.linePos(offset)
    return `${line}:${col}: ${what}`
  }

  const notYaml = [...document.errors, ...document.warnings]
  if (notYaml.length > 0) {
    // The library's messages may quote the text; its codes never do.
    const problems = notYaml.map(({ code, pos }) => at(pos[0], `is not valid YAML here (${words(code)})`))
    return { ok: false, problems }
  }
  const shared = aliases(document)
  if (shared.length > 0) {
    return { ok: false, problems: shared.map((offset) => at(offset, 'must not use YAML aliases')) }
  }
  const value: unknown = document.toJS()
  if (value === null)
    return { ok: false, problems: [at(0, 'is empty; without accounts, write `accounts: []`')] }
  const checked = checkAccounts(value)
  if (checked.ok) return checked
  const problems = checked.problems.map((problem) => ({ problem, offset: offsetOf(document, problem) }))
  problems.sort((one, other) => one.offset - other.offset)
  return { ok: false, problems: problems.map(({ problem, offset }) => at(offset, sentence(problem))) }
}

function words(code: string): string {
  return code.toLowerCase().replaceAll('_', ' ')
}

function sentence({ path, message, unknownMember }: Problem): string {
  // A member's name is told only if it looks like one: a hash may have lost its indent or its key.
  const name =
    unknownMember !== undefined && /^[A-Za-z_-]{1,32}$/.test(unknownMember) ? `: ${unknownMember}` : ''
  return `${pathText(path)} ${message}${name}`.trimStart()
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
function offsetOf(document: Document.Parsed, { path, unknownMember }: Problem): number {
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
