/**
 * HTTP/1.1 messages by the letter of RFC 9110 and RFC 9112, independent of the program's own readers: what judges the
 * sidecar must not share its code. Bytes are Latin-1 text, one character each.
 */

export interface Field {
  readonly name: string
  /** Without the white space around it. */
  readonly value: string
}

export interface Head {
  readonly start: string
  readonly fields: readonly Field[]
  /** The position after the empty line. */
  readonly end: number
}

export interface Body {
  readonly content: string
  readonly end: number
}

/** `undefined`: more bytes are needed. `bad`: no continuation is a valid message. */
type Read<T> = T | 'bad' | undefined

/** Reads a start line and the field lines. */
export function readHead(bytes: string, at: number): Read<Head> {
  const lineEnd = bytes.indexOf('\r\n', at)
  if (lineEnd < 0) return undefined
  const fields = readFields(bytes, lineEnd + 2)
  return typeof fields === 'object' ? { start: bytes.slice(at, lineEnd), ...fields } : fields
}

function readFields(bytes: string, at: number): Read<Omit<Head, 'start'>> {
  const fields: Field[] = []
  for (let start = at; ; ) {
    const lineEnd = bytes.indexOf('\r\n', start)
    if (lineEnd < 0) return undefined
    const line = bytes.slice(start, lineEnd)
    start = lineEnd + 2
    if (line === '') return { fields, end: start }
    const [, name = '', value = ''] =
      /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t\x20-\x7e\x80-\xff]*)$/.exec(line) ?? []
    if (name === '') return 'bad'
    fields.push({ name, value: value.replace(/^[ \t]+|[ \t]+$/g, '') })
  }
}

/** Reads the body that the fields announce, none where they announce none. */
export function readBody(bytes: string, { fields, end }: Head): Read<Body> {
  const lengths = valuesOf(fields, 'content-length')
  const codings = valuesOf(fields, 'transfer-encoding')
  if (lengths.length + codings.length === 0) return { content: '', end }
  if (lengths.length + codings.length > 1) return 'bad'
  if (codings.length > 0) return codings[0]?.toLowerCase() === 'chunked' ? readChunks(bytes, end) : 'bad'
  if (!/^\d+$/.test(lengths[0] ?? '')) return 'bad'
  const bodyEnd = end + Number(lengths[0])
  return bytes.length < bodyEnd ? undefined : { content: bytes.slice(end, bodyEnd), end: bodyEnd }
}

function readChunks(bytes: string, at: number): Read<Body> {
  let content = ''
  for (let start = at; ; ) {
    const lineEnd = bytes.indexOf('\r\n', start)
    if (lineEnd < 0) return undefined
    const digits = /^([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?$/.exec(bytes.slice(start, lineEnd))?.[1]
    if (digits === undefined) return 'bad'
    const size = Number.parseInt(digits, 16)
    if (size === 0) {
      const trailers = readFields(bytes, lineEnd + 2)
      return typeof trailers === 'object' ? { content, end: trailers.end } : trailers
    }
    const dataEnd = lineEnd + 2 + size
    if (bytes.length < dataEnd + 2) return undefined
    if (bytes.slice(dataEnd, dataEnd + 2) !== '\r\n') return 'bad'
    content += bytes.slice(lineEnd + 2, dataEnd)
    start = dataEnd + 2
  }
}

/** The values of all lines of a name, which is in lower case. */
export function valuesOf(fields: readonly Field[], name: string): string[] {
  return fields.filter((field) => field.name.toLowerCase() === name).map(({ value }) => value)
}

export interface Response {
  readonly status: number
  readonly fields: readonly Field[]
  readonly content: string
  /** Whether all of the announced body arrived. */
  readonly complete: boolean
}

/**
 * Reads the responses that a client received up to the end of its connection, without interim ones. A response to HEAD
 * is known by `isHead`, or by the bytes after its head.
 */
export function readResponses(
  bytes: string,
  isHead: (fields: readonly Field[], rest: string) => boolean,
): Response[] | 'bad' {
  const responses: Response[] = []
  for (let at = 0; at < bytes.length; ) {
    const head = readHead(bytes, at)
    if (head === undefined)
      return /^HTTP\/1\.1 |^H?T?T?P?\/?1?\.?1?$/.test(bytes.slice(at)) ? responses : 'bad'
    const status = Number(
      /^HTTP\/1\.1 (\d{3}) [\t\x20-\x7e\x80-\xff]*$/.exec(head === 'bad' ? '' : head.start)?.[1],
    )
    if (head === 'bad' || Number.isNaN(status)) return 'bad'
    at = head.end
    if (status < 200) continue
    const { fields } = head
    const bodiless = status === 204 || status === 304 || isHead(fields, bytes.slice(at, at + 1))
    const framed = ['content-length', 'transfer-encoding'].some((name) => valuesOf(fields, name).length > 0)
    if (bodiless) {
      responses.push({ status, fields, content: '', complete: true })
    } else if (!framed) {
      responses.push({ status, fields, content: bytes.slice(at), complete: false })
      at = bytes.length
    } else {
      const body = readBody(bytes, head)
      if (body === 'bad') return 'bad'
      responses.push({
        status,
        fields,
        content: body?.content ?? bytes.slice(at),
        complete: body !== undefined,
      })
      at = body?.end ?? bytes.length
    }
  }
  return responses
}
