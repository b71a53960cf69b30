/** TLS of both listeners: their options, and the sockets of the data listener. */
import { constants } from 'node:crypto'
import type { Socket } from 'node:net'
import type { SecureContextOptions, TlsOptions } from 'node:tls'

export const LISTENER_OPTIONS: SecureContextOptions = {
  minVersion: 'TLSv1.2', // RFC 8996
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION, // a client could repeat expensive handshakes
}

export const ALPN_PROTOCOLS = ['http/1.1', 'http/1.0'] // RFC 7301

/** Returns the options of the data listener. With `ca`, clients must present a certificate. */
export function tlsOptions(options: SecureContextOptions, handshakeSeconds: number): TlsOptions {
  const requiresCertificate = options.ca !== undefined
  return {
    ...options,
    ALPNProtocols: ALPN_PROTOCOLS,
    handshakeTimeout: handshakeSeconds * 1000,
    requestCert: requiresCertificate,
    rejectUnauthorized: requiresCertificate,
  }
}

/**
 * Finds the TCP socket of a TLS socket.
 * Only the TCP socket can be reset, and Node has no public reference to it.
 */
export class TlsSockets {
  readonly #pending = new Map<string, Socket>()

  get pending(): number {
    return this.#pending.size
  }

  add(tcpSocket: Socket): void {
    const key = connectionKey(tcpSocket)
    this.#pending.set(key, tcpSocket)
    // `detectReset` may cause an error. Without a listener, it would end the process.
    tcpSocket.on('error', () => {})
    tcpSocket.once('close', () => {
      if (this.#pending.get(key) === tcpSocket) {
        this.#pending.delete(key)
      }
    })
  }

  /**
   * Returns the TCP socket of a finished handshake.
   * Undefined after a reset: the sockets then have no addresses.
   */
  take(tlsSocket: Socket): Socket | undefined {
    const key = connectionKey(tlsSocket)
    const tcpSocket = this.#pending.get(key)
    this.#pending.delete(key)
    return tcpSocket
  }

  /** Destroys the socket whose handshake has lasted longest. Returns false if there is none. */
  destroyOldest(): boolean {
    const [oldest] = this.#pending
    if (oldest === undefined) {
      return false
    }
    const [key, tcpSocket] = oldest
    this.#pending.delete(key)
    tcpSocket.destroy()
    return true
  }

  destroyPending(): void {
    for (const tcpSocket of this.#pending.values()) {
      tcpSocket.destroy()
    }
  }
}

/** A TLS socket and its TCP socket have the same key. */
const connectionKey = ({ localAddress, remoteAddress, remotePort }: Socket): string =>
  `${localAddress} ${remoteAddress} ${remotePort}`
