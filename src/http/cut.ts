/**
 * Cutting a connection in the middle of a response.
 *
 * In: a connection whose response will not be whole. Out: its end, such that nobody takes what was sent for all of it:
 * a length or the last chunk is missing, or, where the end of the connection is the end of the body, it ends by reset.
 *
 * @module
 */
import type { Socket } from 'node:net'
import { resetConnection } from './secure-server.ts'
import type { SidecarResponse } from './sidecar-response.ts'

/** A response that has begun, and what it keeps to itself for a moment. */
export type BegunResponse = Pick<SidecarResponse, 'framedByClose' | 'writableCorked' | 'uncork'>

/** Destroys a connection and the responses on it. */
export function cut(socket: Socket, responses: Iterable<BegunResponse>): void {
  let framedByClose = false
  // What has been given to a response in this turn waits to be written together, in the response from Node 26 on and in
  // its socket before, which it uncorks, too; the client must see it begin.
  for (const response of responses) {
    framedByClose ||= response.framedByClose
    while (response.writableCorked > 0) response.uncork()
  }
  if (framedByClose) resetConnection(socket)
  else socket.destroy()
}
