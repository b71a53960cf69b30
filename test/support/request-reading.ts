/**
 * What the reader of requests tells of bytes, collected.
 *
 * @module
 */
import { MessageFault } from '../../src/http1/message-fault.ts'
import type { MessageLimits } from '../../src/http1/message-reader.ts'
import { type RawRequestHead, type RequestBody, RequestReader } from '../../src/http1/request-reader.ts'

/** The limits of the default settings. */
export const LIMITS: MessageLimits = { headerBytes: 16384, headerLines: 200 }

/** How bytes are read. */
export interface How {
  /** Where the bytes are cut into chunks. */
  readonly cuts?: readonly number[]
  readonly limits?: MessageLimits
  /** What follows a head; by default what {@link bodyOf} says. */
  readonly follows?: (head: RawRequestHead) => RequestBody | undefined
}

/** What was told of one request. */
export interface Told extends Omit<RawRequestHead, 'isRemembered'> {
  body: string
  /** Where the end of the body was said with its last bytes. */
  last: boolean
  /** Undefined: no end was told. */
  trailers: readonly string[] | undefined
}

/** What was told of all bytes. */
export interface Reading {
  readonly requests: Told[]
  fault: string | undefined
  tooLarge: boolean
  /** What was left unread, since it was said that nothing follows that could be read. */
  left: string | undefined
  atHead: boolean
  isWithin: boolean
}

/** What follows a head, believing its first framing header: enough for requests that are well-formed. */
export function bodyOf({ rawHeaders }: Pick<RawRequestHead, 'rawHeaders'>): RequestBody {
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]?.toLowerCase()
    const value = rawHeaders[at + 1] ?? ''
    if (name === 'transfer-encoding') return { chunked: true, contentLength: 0 }
    if (name === 'content-length') return { chunked: false, contentLength: Number(value) || 0 }
  }
  return { chunked: false, contentLength: 0 }
}

/**
 * Reads bytes (Latin-1) as a connection does, checking what holds of any of them. Each chunk is read over once it has
 * been told, as the memory of a connection is.
 */
export function readRequests(
  bytes: string,
  { cuts = [], limits = LIMITS, follows = bodyOf }: How = {},
): Reading {
  const requests: Told[] = []
  let receiving: Told | undefined
  let leaves = false
  const reader = new RequestReader(
    {
      onHead: (head) => {
        if (receiving !== undefined || leaves) throw new Error('a head out of turn')
        const body = follows(head)
        const { isRemembered: _, ...line } = head
        const told: Told = { ...line, body: '', last: false, trailers: undefined }
        requests.push(told)
        if (body === undefined) leaves = true
        else receiving = told
        return body
      },
      onBody: (chunk, last) => {
        if (receiving === undefined || receiving.last || chunk.length === 0)
          throw new Error('a body out of nothing')
        receiving.body += chunk.toString('latin1')
        receiving.last = last
      },
      onEnd: (trailers) => {
        if (receiving === undefined) throw new Error('an end out of turn')
        receiving.trailers = trailers
        receiving = undefined
      },
    },
    limits,
  )
  const reading: Reading = {
    requests,
    fault: undefined,
    tooLarge: false,
    left: undefined,
    atHead: true,
    isWithin: false,
  }
  const edges = [0, ...[...cuts].sort((a, b) => a - b), bytes.length]
  try {
    for (let n = 1; n < edges.length; n++) {
      let rest = Buffer.from(bytes.slice(edges[n - 1], edges[n]), 'latin1')
      while (rest.length > 0 && !leaves) {
        const taken = reader.push(rest)
        if (taken < 0 || taken > rest.length) throw new Error(`took ${taken} of ${rest.length} bytes`)
        if (!reader.done && taken < rest.length) throw new Error('left bytes of an unfinished request')
        rest.fill('~', 0, taken)
        rest = rest.subarray(taken)
        if (reader.done && !leaves) reader.next()
      }
      if (leaves) reading.left = (reading.left ?? '') + rest.toString('latin1')
    }
  } catch (error) {
    if (!(error instanceof MessageFault)) throw error
    reading.fault = error.message
    reading.tooLarge = error.tooLarge
  }
  reading.atHead = reader.atHead
  reading.isWithin = reader.isWithin
  return reading
}

/** What must not depend on how bytes were cut: of a fault that there is one, and what was told before it. */
export function essence(bytes: string, how: How = {}): string {
  const { requests, fault, tooLarge: _, isWithin, ...rest } = readRequests(bytes, how)
  const told = requests.map(({ last, ...request }) => ({
    ...request,
    last: last && request.trailers !== undefined,
  }))
  return JSON.stringify({
    ...rest,
    told,
    fault: fault !== undefined,
    isWithin: fault === undefined && isWithin,
  })
}

/** Every cut of bytes into two, and into single bytes; for bytes that are many only some of them. */
export function* everyCut(bytes: string): Generator<readonly number[]> {
  yield []
  const step = Math.max(1, Math.floor(bytes.length / 500))
  for (let at = 1; at < bytes.length; at += step) yield [at]
  yield Array.from({ length: bytes.length - 1 }, (_, at) => at + 1)
}

/** Reads bytes in one piece, after having made sure that no cut tells anything else. */
export function readAnyhow(bytes: string, how: How = {}): Reading {
  const whole = essence(bytes, how)
  for (const cuts of everyCut(bytes)) {
    const cut = essence(bytes, { ...how, cuts })
    if (cut !== whole)
      throw new Error(`depends on the cut ${cuts}: ${JSON.stringify(bytes)}\n${whole}\n${cut}`)
  }
  return readRequests(bytes, how)
}
