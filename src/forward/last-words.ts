/**
 * What an upstream said before it closed a connection that we were still writing to.
 *
 * An upstream that refuses an upload answers and closes; what is on its way to it is answered with a reset, and the
 * next write fails. Node then closes the socket at once, with the answer unread in it. Here such a socket is closed
 * only when it has been looked at once more: what had arrived before is read first. That needs a socket that is read
 * directly (`onread`), since Node's streams swallow what comes behind a failed write.
 *
 * @module
 */
import type { Socket } from 'node:net'

/**
 * Lets a socket read what has arrived before it is closed for a write that failed.
 *
 * @param socket - a socket that has not failed yet
 * @param expected - whether what has arrived can be an answer, as it cannot when the request itself was not written
 */
export function hearLastWords(socket: Socket, expected: () => boolean): void {
  const { destroy } = socket
  socket.destroy = (error) => {
    socket.destroy = destroy
    if (!isFailedWrite(error) || !expected()) return socket.destroy(error)
    // The first may come before sockets are looked at again; the second comes behind that.
    setImmediate(() => setImmediate(() => socket.destroy(error)))
    return socket
  }
}

function isFailedWrite(error: NodeJS.ErrnoException | undefined): boolean {
  return error?.syscall === 'write' && (error.code === 'EPIPE' || error.code === 'ECONNRESET')
}
