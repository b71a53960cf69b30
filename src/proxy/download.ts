/**
 * The download half of a transfer: streams the upstream's response to the client (RFC 9110, section 7.6).
 * In: what the parser has found in one read. Out: the response without hop-by-hop and identity headers, with `X-Request-Id`.
 * `client/response.ts` adds `Connection: close`; Node adds `Keep-Alive`, chunks, and a missing `Date`.
 * Memory: one read buffer, because the upstream's socket is paused while the client does not read.
 */
import type { Writable } from 'node:stream'
import type { RequestContext } from '../client/context.ts'
import { sendHead } from '../client/node-http.ts'
import type { SidecarResponse } from '../client/response.ts'
import { forwardedTrailers } from '../http/headers.ts'
import type { ReadBuffer } from './read-buffer.ts'
import type { PartialResponse, UpstreamHead } from './response-parser.ts'

/** A chunk up to this size is copied. A larger one holds its read buffer until it is sent. */
const MAX_COPIED = 16 * 1024

/** The only informational response that is forwarded is 103, with its links (RFC 8297). HTTP/1.0 has none. */
export function writeEarlyHints(res: SidecarResponse, response: PartialResponse): void {
  for (const hints of response.takeEarlyHints()) {
    if (res.req.httpVersionMinor === 0) continue
    try {
      res.writeEarlyHints({ link: hints.lines.values('link') })
    } catch {
      // Node refuses malformed links; hints are optional.
    }
  }
}

/** Node sends the head in one write with the first bytes of the body. */
export function writeHead(res: SidecarResponse, head: UpstreamHead): void {
  const { httpVersionMinor, context } = res.req
  const isChunked = head.framing === 'chunked'
  const readsChunks = httpVersionMinor > 0
  const headers = responseHeaders(head, context.id, { hasTrailers: isChunked && readsChunks })
  const isCloseDelimited = head.framing === 'close' || (isChunked && !readsChunks)
  res.begin(head.status, head.statusText, headers, isCloseDelimited ? 'closeDelimited' : 'keepAlive')
}

/** Writes what has been parsed, and the end. Returns false if the client must read before the next bytes. */
export function relayBody(
  res: SidecarResponse,
  head: UpstreamHead,
  response: PartialResponse,
  buffer: ReadBuffer,
): boolean {
  const { isDone } = response
  const body = response.takeBody()
  const [only] = body.length === 1 ? body : []
  if (isDone && head.framing === 'length' && only !== undefined && only.length <= MAX_COPIED) {
    res.req.context.bytesOut += only.length
    // A string goes out in one write with the head, a buffer in a second one: 6 % of a request (Node 26).
    res.writeEnd(only.toString('latin1'))
    return true
  }
  if (body.length === 0 && !isDone) sendHead(res) // no effect once it is sent
  const isWritable = writeChunks(res, body, res.req.context, buffer)
  if (isDone) res.writeEnd('', forwardedTrailers(response.rawTrailers, head.lines))
  return isWritable
}

/** All chunks of one read go out at once: tiny chunks do not cost one write each. */
export function writeChunks(
  out: Writable,
  body: readonly Buffer[],
  context: RequestContext,
  buffer: ReadBuffer,
): boolean {
  for (const { length } of body) context.bytesOut += length
  const [first] = body
  if (first === undefined) return true
  const isCopied = body.length > 1 || first.length <= MAX_COPIED
  return isCopied ? out.write(Buffer.concat(body)) : out.write(first, buffer.hold())
}

/** `hasTrailers`: the client can receive trailers. Then `Trailer` is forwarded. */
export function responseHeaders(head: UpstreamHead, requestId: string, { hasTrailers = false } = {}) {
  const { lines, status } = head
  const headers: string[] = []
  let lengthAt = -1
  for (let line = 0; line < lines.kinds.length; line++) {
    const name = lines.name(line)
    const value = lines.value(line)
    const { response } = lines.rule(line)
    switch (response) {
      case 'remove':
        continue
      case 'ifMayHaveBody':
        // RFC 9110, section 8.6, forbids it on 1xx and 204: some clients would wait for a body.
        if (status < 200 || status === 204) continue
        lengthAt = headers.length
        break
      case 'ifChunked':
        if (!hasTrailers || lines.isNamedByConnection(line)) continue
        break
      case 'beforeLength':
        if (lines.isNamedByConnection(line)) continue
        if (lengthAt < 0) break // after Content-Length, Node writes the value as UTF-8 or throws (nodejs/node#46528)
        headers.splice(lengthAt, 0, name, value)
        lengthAt += 2
        continue
      case 'forward':
        if (lines.isNamedByConnection(line)) continue
        break
      default:
        response satisfies never
    }
    headers.push(name, value)
  }
  headers.push('X-Request-Id', requestId)
  return headers
}
