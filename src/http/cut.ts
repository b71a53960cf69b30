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

/**
 * Destroys a connection.
 *
 * @param framedByClose - whether a clean end would be the very end of the response
 */
export function cut(socket: Socket, framedByClose: boolean): void {
  // What has been given to the response in this turn waits to be written together; the client must see it begin.
  while (socket.writableCorked > 0) socket.uncork()
  if (framedByClose) resetConnection(socket)
  else socket.destroy()
}
