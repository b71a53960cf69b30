/**
 * The connections of this process to its upstreams, so that a listener of this process recognises them:
 * a request that arrives on one of them has been forwarded by the sidecar to itself, and
 * would be forwarded for ever.
 */
import type { Socket } from 'node:net'

/** The ends of a connection, as a socket has them. */
interface Ends {
  readonly localAddress?: string | undefined
  readonly localPort?: number | undefined
  readonly remoteAddress?: string | undefined
  readonly remotePort?: number | undefined
}

export class OwnConnections {
  readonly #byLocalPort = new Map<number, Set<Socket>>()

  /** `socket` must be connected. A unix socket, which has no port, is not kept. */
  add(socket: Socket): void {
    const port = socket.localPort
    if (port === undefined) {
      return
    }
    const sockets = this.#byLocalPort.get(port) ?? new Set()
    this.#byLocalPort.set(port, sockets.add(socket))
    socket.once('close', () => {
      sockets.delete(socket)
      if (sockets.size === 0) {
        this.#byLocalPort.delete(port)
      }
    })
  }

  /**
   * Whether the other end of an accepted connection is in this process.
   * Compares all four parts: a port alone may be in use twice.
   */
  has(accepted: Ends): boolean {
    const sockets = this.#byLocalPort.get(accepted.remotePort ?? 0)
    if (sockets === undefined) {
      return false
    }
    for (const socket of sockets) {
      if (isSameConnection(socket, accepted)) {
        return true
      }
    }
    return false
  }
}

const isSameConnection = (opened: Ends, accepted: Ends) =>
  opened.localPort === accepted.remotePort &&
  opened.remotePort === accepted.localPort &&
  withoutMapping(opened.localAddress) === withoutMapping(accepted.remoteAddress) &&
  withoutMapping(opened.remoteAddress) === withoutMapping(accepted.localAddress)

/** A listener for both families sees IPv4 addresses as `::ffff:127.0.0.1`. */
const withoutMapping = (address = '') => address.replace(/^::ffff:/i, '')
