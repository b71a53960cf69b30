/** Reads bytes as the response of an upstream, in one piece or in many. */
import { ReadBuffers, ReceivedBody } from '../../src/upstream/buffers.ts'
import { ResponseParser, type UpstreamHead } from '../../src/upstream/response-parser.ts'

const LIMITS = { headerBytes: 16 * 1024, headerLines: 200 }

export interface How {
  /** Offsets at which the bytes are split. */
  readonly cuts?: readonly number[]
  /** The request was HEAD. */
  readonly isHead?: boolean
  /** The request was a WebSocket handshake. */
  readonly isWebSocket?: boolean
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
  error?: string
}

/** Reads Latin-1 text. */
export function read(
  bytes: string,
  { cuts = [], isHead = false, isWebSocket = false, closes, limits = LIMITS }: How = {},
): Reading {
  const reading: Reading = { informational: [], body: '' }
  const parser = new ResponseParser(limits, new ReceivedBody(new ReadBuffers()))
  parser.start(isHead, isWebSocket)
  const isOver = () => parser.isDone || parser.syntaxError !== undefined
  let start = 0
  let isReadToEnd = true
  for (const end of [...cuts.toSorted((a, b) => a - b), bytes.length]) {
    if (!isOver()) {
      isReadToEnd = parser.push(Buffer.from(bytes.slice(start, end), 'latin1'))
      start = end
    }
  }
  if (closes && !isOver()) {
    parser.close()
  }
  if (parser.isDone) {
    reading.hasMore = !isReadToEnd || start < bytes.length
  }
  const { head, syntaxError } = parser
  if (head !== undefined) {
    reading.head = head
  }
  if (syntaxError !== undefined) {
    reading.error = syntaxError
  }
  reading.informational.push(...parser.takeInformational())
  reading.body = parser.body.takeText()
  if (parser.isDone) {
    reading.trailers = parser.rawTrailers
  }
  return reading
}
