/**
 * The HTTP server of the admin listener, over TLS where it has certificates. A new connection is always accepted: above
 * the limit the oldest idle one is closed, so that clients that hold connections never block a probe.
 */
import { createServer, type RequestListener, type Server } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { Socket } from 'node:net'
import type { CertificateMaterial } from '../reload/certificates.ts'

/** Twice Node's backlog: among many connections accepted at once, a probe is read before it is the oldest. */
const MAX_CONNECTIONS = 1024

interface Connection {
  readonly socket: Socket
  /** Requests without a complete response. */
  pending: number
}

/** @param certificates - undefined: plain HTTP */
export function createAdminServer(certificates: CertificateMaterial | undefined, handle: RequestListener) {
  const options = { requestTimeout: 5000, connectionsCheckingInterval: 500 }
  const server: Server & { setSecureContext?: (context: CertificateMaterial) => void } =
    certificates === undefined
      ? createServer(options)
      : createSecureServer({ ...options, ...certificates, handshakeTimeout: 5000 })
  server.timeout = 10_000 // closes connections of clients that do not read
  server.maxRequestsPerSocket = 100
  /** By the client's address, which a TLS socket shares with its TCP socket; the least recently used first. */
  const connections = new Map<string, Connection>()

  server.on('connection', (socket: Socket) => {
    const key = addressOf(socket)
    const connection = { socket, pending: 0 }
    connections.set(key, connection)
    socket.once('close', () => {
      if (connections.get(key) === connection) connections.delete(key)
    })
    if (connections.size <= MAX_CONNECTIONS) return
    const open = [...connections]
    const [oldest, { socket: closing } = connection] = open.find(([, { pending }]) => pending === 0) ??
      open[0] ?? [key]
    connections.delete(oldest)
    closing.destroy()
  })
  server.on('request', (req, res) => {
    const key = addressOf(req.socket)
    const connection = connections.get(key)
    if (connection !== undefined) {
      connections.delete(key)
      connections.set(key, connection)
      connection.pending++
      res.once('close', () => connection.pending--)
    }
    handle(req, res)
  })
  return server
}

const addressOf = ({ remoteAddress, remotePort }: Socket) => `${remoteAddress} ${remotePort}`
