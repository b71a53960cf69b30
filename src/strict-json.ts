/**
 * JSON that means the same to everyone who reads it.
 *
 * `JSON.parse` lets the last of two equal keys win and takes what `TextDecoder` repaired; two programs then
 * read two different documents (RFC 8259, section 4; RFC 8725, section 2.4). Here a repeated key at any depth,
 * invalid UTF-8, or a byte order mark makes the text no JSON at all.
 *
 * What comes from strangers can be asked to be exact on top: no number beyond every double (RFC 8259, section 6), no
 * half of a surrogate pair written as an escape (section 8.2), and no nesting that some reader would not take
 * (section 9). Others read these as something else, or break.
 *
 * @module
 */

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Why a text was refused. */
export interface NotJson {
  readonly ok: false
  /** The member name that stands twice, where that is the reason. */
  readonly repeatedKey?: string
  /** What `JSON.parse` makes of the text, where it is only not exact: for saying which part is at fault. */
  readonly inexact?: unknown
}

/** The outcome of a strict parse. */
export type StrictJson = { readonly ok: true; readonly value: unknown } | NotJson

/** How strict. */
export interface Strictness {
  /** Refuses numbers beyond a double, lone surrogates and more than {@link MOST_NESTED} levels, too. */
  readonly exact?: boolean
}

/** How many objects and arrays of an exact text may be open at once: far more than anything sent here has use for. */
export const MOST_NESTED = 32

/**
 * Parses a UTF-8 JSON text.
 *
 * @param bytes - the whole text; a byte order mark, invalid UTF-8 and text behind the value are refused
 * @returns the value, or that this is no JSON text; never throws
 */
export function parseStrictJson(bytes: Uint8Array, { exact = false }: Strictness = {}): StrictJson {
  let text: string
  let value: unknown
  try {
    text = utf8.decode(bytes)
    value = JSON.parse(text)
  } catch {
    return { ok: false }
  }
  const { repeatedKey, isExact } = survey(text)
  if (repeatedKey !== undefined) return { ok: false, repeatedKey }
  return exact && !isExact ? { ok: false, inexact: value } : { ok: true, value }
}

/**
 * Goes through a valid JSON text, up to the first member name that stands twice in one object.
 * Keeps its own stack instead of recursing: the nesting depth is the sender's choice.
 */
function survey(text: string): { readonly repeatedKey?: string; readonly isExact: boolean } {
  const seen = new Set<string>() // each name behind the number of the object it stands in
  const open: number[] = [] // the number of each open object, and 0 for an open array
  let objects = 0
  let name = '' // the string just read; it is a member name if a colon follows
  let isExact = true
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    switch (code) {
      case 0x22: {
        const end = closingQuote(text, at)
        // An escape may spell the same name (`"\u0061"` is `"a"`): compare what the name means.
        name = JSON.parse(text.slice(at, end + 1)) as string
        isExact &&= !/\p{Surrogate}/u.test(name)
        at = end
        break
      }
      case 0x3a: {
        const member = `${open.at(-1)} ${name}`
        if (seen.has(member)) return { repeatedKey: name, isExact }
        seen.add(member)
        break
      }
      case 0x7b:
      case 0x5b:
        open.push(code === 0x7b ? ++objects : 0)
        isExact &&= open.length <= MOST_NESTED
        break
      case 0x7d:
      case 0x5d:
        open.pop()
        break
      default:
        if (isDigit(code)) {
          const start = at
          while (isNumberPart(text.charCodeAt(at + 1))) at++
          isExact &&= Number.isFinite(Number(text.slice(start, at + 1)))
        }
    }
  }
  return { isExact }
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39
}

/** A digit, a point, an exponent or its sign; false behind the end of the text, where there is no code. */
function isNumberPart(code: number): boolean {
  return isDigit(code) || code === 0x2e || code === 0x65 || code === 0x45 || code === 0x2b || code === 0x2d
}

/** The index of the quote that ends the string opened at `start`. */
function closingQuote(text: string, start: number): number {
  let at = start + 1
  while (text.charCodeAt(at) !== 0x22) at += text.charCodeAt(at) === 0x5c ? 2 : 1
  return at
}

/** Whether a parsed value is a JSON object: neither an array nor `null`. */
export function isJsonObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
