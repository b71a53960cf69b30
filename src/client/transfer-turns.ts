/**
 * Bounds the body bytes of all transfers in one turn of the event loop.
 * libuv reads a ready socket up to 32 times in a turn, 64 KiB each. Hundreds of large transfers would thereby
 * keep the process from its other requests for half a second.
 */
import { onceAfterReads } from '../http/node-http.ts'
import type { PacedReader } from '../room.ts'

/** To move so much takes about 1 ms. */
const MAX_BYTES = 1024 * 1024
/** A transfer that has moved less does not wait for large ones. */
const SMALL_TRANSFER_BYTES = 32 * 1024
/**
 * Transfers that read on in a turn, the one that has waited longest first.
 * 64 KiB of each are `MAX_BYTES`.
 */
const MAX_RESUMED = 16

export class TransferTurns {
  #bytes = 0
  /** The one that has waited longest is first. */
  readonly #waiting = new Set<PacedReader>()
  readonly #scheduleEnd = onceAfterReads(() => this.#endTurn())

  /** Must be called for all bytes that move. */
  onBytes(bytes: number): void {
    this.#bytes += bytes
    this.#scheduleEnd()
  }

  /**
   * If false, `reader.readOn` is called in a later turn.
   * @param movedBytes - of the whole transfer
   */
  mayRead(reader: PacedReader, movedBytes: number): boolean {
    if (movedBytes <= SMALL_TRANSFER_BYTES || this.#bytes < MAX_BYTES) {
      return true
    }
    this.#waiting.add(reader)
    return false
  }

  /** The reader reads no more. */
  onReadEnd(reader: PacedReader): void {
    this.#waiting.delete(reader)
  }

  #endTurn(): void {
    this.#bytes = 0
    const due = [...this.#waiting].slice(0, MAX_RESUMED)
    for (const reader of due) {
      this.#waiting.delete(reader)
      reader.readOn()
    }
    if (this.#waiting.size > 0) {
      this.#scheduleEnd()
    }
  }
}
