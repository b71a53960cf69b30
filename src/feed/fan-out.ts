/**
 * Answers many followers without delaying the requests that the process serves: a few in each turn of
 * the event loop, and few large bodies at once.
 */
import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import pLimit from 'p-limit'

/** With the requests that follow them, four responses take about half a millisecond. */
const RESPONSES_PER_TURN = 4

/** Calls functions in their order, a few in each turn of the event loop. */
export class ResponseTurns {
  readonly #spreadMs: number
  readonly #waiting: (() => void)[] = []
  #isScheduled = false
  /** Of those that were added since none waited. */
  #added = 0
  #firstAddedMs = 0

  /** @param spreadMs - the calls are spread over this time, as far as the number for a turn allows it */
  constructor(spreadMs = 0) {
    this.#spreadMs = spreadMs
  }

  add(call: () => void): void {
    if (this.#waiting.length === 0) {
      this.#added = 0
      this.#firstAddedMs = performance.now()
    }
    this.#added++
    this.#waiting.push(call)
    this.#schedule()
  }

  #schedule(): void {
    if (!this.#isScheduled) {
      this.#isScheduled = true
      if (this.#due() > 0) {
        setImmediate(() => this.#run())
      } else {
        setTimeout(() => this.#run(), 1)
      }
    }
  }

  /** How many should have been called by now, and were not. */
  #due(): number {
    const passedMs = performance.now() - this.#firstAddedMs
    if (passedMs >= this.#spreadMs) {
      return this.#waiting.length
    }
    const called = this.#added - this.#waiting.length
    return Math.ceil((this.#added * passedMs) / this.#spreadMs) - called
  }

  #run(): void {
    this.#isScheduled = false
    const count = Math.min(this.#due(), RESPONSES_PER_TURN)
    for (const call of this.#waiting.splice(0, count)) {
      call()
    }
    if (this.#waiting.length > 0) {
      this.#schedule()
    }
  }
}

/** A larger body is written in parts of this size, so that a follower that does not read holds one part only. */
const CHUNK_BYTES = 65_536
/** Others wait: else a fleet that comes back at once would need a buffer of the system for each follower. */
const MAX_LARGE_BODIES = 64

/** How long a follower may take. One that is slower is dropped. */
interface SendLimits {
  /** Without reading anything. */
  readonly stalledMs: number
  /** The same, while others wait until a large body has been written. */
  readonly contendedMs: number
  /** For a body of more than `CHUNK_BYTES`, once it is being written. */
  readonly bodyMs: number
}
const LIMITS: SendLimits = { stalledMs: 10_000, contendedMs: 1000, bodyMs: 60_000 }

/** Writes the bodies of responses whose heads are set. */
export class BodyWriter {
  readonly #large = pLimit(MAX_LARGE_BODIES)
  readonly #limits: SendLimits
  /** Responses with large bodies that may stall for `stalledMs`. */
  readonly #patient = new Set<ServerResponse>()

  constructor(limits = LIMITS) {
    this.#limits = limits
  }

  /** Never rejects. A follower that is too slow loses its connection. */
  async write(res: ServerResponse, body: Buffer): Promise<void> {
    if (body.length > CHUNK_BYTES && res.req.method !== 'HEAD') {
      const written = this.#large(() => this.#writeParts(res, body))
      this.#makeRoom()
      return written
    }
    closeIfStalled(res, this.#limits.stalledMs)
    res.end(body)
  }

  async #writeParts(res: ServerResponse, body: Buffer): Promise<void> {
    const { stalledMs, contendedMs, bodyMs } = this.#limits
    if (this.#isContended()) {
      closeIfStalled(res, contendedMs)
    } else {
      closeIfStalled(res, stalledMs)
      this.#patient.add(res)
    }
    const signal = AbortSignal.timeout(bodyMs)
    await pipeline(Readable.from(chunksOf(body)), res, { signal }).catch(() => res.destroy())
    this.#patient.delete(res)
  }

  #isContended(): boolean {
    return this.#large.activeCount === MAX_LARGE_BODIES && this.#large.pendingCount > 0
  }

  /** Followers that do not read must not hold up those that do. */
  #makeRoom(): void {
    if (!this.#isContended()) {
      return
    }
    for (const res of this.#patient) {
      closeIfStalled(res, this.#limits.contendedMs)
    }
    this.#patient.clear()
  }
}

/** Node closes the connection after this time without progress. */
function closeIfStalled(res: ServerResponse, ms: number): void {
  res.socket?.setTimeout(ms)
}

function* chunksOf(body: Buffer): Generator<Buffer> {
  for (let at = 0; at < body.length; at += CHUNK_BYTES) {
    yield body.subarray(at, at + CHUNK_BYTES)
  }
}
