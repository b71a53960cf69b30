/**
 * Bytes that can be made anew at any length and are not all alike.
 *
 * @module
 */
import { Readable } from 'node:stream'

const block = Buffer.from(Array.from({ length: 1 << 16 }, (_, at) => (at * 31 + (at >> 8) * 7) & 255))

/** A stream of so many bytes. */
export function patternOf(size: number): Readable {
  let left = size
  return new Readable({
    highWaterMark: block.length,
    read() {
      if (left === 0) {
        this.push(null)
        return
      }
      const chunk = left < block.length ? block.subarray(0, left) : block
      left -= chunk.length
      this.push(chunk)
    },
  })
}
