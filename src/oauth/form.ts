/**
 * Reads a form (application/x-www-form-urlencoded) that can be read in one way only.
 * In: a request. Out: its parameters, or an error that quotes nothing of the body.
 */
import type { PublicError } from '../base/errors.ts'
import { failed, ok, type Result } from '../base/result.ts'
import type { SidecarResponse } from '../client/response.ts'
import { type BodyLimits, type BodyType, badArgument, readBody } from '../endpoints/request-body.ts'

/** The parameters that have a value. One without a value counts as left out (RFC 6749, section 3.2). */
export type Form = ReadonlyMap<string, string>

const FORM_BODY: BodyType = { mediaType: 'application/x-www-form-urlencoded', mayBeMissing: false }

/** An error names only these: any other name is text that the client chose. */
const KNOWN = new Set(['grant_type', 'scope', 'client_id', 'client_secret', 'token', 'token_type_hint'])

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Never rejects. Stays pending if the connection closes. */
export async function readForm(res: SidecarResponse, limits: BodyLimits): Promise<Result<Form, PublicError>> {
  const body = await readBody(res, limits, FORM_BODY)
  return body.ok ? parseForm(body.value) : body
}

export function parseForm(body: Uint8Array): Result<Form, PublicError> {
  const text = decodeUtf8(body)
  if (text === undefined) {
    return failed(badArgument('The body must be a form, in UTF-8.'))
  }
  const problem = escapeProblem(text)
  if (problem !== undefined) {
    return failed(badArgument(problem))
  }
  const form = new Map<string, string>()
  const seen = new Set<string>()
  // The first `&` keeps a `?` behind it, which `URLSearchParams` would leave out.
  for (const [name, value] of new URLSearchParams(`&${text}`)) {
    if (seen.has(name)) {
      return failed(badArgument(`${KNOWN.has(name) ? name : 'A parameter'} is sent twice.`))
    }
    seen.add(name)
    if (value !== '') {
      form.set(name, value)
    }
  }
  return ok(form)
}

function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return utf8.decode(bytes)
  } catch {
    return undefined
  }
}

/** `URLSearchParams` keeps an invalid escape as it is, and replaces invalid UTF-8. */
function escapeProblem(text: string): string | undefined {
  try {
    return decodeURIComponent(text).includes('\0') ? 'The form must not hold a NUL.' : undefined
  } catch {
    return 'The form has an invalid percent escape.'
  }
}
