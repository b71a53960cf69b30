/**
 * The body of a login.
 * In: the header lines and bytes of a POST to the token endpoint. Out: the login, or a message for the client that names
 * the invalid field and never repeats its value. Accepts only UTF-8 JSON without a BOM.
 */

import { nameProblem, secretProblem } from '../credentials/names.ts'
import type { Login } from '../credentials/store.ts'

/** The largest body of a login. */
export const MAX_LOGIN_BYTES = 16 * 1024

/** The message for a larger one. */
export const TOO_LARGE = `The body is larger than ${MAX_LOGIN_BYTES / 1024} KiB.`

/** Returns the problem of a login's headers, checked before its body is read. */
export function loginHeadersProblem(rawHeaders: readonly string[]): string | undefined {
  const types: string[] = []
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = (rawHeaders[at] as string).toLowerCase()
    if (name === 'content-encoding') return 'Content-Encoding is not accepted here.'
    if (name === 'content-type') types.push(rawHeaders[at + 1] as string)
  }
  return types.length <= 1 && types.every(isJsonInUtf8)
    ? undefined
    : 'Content-Type must be application/json, in UTF-8.'
}

function isJsonInUtf8(contentType: string): boolean {
  // Split, not matched by one pattern: optional white space around optional parts backtracks without end.
  const [type, ...parameters] = contentType
    .toLowerCase()
    .split(';')
    .map((part) => part.trim())
    .filter((part, at) => at === 0 || part !== '')
  return (
    type === 'application/json' &&
    parameters.length <= 1 &&
    parameters.every((parameter) => parameter === 'charset=utf-8' || parameter === 'charset="utf-8"')
  )
}

const FIELDS = [
  ['accountId', nameProblem],
  ['accessKey', nameProblem],
  ['secret', secretProblem],
] as const

/** A parsed login, or the message for the client. */
export type ParsedLogin =
  | { readonly ok: true; readonly login: Login }
  | { readonly ok: false; readonly message: string }

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Throws for values without an exact form (a number beyond a double, a lone surrogate), also in ignored fields. */
function refuseInexact(_key: string, value: unknown): unknown {
  const isExact =
    typeof value === 'string'
      ? !/\p{Surrogate}/u.test(value)
      : typeof value !== 'number' || Number.isFinite(value)
  if (!isExact) throw new RangeError('a value that cannot be represented')
  return value
}

/** Parses a complete body. Unknown fields are ignored; every invalid field is named. */
export function parseLogin(body: Uint8Array): ParsedLogin {
  let value: unknown
  try {
    value = JSON.parse(utf8.decode(body), refuseInexact)
  } catch {
    return { ok: false, message: 'The body must be JSON, in UTF-8.' }
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return { ok: false, message: 'The body must be a JSON object.' }
  }
  const sent = new Map<string, unknown>(Object.entries(value))
  const fields: Record<string, string> = {}
  const problems: string[] = []
  for (const [field, problemOf] of FIELDS) {
    const text = sent.get(field)
    const problem =
      text === undefined ? 'is missing' : typeof text === 'string' ? problemOf(text) : 'must be a string'
    if (problem !== undefined) problems.push(`${field} ${problem}.`)
    else fields[field] = String(text)
  }
  const { accountId, accessKey, secret } = fields
  return problems.length > 0 || accountId === undefined || accessKey === undefined || secret === undefined
    ? { ok: false, message: problems.join(' ') }
    : { ok: true, login: { accountId, accessKey, secret } }
}
