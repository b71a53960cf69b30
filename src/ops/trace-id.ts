/** The `traceparent` of W3C Trace Context: whose trace a request belongs to. */

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[^,]*)?$/
const ZEROS = /^0+$/
const SAMPLED = 1

export interface TraceParent {
  readonly traceId: string
  /** The id of the caller's span. */
  readonly parentId: string
  readonly isSampled: boolean
}

/**
 * Reads a `traceparent` (W3C Trace Context, section 3.2). Returns undefined if it is invalid.
 * Version `ff` and ids of zeros are invalid.
 * Versions above `00` may add fields. Node joins repeated headers by a comma, which is invalid, too.
 */
export function parseTraceparent(traceparent: string | string[] | undefined): TraceParent | undefined {
  const match = TRACEPARENT.exec(String(traceparent))
  if (match === null) {
    return undefined
  }
  const [, version = 'ff', traceId = '', parentId = '', flags = '', more] = match
  const isKnownForm = version !== 'ff' && !(version === '00' && more !== undefined)
  if (!isKnownForm || ZEROS.test(traceId) || ZEROS.test(parentId)) {
    return undefined
  }
  return { traceId, parentId, isSampled: (Number.parseInt(flags, 16) & SAMPLED) === SAMPLED }
}

/** The trace id of a valid `traceparent`, for log lines. */
export const traceIdOf = (traceparent: string | string[] | undefined) =>
  parseTraceparent(traceparent)?.traceId
