/**
 * HTTP/1.1 by the letter: the grammar that both oracles of the fuzz run read messages with.
 *
 * Written from RFC 9110 and RFC 9112 and from nothing else: what judges the sidecar must not share its code. Bytes are
 * Latin-1 text here, one character each.
 *
 * @module
 */

/** A field line. */
export interface Field {
  readonly name: string
  /** Without the white space around it. */
  readonly value: string
  /** Something other than one space, or nothing, stood around the value. */
  readonly padded: boolean
}

/** `token` (RFC 9110, section 5.6.2). */
export function isToken(text: string): boolean {
  return /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(text)
}

/** Bytes that may stand in a field value or a reason phrase (RFC 9110, section 5.5). */
export function isFieldText(text: string): boolean {
  return /^[\t\x20-\x7e\x80-\xff]*$/.test(text)
}

/** Without the white space that may stand around a value (RFC 9110, section 5.6.3). */
export function trimmed(text: string): string {
  return text.replace(/^[ \t]+|[ \t]+$/g, '')
}

/**
 * Reads field lines from `at` on, up to and with the empty line.
 *
 * @returns undefined while they are not whole; `bad` when a line is none by the letter: folded, without a name, with
 *   white space before its colon, with a control character, or ended by anything but CRLF
 */
export function readFields(
  bytes: string,
  at: number,
): { readonly fields: Field[]; readonly end: number } | 'bad' | undefined {
  const fields: Field[] = []
  for (let start = at; ; ) {
    const lineEnd = bytes.indexOf('\r\n', start)
    const line = bytes.slice(start, lineEnd < 0 ? bytes.length : lineEnd)
    if (lineEnd < 0) return /[\n\0]|\r[^\n]/.test(line) ? 'bad' : undefined
    if (line === '') return { fields, end: lineEnd + 2 }
    const colon = line.indexOf(':')
    const name = line.slice(0, Math.max(colon, 0))
    const rest = line.slice(colon + 1)
    const value = trimmed(rest)
    if (!isToken(name) || !isFieldText(value)) return 'bad'
    fields.push({ name, value, padded: rest !== value && rest !== ` ${value}` })
    start = lineEnd + 2
  }
}

/** A body that was read: its end, what it carries, and whether it holds anything that only some parsers take. */
export interface ReadBody {
  readonly body: string
  readonly trailers: readonly Field[]
  readonly end: number
  /** Everything in it is plain; otherwise refusing it is as right as taking it. */
  readonly plain: boolean
}

/**
 * Reads chunks from `at` on (RFC 9112, section 7.1).
 *
 * @returns undefined while they are not whole; `bad` when they cannot be read by the letter
 */
export function readChunks(bytes: string, at: number): ReadBody | 'bad' | undefined {
  let body = ''
  let plain = true
  for (let start = at; ; ) {
    const lineEnd = bytes.indexOf('\r\n', start)
    const line = bytes.slice(start, lineEnd < 0 ? bytes.length : lineEnd)
    const parts = /^([0-9A-Fa-f]+)((?:[ \t]*;.*)?)$/s.exec(line)
    if (lineEnd < 0) {
      const begun = line === '' || line === '\r' || /^[0-9A-Fa-f]+(?:[ \t]*;.*|\r)?$/s.test(line)
      return begun && !/[\n\0]|\r[^\n]/.test(line) ? undefined : 'bad'
    }
    if (parts === null) return 'bad'
    const [, digits = '', extensions = ''] = parts
    if (!isFieldText(extensions)) return 'bad'
    if (digits.replace(/^0+/, '').length > 16) return 'bad'
    if (digits.length > 8 || extensions.length > 200 || !/^(?:;[\w-]+(?:=[\w-]+)?)*$/.test(extensions)) {
      plain = false
    }
    const size = Number.parseInt(digits, 16)
    if (size === 0) {
      const trailers = readFields(bytes, lineEnd + 2)
      if (typeof trailers !== 'object') return trailers
      return { body, trailers: trailers.fields, end: trailers.end, plain }
    }
    const dataEnd = lineEnd + 2 + size
    const after = bytes.slice(dataEnd, dataEnd + 2)
    if (bytes.length >= dataEnd && !'\r\n'.startsWith(after)) return 'bad'
    if (after !== '\r\n') return undefined
    body += bytes.slice(lineEnd + 2, dataEnd)
    start = dataEnd + 2
  }
}

/** The one value of a field; undefined when it is absent, `twice` when it stands more than once. */
export function single(
  fields: readonly Field[],
  name: string,
): { readonly value: string } | 'twice' | undefined {
  const found = fields.filter((field) => field.name.toLowerCase() === name)
  const [first] = found
  return first === undefined ? undefined : found.length > 1 ? 'twice' : { value: first.value }
}

/** The members of a comma-separated list that may stand on several lines, lower-cased. */
export function listed(fields: readonly Field[], name: string): string[] {
  return fields
    .filter((field) => field.name.toLowerCase() === name)
    .flatMap(({ value }) => value.toLowerCase().split(',').map(trimmed))
    .filter((member) => member !== '')
}
