/**
 * The download half of a transfer: streams the upstream's response to the client (RFC 9110, section 7.6).
 * In: a `PartialResponse` after each read.
 * Out: the response without hop-by-hop and identity headers, with `X-Request-Id`.
 * Memory: one read buffer, because the upstream's socket is paused while the client does not read.
 */
import type { SidecarResponse } from '../client/response.ts'
import { forwardedTrailers } from '../http/headers.ts'
import { sendHead } from '../http/node-http.ts'
import { MAX_COPIED } from '../upstream/buffers.ts'
import type { PartialResponse, UpstreamHead } from '../upstream/response-parser.ts'

/** Forwards informational responses (RFC 9110, section 15.2). HTTP/1.0 has none. */
export function writeInformational(res: SidecarResponse, response: PartialResponse): void {
  for (const head of response.takeInformational()) {
    if (res.req.httpVersionMinor > 0) {
      res.sendInformational(head.status, head.statusText, forwardedHeaders(head, false))
    }
  }
}

/** Node sends the head only once `relayBody` is called. */
export function writeResponseHead(res: SidecarResponse, head: UpstreamHead): void {
  const { httpVersionMinor, context } = res.req
  const isChunked = head.framing === 'chunked'
  const readsChunks = httpVersionMinor > 0
  const headers = responseHeaders(head, context.id, { hasTrailers: isChunked && readsChunks })
  const isCloseDelimited = head.framing === 'close' || (isChunked && !readsChunks)
  res.begin(head.status, head.statusText, headers, isCloseDelimited ? 'closeDelimited' : 'keepAlive')
}

/**
 * Writes the parsed part of the body, and the end of a complete response.
 * Returns false if the client must read first.
 */
export function relayBody(res: SidecarResponse, head: UpstreamHead, response: PartialResponse): boolean {
  const { isDone, body } = response
  const { length } = body
  res.req.context.count('out', length)
  if (isDone && head.framing === 'length' && length <= MAX_COPIED) {
    // Node sends a string, but no buffer, in one write with the head.
    res.writeEndAfterReads(body.takeText())
    return true
  }
  if (length === 0 && !isDone) {
    sendHead(res) // no effect once the head is sent
  }
  const isWritable = body.writeTo(res)
  if (isDone) {
    res.writeEnd('', forwardedTrailers(response.rawTrailers, head.lines))
  }
  return isWritable
}

/** `hasTrailers`: trailers may follow, and the client can receive them. Only then is `Trailer` forwarded. */
export function responseHeaders(head: UpstreamHead, requestId: string, { hasTrailers = false } = {}) {
  const headers = forwardedHeaders(head, hasTrailers)
  headers.push('X-Request-Id', requestId)
  return headers
}

function forwardedHeaders(head: UpstreamHead, hasTrailers: boolean): string[] {
  const { lines } = head
  const headers: string[] = []
  let lengthAt = -1
  for (let line = 0; line < lines.kinds.length; line++) {
    if (!isForwarded(line, head, hasTrailers)) {
      continue
    }
    const kind = lines.kinds[line]
    if (kind === 'contentLength') {
      lengthAt = headers.length
    }
    if (kind === 'contentDisposition' && lengthAt >= 0) {
      // Node writes a value after Content-Length as UTF-8, or throws (nodejs/node#46528).
      headers.splice(lengthAt, 0, lines.name(line), lines.value(line))
      lengthAt += 2
    } else {
      headers.push(lines.name(line), lines.value(line))
    }
  }
  return headers
}

function isForwarded(line: number, { lines, status }: UpstreamHead, hasTrailers: boolean): boolean {
  const { response } = lines.rule(line)
  switch (response) {
    case 'remove':
      return false
    case 'ifMayHaveBody':
      // RFC 9110, section 8.6, forbids Content-Length on 1xx and 204: some clients would wait for a body.
      return status >= 200 && status !== 204
    case 'ifChunked':
      return hasTrailers && !lines.isNamedByConnection(line)
    case 'forward':
      return !lines.isNamedByConnection(line)
  }
}
