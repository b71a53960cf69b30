/**
 * Drops the bytes that still arrive from a client before its connection is closed (as nginx does). Without this, the close
 * would be a reset: clients that write all before they read (Python, Java) would lose the last response.
 * A drain ends after the time without a byte, or after the total time.
 */
import type { Socket } from 'node:net'
import type { SidecarRequest } from './context.ts'
import { discardInput } from './node-http.ts'

const DRAIN_IDLE_MS = 5_000
const DRAIN_TOTAL_MS = 30_000

/** Drops the rest of the request's body, whose response has been written. Then calls `end`, perhaps more than once. */
export function drainBody(req: SidecarRequest, end: () => void): void {
  req.context.changeOwner({ state: 'unreadBody' })
  req.once('end', end)
  req.socket.once('end', end) // the request emits no `end` if its body is malformed
  limitDrain(req.socket, end)
  req.resume()
}

/** Drops all bytes. Then destroys the socket, unless the client has closed the connection. */
export function drainSocket(socket: Socket): void {
  discardInput(socket)
  limitDrain(socket, () => socket.destroy())
}

function limitDrain(socket: Socket, onLate: () => void): void {
  socket.setTimeout(DRAIN_IDLE_MS).once('timeout', onLate)
  const deadline = setTimeout(onLate, DRAIN_TOTAL_MS)
  socket.once('close', () => clearTimeout(deadline))
}
