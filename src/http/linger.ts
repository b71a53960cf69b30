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
 * sends. To be called before the response ends. Nothing of the body is read until then: responses to earlier
 * requests may have to go first.
 */
export function lingerAfterResponse(req: IncomingMessage): void {
  const { socket } = req
  req.on('data', () => {}) // read by us, or Node would read all of it
  req.pause()
  // Node calls this when the last response of a connection has been written.
  socket.destroySoon = () => {
    if (req.complete) {
      closeWritten(socket)
      return
    }
    boundReading(socket, req)
    req.once('end', () => closeWritten(socket))
    req.resume()
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
  socket.removeAllListeners('data') // the parser has given up on it
  boundReading(socket, socket)
  socket.on('end', () => closeWritten(socket))
  socket.end()
  socket.resume()
}

/** Drops what comes, and closes the socket for good after {@link LINGER_MS} or soon after {@link LINGER_BYTES}. */
function boundReading(socket: Socket, source: IncomingMessage | Socket): void {
  const limit = socket.bytesRead + LINGER_BYTES
  const started = performance.now()
  source.on('data', () => {
    if (socket.bytesRead > limit) source.pause()
  })
  const check = setInterval(() => {
    if (socket.bytesRead > limit || performance.now() - started >= LINGER_MS) socket.destroy()
  }, LINGER_MS / 20)
  socket.once('close', () => clearInterval(check))
}

/** Closes when everything has been written. */
function closeWritten(socket: Socket): void {
  Socket.prototype.destroySoon.call(socket)
}
