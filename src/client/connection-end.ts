/** What follows a response on its connection, and how a connection ends (RFC 9112, sections 9.3 and 9.6). */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { SidecarRequest } from './context.ts'
import { DISCARDS_AFTER_OFFER, discardInput, keepAfterLastResponse, resetOrDestroy } from './node-http.ts'

/** What the sender of a response asks for. `closeDelimited`: only the end of the connection ends its body. */
export type Persistence = 'keepAlive' | 'close' | 'closeDelimited'

/** `close`: Node closes after the last byte. `drain`: the rest of the request is dropped first. */
export type AfterResponse = 'keepAlive' | 'close' | 'drain'

interface CurrentResponse extends ServerResponse<SidecarRequest> {
  readonly isCloseDelimited: boolean
}

/** What still arrives is dropped for so long without a byte, and in all: the bounds of nginx's lingering close. */
const DRAIN_IDLE_MS = 5_000
const DRAIN_TOTAL_MS = 30_000

/** `hasContinued`: the client has been asked for its body. */
export function afterResponse(req: SidecarRequest, asked: Persistence, hasContinued: boolean): AfterResponse {
  const { admitted, isBodyMalformed, isDetached, connection } = req.context
  // No request can be read behind an unread body.
  if (!req.complete && !req.socket.readableEnded && (admitted === undefined || admitted.hasBody)) {
    const mayArrive = hasContinued || !expectsContinue(req)
    return mayArrive && !isDetached ? 'drain' : 'close' // no parser reads a detached socket
  }
  if (asked !== 'keepAlive' || connection.isDraining() || admitted === undefined || isBodyMalformed)
    return 'close'
  if (admitted.lines.connectionOptions?.has('close')) return 'close'
  // What Node has discarded behind an offer may have been a request.
  return DISCARDS_AFTER_OFFER && admitted.offersUpgrade && !isDetached ? 'close' : 'keepAlive'
}

/** Also of a request that is not admitted. HTTP/1.0 has no `Expect`. */
function expectsContinue({ httpVersionMinor, headers }: SidecarRequest): boolean {
  return httpVersionMinor > 0 && headers.expect?.toLowerCase() === '100-continue'
}

/** Ends a connection, perhaps within a response. `res`: absent between requests. */
export function abortConnection(socket: Socket, tcpSocket: Socket, res: CurrentResponse | undefined): void {
  // A close would end a close-delimited body. Clients that do not count bytes (Ruby's `Net::HTTP`) take it for any end.
  // While the client sends its body, a reset could fail its writes before it reads the response.
  if (res?.headersSent && (res.isCloseDelimited || res.req.complete)) resetOrDestroy(socket, tcpSocket)
  else socket.destroy()
}

/** Drops the rest of the body of a request that has been responded to, then calls `end`. */
export function drainBody(req: SidecarRequest, end: () => void): void {
  // Clients that send everything before they read (Python, Java; all over TLS) would lose the response to a reset.
  const { context, socket } = req
  const deadline = setTimeout(end, DRAIN_TOTAL_MS)
  context.changeOwner({ state: 'unreadBody', onIdle: end, onRelease: () => clearTimeout(deadline) })
  socket.setTimeout(DRAIN_IDLE_MS)
  req.once('end', end)
  socket.once('end', end) // a malformed body does not end
  req.resume()
}

/** Ignores the requests behind the last response. */
export function dropRequests(socket: Socket, requests: readonly CurrentResponse[]): void {
  keepAfterLastResponse(socket)
  for (const { req } of requests) req.resume()
  endConnection(socket)
}

/** Sends the last bytes of a connection, and drops what still arrives. `text`: a response without its object. */
export function endConnection(socket: Socket, text = ''): void {
  if (text !== '') socket.write(text, 'latin1')
  socket.end()
  discardInput(socket)
  socket.setTimeout(DRAIN_IDLE_MS)
  const deadline = setTimeout(() => socket.destroy(), DRAIN_TOTAL_MS)
  socket.once('close', () => clearTimeout(deadline))
}
