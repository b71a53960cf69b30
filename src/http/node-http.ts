/**
 * What the sidecar needs of Node's server and sockets beyond their documentation: a function
 * for each effect, tested on 20 and 26.
 * Some functions rely on Node's own listeners, or on the order of events. None uses a private member.
 * Other effects, of a line or two, have a comment where they are used, most of them in `client/`.
 */
import type { EventEmitter } from 'node:events'
import { IncomingMessage, Server, type ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'

const callbacks: (() => void)[] = []

/**
 * Calls back after Node has read all sockets of this turn, and has tried to send what was written:
 * in each turn of the event loop, Node first reads all sockets that have bytes (poll phase),
 * then calls `setImmediate` callbacks (check phase).
 */
export function afterReads(callback: () => void): void {
  if (callbacks.push(callback) === 1) {
    setImmediate(callAll) // one for each callback would cost more
  }
}

/** Callbacks that are added meanwhile wait for the next turn. */
function callAll(): void {
  callEach(callbacks.splice(0))
}

function callEach(due: (() => void)[]): void {
  try {
    while (due.length > 0) {
      due.shift()?.()
    }
  } finally {
    // A callback has thrown: the others are called nevertheless.
    if (due.length > 0) {
      setImmediate(callEach, due)
    }
  }
}

/** Returns a function that calls back after the reads of a turn: once, however often it is called. */
export function onceAfterReads(callback: () => void): () => void {
  let isScheduled = false
  const call = () => {
    isScheduled = false
    callback()
  }
  return () => {
    if (!isScheduled) {
      isScheduled = true
      afterReads(call)
    }
  }
}

/** Calls back after Node has read all sockets once more. */
export const afterNextReads = (callback: () => void) => afterReads(() => afterReads(callback))

/**
 * Calls `listener` before Node's own: that of `connection` begins to read requests, that
 * of `end` ends the socket.
 */
export function listenBeforeNode(emitter: EventEmitter, event: string, listener: (socket: Socket) => void) {
  emitter.prependListener(event, listener)
}

/**
 * Stops accepting connections.
 * Resolves once `open` is empty: Node calls back before the last sockets emit `close`.
 */
export async function stopListening(server: NetServer, open: readonly unknown[]): Promise<void> {
  // `close` of the http server would destroy idle connections, too, and end the check for late heads.
  await new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()))
  while (open.length > 0) {
    await new Promise(setImmediate)
  }
}

/**
 * Lets a young garbage collection free what the listeners of a closed socket reference.
 * The socket itself lives longer, because V8 puts its `onwrite` into the old space.
 */
export function releaseListeners(socket: Socket): void {
  socket.removeAllListeners().on('error', () => {}) // a late error must not end the process
}

/**
 * Restarts the timeout of a socket. After the event `timeout`, Node restarts it only with a read or a write.
 */
export function restartTimeout(socket: Socket): void {
  socket.setTimeout(socket.timeout ?? 0)
}

/**
 * Keeps a socket paused until `isFull` returns false.
 * Node's `parserOnMessageComplete` resumes it after each request.
 */
export function pauseWhile(socket: Socket, isFull: () => boolean): void {
  const onResume = () => {
    if (isFull()) {
      socket.pause()
    } else {
      socket.removeListener('resume', onResume)
    }
  }
  socket.on('resume', onResume)
  socket.pause()
}

/**
 * Drops the bytes that still arrive. Node's parser would keep each request, more than 1 KB,
 * until the connection ends. `onRead`: called for each read.
 */
export function discardInput(socket: Socket, onRead: () => void): void {
  const onResume = () => {
    if (socket.isPaused()) {
      return // `pauseWhile` has paused it again
    }
    socket.removeListener('resume', onResume)
    // Node's parser takes the bytes from the system itself until `data` has a listener.
    // Its own listener goes, too.
    socket.on('data', () => {})
    socket.removeAllListeners('data')
    socket.on('data', onRead)
  }
  // Added by `destroySoon`, which Node calls after its last response.
  socket.removeListener('finish', socket.destroy)
  socket.on('resume', onResume)
  socket.pause()
  socket.resume()
}

/** Whether a server can refuse an upgrade, and go on with HTTP: since 22.21 and 24.9. */
export const CAN_DECLINE_UPGRADES = 'shouldUpgradeCallback' in new Server()

/**
 * Closes a socket if its peer has reset it: an empty write then fails.
 * While it is paused, Node reports no reset.
 */
export const probeForReset = (socket: Socket, onDone: (error?: Error | null) => void) =>
  socket.write('', onDone)

/**
 * Assigns a detached socket to its last response,
 * as Node's `parserOnIncoming` assigns the socket of a request.
 */
export function assignDetachedSocket(res: ServerResponse, socket: Socket): void {
  res.shouldKeepAlive = false
  res.assignSocket(socket)
  res.once('finish', () => {
    res.detachSocket(socket)
    res.emit('close')
  })
}

/** Keeps Node's `writeHead` from choosing the chunked coding for a body without a `Content-Length`. */
export const omitChunks = (res: ServerResponse): void => res.removeHeader('Transfer-Encoding')

/**
 * Sends the head before the body. `flushHeaders` passes no encoding, and the default, UTF-8,
 * changes bytes above 0x7F.
 */
export function sendHead(res: ServerResponse): void {
  res.socket?.setDefaultEncoding('latin1')
  res.flushHeaders()
}

/**
 * Writes the last chunk and the trailers.
 * `end` would write them, too, but Node would then close the connection.
 */
export function writeLastChunk(res: ServerResponse, trailerLines: string): void {
  // Node 26 holds written chunks until the next tick, and loses them if `chunkedEncoding` is off by then.
  while (res.writableCorked > 0) {
    res.uncork()
  }
  res.chunkedEncoding = false
  res.write(`0\r\n${trailerLines}\r\n`, 'latin1')
}

/**
 * Node allocates about 600 bytes for each chunk of a body, however small it is.
 * Smaller chunks are copied together.
 */
const MIN_CHUNK = 4 * 1024
const NOTHING = Buffer.alloc(0)

/** A message whose small body chunks become larger ones. */
export class MergedChunksMessage extends IncomingMessage {
  /**
   * Its first `#collectedBytes` bytes are small chunks.
   * They wait for the end of the read, or until the body is read on.
   */
  #collected = NOTHING
  #collectedBytes = 0

  /**
   * Node's parser calls this for each chunk of the body, and with null at its end.
   * False: the socket must be paused.
   */
  override push(chunk: Buffer | null): boolean {
    if (chunk === null || chunk.length >= MIN_CHUNK) {
      this.#pushCollected()
      return super.push(chunk)
    }
    const bytes = this.#collectedBytes + chunk.length
    if (bytes > this.#collected.length) {
      this.#collected = Buffer.concat([this.#collected.subarray(0, this.#collectedBytes)], 2 * bytes)
    }
    chunk.copy(this.#collected, this.#collectedBytes)
    if (this.#collectedBytes === 0 && this.readableFlowing) {
      afterReads(() => this.#pushCollected())
    }
    this.#collectedBytes = bytes
    if (bytes >= MIN_CHUNK) {
      this.#pushCollected()
    }
    return this.readableLength + this.#collectedBytes < this.readableHighWaterMark
  }

  override resume(): this {
    this.#pushCollected()
    return super.resume()
  }

  #pushCollected(): void {
    if (this.#collectedBytes === 0) {
      return
    }
    const collected = this.#collected.subarray(0, this.#collectedBytes)
    this.#collected = NOTHING
    this.#collectedBytes = 0
    super.push(collected)
  }
}
