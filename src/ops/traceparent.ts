/** The `traceparent` of a request (W3C Trace Context): the trace that it belongs to. */
import { flatCopy } from '../http/headers.ts'

export interface TraceParent {
  readonly traceId: string
  /** The id of the caller's span. */
  readonly spanId: string
  /** The bits `TRACE_FLAGS`, and others, which have no meaning. */
  readonly flags: number
}

/** `random`: the trace id is, which samplers may use (level 2). */
export const TRACE_FLAGS = { sampled: 1, random: 2 } as const

/** `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits. Later versions may add `-` and more. */
const LENGTH = 55

/**
 * Reads a `traceparent` (section 3.2). Returns undefined if it is invalid.
 * Version `ff` and ids of zeros are invalid.
 * Node joins repeated headers by a comma, which is invalid, too.
 */
export function readTraceparent(header: string | string[] | undefined): TraceParent | undefined {
  // Without a regular expression: it would take half of the time that a request that is not sampled may cost.
  if (typeof header !== 'string' || !hasForm(header) || !hasIds(header)) {
    return undefined
  }
  const text = header.length > LENGTH ? flatCopy(header.slice(0, LENGTH)) : header
  return {
    traceId: text.slice(3, 35),
    spanId: text.slice(36, 52),
    flags: Number.parseInt(text.slice(53), 16),
  }
}

export const traceIdOf = (header: string | string[] | undefined): string | undefined =>
  readTraceparent(header)?.traceId

function hasForm(text: string): boolean {
  if (text[2] !== '-' || text[35] !== '-' || text[52] !== '-' || text.startsWith('ff')) {
    return false
  }
  if (text.length > LENGTH) {
    return !text.startsWith('00') && text[LENGTH] === '-' && !text.includes(',')
  }
  return text.length === LENGTH
}

function hasIds(text: string): boolean {
  const version = readHex(text, 0, 2)
  const flags = readHex(text, 53, LENGTH)
  return (
    version !== 'none' && flags !== 'none' && readHex(text, 3, 35) === 'id' && readHex(text, 36, 52) === 'id'
  )
}

/** `none`: not all of the characters are lower-case hexadecimal digits. */
function readHex(text: string, from: number, to: number): 'none' | 'zeros' | 'id' {
  let found: 'zeros' | 'id' = 'zeros'
  for (let at = from; at < to; at++) {
    const code = text.charCodeAt(at)
    const isDigit = code >= 0x30 && code <= 0x39
    const isLetter = code >= 0x61 && code <= 0x66
    if (!isDigit && !isLetter) {
      return 'none'
    }
    if (code !== 0x30) {
      found = 'id'
    }
  }
  return found
}
