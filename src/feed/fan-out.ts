/**
 * Answers many followers without delaying the requests that the process serves: a few in each turn of
 * the event loop, and few large bodies at once.
 */

import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import pLimit from 'p-limit'

/** So many small responses take about half a millisecond. */
const RESPONSES_PER_TURN = 8

/** Calls functions in their order, a few in each turn of the event loop. */
export class Turns {
  readonly #waiting: (() => void)[] = []
  #isScheduled = false

  add(call: () => void): void {
    this.#waiting.push(call)
    this.#schedule()
  }

  #schedule(): void {
    if (!this.#isScheduled) {
      this.#isScheduled = true
      setImmediate(() => this.#run())
    }
  }

  #run(): void {
    this.#isScheduled = false
    for (const call of this.#waiting.splice(0, RESPONSES_PER_TURN)) {
      call()
    }
    if (this.#waiting.length > 0) {
      this.#schedule()
    }
  }
}

/** A body up to this size is written at once: what a follower that does not read costs. */
const CHUNK_BYTES = 65_536
/** Others wait: else a fleet that comes back at once would need a buffer of the system for each follower. */
const MAX_LARGE_BODIES = 64
/** A follower that reads nothing for so long is dropped. */
const STALLED_MS = 10_000
/** A larger body must be read in this time. */
const MAX_SEND_MS = 60_000

/** Writes the bodies of responses whose heads are set. */
export class BodyWriter {
  readonly #large = pLimit(MAX_LARGE_BODIES)

  /** Never rejects. A follower that is too slow loses its connection. */
  write(res: ServerResponse, body: Buffer): Promise<unknown> {
    res.socket?.setTimeout(STALLED_MS) // Node then closes the connection, unless it makes progress
    if (body.length <= CHUNK_BYTES || res.req.method === 'HEAD') {
      res.end(body)
      return Promise.resolve()
    }
    return this.#large(async () => {
      const signal = AbortSignal.timeout(MAX_SEND_MS)
      await pipeline(Readable.from(chunksOf(body)), res, { signal }).catch(() => res.destroy())
    })
  }
}

function* chunksOf(body: Buffer): Generator<Buffer> {
  for (let at = 0; at < body.length; at += CHUNK_BYTES) {
    yield body.subarray(at, at + CHUNK_BYTES)
  }
}
