/**
 * The download half of a transfer: the upstream's response, streamed to the client (RFC 9110, section 7.6).
 * In: what the parser has found in each read of the upstream's connection (`Transfer.onRead`). Out: the response without
 * hop-by-hop and identity headers, with `X-Request-Id`, and with `Connection: close` where no request can follow
 * (`client/response.ts`). Node adds `Keep-Alive`, the framing of chunks, and `Date` where the upstream sent none.
 * Memory: one read buffer, by backpressure.
 */
import type { Socket } from 'node:net'
import type { Writable } from 'node:stream'
import { sendHead } from '../client/node-http.ts'
import type { SidecarResponse } from '../client/response.ts'
import { forwardedTrailers } from '../http/headers.ts'
import type { ResponseParser, UpstreamHead } from './response-parser.ts'
import type { UpstreamConnection } from './upstream-connection.ts'

/** A chunk up to this size is copied; a larger one holds its read buffer until it is sent. */
const MAX_COPIED = 16 * 1024

export class Download {
  readonly #res: SidecarResponse
  /** The response, or the client's socket after a 101. */
  #out: Writable
  /** The head goes out in one write with the first bytes of the body. */
  #isHeadPending = false
  /** While it is the client, the upstream's socket is paused. */
  #waitsFor: 'client' | 'upstream' = 'upstream'

  constructor(res: SidecarResponse) {
    this.#res = res
    this.#out = res
  }

  get waitsFor(): 'client' | 'upstream' {
    return this.#waitsFor
  }

  /** The only informational response that is forwarded is 103, with its links (RFC 8297). HTTP/1.0 has none. */
  writeEarlyHints(response: ResponseParser): void {
    for (const hints of response.takeEarlyHints()) {
      if (this.#res.req.httpVersionMinor === 0) continue
      try {
        this.#res.writeEarlyHints({ link: hints.lines.values('link') })
      } catch {
        // Node refuses malformed links; hints are optional.
      }
    }
  }

  writeHead(head: UpstreamHead): void {
    const { httpVersionMinor, context } = this.#res.req
    const isChunked = head.framing === 'chunked'
    const readsChunks = httpVersionMinor > 0
    const headers = responseHeaders(head, context.id, { hasTrailers: isChunked && readsChunks })
    const isCloseDelimited = head.framing === 'close' || (isChunked && !readsChunks)
    const persistence = isCloseDelimited ? 'closeDelimited' : 'keepAlive'
    this.#res.begin(head.status, head.statusText, headers, persistence)
    this.#isHeadPending = true
  }

  switchTo(client: Socket): void {
    this.#out = client
  }

  /** Writes what has been parsed of the body, and reads on when the client has taken it. */
  writeBody(response: ResponseParser, connection: UpstreamConnection): void {
    const body = response.takeBody()
    if (body.length === 0 && this.#isHeadPending) sendHead(this.#res)
    this.#isHeadPending = false
    if (body.length === 0 || this.#write(body, connection) || this.#waitsFor === 'client') return
    this.#waitsFor = 'client'
    connection.socket.pause()
    this.#out.once('drain', () => {
      this.#waitsFor = 'upstream'
      connection.socket.resume()
    })
  }

  end(response: ResponseParser, head: UpstreamHead, connection: UpstreamConnection): void {
    const res = this.#res
    const body = response.takeBody()
    const [only] = body
    const isWhole = this.#isHeadPending && body.length === 1 && head.framing === 'length'
    if (isWhole && only !== undefined && only.length <= MAX_COPIED) {
      res.req.context.bytesOut += only.length
      // A string goes out in one write with the head, a buffer in a second one: 6 % of a request (Node 26).
      res.writeEnd(only.toString('latin1'))
      return
    }
    if (body.length > 0) this.#write(body, connection)
    if (head.status === 101) this.#out.end()
    else res.writeEnd('', forwardedTrailers(response.rawTrailers, head.lines))
  }

  /** Writes all chunks of one read at once, so that tiny upstream chunks do not cost one write each. */
  #write(body: readonly Buffer[], connection: UpstreamConnection): boolean {
    for (const { length } of body) this.#res.req.context.bytesOut += length
    const [first] = body
    if (first === undefined || body.length > 1 || first.length <= MAX_COPIED)
      return this.#out.write(Buffer.concat(body))
    return this.#out.write(first, connection.readBuffer.hold())
  }
}

/** `hasTrailers`: the client can receive trailers, so `Trailer` is forwarded. */
export function responseHeaders(head: UpstreamHead, requestId: string, { hasTrailers = false } = {}) {
  const { lines, status } = head
  const headers: string[] = []
  let lengthAt = -1
  for (let line = 0; line < lines.kinds.length; line++) {
    const name = lines.name(line)
    const value = lines.value(line)
    switch (lines.rule(line).response) {
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
    }
    headers.push(name, value)
  }
  headers.push('X-Request-Id', requestId)
  return headers
}
