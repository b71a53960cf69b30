/**
 * Where a request's body ends: one header says so, in one spelling, or the request is refused (RFC 9112, section 6).
 *
 * @module
 */

/** A plain decimal number of bytes that a double holds exactly: one spelling for one length. */
export function isContentLength(value: string): boolean {
  if (value.length === 0 || value.length > 15) return false
  if (value.length > 1 && value.charCodeAt(0) === 0x30) return false
  for (let at = 0; at < value.length; at++) {
    const code = value.charCodeAt(at)
    if (code < 0x30 || code > 0x39) return false
  }
  return true
}

/** The one transfer coding that is taken: a list of codings has as many readings as there are parsers. */
export function isChunked(value: string): boolean {
  return value.toLowerCase() === 'chunked'
}

/**
 * Whether the two headers together leave no doubt. HTTP/1.0 knows no chunks: what follows could be read as a body or
 * as a request (section 6.1).
 */
export function isOneFraming(
  contentLength: string | undefined,
  transferEncoding: string | undefined,
  http10: boolean,
): boolean {
  return transferEncoding === undefined || (!http10 && contentLength === undefined)
}
