/**
 * TLS of the data listener: options, and which TCP socket carries a TLS socket. A TLS socket cannot be reset, and has
 * no public reference to the TCP socket that can.
 */
import type { Socket } from 'node:net'
import type { TlsOptions } from 'node:tls'
import { ALPN_PROTOCOLS, type CertificateSet } from './certificates.ts'

export class TlsSockets {
  readonly #pending = new Map<string, Socket>()

  get pending(): number {
    return this.#pending.size
  }

  add(tcpSocket: Socket): void {
    const key = connectionKey(tcpSocket)
    this.#pending.set(key, tcpSocket)
    tcpSocket.once('close', () => {
      if (this.#pending.get(key) === tcpSocket) this.#pending.delete(key)
    })
  }

  /** Returns the TCP socket of a finished handshake; undefined if the client has reset: then there are no addresses. */
  take(tlsSocket: Socket): Socket | undefined {
    const key = connectionKey(tlsSocket)
    const tcpSocket = this.#pending.get(key)
    this.#pending.delete(key)
    return tcpSocket
  }

  destroyPending(): void {
    for (const tcpSocket of this.#pending.values()) tcpSocket.destroy()
  }
}

/** A TLS socket and its TCP socket have the same. */
function connectionKey({ localAddress, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${remoteAddress} ${remotePort}`
}

/** With `ca`, clients must present a certificate. */
export function tlsOptions({ options }: CertificateSet, handshakeSeconds: number): TlsOptions {
  const requiresCertificate = options.ca !== undefined
  return {
    ...options,
    ALPNProtocols: ALPN_PROTOCOLS,
    handshakeTimeout: handshakeSeconds * 1000,
    requestCert: requiresCertificate,
    rejectUnauthorized: requiresCertificate,
  }
}
