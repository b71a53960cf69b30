/**
 * Reuses the read buffers of upstream connections, and frees the chunks of uploads. The memory of both lies
 * outside V8's heap. V8 starts a garbage collection each time that 64 MB of such memory have been allocated.
 */
import type { OnReadOpts } from 'node:net'
import type { Writable } from 'node:stream'
import { freeMemory } from '../http/node-20.ts'

/** Node's streams allocate as much for each read. */
const READ_BYTES = 64 * 1024
const MAX_SPARE_BUFFERS = 16

/** The read buffers of all upstream connections of a process. */
export class ReadBuffers {
  readonly #spare: Buffer[] = []

  take(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(READ_BYTES)
  }

  giveBack(buffer: Buffer): void {
    if (this.#spare.length < MAX_SPARE_BUFFERS) {
      this.#spare.push(buffer)
    }
  }
}

/** A single chunk of a read that is larger keeps its read buffer until it is written. Others are copied. */
export const MAX_COPIED = 16 * 1024

/**
 * The part of a response body that the current read of a connection has brought, and the buffer of the read.
 * The next read reuses the buffer: bytes leave only as copies, or with the buffer.
 * A TLS connection has no buffer, because Node allocates its chunks.
 */
export class ReceivedBody {
  readonly #buffers: ReadBuffers
  #readBuffer: Buffer | undefined
  #chunks: Buffer[] = []

  constructor(buffers: ReadBuffers) {
    this.#buffers = buffers
  }

  /** The memory of the chunk is reused after `onRead` returns, unless `writeTo` keeps it. */
  readInto(onRead: (chunk: Buffer) => void): OnReadOpts {
    return {
      buffer: () => {
        this.#readBuffer ??= this.#buffers.take()
        return this.#readBuffer
      },
      callback: (bytes) => {
        if (this.#readBuffer !== undefined) {
          onRead(this.#readBuffer.subarray(0, bytes))
        }
        return true
      },
    }
  }

  get length(): number {
    let length = 0
    for (const chunk of this.#chunks) {
      length += chunk.length
    }
    return length
  }

  add(chunk: Buffer): void {
    this.#chunks.push(chunk)
  }

  clear(): void {
    this.#chunks = []
  }

  /** Clears this part, and returns it as Latin-1 text. */
  takeText(): string {
    let text = ''
    for (const chunk of this.#chunks) {
      text += chunk.toString('latin1')
    }
    this.clear()
    return text
  }

  /**
   * Clears this part, and writes it at once, so that tiny chunks do not cost one write each.
   * False if `out` is full.
   */
  writeTo(out: Writable): boolean {
    const chunks = this.#chunks
    const [first] = chunks
    if (first === undefined) {
      return true
    }
    this.clear()
    const isCopied = chunks.length > 1 || first.length <= MAX_COPIED
    return isCopied ? out.write(Buffer.concat(chunks)) : out.write(first, this.#holdBuffer())
  }

  releaseBuffer(): void {
    this.#holdBuffer()?.()
  }

  /** Keeps the bytes of the current read. The returned function gives their buffer back for reuse. */
  #holdBuffer(): (() => void) | undefined {
    const held = this.#readBuffer
    this.#readBuffer = undefined
    if (held === undefined) {
      return undefined
    }
    return () => this.#buffers.giveBack(held)
  }
}

const MIN_FREED = 16 * 1024 // to free smaller chunks would cost more than it saves

/**
 * Returns a callback for `write` that frees the memory of a chunk. Undefined if the chunk is small
 * or shares its memory.
 */
export function freeWhenWritten({ buffer, byteLength }: Buffer) {
  if (byteLength < MIN_FREED || byteLength !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) {
    return undefined
  }
  return (error?: Error | null) => {
    if (!error) {
      freeMemory(buffer)
    }
  }
}
