/**
 * The upload half of a transfer: the body of the client's request, streamed to the upstream's connection.
 * In: a request with a body. Out: its bytes and trailers, framed again. Memory: less than 128 KiB wait here to be written,
 * and the buffers of Node's two sockets hold up to about as much. Backpressure pauses the client's socket.
 */
import { MessageChannel, type MessagePort } from 'node:worker_threads'
import { type ForwardedRequest, requestTrailerLines } from './request-headers.ts'
import type { UpstreamConnection } from './upstream-connection.ts'

/** Bytes that wait for the next write; from there on the client's socket is paused. */
const MAX_PENDING = 64 * 1024

export class Upload {
  readonly #request: ForwardedRequest
  #connection: UpstreamConnection | undefined
  #pending: Buffer[] = []
  #pendingBytes = 0
  #isEnded = false
  /** The complete request has been written to the upstream. Set here alone. */
  isWritten = false

  constructor(request: ForwardedRequest) {
    this.#request = request
  }

  get #req() {
    return this.#request.res.req
  }

  start(connection: UpstreamConnection, writable: boolean): void {
    this.#connection = connection
    this.#request.res.continueIfExpected()
    this.#req.on('data', (chunk: Buffer) => this.#onData(chunk))
    this.#req.once('end', () => this.#onEnd())
    if (!writable) this.#req.pause()
  }

  /** What follows is dropped. */
  stop(): void {
    this.#connection = undefined
    this.resume()
  }

  /** The upstream accepts more bytes. */
  resume(): void {
    if (!this.isWritten) this.#req.resume()
  }

  #onData(chunk: Buffer): void {
    if (this.#connection === undefined) return
    this.#req.context.bytesIn += chunk.length
    if (this.#pending.push(chunk) === 1) afterReadingSockets(() => this.#write())
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
      const trailers = requestTrailerLines(this.#request)
      if (isChunked) socket.write(`0\r\n${trailers}\r\n`, 'latin1')
      this.isWritten = true
      connection.awaitHead()
    }
    socket.uncork()
    if (!writable) this.#req.pause()
    else this.resume()
  }
}

/**
 * Runs right after all sockets have been read. A write that fails discards the response of an upstream that refuses the
 * upload and closes: without this nearly half of such responses are lost.
 */
function afterReadingSockets(act: () => void): void {
  setImmediate(() => setImmediate(act))
}

/** A port whose other end is closed: it drops what is posted to it. Created by the first upload that needs it. */
let closedPort: MessagePort | undefined

function drop(memory: ArrayBuffer): void {
  if (closedPort === undefined) {
    const { port1, port2 } = new MessageChannel()
    port2.close()
    closedPort = port1
  }
  closedPort.postMessage(null, [memory])
}

/**
 * Returns a callback for `write` that frees an upload chunk, or undefined if it is small or shared. Each 64 MB of
 * memory outside V8's heap starts a garbage collection. A transfer to a port takes memory from its owner, as
 * `ArrayBuffer.prototype.transfer` does, which Node 20 lacks. Node 20 and 26: 57 % of the CPU time of an upload saved.
 */
function freeWhenWritten({ buffer, byteLength }: Buffer) {
  const isSmall = byteLength < 16 * 1024
  if (isSmall || byteLength !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return undefined
  return (error?: Error | null) => {
    if (!error) drop(buffer)
  }
}
