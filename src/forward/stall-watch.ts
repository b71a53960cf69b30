/**
 * Tells a side that reads slowly from one that has stopped reading.
 *
 * Node hears nothing while megabytes of kernel buffers drain, so the time without progress is divided into looks at
 * the kernel's send queue: a queue that changes is somebody reading.
 *
 * @module
 */
import type { Socket } from 'node:net'
import type { SendQueue } from './send-queue.ts'

/** Into how many looks the time without progress is divided. */
export const LOOKS = 4

/** What a look found. `moved`: bytes moved while it looked, so that it says nothing. */
export type Sight = 'unsure' | 'stalled' | 'moved'

/** The looks at a side that takes nothing for now. */
export class StallWatch {
  readonly #sendQueue: SendQueue
  /** Looks since bytes moved last. */
  #looks = 0
  /** The queue's length at the last look; undefined where it cannot be known. */
  #queued: number | undefined

  constructor(sendQueue: SendQueue) {
    this.#sendQueue = sendQueue
  }

  /** Bytes have moved. */
  reset(): void {
    this.#looks = 0
  }

  /** Looks at a socket: `stalled` is what the {@link LOOKS}th look in a row says at which nothing moved. */
  async look(socket: Socket): Promise<Sight> {
    this.#looks++
    const queued = await this.#sendQueue(socket)
    if (this.#looks === 0) return 'moved'
    if (queued !== this.#queued) this.#looks = 1
    this.#queued = queued
    return this.#looks === LOOKS ? 'stalled' : 'unsure'
  }
}
