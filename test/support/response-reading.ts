/** Reads bytes as the response of an upstream, in one piece or in many. */
import { ResponseParser, type UpstreamHead } from '../../src/proxy/response-parser.ts'
import { ResponseSyntaxError } from '../../src/proxy/upstream-errors.ts'

export const LIMITS = { headerBytes: 16 * 1024, headerLines: 200 }

export interface How {
  /** Offsets at which the bytes are split. */
  readonly cuts?: readonly number[]
  /** The request was HEAD. */
  readonly isHead?: boolean
  /** The upstream closes after the bytes. */
  readonly closes?: boolean
  readonly limits?: typeof LIMITS
}

export interface Reading {
  readonly informational: UpstreamHead[]
  head?: UpstreamHead
  body: string
  /** Set when the response is complete. */
  trailers?: readonly string[]
  /** Bytes followed the response. */
  hasMore?: boolean
  fault?: string
}

/** Reads Latin-1 text. Errors other than those of syntax are thrown. */
export function read(
  bytes: string,
  { cuts = [], isHead = false, closes, limits = LIMITS }: How = {},
): Reading {
  const reading: Reading = { informational: [], body: '' }
  const parser = new ResponseParser(limits)
  parser.start(
    {
      onInformational: (head) => reading.informational.push(head),
      onHead(head) {
        reading.head = head
      },
      onBody(chunk) {
        reading.body += chunk.toString('latin1')
      },
      onEnd(trailers) {
        reading.trailers = trailers
      },
    },
    isHead,
  )
  const places = [0, ...cuts.toSorted((a, b) => a - b), bytes.length]
  try {
    for (let n = 1; n < places.length && !parser.done; n++) {
      const all = parser.push(Buffer.from(bytes.slice(places[n - 1], places[n]), 'latin1'))
      if (parser.done) reading.hasMore = !all || (places[n] ?? 0) < bytes.length
    }
    if (closes && !parser.done && parser.close()) reading.hasMore = false
  } catch (error) {
    if (!(error instanceof ResponseSyntaxError)) throw error
    reading.fault = error.message
  }
  return reading
}
