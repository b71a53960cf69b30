/**
 * What the client's side needs of Node beyond its documentation, one function for each effect. No private member is used,
 * but some rely on Node's own listeners, or on the order of its events. They are tested on Node 20 and 26.
 */
import { Server, type ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'

/** Accepts no more connections. The http server's own `close` destroys connections and stops looking for late heads. */
export function stopListening(server: NetServer): Promise<void> {
  return new Promise((resolve) => NetServer.prototype.close.call(server, () => resolve()))
}

/** Node before 24.9 (22.21) discards the bytes after the head of an offer to upgrade that is not served. */
export const DISCARDS_AFTER_OFFER = !('shouldUpgradeCallback' in new Server())

/** Keeps a socket that Node wants to destroy once its last response is written. */
export function keepAfterLastResponse(socket: Socket): void {
  socket.removeListener('finish', socket.destroy)
}

/** Node resumes a paused socket to read a body, and after a response: it pauses again until `isFull` is false. */
export function pauseWhile(socket: Socket, isFull: () => boolean): void {
  const onResume = () => {
    if (isFull()) socket.pause()
    else socket.removeListener('resume', onResume)
  }
  socket.on('resume', onResume)
  socket.pause()
}

/** Resolves once Node has reported an error in the bytes behind a head: it parses them in the same turn, after `request`. */
export const waitForParser = (): Promise<void> => Promise.resolve()

/** Gives a response the socket that Node has detached for `Upgrade` or CONNECT. The response is the last one on it. */
export function assignDetachedSocket(res: ServerResponse, socket: Socket, onWritten: () => void): void {
  res.shouldKeepAlive = false
  res.assignSocket(socket)
  res.once('finish', () => {
    res.detachSocket(socket)
    onWritten()
    res.emit('close')
  })
}

/** Sends the head without waiting for a body. `flushHeaders` names no encoding: bytes above 0x7F would go out as UTF-8. */
export function sendHead(res: ServerResponse): void {
  res.socket?.setDefaultEncoding('latin1')
  res.flushHeaders()
}

/** Sends the last chunk and the trailers, and leaves the response open: `end` would close the connection. */
export function writeLastChunk(res: ServerResponse, trailerLines: string): void {
  // Node 26 holds chunks until the next tick, and loses them once the encoding is off.
  while (res.writableCorked > 0) res.uncork()
  res.chunkedEncoding = false
  res.write(`0\r\n${trailerLines}\r\n`, 'latin1')
}
