/** The trace id of a request's `traceparent` (W3C Trace Context, section 3.2), for log lines. */

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[^,]*)?$/
const ZEROS = /^0+$/

/**
 * Undefined without a valid one. Version `ff` and ids of zeros alone are invalid; versions above `00` may add fields.
 * @param traceparent - as Node joins it: a header that came twice has a comma
 */
export function traceIdOf(traceparent: string | string[] | undefined): string | undefined {
  const [, version = 'ff', traceId = '', parentId = '', more] = TRACEPARENT.exec(String(traceparent)) ?? []
  const isValid = version !== 'ff' && !(version === '00' && more !== undefined)
  return isValid && !ZEROS.test(traceId) && !ZEROS.test(parentId) ? traceId : undefined
}
