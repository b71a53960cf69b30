/** The `traceparent` of a request (W3C Trace Context): the trace that it belongs to. */

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[^,]*)?$/
const ZEROS = /^0+$/

export interface TraceParent {
  readonly traceId: string
  /** The id of the caller's span. */
  readonly spanId: string
  /** The bits `TRACE_FLAGS`, and others, which have no meaning. */
  readonly flags: number
}

/** `random`: the trace id is, which samplers may use (level 2). */
export const TRACE_FLAGS = { sampled: 1, random: 2 } as const

/**
 * Reads a `traceparent` (section 3.2). Returns undefined if it is invalid.
 * Version `ff` and ids of zeros are invalid. Versions above `00` may add fields.
 * Node joins repeated headers by a comma, which is invalid, too.
 */
export function readTraceparent(traceparent: string | string[] | undefined): TraceParent | undefined {
  const match = TRACEPARENT.exec(String(traceparent))
  if (match === null) {
    return undefined
  }
  const [, version = 'ff', traceId = '', spanId = '', flags = '', more] = match
  const isKnownForm = version !== 'ff' && !(version === '00' && more !== undefined)
  const hasIds = !ZEROS.test(traceId) && !ZEROS.test(spanId)
  return isKnownForm && hasIds ? { traceId, spanId, flags: Number.parseInt(flags, 16) } : undefined
}

export const traceIdOf = (traceparent: string | string[] | undefined): string | undefined =>
  readTraceparent(traceparent)?.traceId
