/**
 * Closing a connection on which the client is still sending.
 *
 * A socket that is closed with unread bytes resets the connection, and the client may lose the answer that says
 * why. So we say that we are done, go on reading for a moment without keeping anything, and only then close
 * (RFC 9112, section 9.6).
 *
 * @module
 */
import type { IncomingMessage } from 'node:http'
import { Socket } from 'node:net'

/** How long is read at the most, in milliseconds. */
export const LINGER_MS = 1000
/** How much is read at the most. */
export const LINGER_BYTES = 256 * 1024

/**
 * Makes the connection of `req`, once the response that closes it has been written, wait for what the client still
 * sends. To be called before the response ends.
 */
export function lingerAfterResponse(req: IncomingMessage): void {
  const { socket } = req
  boundReading(socket)
  req.resume()
  // Node calls this when the last response of a connection has been written.
  socket.destroySoon = () => {
    if (req.complete) {
      closeWritten(socket)
      return
    }
    req.once('end', () => closeWritten(socket))
    socket.end()
  }
}

/**
 * Writes the last bytes of a connection on which nothing is parsed any more, then drops what comes and closes.
 *
 * @param last - an answer, each character one byte
 */
export function writeLastAndLinger(socket: Socket, last: string): void {
  socket.write(last, 'latin1')
  lingerThenClose(socket)
}

/** Ends our side of a connection on which nothing is parsed any more, drops what comes, closes. */
export function lingerThenClose(socket: Socket): void {
  boundReading(socket)
  socket.removeAllListeners('data')
  socket.on('data', () => {}) // dropped: the parser has given up on it
  socket.on('end', () => closeWritten(socket))
  socket.end()
  socket.resume()
}

/** Closes the socket for good after {@link LINGER_MS} or {@link LINGER_BYTES}, whichever comes first. */
function boundReading(socket: Socket): void {
  const limit = socket.bytesRead + LINGER_BYTES
  const started = performance.now()
  const check = setInterval(() => {
    if (socket.bytesRead > limit || performance.now() - started >= LINGER_MS) socket.destroy()
  }, LINGER_MS / 20)
  socket.once('close', () => clearInterval(check))
}

/** Closes when everything has been written. */
function closeWritten(socket: Socket): void {
  Socket.prototype.destroySoon.call(socket)
}
