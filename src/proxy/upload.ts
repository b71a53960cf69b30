/**
 * The upload half of a transfer: streams the body of the client's request to the upstream's connection.
 * In: a request with a body. Out: the bytes and the trailers of the body, in new chunks if the request is chunked.
 * Memory: less than 128 KiB in `#pending`. The buffers of the two sockets hold about as much. The upload owns each chunk.
 */
import { MessageChannel } from 'node:worker_threads'
import { afterNextReads } from '../base/event-loop.ts'
import type { SidecarRequest } from '../client/context.ts'
import { type ForwardedRequest, requestTrailerLines } from './request-headers.ts'
import type { UpstreamConnection } from './upstream-connection.ts'

/** The client's socket is paused while at least this many bytes wait for the next write. */
const MAX_PENDING = 64 * 1024

export class Upload {
  readonly #request: ForwardedRequest
  readonly #req: SidecarRequest
  /** Undefined once the body is written, or the transfer has ended. */
  #connection: UpstreamConnection | undefined
  #pending: Buffer[] = []
  #pendingBytes = 0

  /** The head of the request must have been written. */
  constructor(request: ForwardedRequest, connection: UpstreamConnection) {
    this.#request = request
    this.#req = request.res.req
    this.#connection = connection
    request.res.continueIfExpected()
    this.#req.on('data', (chunk: Buffer) => this.#onData(chunk))
    this.#req.once('end', () => {
      if (this.#pending.length === 0) this.#write()
    })
    this.#awaitNext(connection)
  }

  get waitsForClient(): boolean {
    return this.#connection !== undefined && !this.#req.isPaused()
  }

  discardRest(): void {
    this.#connection = undefined
    this.resume()
  }

  resume(): void {
    if (!this.#req.readableEnded) this.#req.resume()
  }

  #onData(chunk: Buffer): void {
    if (this.#connection === undefined) return
    this.#req.context.bytesIn += chunk.length
    // An upstream may refuse an upload and close. A write to the closed connection would fail and discard the response. The
    // wait lets Node read the response first: without the wait, nearly half of these responses are lost.
    if (this.#pending.push(chunk) === 1) afterNextReads(() => this.#write())
    this.#pendingBytes += chunk.length
    if (this.#pendingBytes >= MAX_PENDING) this.#req.pause()
  }

  #write(): void {
    const connection = this.#connection
    const { isChunked } = this.#request.decision.admitted
    const pending = this.#pending
    const bytes = this.#pendingBytes
    this.#pending = []
    this.#pendingBytes = 0
    if (connection === undefined) return
    const { socket } = connection
    socket.cork()
    if (bytes > 0) {
      if (isChunked) socket.write(`${bytes.toString(16)}\r\n`, 'latin1')
      for (const piece of pending) socket.write(piece, freeWhenWritten(piece))
      if (isChunked) socket.write('\r\n', 'latin1')
    }
    const isComplete = this.#req.readableEnded
    if (isComplete && isChunked) socket.write(`0\r\n${requestTrailerLines(this.#request)}\r\n`, 'latin1')
    socket.uncork()
    if (isComplete) this.#connection = undefined
    this.#awaitNext(connection)
  }

  /**
   * Waits for a slow upstream to read, and then for more of the body. Linux reports a socket as writable only once a third of
   * its send buffer, up to 1.4 MB, is free: with `idleSeconds` of 60, an upstream that reads below 23 KB/s counts as idle.
   */
  #awaitNext(connection: UpstreamConnection): void {
    connection.onWritten(this.#connection === undefined)
    if (connection.socket.writableNeedDrain) this.#req.pause()
    else this.resume()
  }
}

/** Drops every message that is posted to it, because the other end is closed. */
const { port1: closedPort, port2 } = new MessageChannel()
port2.close()

/**
 * Returns a callback for `write` that frees the memory of a chunk. Undefined if the chunk is small or shares its memory.
 * A post to a port detaches memory (Node 20 has no `ArrayBuffer.prototype.transfer`). Saves 57 % of the CPU time of an upload.
 */
function freeWhenWritten({ buffer, byteLength }: Buffer) {
  const isSmall = byteLength < 16 * 1024
  if (isSmall || byteLength !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return undefined
  return (error?: Error | null) => {
    if (!error) closedPort.postMessage(null, [buffer])
  }
}
