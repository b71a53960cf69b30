/**
 * Objects whose bytes everybody can compute: the upstream of the soak run sends them, its clients know what they must
 * get.
 *
 * @module
 */
import { createHash } from 'node:crypto'
import { createRandom } from './random.ts'

/** An object repeats a block of this many bytes; odd, so that no buffer size divides it. */
const BLOCK_BYTES = 65_521

const blocks = new Map<number, Buffer>()
const digests = new Map<string, string>()

/** The block of an object. */
function blockOf(key: number): Buffer {
  let block = blocks.get(key)
  if (block === undefined) {
    const random = createRandom(key, 1)
    block = Buffer.alloc(BLOCK_BYTES)
    for (let at = 0; at < BLOCK_BYTES; at++) block[at] = random.int(0, 255)
    blocks.set(key, block)
  }
  return block
}

/** The bytes of an object from `offset` on: as many as there are in one piece, at most `length`. */
export function objectPiece(key: number, offset: number, length: number): Buffer {
  const at = offset % BLOCK_BYTES
  return blockOf(key).subarray(at, Math.min(BLOCK_BYTES, at + length))
}

/** SHA-256 of `length` bytes of an object from `offset` on, in hex. */
export function objectDigest(key: number, offset: number, length: number): string {
  const name = `${key} ${offset} ${length}`
  let digest = digests.get(name)
  if (digest === undefined) {
    const hash = createHash('sha256')
    for (let at = offset; at < offset + length; ) {
      const piece = objectPiece(key, at, offset + length - at)
      hash.update(piece)
      at += piece.length
    }
    digest = hash.digest('hex')
    if (digests.size < 10_000) digests.set(name, digest)
  }
  return digest
}
