/** The `traceparent` of a request (W3C Trace Context): the trace that it belongs to. */
import { flatCopy } from '../http/headers.ts'

export interface TraceParent {
  readonly traceId: string
  /** The id of the caller's span. */
  readonly spanId: string
  /** The bits of `TRACE_FLAGS`, which the last digit holds. The others have no meaning. */
  readonly flags: number
}

/** `random`: the trace id is random, so that samplers may decide by it (Trace Context, level 2). */
export const TRACE_FLAGS = { sampled: 1, random: 2 } as const

/** `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits. Later versions may add `-` and more. */
const LENGTH = 55
const NO_TRACE_ID = '0'.repeat(32)
const NO_SPAN_ID = '0'.repeat(16)

const NO_DIGIT = 0xff
/** The values of lower-case hexadecimal digits, by character code. */
const DIGITS = new Uint8Array(256).fill(NO_DIGIT)
for (const [value, digit] of [...'0123456789abcdef'].entries()) {
  DIGITS[digit.charCodeAt(0)] = value
}

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
  return { traceId, spanId, flags: digitAt(text, LENGTH - 1) }
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
 * By a table: a regular expression would take half of the time that a request that is not sampled may cost.
 */
function isHex(text: string, start: number, end: number): boolean {
  for (let at = start; at < end; at++) {
    if (digitAt(text, at) === NO_DIGIT) {
      return false
    }
  }
  return true
}

function digitAt(text: string, at: number): number {
  return DIGITS[text.charCodeAt(at)] ?? NO_DIGIT
}
