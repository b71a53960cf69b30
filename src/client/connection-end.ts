/**
 * The end of a connection in order, after its last response. `Connection.abort` ends it at once.
 * It depends on what may still arrive:
 *
 *   nothing              Node closes the connection once the response is sent
 *   the rest of a body   is discarded before the end (`discardBody`): a Node client that receives an end
 *                        stops writing
 *   any other bytes      the connection is half-closed at once (`halfClose`). Bytes are discarded until the
 *                        client closes its half
 *
 * Bytes are discarded, as by nginx, because the close would otherwise be a reset: clients that write
 * everything before they read (Python, Java) would lose the response.
 */
import type { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { discardInput } from '../http/node-http.ts'
import type { SidecarRequest } from './request.ts'
import type { Turns } from './turns.ts'

const DISCARD_IDLE_MS = 5_000
/** For the rest of a body and what follows it together. */
const DISCARD_MS = 30_000

export class ConnectionEnd {
  readonly #socket: Socket
  readonly #turns: Turns
  #discardsSinceMonotonicMs: number | undefined

  constructor(socket: Socket, turns: Turns) {
    this.#socket = socket
    this.#turns = turns
  }

  /** When the discard began. Undefined before. */
  get discardsSinceMonotonicMs(): number | undefined {
    return this.#discardsSinceMonotonicMs
  }

  /**
   * Discards the rest of the body, then ends response and connection.
   * `end`: only its first call has an effect.
   */
  discardBody(req: SidecarRequest, isCloseDelimited: boolean, end: () => void): void {
    const socket = this.#socket
    // Only this end completes the response, so the client may wait for it.
    // It waits until all is sent: an ended socket cannot reset the connection.
    if (isCloseDelimited) {
      socket.write('', () => socket.end())
    }
    req.context.changeOwner({ onIdle: end })
    req.once('end', end)
    socket.once('end', end) // the request emits no `end` if its body is malformed
    this.#limitDiscard(end)
    req.on('data', this.#pauseForOthers(req))
    req.resume()
  }

  /**
   * Ends the sending half of the connection, and discards all bytes.
   * Destroys the socket if the client does not close it.
   */
  halfClose(): void {
    this.#socket.end()
    this.discardInput()
    this.#limitDiscard(() => this.#socket.destroy())
  }

  discardInput(): void {
    discardInput(this.#socket, this.#pauseForOthers(this.#socket))
  }

  /**
   * Returns a listener for each read: it pauses the input until a later turn of the event loop, which
   * many such clients would otherwise occupy.
   */
  #pauseForOthers(input: Readable): () => void {
    const resume = () => {
      input.resume()
    }
    return () => {
      input.pause()
      this.#turns.defer(resume, 'low')
    }
  }

  #limitDiscard(onLate: () => void): void {
    this.#socket.setTimeout(DISCARD_IDLE_MS) // then `Connection.onTimeout` ends the discard
    const now = performance.now()
    this.#discardsSinceMonotonicMs ??= now
    const endsAtMonotonicMs = this.#discardsSinceMonotonicMs + DISCARD_MS
    const deadline = setTimeout(onLate, Math.max(0, endsAtMonotonicMs - now))
    this.#socket.once('close', () => clearTimeout(deadline))
  }
}
