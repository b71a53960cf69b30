/**
 * What follows a response on its connection, and how a connection ends (RFC 9112, sections 9.3 and 9.6). In order of time:
 *
 *   `afterResponse`     decides, and `response.ts` announces a close in the head
 *   `drainBody`         follows the last byte of a response that is sent before its request has arrived
 *   Node                then keeps the connection for the next request, or ends it
 *   `halfClose`         ends it in Node's place: requests are behind the last response, no response object exists (a
 *                       refusal by the parser), or Node has detached the socket
 *   `abort`             ends it at once: timeout, failure, stop of the process
 */
import type { Socket } from 'node:net'
import type { SidecarRequest } from './context.ts'
import { DISCARDS_AFTER_OFFER, discardInput, resetOrDestroy } from './node-http.ts'
import type { SidecarResponse } from './response.ts'

/** What the sender of a response asks for. `closeDelimited`: only the end of the connection ends its body. */
export type Persistence = 'keepAlive' | 'close' | 'closeDelimited'

/** `close`: Node closes after the last byte. `drain`: the rest of the request is dropped first. */
export type AfterResponse = 'keepAlive' | 'close' | 'drain'

/** The bounds of what is dropped: a time without a byte, and a time in all. They are those of nginx's lingering close. */
const DRAIN_IDLE_MS = 5_000
const DRAIN_TOTAL_MS = 30_000

/** `hasContinued`: the client has been asked for its body. */
export function afterResponse(req: SidecarRequest, asked: Persistence, hasContinued: boolean): AfterResponse {
  const { admitted, isBodyMalformed, isUpgrade, connection } = req.context
  // No request can be read behind an unread body.
  if (!req.complete && !req.socket.readableEnded && (admitted === undefined || admitted.hasBody)) {
    const waits = req.httpVersionMinor > 0 && req.headers.expect?.toLowerCase() === '100-continue'
    const mayArrive = hasContinued || !waits
    return mayArrive && !isUpgrade ? 'drain' : 'close' // no parser reads the body behind an upgrade
  }
  if (asked !== 'keepAlive' || connection.isDraining() || admitted === undefined || isBodyMalformed)
    return 'close'
  if (admitted.lines.connectionOptions?.has('close')) return 'close'
  // What Node has discarded behind an offer may have been a request.
  return DISCARDS_AFTER_OFFER && admitted.offersUpgrade && !isUpgrade ? 'close' : 'keepAlive'
}

/** Drops the rest of a request's body, whose response is written. Then it calls `end`. */
export function drainBody(req: SidecarRequest, end: () => void): void {
  // A close with unread bytes is a reset. Clients that write all before they read (Python, Java) would lose the response.
  const { context, socket } = req
  const deadline = setTimeout(end, DRAIN_TOTAL_MS)
  context.changeOwner({ state: 'unreadBody', onIdle: end, onClosed: () => clearTimeout(deadline) })
  socket.setTimeout(DRAIN_IDLE_MS)
  req.once('end', end)
  socket.once('end', end) // the request emits no `end` if its body is malformed
  req.resume()
}

/** Sends the end of a connection, and drops what still arrives: a close with unread bytes is a reset. `text`: sent before. */
export function halfClose(socket: Socket, text = ''): void {
  if (text !== '') socket.write(text, 'latin1')
  socket.end()
  discardInput(socket)
  socket.setTimeout(DRAIN_IDLE_MS)
  const deadline = setTimeout(() => socket.destroy(), DRAIN_TOTAL_MS)
  socket.once('close', () => clearTimeout(deadline))
}

/** Ends a connection at once, even within a response. `res`: absent between requests. */
export function abort(socket: Socket, tcpSocket: Socket, res: SidecarResponse | undefined): void {
  // The clean end of the connection would complete a close-delimited body. Some clients (Ruby's `Net::HTTP`) do not count
  // the bytes of other bodies either. While the client sends its body, a reset could fail its writes before it reads.
  if (res?.headersSent && (res.isCloseDelimited || res.req.complete)) resetOrDestroy(socket, tcpSocket)
  else socket.destroy()
}
