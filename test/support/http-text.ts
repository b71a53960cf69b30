/**
 * HTTP/1.1 messages by the letter of RFC 9110 and RFC 9112, independent of the program's own readers:
 * what judges the sidecar must not share its code.
 */

export interface Field {
  readonly name: string
  /** Without the white space around it. */
  readonly value: string
}

export interface Head {
  /** Latin-1, as are the fields. */
  readonly start: string
  readonly fields: readonly Field[]
  /** The position after the empty line. */
  readonly end: number
}

interface Body {
  /** De-chunked where it came in chunks. */
  readonly content: Buffer
  readonly trailers: readonly Field[]
  readonly end: number
}

/** `undefined`: more bytes are needed. `bad`: no continuation is a valid message. */
type Read<T> = T | 'bad' | undefined

const NO_BYTES = Buffer.alloc(0)

/** Reads a start line and the field lines. */
export function readHead(bytes: Buffer, at: number): Read<Head> {
  const lineEnd = bytes.indexOf('\r\n', at)
  if (lineEnd < 0) {
    return undefined
  }
  const fields = readFields(bytes, lineEnd + 2)
  return typeof fields === 'object' ? { start: bytes.toString('latin1', at, lineEnd), ...fields } : fields
}

function readFields(bytes: Buffer, at: number): Read<Omit<Head, 'start'>> {
  const fields: Field[] = []
  let start = at
  while (true) {
    const lineEnd = bytes.indexOf('\r\n', start)
    if (lineEnd < 0) {
      return undefined
    }
    const line = bytes.toString('latin1', start, lineEnd)
    start = lineEnd + 2
    if (line === '') {
      return { fields, end: start }
    }
    const [, name = '', value = ''] =
      /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t\x20-\x7e\x80-\xff]*)$/.exec(line) ?? []
    if (name === '') {
      return 'bad'
    }
    fields.push({ name, value: value.replace(/^[ \t]+|[ \t]+$/g, '') })
  }
}

/** Reads the body that the fields announce, none where they announce none. */
export function readBody(bytes: Buffer, { fields, end }: Head): Read<Body> {
  const lengths = valuesOf(fields, 'content-length')
  const codings = valuesOf(fields, 'transfer-encoding')
  if (lengths.length + codings.length === 0) {
    return { content: NO_BYTES, trailers: [], end }
  }
  if (lengths.length + codings.length > 1) {
    return 'bad'
  }
  if (codings.length > 0) {
    return codings[0]?.toLowerCase() === 'chunked' ? readChunks(bytes, end) : 'bad'
  }
  if (!/^\d+$/.test(lengths[0] ?? '')) {
    return 'bad'
  }
  const bodyEnd = end + Number(lengths[0])
  if (bytes.length < bodyEnd) {
    return undefined
  }
  return { content: bytes.subarray(end, bodyEnd), trailers: [], end: bodyEnd }
}

function readChunks(bytes: Buffer, at: number): Read<Body> {
  const parts: Buffer[] = []
  let chunk = readChunk(bytes, at)
  while (typeof chunk === 'object' && chunk.data.length > 0) {
    parts.push(chunk.data)
    chunk = readChunk(bytes, chunk.end)
  }
  if (typeof chunk !== 'object') {
    return chunk
  }
  const trailers = readFields(bytes, chunk.end)
  if (typeof trailers !== 'object') {
    return trailers
  }
  return { content: Buffer.concat(parts), trailers: trailers.fields, end: trailers.end }
}

/** Reads one chunk. Of the last one, which has no data, only its first line. */
function readChunk(bytes: Buffer, at: number): Read<{ readonly data: Buffer; readonly end: number }> {
  const lineEnd = bytes.indexOf('\r\n', at)
  if (lineEnd < 0) {
    return undefined
  }
  const line = bytes.toString('latin1', at, lineEnd)
  const digits = /^([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?$/.exec(line)?.[1]
  if (digits === undefined) {
    return 'bad'
  }
  const dataStart = lineEnd + 2
  const size = Number.parseInt(digits, 16)
  if (size === 0) {
    return { data: NO_BYTES, end: dataStart }
  }
  const dataEnd = dataStart + size
  if (bytes.length < dataEnd + 2) {
    return undefined
  }
  if (bytes.toString('latin1', dataEnd, dataEnd + 2) !== '\r\n') {
    return 'bad'
  }
  return { data: bytes.subarray(dataStart, dataEnd), end: dataEnd + 2 }
}

/** The values of all lines of a name, which is in lower case. */
export function valuesOf(fields: readonly Field[], name: string): string[] {
  return fields.filter((field) => field.name.toLowerCase() === name).map(({ value }) => value)
}

export interface Response extends Body {
  readonly status: number
  readonly reason: string
  readonly fields: readonly Field[]
  /** Whether a length or chunks tell where the body ends; otherwise it ends with the connection. */
  readonly framed: boolean
  /** Whether all of the announced body is there. */
  readonly complete: boolean
}

/**
 * Reads a response, with what there is of its body.
 * One to HEAD is known by `isHead`, or by the bytes after its head.
 */
export function readResponse(
  bytes: Buffer,
  at: number,
  isHead: (fields: readonly Field[], rest: string) => boolean,
): Read<Response> {
  const head = readHead(bytes, at)
  if (typeof head !== 'object') {
    return head
  }
  const { fields, end } = head
  const [, digits, reason = ''] = /^HTTP\/1\.1 (\d{3}) ([\t\x20-\x7e\x80-\xff]*)$/.exec(head.start) ?? []
  if (digits === undefined) {
    return 'bad'
  }
  const status = Number(digits)
  const common = { status, reason, fields, framed: true, complete: true }
  const bodiless = status < 200 || status === 204 || status === 304
  if (bodiless || isHead(fields, bytes.toString('latin1', end, end + 1))) {
    return { ...common, content: NO_BYTES, trailers: [], end }
  }
  const rest = { content: bytes.subarray(end), trailers: [], end: bytes.length }
  const names = ['content-length', 'transfer-encoding']
  const framed = names.some((name) => valuesOf(fields, name).length > 0)
  if (!framed) {
    return { ...common, ...rest, framed, complete: false }
  }
  const body = readBody(bytes, head)
  if (body === 'bad') {
    return 'bad'
  }
  return { ...common, ...(body ?? rest), complete: body !== undefined }
}

/** A message as tests look at it. */
export interface Message {
  /** Names and values alternating, spelled as they came. */
  readonly rawHeaders: readonly string[]
  /** By lower-cased name; the values of a repeated header are joined with `, `. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: Buffer
  readonly rawTrailers: readonly string[]
}

export function messageOf(fields: readonly Field[], { content, trailers }: Body): Message {
  const alternating = (all: readonly Field[]) => all.flatMap(({ name, value }) => [name, value])
  const headers: Record<string, string> = {}
  for (const { name } of fields) {
    headers[name.toLowerCase()] ??= valuesOf(fields, name.toLowerCase()).join(', ')
  }
  return { rawHeaders: alternating(fields), headers, body: content, rawTrailers: alternating(trailers) }
}
