/** The trace id of W3C Trace Context, for log lines. */

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[^,]*)?$/
const ZEROS = /^0+$/

/**
 * Returns the trace id of a valid `traceparent` (W3C Trace Context, section 3.2).
 * Version `ff` and ids of zeros are invalid.
 * Versions above `00` may add fields. Node joins repeated headers by a comma, which is invalid, too.
 */
export function traceIdOf(traceparent: string | string[] | undefined): string | undefined {
  const [, version = 'ff', traceId = '', parentId = '', more] = TRACEPARENT.exec(String(traceparent)) ?? []
  const isValid = version !== 'ff' && !(version === '00' && more !== undefined)
  return isValid && !ZEROS.test(traceId) && !ZEROS.test(parentId) ? traceId : undefined
}
