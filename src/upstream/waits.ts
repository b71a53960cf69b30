/**
 * The waits of an upstream connection for its upstream, with their limits and failures, and
 * the clock that measures them.
 */
import type { Socket } from 'node:net'

/**
 * A wait fails once no byte has moved for the time of its setting. The status of a failure: `base/errors.ts`.
 */
export const WAITS = {
  address: { limit: 'upstreamConnectSeconds', failure: 'dns_error' },
  connection: { limit: 'upstreamConnectSeconds', failure: 'connection_timeout' },
  upstreamToRead: { limit: 'idleSeconds', failure: 'connection_write_timeout' },
  responseHead: { limit: 'upstreamResponseSeconds', failure: 'http_response_timeout' },
  responseBody: { limit: 'idleSeconds', failure: 'connection_read_timeout' },
} as const

/**
 * Grows when bytes are written, and again when the system accepts them.
 * Linux accepts more only once a third of the send buffer, up to 1.4 MB, is free: with `idleSeconds` of 60,
 * an upstream that reads below 23 KB/s counts as idle.
 */
function writeProgress(socket: Socket | undefined): number {
  if (socket === undefined) {
    return 0
  }
  return 2 * socket.bytesWritten - socket.writableLength
}

/** The lookup and the connect have one deadline, because no byte moves between them. */
export class WaitClock {
  #written = 0
  #read = 0
  #sinceMonotonicMs: number | undefined = performance.now()

  /**
   * Returns how long no byte has moved in the current wait. Must be called several times a second,
   * whether it waits or not: only these calls measure, so no event can forget to restart the clock.
   * `read`: the bytes read that count. `socket`: undefined until TCP is connected.
   */
  measure(isWaiting: boolean, socket: Socket | undefined, read: number, monotonicNow: number): number {
    const written = writeProgress(socket)
    const hasMoved = written !== this.#written || read !== this.#read
    this.#written = written
    this.#read = read
    if (!isWaiting) {
      this.#sinceMonotonicMs = undefined
    } else if (hasMoved) {
      this.#sinceMonotonicMs = monotonicNow
    } else {
      this.#sinceMonotonicMs ??= monotonicNow
    }
    return monotonicNow - (this.#sinceMonotonicMs ?? monotonicNow)
  }
}
