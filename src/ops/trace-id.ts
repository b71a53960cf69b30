/** The trace of a request (W3C Trace Context), for log lines. The header itself is forwarded unread. */

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[^,]*)?$/
const ZEROS = /^0+$/

/**
 * Returns the trace id of a `traceparent` (section 3.2), or undefined if the header is invalid.
 * Version `ff` and ids of zeros are invalid. Versions above `00` may add fields.
 * Node joins repeated headers by a comma, which is invalid, too.
 */
export function traceIdOf(traceparent: string | string[] | undefined): string | undefined {
  const match = TRACEPARENT.exec(String(traceparent))
  if (match === null) {
    return undefined
  }
  const [, version = 'ff', traceId = '', parentId = '', more] = match
  const isKnownForm = version !== 'ff' && !(version === '00' && more !== undefined)
  const hasIds = !ZEROS.test(traceId) && !ZEROS.test(parentId)
  return isKnownForm && hasIds ? traceId : undefined
}
