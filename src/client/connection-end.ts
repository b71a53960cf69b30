/**
 * Whether and how a client's connection ends (RFC 9112, sections 9.3 and 9.6).
 *
 * What follows a response, by the first row that applies (`afterResponse`):
 *
 *   the body is unread; the client waits for `100 Continue`     close
 *   the body is unread; Node's parser has left the socket       close
 *   the body of the request is unread                           drain      close once it has arrived; it is dropped
 *   its sender asks for a close                                 close      `Connection: close`; Node closes after the last byte
 *   the response is close-delimited                             close
 *   the process drains                                          close
 *   the request is not admitted                                 close
 *   the body of the request is malformed                        close
 *   the client sent `Connection: close`                         close
 *   Node has discarded the bytes behind an offer to upgrade     close
 *   none of these                                               keepAlive  Node reads the next request
 *
 * How an abort ends the connection, by the first row that applies (`abortConnection`):
 *
 *   no head of a response is written   close
 *   the response is close-delimited    reset  a close is its end
 *   the request has arrived            reset  clients that do not count bytes (Ruby's `Net::HTTP`) take a close for the end
 *   its body still arrives             close  a reset could fail the client's writes before it reads the response
 */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { SidecarRequest } from './context.ts'
import { DISCARDS_AFTER_OFFER, keepAfterLastResponse, resetOrDestroy } from './node-http.ts'

/** What the sender of a response asks for. `closeDelimited`: only the end of the connection ends its body. */
export type Persistence = 'keepAlive' | 'close' | 'closeDelimited'

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
  if (!req.complete && !req.socket.readableEnded && (admitted === undefined || admitted.hasBody))
    return isDetached || (expectsContinue(req) && !hasContinued) ? 'close' : 'drain'
  if (asked !== 'keepAlive' || connection.isDraining()) return 'close'
  if (admitted === undefined || isBodyMalformed) return 'close'
  if (admitted.lines.connectionOptions?.has('close')) return 'close'
  return DISCARDS_AFTER_OFFER && admitted.offersUpgrade && !isDetached ? 'close' : 'keepAlive'
}

/** Also of a request that is not admitted. HTTP/1.0 has no `Expect`. */
function expectsContinue({ httpVersionMinor, headers }: SidecarRequest): boolean {
  return httpVersionMinor > 0 && headers.expect?.toLowerCase() === '100-continue'
}

/** `res`: absent between requests. */
export function abortConnection(socket: Socket, tcpSocket: Socket, res: CurrentResponse | undefined): void {
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
  socket.resume()
  socket.setTimeout(DRAIN_IDLE_MS)
  const deadline = setTimeout(() => socket.destroy(), DRAIN_TOTAL_MS)
  socket.once('close', () => clearTimeout(deadline))
}
