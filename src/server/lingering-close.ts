/**
 * Lingering close, within the bounds of nginx's: the last bytes are sent, then what the client still sends is drained, before
 * the connection ends. Clients that send everything before they read (Python, Java; all over TLS) lose a response to a reset.
 */
import type { Socket } from 'node:net'
import type { SidecarRequest, SidecarResponse } from './context.ts'

/** A drain ends after so many milliseconds without a byte, or in all. */
const DRAIN_IDLE_MS = 5_000
const DRAIN_TOTAL_MS = 30_000

/** Whether a part of the body may still arrive. */
export function hasUnreadBody({ complete, socket, context: { admitted } }: SidecarRequest): boolean {
  return !complete && !socket.readableEnded && (admitted === undefined || admitted.hasBody)
}

/**
 * Ends a response that says `Connection: close` and whose body has been written. Node closes at `end()`, so the drain
 * comes first. `trailers`: of a chunked response.
 */
export function endAfterBody(
  res: SidecarResponse,
  trailers: readonly (readonly [name: string, value: string])[] = [],
): void {
  const { req } = res
  res.isComplete = true
  if (res.chunkedEncoding) {
    // Node 26 holds chunks until the next tick, and loses them once the encoding is off.
    while (res.writableCorked > 0) res.uncork()
    res.chunkedEncoding = false
    res.write(`0\r\n${trailers.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`, 'latin1')
  }
  const { context, socket, headers } = req
  // A client that waits for `100 Continue` sends no body, and an upgraded socket has no parser.
  const isAwaited = !res.isContinued && headers.expect?.toLowerCase() === '100-continue'
  if (req.readableEnded || isAwaited || context.isDetached) {
    res.end()
    return
  }
  const finish = () => res.end()
  const deadline = setTimeout(finish, DRAIN_TOTAL_MS)
  context.changeOwner({ state: 'drain', onIdle: finish, onRelease: () => clearTimeout(deadline) })
  socket.setTimeout(DRAIN_IDLE_MS)
  req.once('end', finish)
  socket.once('end', finish) // a malformed body does not end
  req.resume()
}

/** Sends the last bytes of a connection, and drops those that still arrive. */
export function endConnection(socket: Socket, text = ''): void {
  socket.end(text, 'latin1')
  dropUnread(socket)
}

export function dropUnread(socket: Socket): void {
  socket.resume()
  socket.setTimeout(DRAIN_IDLE_MS)
  const deadline = setTimeout(() => socket.destroy(), DRAIN_TOTAL_MS)
  socket.once('close', () => clearTimeout(deadline))
}
