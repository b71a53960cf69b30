/**
 * Discards the bytes that still arrive from a client before its connection is closed (as nginx does). Without this, the close
 * would be a reset: clients that write all before they read (Python, Java) would lose the last response.
 * A discard ends after the time without a byte, or after the total time.
 */
import type { Socket } from 'node:net'
import type { SidecarRequest } from './context.ts'

const DISCARD_IDLE_MS = 5_000
const DISCARD_TOTAL_MS = 30_000

/** Discards the rest of the request's body, whose response has been written. Then calls `end`, perhaps more than once. */
export function discardBody(req: SidecarRequest, end: () => void): void {
  req.context.changeOwner({ state: 'unreadBody' })
  req.once('end', end)
  req.socket.once('end', end) // the request emits no `end` if its body is malformed
  limitTime(req.socket, end)
  req.resume()
}

/** Ends the sending half of the connection, and discards all bytes. Destroys the socket if the client does not close it. */
export function halfClose(socket: Socket): void {
  socket.end()
  discardInput(socket)
  limitTime(socket, () => socket.destroy())
}

/** Drops the bytes that still arrive. Node's parser would keep each request, more than 1 KB, until the connection ends. */
export function discardInput(socket: Socket): void {
  const onResume = () => {
    if (socket.isPaused()) return // `pauseWhile` has paused it again
    socket.removeListener('resume', onResume)
    socket.on('data', () => {}) // until `data` has a listener, the parser reads the socket without events
    socket.removeAllListeners('data') // including Node's, which passes bytes to the parser
  }
  socket.removeListener('finish', socket.destroy) // added by `destroySoon`, which Node calls after its last response
  socket.on('resume', onResume)
  socket.pause()
  socket.resume()
}

function limitTime(socket: Socket, onLate: () => void): void {
  socket.setTimeout(DISCARD_IDLE_MS).once('timeout', onLate)
  const deadline = setTimeout(onLate, DISCARD_TOTAL_MS)
  socket.once('close', () => clearTimeout(deadline))
}
