/**
 * What follows a response on its connection (`afterResponse`), and how the connection ends after the last one.
 *
 *   the last response is written                              Node closes the connection after the written bytes
 *     the body of its request is unread                       first, `discardBody`
 *     something waits behind it, or the socket is detached    `halfClose`
 *   a refusal without a request is written                    `halfClose`
 *   a response cannot be completed                            `destroyOrReset`
 *
 * Bytes that the client still sends after its last response are discarded (as nginx does). Without this, the close would be a
 * reset: clients that write all before they read (Python, Java) would lose the response.
 */
import { CAN_DECLINE_UPGRADES, discardInput } from '../http/node-http.ts'
import type { ClientConnection, SidecarRequest } from './request.ts'

/** What the caller asks for. `closeDelimited`: only the end of the connection ends the body of the response. */
export type Persistence = 'keepAlive' | 'close' | 'closeDelimited'

/** `close`: Node closes the connection after the last byte. `discard`: the sidecar first discards the rest of the request. */
export type AfterResponse = 'keepAlive' | 'close' | 'discard'

/** RFC 9112, sections 9.3 and 9.6. `holdsBody`: the client sends the body only after a `100 Continue`. */
export function afterResponse(req: SidecarRequest, asked: Persistence, holdsBody: boolean): AfterResponse {
  const { admitted, isBodyMalformed, isDetached, connection } = req.context
  // No request can be read behind an unread body.
  if (!req.complete && !req.socket.readableEnded && (admitted === undefined || admitted.hasBody))
    return holdsBody || isDetached ? 'close' : 'discard' // no parser reads the body of an upgrade
  if (asked !== 'keepAlive' || connection.isDraining() || admitted === undefined || isBodyMalformed)
    return 'close'
  if (admitted.lines.connectionOptions?.has('close')) return 'close'
  // Node's parser obeys these trailers, too, and then refuses the next request.
  if (req.rawTrailers.some((name) => /^(?:proxy-)?connection$/i.test(name))) return 'close'
  if (!admitted.offersUpgrade || isDetached) return 'keepAlive'
  // Node discards the bytes that it has read behind a head that offers an upgrade. They may be a request.
  if (!CAN_DECLINE_UPGRADES || admitted.hasBody) return 'close'
  return connection.nextHead.mayHaveLostBytes(req) ? 'close' : 'keepAlive'
}

/** A response that is written before all of its request is read. */
export type LastResponse = Readonly<{ req: SidecarRequest; isCloseDelimited: boolean; end(): void }>

const DISCARD_IDLE_MS = 5_000
/** Covers the rest of a body and what follows it. */
const DISCARD_MS = 30_000

/** Discards the rest of the body of its request, then ends the response, and with it the connection. */
export function discardBody(res: LastResponse): void {
  const { req, isCloseDelimited } = res
  const { connection } = req.context
  const { socket } = connection
  const end = () => res.end() // only the first call has an effect
  // The client may wait for this end. Not before all is sent: an ended socket cannot reset the connection.
  if (isCloseDelimited) socket.write('', () => socket.end())
  req.context.changeOwner({ onIdle: end })
  req.once('end', end)
  socket.once('end', end) // the request emits no `end` if its body is malformed
  limitDiscard(connection, end)
  req.resume()
}

/** Ends the sending half of the connection, and discards all bytes. Destroys the socket if the client does not close it. */
export function halfClose(connection: ClientConnection): void {
  const { socket } = connection
  socket.end()
  discardInput(socket)
  limitDiscard(connection, () => socket.destroy())
}

function limitDiscard(connection: ClientConnection, onLate: () => void): void {
  const { socket } = connection
  socket.setTimeout(DISCARD_IDLE_MS) // then `Connection.onTimeout` ends the discard
  const now = performance.now()
  connection.discardEndsAtMonotonicMs ??= now + DISCARD_MS
  const deadline = setTimeout(onLate, Math.max(0, connection.discardEndsAtMonotonicMs - now))
  socket.once('close', () => clearTimeout(deadline))
}

/**
 * Ends the connection at once. `cut`: the response of which the client has a part. After a clean end, one that is close-delimited
 * would look complete, and Ruby's `Net::HTTP` takes others for complete, too. But while the client sends, a reset could fail its
 * writes before it reads.
 */
export function destroyOrReset({ socket, tcpSocket }: ClientConnection, cut?: LastResponse): void {
  const mustReset = cut !== undefined && (cut.isCloseDelimited || cut.req.complete)
  // `uv_tcp_close_reset` refuses an ended socket, and `close` would never be emitted.
  if (mustReset && !socket.writableEnded) tcpSocket.resetAndDestroy()
  else socket.destroy()
}
