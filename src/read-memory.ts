/**
 * Memory that bodies are read into, and that is read into again.
 *
 * Node's streams take 64 KiB anew for each read, however little comes: a large object costs tens of megabytes before
 * the collector runs, and page faults all the way. Here a block goes back to the others when the last of what was read
 * into it has been written to the other side, so a transfer of any size turns over two or three blocks.
 *
 * @module
 */

/** Bytes that one read may bring. */
export const READ_BYTES = 64 * 1024

/**
 * Fewer bytes than this are copied when they have to wait, rather than their block held: thousands of them may wait for
 * a side that takes nothing, and each would cost a block.
 */
export const WORTH_HOLDING = READ_BYTES / 8

/** Blocks kept for the next reader; beyond them the collector has them. */
const KEPT_BLOCKS = 32

/** A block of memory. It is free when nobody holds it any more. */
export class ReadBlock {
  readonly bytes = Buffer.allocUnsafeSlow(READ_BYTES)
  readonly #onFree: (block: ReadBlock) => void
  #holders = 0

  constructor(onFree: (block: ReadBlock) => void) {
    this.#onFree = onFree
  }

  /** Whether somebody holds it, so that it must not be read into now. */
  get held(): boolean {
    return this.#holders > 1
  }

  /** Keeps the block from being read into until the function returned has been called. It may never be. */
  hold(): () => void {
    this.#holders++
    return this.release
  }

  /** One function for all holders: none is made for each read. */
  readonly release = (): void => {
    this.#holders--
    if (this.#holders === 0) this.#onFree(this)
  }
}

/** Gives out blocks, used ones first. Whoever takes one holds it. */
export class ReadMemory {
  readonly #free: ReadBlock[] = []

  take(): ReadBlock {
    const block = this.#free.pop() ?? new ReadBlock(this.#keep)
    block.hold()
    return block
  }

  readonly #keep = (block: ReadBlock): void => {
    if (this.#free.length < KEPT_BLOCKS) this.#free.push(block)
  }
}
