/**
 * Reads the text of a revocations file.
 *
 * In: YAML 1.2 (core schema). Out: revocations, or every problem with its line and column, none of which repeats
 * a value. A long list is read in slices, so that nobody waits for it.
 *
 * @module
 */
import { writePath } from '../config/problem.ts'
import { inSlices } from '../files/in-slices.ts'
import { isJsonObject } from '../strict-json.ts'
import { cutBlockList, type ListMember } from '../yaml/block-list.ts'
import { type Position, parseYaml, type YamlDocument } from '../yaml/yaml-text.ts'
import { checkRevocation } from './revocation-entry.ts'
import type { Revocation } from './revocations.ts'

/** The outcome of reading; each problem is one line, `line:column: path what`. */
export type ParsedRevocations =
  | { readonly ok: true; readonly revocations: readonly Revocation[] }
  | { readonly ok: false; readonly problems: readonly string[] }

const EMPTY = 'without entries, write `revocations: []`'

interface Findings {
  readonly revocations: Revocation[]
  readonly problems: string[]
}

/** Reads the text of a revocations file. */
export async function parseRevocationsText(text: string): Promise<ParsedRevocations> {
  const { problems, revocations } = (await inSlices(readCut(text))) ?? readWhole(text)
  return problems.length === 0 ? { ok: true, revocations } : { ok: false, problems }
}

/** Reads the usual form, a block list. Nothing: the text has another one. */
function* readCut(text: string): Generator<unknown, Findings | undefined> {
  const findings: Findings = { revocations: [], problems: [] }
  const members = cutBlockList(text, 'revocations')
  let index = 0
  let step = members.next()
  while (step.done !== true) {
    if (step.value !== undefined) readMember(step.value, index++, findings)
    yield
    step = members.next()
  }
  return step.value ? findings : undefined
}

/**
 * What programs that write such lists write, each with one meaning: a UUID or a word of six letters and more is a
 * string to YAML. Read in a fiftieth of the time that YAML takes.
 */
const UUID = '[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}'
const USUAL = new RegExp(
  `^( *)- (jti|accountId|accessKey): (["']?)(${UUID}|[A-Za-z][\\w.-]{5,127})\\3` +
    '(?:\\r?\\n\\1 {2}issuedBefore: (["\']?)([0-9TZ:.+-]+)\\5)?\\r?\\n?$',
)

function readMember({ text, line }: ListMember, index: number, findings: Findings): void {
  const usual = USUAL.exec(text)
  if (usual !== null) {
    const [, , subject = '', , name, , issuedBefore] = usual
    const checked = checkRevocation({ [subject]: name, ...(issuedBefore !== undefined && { issuedBefore }) })
    if (checked.ok) return void findings.revocations.push(checked.revocation)
  }
  const yaml = parseYaml(text)
  const place = (position: Position) => `${position.line + line - 1}:${position.column}`
  if (!yaml.ok) {
    addMistakes(yaml, place, findings)
    return
  }
  // A list of one. Were it ever anything else, nothing of it would be passed over.
  for (const [at, entry] of [yaml.value].flat().entries()) {
    readEntry(entry, index, (below, key) => place(yaml.position([at, ...below], key)), findings)
  }
}

function readWhole(text: string): Findings {
  const findings: Findings = { revocations: [], problems: [] }
  const yaml = parseYaml(text)
  const place = ({ line, column }: Position) => `${line}:${column}`
  if (yaml.ok) {
    const list = listIn(yaml, (steps, what, key) => {
      findings.problems.push(`${place(yaml.position(steps, key))}: ${what}`)
    })
    for (const [index, entry] of list.entries()) {
      const placeOf: PlaceOf = (below, key) => place(yaml.position(['revocations', index, ...below], key))
      readEntry(entry, index, placeOf, findings)
    }
  } else addMistakes(yaml, place, findings)
  return findings
}

/** The list in a whole document, as far as there is one. */
function listIn(
  { value }: YamlDocument,
  problem: (steps: readonly string[], what: string, key?: 'key') => void,
): readonly unknown[] {
  if (!isJsonObject(value)) {
    problem([], value === null ? `is empty; ${EMPTY}` : 'must be a map with the one member revocations')
    return []
  }
  for (const member of Object.keys(value)) {
    if (member === 'revocations') continue
    problem([member], `has a member that is not known here${named(member)}`, 'key')
  }
  const list = value['revocations']
  if (Array.isArray(list)) return list
  if (list === undefined) problem([], 'revocations is missing')
  else problem(['revocations'], `revocations must be a list; ${EMPTY}`)
  return []
}

/** Where a member of an entry stands, or its name. */
type PlaceOf = (below: readonly string[], key?: 'key') => string

function readEntry(
  entry: unknown,
  index: number,
  placeOf: PlaceOf,
  { revocations, problems }: Findings,
): void {
  const checked = checkRevocation(entry)
  if (checked.ok) return void revocations.push(checked.revocation)
  for (const { member, unknown, message } of checked.problems) {
    const steps = member === undefined ? [] : [member]
    const path = ['revocations', index]
    problems.push(
      unknown
        ? `${placeOf(steps, 'key')}: ${writePath(path)} ${message}${named(String(member))}`
        : `${placeOf(steps)}: ${writePath([...path, ...steps])} ${message}`,
    )
  }
}

function addMistakes(
  { mistakes }: Exclude<ReturnType<typeof parseYaml>, YamlDocument>,
  place: (position: Position) => string,
  { problems }: Findings,
): void {
  for (const { message, position } of mistakes)
    problems.push(`${place(position)}: is not valid YAML: ${message}`)
}

/** A member's name is told only if it looks like one: a token may stand in the wrong place. */
function named(member: string): string {
  return /^[A-Za-z_-]{1,32}$/.test(member) ? `: ${member}` : ''
}
