/**
 * Header rules towards the client (RFC 9110, section 7.6).
 * In: the upstream's response head. Out: the header list for the client: the same order and multiplicity, without
 * hop-by-hop headers and identity headers (an upstream that echoes its request would leak them).
 */
import { type ConnectionOptions, HeaderKind, isTrailer } from '../http/headers.ts'
import type { UpstreamHead } from './response-parser.ts'

type HeadLines = Pick<UpstreamHead, 'rawHeaders' | 'kinds' | 'connectionOptions'>

/** Returns names and values, alternating. `hasTrailers`: the client can receive trailers, so `Trailer` is forwarded. */
export function responseHeaders(
  head: HeadLines & Pick<UpstreamHead, 'status'>,
  requestId: string,
  hasTrailers: boolean,
): string[] {
  const { rawHeaders, kinds, connectionOptions, status } = head
  const headers: string[] = []
  let lengthAt = -1
  for (let line = 0; line < kinds.length; line++) {
    const name = rawHeaders[2 * line] as string
    const value = rawHeaders[2 * line + 1] as string
    switch (kinds[line]) {
      case HeaderKind.connection:
      case HeaderKind.keepAlive:
      case HeaderKind.hopByHop:
      case HeaderKind.transferEncoding:
      case HeaderKind.upgrade:
      case HeaderKind.requestId:
      case HeaderKind.identity:
        continue
      case HeaderKind.contentLength:
        // Not allowed on 1xx and 204 (RFC 9110, section 8.6): some clients wait for the body.
        if (status < 200 || status === 204) continue
        lengthAt = headers.length
        break
      case HeaderKind.trailer:
        if (!hasTrailers || connectionOptions?.has('trailer')) continue
        break
      default:
        if (connectionOptions?.has(name.toLowerCase())) continue
        // Moved before Content-Length: after it, Node writes this value as UTF-8 or throws (nodejs/node#46528).
        if (lengthAt >= 0 && name.length === 19 && name.toLowerCase() === 'content-disposition') {
          headers.splice(lengthAt, 0, name, value)
          lengthAt += 2
          continue
        }
    }
    headers.push(name, value)
  }
  headers.push('X-Request-Id', requestId)
  return headers
}

export function responseTrailers(
  rawTrailers: readonly string[],
  options: ConnectionOptions | undefined,
): [string, string][] {
  const trailers: [string, string][] = []
  for (let at = 0; at < rawTrailers.length; at += 2) {
    const name = rawTrailers[at] as string
    if (isTrailer(name, options)) trailers.push([name, rawTrailers[at + 1] as string])
  }
  return trailers
}
