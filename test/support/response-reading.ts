/**
 * What the response parser tells of bytes, collected.
 *
 * @module
 */
import { type ResponseHead, ResponseParser } from '../../src/forward/response-parser.ts'
import { MessageFault } from '../../src/http1/message-fault.ts'
import type { MessageLimits } from '../../src/http1/message-reader.ts'

/** The limits of the default settings. */
export const LIMITS: MessageLimits = { headerBytes: 16384, headerLines: 200 }

/** How bytes are read. */
export interface How {
  /** Where the bytes are cut into chunks. */
  readonly cuts?: readonly number[]
  /** The request was HEAD. */
  readonly head?: boolean
  readonly mayUpgrade?: boolean
  readonly limits?: MessageLimits
  /** The upstream closes behind the bytes. */
  readonly closes?: boolean
}

/** What was told of them. */
export interface Reading {
  readonly informational: ResponseHead[]
  head: ResponseHead | undefined
  upgraded: ResponseHead | undefined
  body: string
  /** Of each call, whether it was said to be the last. */
  readonly lasts: boolean[]
  trailers: readonly string[] | undefined
  /** The response was whole. */
  done: boolean
  /** How many of the bytes belonged to it. */
  taken: number
  fault: string | undefined
}

/** Reads bytes (Latin-1), checking what holds of any of them. */
export function read(
  bytes: string,
  { cuts = [], head = false, mayUpgrade, limits = LIMITS, closes }: How = {},
): Reading {
  const reading: Reading = {
    informational: [],
    head: undefined,
    upgraded: undefined,
    body: '',
    lasts: [],
    trailers: undefined,
    done: false,
    taken: 0,
    fault: undefined,
  }
  const parser = new ResponseParser(
    {
      onInformational: (told) => void reading.informational.push(told),
      onHead: (told) => {
        if (reading.head !== undefined) throw new Error('two heads')
        reading.head = told
      },
      onBody: (chunk, last) => {
        if (reading.head === undefined || chunk.length === 0) throw new Error('a body out of nothing')
        reading.body += chunk.toString('latin1')
        reading.lasts.push(last)
      },
      onEnd: (trailers) => {
        if (reading.head === undefined || reading.trailers !== undefined)
          throw new Error('an end out of turn')
        reading.trailers = trailers
      },
    },
    head,
    limits,
    mayUpgrade,
  )
  const edges = [0, ...[...cuts].sort((a, b) => a - b), bytes.length]
  try {
    for (let n = 1; n < edges.length && !parser.done; n++) {
      const chunk = Buffer.from(bytes.slice(edges[n - 1], edges[n]), 'latin1')
      const taken = parser.push(chunk)
      if (taken < 0 || taken > chunk.length) throw new Error(`took ${taken} of ${chunk.length} bytes`)
      if (taken < chunk.length && !parser.done) throw new Error('left bytes of an unfinished response')
      reading.taken += taken
    }
    if (closes && !parser.done && parser.close() !== parser.done) throw new Error('an end that is none')
  } catch (error) {
    if (!(error instanceof MessageFault)) throw error
    reading.fault = error.message
  }
  reading.done = parser.done
  reading.upgraded = parser.upgraded
  return reading
}
