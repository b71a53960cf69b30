/**
 * Reads one account in the plain form: what `credentials add` writes, and any program that writes block YAML.
 *
 * In: the text of one member of the list of accounts. Out: the account, or the line that is not in this form, in which
 * case YAML has to say what it means. What is taken here means the same to YAML: one member to a line, with a value
 * that ends with the line and can be nothing but a string, or true or false. That takes a fiftieth of the time
 * and memory that YAML takes, and can be interrupted.
 *
 * @module
 */
import { nameProblem } from '../names.ts'
import { parseRfc3339 } from '../rfc3339.ts'
import type { Account, Credential } from './accounts.ts'
import { parseSecretHash, type SecretHash } from './secret-hash.ts'

/** What was read. Lines and columns are counted from 1, within the text. */
export type PlainAccount =
  | { readonly ok: true; readonly account: Account; readonly line: number; readonly column: number }
  | { readonly ok: false; readonly line: number }

/**
 * Indent, dash, name and value of a line: in double quotes, in single quotes, or in neither. A value without quotes
 * holds no blank, and so neither a comment nor a map.
 */
const LINE =
  /^( *)(- )?(accountId|credentials|accessKey|secretHash|expiresAt|disabled):(?: +(?:"([^"\\\p{C}\u2028\u2029]*)"|'([^'\p{C}\u2028\u2029]*)'|([\w$](?:[\w$.+/=,@:-]*[\w$.+/=,@-])?|\[\])))?(?: +#.*)? *\r?$/u
const NOTHING = /^ *(?:#.*)?\r?$/
/** What YAML's core schema does not take for a string, as far as a value without quotes is matched above. */
const NO_STRING =
  /^(?:null|Null|NULL|true|True|TRUE|false|False|FALSE|\[\]|0o[0-7]+|0x[\da-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)$/
const TRUTH: Readonly<Record<string, boolean>> = { true: true, false: false }

/** The column of dashes in a list that has ended: none is in it. */
const CLOSED = Number.NaN

/** How many lines are one step of the work. */
const STEP_LINES = 64

interface Draft {
  accessKey?: string
  secretHash?: SecretHash
  expiresAt?: number
  disabled?: boolean
}

/** Reads the member of a block list that is one account. A step of it takes less than a millisecond. */
export function* readPlainAccount(text: string): Generator<undefined, PlainAccount> {
  let accountId: { readonly name: string; readonly line: number; readonly column: number } | undefined
  let list: Map<string, Credential> | undefined
  /** The columns in which members of the account stand, and the dashes of its list; -1 before the first one. */
  let accountColumn = -1
  let dashColumn = -1
  let draft: Draft | undefined
  let line = 0

  /** Whether the credential that was being read is whole, and new. */
  function finished(): boolean {
    if (draft === undefined || list === undefined) return true
    const { accessKey, secretHash, expiresAt = Number.POSITIVE_INFINITY, disabled = false } = draft
    draft = undefined
    if (accessKey === undefined || secretHash === undefined || list.has(accessKey)) return false
    list.set(accessKey, { accessKey, secretHash, expiresAt, disabled })
    return true
  }

  function read(content: string): boolean {
    const match = LINE.exec(content)
    if (match === null) return NOTHING.test(content) && line > 1
    const [, spaces = '', dash = '', member = '', double, single, bare] = match
    const indent = spaces.length
    const quoted = double ?? single
    const value = quoted ?? (bare === undefined || NO_STRING.test(bare) ? undefined : bare)
    const column = indent + dash.length
    if (accountColumn < 0) {
      if (dash === '') return false
      accountColumn = column
    } else if (dash !== '') {
      if (list === undefined || indent < accountColumn || !finished()) return false
      if (dashColumn < 0) dashColumn = indent
      if (dashColumn !== indent) return false
      draft = {}
    }
    if (draft !== undefined && column === dashColumn + 2) return addTo(draft, member, value, bare)
    if (column !== accountColumn || !finished()) return false
    if (member === 'accountId') {
      if (accountId !== undefined || value === undefined || nameProblem(value) !== undefined) return false
      if (list !== undefined && dashColumn === -1) return false
      if (list !== undefined) dashColumn = CLOSED
      accountId = { name: detached(value), line, column: content.indexOf(':', column) + 1 }
      while (content[accountId.column] === ' ') accountId = { ...accountId, column: accountId.column + 1 }
      return true
    }
    if (member !== 'credentials' || list !== undefined || quoted !== undefined) return false
    if (bare !== undefined && bare !== '[]') return false
    list = new Map()
    if (bare !== undefined) dashColumn = CLOSED
    return true
  }

  for (let at = 0; at < text.length; ) {
    const newline = text.indexOf('\n', at)
    const end = newline < 0 ? text.length : newline
    line++
    if (!read(text.slice(at, end))) return { ok: false, line }
    if (line % STEP_LINES === 0) yield
    at = end + 1
  }
  if (!finished() || accountId === undefined || list === undefined || dashColumn === -1) {
    return { ok: false, line: 1 }
  }
  const account = { accountId: accountId.name, credentials: [...list.values()] }
  return { ok: true, account, line: accountId.line, column: accountId.column + 1 }
}

/** Whether the member is new, and its value a good one. */
function addTo(draft: Draft, member: string, value: string | undefined, bare: string | undefined): boolean {
  if (Object.hasOwn(draft, member)) return false
  if (member === 'disabled') {
    const truth = bare === undefined ? undefined : TRUTH[bare]
    if (truth === undefined) return false
    draft.disabled = truth
    return true
  }
  if (value === undefined) return false
  if (member === 'accessKey') {
    draft.accessKey = detached(value)
    return nameProblem(value) === undefined
  }
  if (member === 'secretHash') {
    const parsed = parseSecretHash(value)
    if (parsed.ok) draft.secretHash = parsed.hash
    return parsed.ok
  }
  const expiresAt = member === 'expiresAt' ? parseRfc3339(value) : undefined
  if (expiresAt === undefined) return false
  draft.expiresAt = expiresAt
  return true
}

/** A string of its own: as a part of the file's text it would keep all of that in memory for as long as it lives. */
function detached(name: string): string {
  return Buffer.from(name).toString()
}
