/**
 * Discards the bytes that still arrive from a client before its connection is closed (as nginx does). Without this, the close
 * would be a reset: clients that write all before they read (Python, Java) would lose the last response.
 * A discard ends after the time without a byte, or after the total time.
 */
import type { Socket } from 'node:net'
import type { SidecarRequest } from './context.ts'
import { discardInput } from './node-http.ts'

const DISCARD_IDLE_MS = 5_000
const DISCARD_TOTAL_MS = 30_000

/** Discards the rest of the request's body, whose response has been written. Then calls `end`, perhaps more than once. */
export function discardBody(req: SidecarRequest, end: () => void): void {
  req.context.changeOwner({ state: 'unreadBody', onIdle: end })
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

function limitTime(socket: Socket, onLate: () => void): void {
  socket.setTimeout(DISCARD_IDLE_MS) // then `Connection.onTimeout` ends the discard
  const deadline = setTimeout(onLate, DISCARD_TOTAL_MS)
  socket.once('close', () => clearTimeout(deadline))
}
