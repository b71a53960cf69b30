/**
 * Bytes to which others are added, at a cost that grows with these alone.
 * What `bytes` returned stays as it was.
 */
export class GrowingBuffer {
  #store = Buffer.allocUnsafe(4096)
  #size = 0

  /** Everything added so far. */
  get bytes(): Buffer {
    return this.#store.subarray(0, this.#size)
  }

  add(chunk: Uint8Array): void {
    const size = this.#size + chunk.length
    if (size > this.#store.length) {
      const store = Buffer.allocUnsafe(2 * size)
      this.#store.copy(store, 0, 0, this.#size)
      this.#store = store
    }
    this.#store.set(chunk, this.#size)
    this.#size = size
  }
}
