/** Header lines as received, each with its kind; the options of `Connection`, the token and the ids that they hold. */
import { randomUUID } from 'node:crypto'
import { HEADER_RULES, type HeaderKind, headerKind, type Rule } from './header-rules.ts'

/** Names and values, alternating. */
export type HeaderList = readonly string[]

/** The header lines of a message as received, each with its kind. An object for each line would cost more. */
export class HeaderLines {
  readonly raw: HeaderList
  /** One for each line. */
  readonly kinds: readonly HeaderKind[]
  readonly connectionOptions: ConnectionOptions | undefined

  constructor(raw: HeaderList) {
    const kinds: HeaderKind[] = []
    for (let at = 0; at < raw.length; at += 2) kinds.push(headerKind(raw[at] as string))
    this.raw = raw
    this.kinds = kinds
    this.connectionOptions = parseConnection(this.joined('connection'))
  }

  name(line: number): string {
    return this.raw[2 * line] as string
  }

  value(line: number): string {
    return this.raw[2 * line + 1] as string
  }

  rule(line: number): Rule {
    return HEADER_RULES[this.kinds[line] as HeaderKind]
  }

  /** It is for the next hop alone (RFC 9110, section 7.6.1). */
  isNamedByConnection(line: number): boolean {
    return this.connectionOptions?.has(this.name(line).toLowerCase()) === true
  }

  /** @param name - in lower case */
  values(name: string): string[] {
    return this.raw.filter((_, at) => at % 2 === 1 && this.raw[at - 1]?.toLowerCase() === name)
  }

  /** The values of a kind. Repeated lines are one list (RFC 9110, section 5.3). */
  joined(kind: HeaderKind): string | undefined {
    let list: string | undefined
    for (let line = this.kinds.indexOf(kind); line >= 0; line = this.kinds.indexOf(kind, line + 1))
      list = list === undefined ? this.value(line) : `${list},${this.value(line)}`
    return list
  }
}

export function headerLines(headers: HeaderList): string {
  let lines = ''
  for (let at = 0; at < headers.length; at += 2) lines += `${headers[at]}: ${headers[at + 1]}\r\n`
  return lines
}

/** The options of `Connection` (RFC 9110, section 7.6.1), in lower case: `close`, or the name of a hop-by-hop field. */
type ConnectionOptions = ReadonlySet<string>
const ONLY_CLOSE: ConnectionOptions = new Set(['close'])

/** `value`: of one line, or of several, joined by commas. `keep-alive` alone says what HTTP/1.1 does anyway. */
function parseConnection(value: string | undefined): ConnectionOptions | undefined {
  const lower = value?.toLowerCase()
  if (lower === undefined || lower === 'keep-alive') return undefined
  if (lower === 'close') return ONLY_CLOSE // 2 % of a new connection (Node 26)
  return new Set(Array.from(lower.split(','), (option) => option.trim()).filter(Boolean))
}

/** Whether removing the named fields would change framing or identity. */
export function namesFramingOrIdentity(options: ConnectionOptions): boolean {
  for (const option of options) {
    const kind = headerKind(option)
    const { lookAlike } = HEADER_RULES[kind]
    if (kind === 'identity' || kind === 'refusedLookAlike' || lookAlike === 'refusedLookAlike') return true
  }
  return false
}

/** @param dropDeciding - whether to drop those on which a decision of the gate would depend */
export function forwardedTrailers(
  rawTrailers: HeaderList,
  { connectionOptions }: HeaderLines,
  dropDeciding = false,
): [name: string, value: string][] {
  const trailers: [string, string][] = []
  for (let at = 0; at < rawTrailers.length; at += 2) {
    const name = rawTrailers[at] as string
    const { trailer } = HEADER_RULES[headerKind(name)]
    const passes = trailer === 'forward' || (trailer === 'unlessDeciding' && !dropDeciding)
    if (passes && !connectionOptions?.has(name.toLowerCase()))
      trailers.push([name, rawTrailers[at + 1] as string])
  }
  return trailers
}

/** The token of `Authorization` behind the scheme, in any case, and spaces (RFC 6750, section 2.1). A list is no token. */
export function bearerToken(authorization: string | undefined): string | undefined {
  if (authorization === undefined || authorization.charCodeAt(6) !== 0x20) return undefined
  const scheme = authorization.slice(0, 6)
  if (scheme !== 'Bearer' && scheme.toLowerCase() !== 'bearer') return undefined
  let start = 7
  while (authorization.charCodeAt(start) === 0x20) start++
  return start < authorization.length ? authorization.slice(start) : undefined
}

/** Safe in a header, in a log line and in a shell. */
const REQUEST_ID = /^[A-Za-z0-9._-]{1,128}$/

/** The client's id, if it sent exactly one that is valid: two would have a comma. */
export function requestIdOf(lines: HeaderLines): string | undefined {
  const id = lines.joined('requestId')
  return id !== undefined && REQUEST_ID.test(id) ? id : undefined
}

export const newRequestId: () => string = randomUUID

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[^,]*)?$/
const ZEROS = /^0+$/

/**
 * The trace id of a valid `traceparent` (W3C Trace Context, section 3.2): version `ff` and ids of zeros are invalid, and
 * versions above `00` may add fields. Node joins repeated headers by a comma, which is invalid, too.
 */
export function traceIdOf(traceparent: string | string[] | undefined): string | undefined {
  const [, version = 'ff', traceId = '', parentId = '', more] = TRACEPARENT.exec(String(traceparent)) ?? []
  const isValid = version !== 'ff' && !(version === '00' && more !== undefined)
  return isValid && !ZEROS.test(traceId) && !ZEROS.test(parentId) ? traceId : undefined
}
