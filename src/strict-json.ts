/**
 * JSON that means the same to everyone who reads it.
 *
 * `JSON.parse` lets the last of two equal keys win and takes what `TextDecoder` repaired; two programs then
 * read two different documents (RFC 8259, section 4; RFC 8725, section 2.4). Here a repeated key at any depth,
 * invalid UTF-8, or a byte order mark makes the text no JSON at all.
 *
 * @module
 */

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Why a text was refused. `repeatedKey`: the member name that stands twice, where that is the reason. */
export interface NotJson {
  readonly ok: false
  readonly repeatedKey?: string
}

/** The outcome of a strict parse. */
export type StrictJson = { readonly ok: true; readonly value: unknown } | NotJson

const refused: NotJson = { ok: false }

/**
 * Parses a UTF-8 JSON text.
 *
 * @param bytes - the whole text; a byte order mark, invalid UTF-8 and text behind the value are refused
 * @returns the value, or that this is no JSON text; never throws
 */
export function parseStrictJson(bytes: Uint8Array): StrictJson {
  let text: string
  let value: unknown
  try {
    text = utf8.decode(bytes)
    value = JSON.parse(text)
  } catch {
    return refused
  }
  const repeated = repeatedKey(text)
  return repeated === undefined ? { ok: true, value } : { ok: false, repeatedKey: repeated }
}

/**
 * Finds the first member name that stands twice in one object of a valid JSON text.
 * Keeps its own stack instead of recursing: the nesting depth is the sender's choice.
 */
function repeatedKey(text: string): string | undefined {
  const seen = new Set<string>() // each name behind the number of the object it stands in
  const open: number[] = [] // the number of each open object, and 0 for an open array
  let objects = 0
  let name = '' // the string just read; it is a member name if a colon follows
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case 0x22: {
        const end = closingQuote(text, at)
        // An escape may spell the same name (`"\u0061"` is `"a"`): compare what the name means.
        name = JSON.parse(text.slice(at, end + 1)) as string
        at = end
        break
      }
      case 0x3a: {
        const member = `${open.at(-1)} ${name}`
        if (seen.has(member)) return name
        seen.add(member)
        break
      }
      case 0x7b:
        open.push(++objects)
        break
      case 0x5b:
        open.push(0)
        break
      case 0x7d:
      case 0x5d:
        open.pop()
        break
    }
  }
  return undefined
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
