/**
 * Discards the bytes that a client still sends after its last response, before its connection is closed (as nginx does).
 * Without this, the close would be a reset: clients that write all before they read (Python, Java) would lose the response.
 */
import type { Socket } from 'node:net'
import { discardInput } from './node-http.ts'
import type { SidecarRequest } from './request.ts'

const IDLE_MS = 5_000
const TOTAL_MS = 30_000

/** Of one connection. The total time covers the rest of a body and what follows it. */
export class Discard {
  readonly #socket: Socket
  #endsAtMonotonicMs: number | undefined

  constructor(socket: Socket) {
    this.#socket = socket
  }

  /** Discards the rest of a request's body, whose response is written. Then calls `end`, at least once. */
  body(req: SidecarRequest, end: () => void): void {
    req.context.changeOwner({ onIdle: end })
    req.once('end', end)
    this.#socket.once('end', end) // the request emits no `end` if its body is malformed
    this.#limit(end)
    req.resume()
  }

  /** Ends the sending half of the connection, and discards all bytes. Destroys the socket if the client does not close it. */
  afterHalfClose(): void {
    this.#socket.end()
    discardInput(this.#socket)
    this.#limit(() => this.#socket.destroy())
  }

  #limit(onLate: () => void): void {
    this.#socket.setTimeout(IDLE_MS) // then `Connection.onTimeout` ends the discard
    const now = performance.now()
    this.#endsAtMonotonicMs ??= now + TOTAL_MS
    const deadline = setTimeout(onLate, Math.max(0, this.#endsAtMonotonicMs - now))
    this.#socket.once('close', () => clearTimeout(deadline))
  }
}
