/**
 * What a login must be answered: the oracle of the fuzz run for the token endpoint.
 *
 * In: the field lines and the body of a POST to it. Out: the answers that may be given. Reads JSON with a parser of
 * its own, because `JSON.parse` does not tell of keys that stand twice.
 *
 * @module
 */
import type { Answer } from './expected-requests.ts'
import type { Field } from './http-grammar.ts'

/** A login that the sidecar accepts. */
export interface KnownLogin {
  readonly accountId: string
  readonly accessKey: string
  readonly secret: string
}

const MAX_BYTES = 16_384
const INVALID: readonly Answer[] = ['400 InvalidArgument']

/** The answers that a login may get. */
export function expectedLogin(
  fields: readonly Field[],
  body: string,
  logins: readonly KnownLogin[],
): readonly Answer[] {
  const values = (wanted: string) =>
    fields.filter(({ name }) => name.toLowerCase() === wanted).map(({ value }) => value)
  if (values('content-encoding').length > 0) return INVALID
  const types = values('content-type')
  const plainType = types.every((type) => /^application\/json(?:; ?charset="?utf-8"?)?$/i.test(type))
  if (types.length > 1 || types.some((type) => !/^application\/json[ \t]*(?:;|$)/i.test(type))) return INVALID
  if (body.length > MAX_BYTES) return INVALID
  const value = readJson(body)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return INVALID
  const sent = { ...value } as Record<string, unknown>
  const names = ['accountId', 'accessKey', 'secret'] as const
  const proper = names.every((name) => {
    const field = Object.hasOwn(sent, name) ? sent[name] : undefined
    return typeof field === 'string' && field.length > 0 && [...field].length <= 1024
  })
  if (!proper) return INVALID
  const known = logins.some((login) => names.every((name) => login[name] === sent[name]))
  if (known) return plainType ? ['200 '] : ['200 ', ...INVALID]
  // Names that no account can have may be called invalid instead of wrong.
  return ['403 Authentication failed', ...INVALID]
}

/** Reads a JSON text by the letter (RFC 8259); undefined when it is none, or when a key stands twice. */
export function readJson(latin1: string): unknown {
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.from(latin1, 'latin1'))
    JSON.parse(text)
  } catch {
    return undefined
  }
  return hasKeyTwice(text) ? undefined : JSON.parse(text)
}

/** Whether an object in a JSON text that is known to be one has a key twice. */
function hasKeyTwice(text: string): boolean {
  const open: (Set<string> | undefined)[] = []
  const tokens = /"(?:[^"\\]|\\.)*"(\s*:)?|[{}[\]]/gs
  for (let match = tokens.exec(text); match !== null; match = tokens.exec(text)) {
    const [token, colon] = match
    if (token === '{') open.push(new Set())
    else if (token === '[') open.push(undefined)
    else if (token === '}' || token === ']') open.pop()
    else if (colon !== undefined) {
      const key = String(JSON.parse(token.slice(0, token.length - colon.length)))
      const keys = open[open.length - 1]
      if (keys?.has(key)) return true
      keys?.add(key)
    }
  }
  return false
}
