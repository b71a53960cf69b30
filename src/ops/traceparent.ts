/** The `traceparent` of a request (W3C Trace Context): the trace that it belongs to. */
import { flatCopy } from '../http/headers.ts'

export interface TraceParent {
  readonly traceId: string
  /** The id of the caller's span. */
  readonly spanId: string
  /** The bits of `TRACE_FLAGS`. Other bits have no meaning. */
  readonly flags: number
}

/** `random`: the trace id is random, so that samplers may decide by it (Trace Context, level 2). */
export const TRACE_FLAGS = { sampled: 1, random: 2 } as const

/** `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits. Later versions may add `-` and more. */
const LENGTH = 55
const NO_TRACE_ID = '0'.repeat(32)
const NO_SPAN_ID = '0'.repeat(16)

/**
 * Reads a `traceparent` (section 3.2). Returns undefined if it is invalid.
 * Version `ff` and ids of zeros are invalid.
 * Node joins repeated headers by a comma, which is invalid, too.
 */
export function readTraceparent(header: string | string[] | undefined): TraceParent | undefined {
  if (typeof header !== 'string' || !hasForm(header)) {
    return undefined
  }
  // Parts of a long header would keep all of it in memory.
  const text = header.length > LENGTH ? flatCopy(header.slice(0, LENGTH)) : header
  if (!isHex(text, 0, 2) || !isHex(text, 3, 35) || !isHex(text, 36, 52) || !isHex(text, 53, LENGTH)) {
    return undefined
  }
  const traceId = text.slice(3, 35)
  const spanId = text.slice(36, 52)
  if (traceId === NO_TRACE_ID || spanId === NO_SPAN_ID) {
    return undefined
  }
  return { traceId, spanId, flags: Number.parseInt(text.slice(53), 16) }
}

export const traceIdOf = (header: string | string[] | undefined): string | undefined =>
  readTraceparent(header)?.traceId

/** Checks the length, the separators, and that the version is not `ff`. */
function hasForm(text: string): boolean {
  if (text[2] !== '-' || text[35] !== '-' || text[52] !== '-' || text.startsWith('ff')) {
    return false
  }
  if (text.length > LENGTH) {
    return !text.startsWith('00') && text[LENGTH] === '-' && !text.includes(',')
  }
  return text.length === LENGTH
}

/**
 * Whether all characters from `start` to `end` are lower-case hexadecimal digits.
 * Not by a regular expression: it would take half of the time that a request that is not sampled may cost.
 */
function isHex(text: string, start: number, end: number): boolean {
  for (let at = start; at < end; at++) {
    const code = text.charCodeAt(at)
    const isDigit = code >= 0x30 && code <= 0x39
    const isLetter = code >= 0x61 && code <= 0x66
    if (!isDigit && !isLetter) {
      return false
    }
  }
  return true
}
