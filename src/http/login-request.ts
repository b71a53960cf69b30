/**
 * Reads the body of a token request.
 *
 * In: the header fields and the body of a POST to the token endpoint. Out: the login, or a message for the client that
 * names the field at fault and never repeats what was sent. Nothing is repaired and nothing guessed: the body
 * is UTF-8 JSON that every reader takes alike, in the fields that are ignored, too, or it is refused.
 *
 * An account identifier or access key with a control character is refused here and not as a failed login: no
 * such name can exist (it would have to stand in a token and in a header), and whoever sends one has a bug to
 * find, not a wrong secret. Secrets may hold anything.
 *
 * @module
 */

import type { Login } from '../credentials/store.ts'
import { nameProblem, secretProblem } from '../names.ts'
import { MOST_NESTED, type NotJson, parseStrictJson } from '../strict-json.ts'

/** The largest body of a token request. */
export const MAX_LOGIN_BYTES = 16 * 1024

/** What is said of a larger one. */
export const TOO_LARGE = `The body is larger than ${MAX_LOGIN_BYTES / 1024} KiB.`

/** The refusal of a token request; the message is for the client. */
export interface LoginRefused {
  readonly ok: false
  readonly message: string
}

/** The values of the header lines of one name, given in lower case. */
export type HeaderValues = (name: string) => readonly string[]

/**
 * Checks what the header says of the body, before any of it is read. `Content-Type` is `application/json` in any case,
 * with no parameter but `charset=utf-8`, or is not sent at all. A `Content-Encoding` is refused, `identity`
 * included, which is no content coding (RFC 9110, section 8.4.1).
 */
export function checkLoginHeaders(valuesOf: HeaderValues): { readonly ok: true } | LoginRefused {
  if (valuesOf('content-encoding').length > 0) return refused('Content-Encoding is not accepted here.')
  const types = valuesOf('content-type')
  return types.length <= 1 && types.every(isJsonInUtf8)
    ? { ok: true }
    : refused('Content-Type must be application/json, in UTF-8.')
}

function isJsonInUtf8(contentType: string): boolean {
  // Split, not matched by one pattern: optional white space around optional parts backtracks without end.
  const [type, ...parts] = contentType.toLowerCase().split(';').map(withoutSpace)
  const parameters = parts.filter((part) => part !== '')
  return (
    type === 'application/json' &&
    parameters.length <= 1 &&
    parameters.every((parameter) => parameter === 'charset=utf-8' || parameter === 'charset="utf-8"')
  )
}

/** Without the white space HTTP allows around a part (RFC 9110, section 5.6.3); `trim` would take more. */
function withoutSpace(part: string): string {
  let start = 0
  let end = part.length
  while (start < end && isSpace(part.charCodeAt(start))) start++
  while (end > start && isSpace(part.charCodeAt(end - 1))) end--
  return part.slice(start, end)
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x09
}

/** What each field must be, in the order in which problems are told. */
const fields = [
  ['accountId', nameProblem],
  ['accessKey', nameProblem],
  ['secret', secretProblem],
] as const

/** Reads a whole body. Unknown fields are ignored; every wrong field is named. */
export function parseLogin(body: Uint8Array): { readonly ok: true; readonly login: Login } | LoginRefused {
  if (body.byteLength > MAX_LOGIN_BYTES) return refused(TOO_LARGE)
  const json = parseStrictJson(body, { exact: true })
  // A field that cannot be represented is named like any other wrong one.
  const value = json.ok ? json.value : json.inexact
  if (!json.ok && value === undefined) return refused(notJson(json))
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return refused('The body must be a JSON object.')
  }
  const sent = new Map<string, unknown>(Object.entries(value))
  const problems = fields.flatMap(([field, problemOf]) => {
    const problem = fieldProblem(sent.get(field), problemOf)
    return problem === undefined ? [] : [`${field} ${problem}.`]
  })
  if (problems.length > 0) return refused(problems.join(' '))
  if (!json.ok) return refused(INEXACT)
  const { accountId, accessKey, secret } = value as Login // each was just checked to be a string
  return { ok: true, login: { accountId, accessKey, secret } }
}

const INEXACT = `The body holds a number or a character that cannot be represented, or more than ${MOST_NESTED} levels.`

function notJson({ repeatedKey }: Pick<NotJson, 'repeatedKey'>): string {
  if (repeatedKey === undefined) return 'The body must be JSON, in UTF-8.'
  const known = fields.find(([field]) => field === repeatedKey)
  return known === undefined ? 'No member of the body may stand twice.' : `${known[0]} must not stand twice.`
}

function fieldProblem(value: unknown, problemOf: (text: string) => string | undefined): string | undefined {
  if (value === undefined) return 'is missing'
  return typeof value === 'string' ? problemOf(value) : 'must be a string'
}

function refused(message: string): LoginRefused {
  return { ok: false, message }
}
