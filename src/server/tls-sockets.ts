/**
 * TLS of both listeners: options, and which TCP socket carries a TLS socket. A TLS socket cannot be reset, and has no
 * public reference to the TCP socket that can.
 */
import { constants } from 'node:crypto'
import type { Socket } from 'node:net'
import type { SecureContextOptions, TlsOptions } from 'node:tls'
import type { CertificateMaterial } from '../certificates.ts'

export class TlsSockets {
  /** The TCP sockets of handshakes that are not finished. */
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
  finish(tlsSocket: Socket): Socket | undefined {
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
export function connectionKey({ localAddress, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${remoteAddress} ${remotePort}`
}

/** With `ca`, clients must present a certificate. */
export function tlsOptions(certificates: CertificateMaterial, handshakeSeconds: number): TlsOptions {
  const requiresCertificate = certificates.ca !== undefined
  return {
    ...secureContext(certificates),
    ALPNProtocols: ['http/1.1', 'http/1.0'],
    handshakeTimeout: handshakeSeconds * 1000,
    requestCert: requiresCertificate,
    rejectUnauthorized: requiresCertificate,
  }
}

export function secureContext(certificates: CertificateMaterial): SecureContextOptions {
  return {
    ...certificates,
    minVersion: 'TLSv1.2', // RFC 8996
    secureOptions: constants.SSL_OP_NO_RENEGOTIATION, // a client could ask for one expensive handshake after another
  }
}
