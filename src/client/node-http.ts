/**
 * What the client's side needs of Node beyond its documentation: one function for each effect, tested on Node 20 and 26.
 * Some rely on Node's own listeners, or on the order of its events. None uses a private member.
 */
import type { EventEmitter } from 'node:events'
import { Server, type ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'

/** Calls `listener` before Node's: `connectionListener` reads requests, `socketOnEnd` ends the socket on `end`. */
export function listenBeforeNode(emitter: EventEmitter, event: string, listener: (socket: Socket) => void) {
  emitter.prependListener(event, listener)
}

/** Accepts no more connections. Resolves when `open` is empty: Node calls back before the last sockets emit `close`. */
export async function stopListening(server: NetServer, open: readonly unknown[]): Promise<void> {
  // The http server's own `close` destroys connections and stops looking for late heads.
  await new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()))
  while (open.length > 0) await new Promise(setImmediate)
}

/**
 * Lets a young garbage collection free what the listeners of a closed socket reference. V8 puts `onwrite` of Node's `Writable`,
 * which references the socket, into the old space. This and the array of connections save 10 % of a new one (Node 26).
 */
export function releaseListeners(socket: Socket): void {
  socket.removeAllListeners().on('error', () => {}) // a late error must not end the process
}

/** Starts the timer of a socket again. After `timeout`, Node starts it only in a read or a write. */
export function restartTimeout(socket: Socket): void {
  socket.setTimeout(socket.timeout ?? 0)
}

/** Resets the connection, unless the socket has ended: `uv_tcp_close_reset` refuses that, and `close` would never come. */
export function resetOrDestroy(socket: Socket, tcpSocket: Socket): void {
  if (socket.writableEnded) socket.destroy()
  else tcpSocket.resetAndDestroy()
}

/** Notices that the peer has reset a connection that is not read: a write of no bytes fails, and closes the socket. */
export function detectReset(tcpSocket: Socket): void {
  if (tcpSocket.writableLength === 0) tcpSocket.write('')
}

/** Keeps a socket paused until `isFull` is false. Node's `parserOnMessageComplete` resumes it after each request. */
export function pauseWhile(socket: Socket, isFull: () => boolean): void {
  const onResume = () => {
    if (isFull()) socket.pause()
    else socket.removeListener('resume', onResume)
  }
  socket.on('resume', onResume)
  socket.pause()
}

/** Drops what still arrives. Node's parser would keep each request until the connection ends: more than 1 KB. */
export function discardInput(socket: Socket): void {
  const onResume = () => {
    if (socket.isPaused()) return // by `pauseWhile`
    socket.removeListener('resume', onResume)
    socket.on('data', () => {}) // ends the parser's own reads (`unconsume`). A paused socket would not be read again.
    socket.removeAllListeners('data') // with the one that passes bytes to the parser
  }
  socket.removeListener('finish', socket.destroy) // by `destroySoon`, which Node calls after its last response
  socket.on('resume', onResume)
  socket.pause()
  socket.resume()
}

/** Node before 24.9 (22.21) discards the bytes after the head of an offer to upgrade that is not served. */
export const DISCARDS_AFTER_OFFER = !('shouldUpgradeCallback' in new Server())

/** Gives a response the socket that Node has detached, as `parserOnIncoming` does. It is the last one on it. */
export function assignDetachedSocket(res: ServerResponse, socket: Socket, onWritten: () => void): void {
  res.shouldKeepAlive = false
  res.assignSocket(socket)
  res.once('finish', () => {
    res.detachSocket(socket)
    onWritten()
    res.emit('close')
  })
}

/** Keeps `writeHead` of Node from adding chunks to a body without a `Content-Length`. */
export const omitChunks = (res: ServerResponse): void => res.removeHeader('Transfer-Encoding')

/** Sends the head without waiting for a body. `flushHeaders` names no encoding: bytes above 0x7F would go out as UTF-8. */
export function sendHead(res: ServerResponse): void {
  res.socket?.setDefaultEncoding('latin1')
  res.flushHeaders()
}

/** Sends the last chunk and the trailers. `end` would do it, too, but close the connection. */
export function writeLastChunk(res: ServerResponse, trailerLines: string): void {
  // `write` of Node 26 holds chunks until the next tick, and loses them once the encoding is off.
  while (res.writableCorked > 0) res.uncork()
  res.chunkedEncoding = false
  res.write(`0\r\n${trailerLines}\r\n`, 'latin1')
}
