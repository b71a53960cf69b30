/**
 * Closing a connection on which the client is still sending.
 *
 * A socket that is closed with unread bytes resets the connection, and the client may lose the answer that says
 * why. So we say that we are done, go on reading for a moment without keeping anything, and only then close
 * (RFC 9112, section 9.6).
 *
 * @module
 */
import { Socket } from 'node:net'

/** How long is read at the most, in milliseconds. */
export const LINGER_MS = 1000
/** How much is read at the most. */
export const LINGER_BYTES = 256 * 1024

/** Ends our side of a connection, parses nothing any more, drops what comes, closes. */
export function lingerThenClose(socket: Socket): void {
  if (socket.readableEnded) {
    closeWritten(socket)
    return
  }
  socket.removeAllListeners('data') // the parser's; adding one of ours takes the socket away from it
  boundReading(socket)
  socket.on('end', () => closeWritten(socket))
  socket.end()
  socket.resume()
  // Where the parser had stopped reading, for backpressure, the stream believes that it is being read: this ends that.
  socket.push('')
}

/** Drops what comes, and closes the socket for good after {@link LINGER_MS} or soon after {@link LINGER_BYTES}. */
function boundReading(socket: Socket): void {
  const limit = socket.bytesRead + LINGER_BYTES
  const started = performance.now()
  socket.on('data', () => {
    if (socket.bytesRead > limit) socket.pause()
  })
  const check = setInterval(() => {
    if (socket.bytesRead > limit || performance.now() - started >= LINGER_MS) socket.destroy()
  }, LINGER_MS / 20)
  socket.once('close', () => clearInterval(check))
}

/** Closes when everything has been written, without a look at what still comes. */
export function closeWritten(socket: Socket): void {
  Socket.prototype.destroySoon.call(socket)
}
