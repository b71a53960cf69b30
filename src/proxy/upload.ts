/**
 * The upload half of a transfer: the body of the client's request, streamed to the upstream's connection.
 * In: a request with a body. Out: its bytes and trailers, framed again. Memory: less than 128 KiB wait here to be written,
 * and the buffers of Node's two sockets hold up to about as much. Backpressure pauses the client's socket.
 */
import type { SidecarRequest } from '../client/context.ts'
import { freeWhenWritten } from './buffers.ts'
import { type ForwardedRequest, requestTrailerLines } from './request-headers.ts'
import type { UpstreamConnection } from './upstream-connection.ts'

/** While so many bytes wait for the next write, the client's socket is paused. */
const MAX_PENDING = 64 * 1024

export class Upload {
  readonly #request: ForwardedRequest
  readonly #req: SidecarRequest
  /** Set while the body is being written. */
  #connection: UpstreamConnection | undefined
  #pending: Buffer[] = []
  #pendingBytes = 0
  #isEnded = false

  constructor(request: ForwardedRequest) {
    this.#request = request
    this.#req = request.res.req
  }

  get isActive(): boolean {
    return this.#connection !== undefined
  }

  /** Undefined unless it is active. Linux shows what the upstream reads in steps of a third of a send buffer: up to 1.4 MB. */
  get waitsFor(): 'client' | 'upstream' | undefined {
    if (!this.isActive) return undefined
    return this.#req.isPaused() ? 'upstream' : 'client'
  }

  start(connection: UpstreamConnection, writable: boolean): void {
    this.#connection = connection
    this.#request.res.continueIfExpected()
    this.#req.on('data', (chunk: Buffer) => this.#onData(chunk))
    this.#req.once('end', () => this.#onEnd())
    if (!writable) this.#req.pause()
  }

  stop(): void {
    this.#connection = undefined
    this.resume()
  }

  resume(): void {
    if (!this.#isEnded) this.#req.resume()
  }

  #onData(chunk: Buffer): void {
    if (this.#connection === undefined) return
    this.#req.context.bytesIn += chunk.length
    if (this.#pending.push(chunk) === 1) afterNextReads(() => this.#write())
    this.#pendingBytes += chunk.length
    if (this.#pendingBytes >= MAX_PENDING) this.#req.pause()
  }

  #onEnd(): void {
    this.#isEnded = true
    if (this.#pending.length === 0) this.#write()
  }

  #write(): void {
    const connection = this.#connection
    const { isChunked } = this.#request.admitted
    const pending = this.#pending
    const bytes = this.#pendingBytes
    this.#pending = []
    this.#pendingBytes = 0
    if (connection === undefined) return
    const { socket } = connection
    let writable = true
    socket.cork()
    if (bytes > 0) {
      if (isChunked) socket.write(`${bytes.toString(16)}\r\n`, 'latin1')
      for (const piece of pending) writable = socket.write(piece, freeWhenWritten(piece))
      if (isChunked) writable = socket.write('\r\n', 'latin1')
    }
    if (this.#isEnded) {
      if (isChunked) socket.write(`0\r\n${requestTrailerLines(this.#request)}\r\n`, 'latin1')
      this.#connection = undefined
      connection.awaitHead()
    }
    socket.uncork()
    if (!writable) this.#req.pause()
    else this.resume()
  }
}

/**
 * Calls back right after all sockets have been read. A write that fails discards what the socket has received: without
 * this, nearly half of the responses of an upstream that refuses an upload and closes are lost.
 */
function afterNextReads(callback: () => void): void {
  setImmediate(() => setImmediate(callback))
}
