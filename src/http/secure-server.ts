/**
 * The data listener's server with TLS.
 *
 * In: sockets and certificates. Out: a server whose connections are announced once their handshake is over. TLS 1.2 and
 * newer, HTTP/1.1 and nothing else inside; where authorities are given, only clients that show a certificate of theirs.
 * A handshake has its time, and one that fails costs nobody else anything.
 *
 * @module
 */
import { constants } from 'node:crypto'
import type { Socket } from 'node:net'
import { createServer, type SecureContextOptions, type Server } from 'node:tls'
import type { CertificateMaterial } from '../reload/certificates.ts'

/** What TLS to clients works with. */
export interface SecureServerOptions {
  /** What is shown to begin with. With authorities (`ca`), clients must show a certificate. */
  readonly certificates: CertificateMaterial
  /** How long a handshake may take, in milliseconds. */
  readonly handshakeMs: number
  /** A clock that never goes back, in milliseconds. */
  readonly monotonicNow: () => number
}

/** A server that speaks TLS. */
export interface SecureServer {
  readonly server: Server
  /** Connections whose handshake is not over. */
  readonly handshakes: number
  /** Shows other certificates to clients that come from now on. */
  renew(certificates: CertificateMaterial): void
  /** Closes connections whose handshake is not over and which were opened at that time or before. */
  closeHandshakes(openedUntil: number): void
}

/** Makes a server that does not listen yet. */
export function createSecureServer({
  certificates,
  handshakeMs,
  monotonicNow,
}: SecureServerOptions): SecureServer {
  const requiresCertificate = certificates.ca !== undefined
  const server = createServer({
    noDelay: true,
    ...contextOptions(certificates),
    ALPNProtocols: ['http/1.1'],
    handshakeTimeout: handshakeMs,
    requestCert: requiresCertificate,
    rejectUnauthorized: requiresCertificate,
  })
  /** When each was opened, by the sockets that carry them. */
  const handshakes = new Map<Socket, number>()
  server.on('connection', (carrier: Socket) => {
    handshakes.set(carrier, monotonicNow())
    carrier.once('close', () => handshakes.delete(carrier))
  })
  server.on('secureConnection', (socket) => {
    handshakes.delete(carrierOf(socket))
    // Not sooner: who says his end in a handshake is gone, and must not hold a place.
    socket.allowHalfOpen = true
  })

  return {
    server,
    get handshakes() {
      return handshakes.size
    },
    renew: (next) => server.setSecureContext(contextOptions(next)),
    closeHandshakes(openedUntil) {
      for (const [carrier, openedAt] of handshakes) if (openedAt <= openedUntil) carrier.destroy()
    },
  }
}

function contextOptions(certificates: CertificateMaterial): SecureContextOptions {
  return {
    ...certificates,
    minVersion: 'TLSv1.2', // RFC 8996
    secureOptions: constants.SSL_OP_NO_RENEGOTIATION, // a client could ask for one costly handshake after the other
  }
}

/**
 * Breaks a connection off with a reset, so that nobody takes what came last for the end of anything. Under TLS, too:
 * many clients do not tell a connection that was closed without a `close_notify` from one that has ended.
 */
export function resetConnection(socket: Socket): void {
  carrierOf(socket).resetAndDestroy()
}

/** The TCP connection itself. Node's own name for it has been the same since TLS was rewritten for version 0.11. */
function carrierOf(socket: Socket & { readonly _parent?: Socket | null }): Socket {
  return socket._parent ?? socket
}
