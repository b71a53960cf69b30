/**
 * A sidecar that speaks TLS to its clients,
 * in front of a recording upstream, and an upstream that speaks TLS.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type ConnectionOptions, createServer, type TLSSocket, type TlsOptions } from 'node:tls'
import type { Test } from 'tap'
import { makeCertificate } from './certificates.ts'
import { listen } from './listen.ts'
import { rawTlsClient } from './raw-client.ts'
import { OK } from './recording-upstream.ts'
import { type SetupOptions, startSetup } from './setup.ts'
import { temporaryDirectory } from './temporary-directory.ts'

/** The names of the server certificates that are made here. */
export const NAMES = ['localhost', '127.0.0.1']

/** Writes a certificate and its key where a sidecar looks for them. */
export function writePair(directory: string, { cert, key }: { cert: string; key: string }): void {
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, 'cert.pem'), cert)
  writeFileSync(join(directory, 'key.pem'), key, { mode: 0o600 })
}

export type Secured = Awaited<ReturnType<typeof startSecured>>

/** Starts all of it. */
export async function startSecured(t: Test, { settings, ...options }: Omit<SetupOptions, 'tls'> = {}) {
  const authority = makeCertificate({ commonName: 'test authority', authority: true })
  const directory = join(await temporaryDirectory(t), 'tls')
  writePair(directory, makeCertificate({ commonName: 'first', names: NAMES, issuer: authority }))
  const flags = {
    'listen-tls-cert-file': join(directory, 'cert.pem'),
    'listen-tls-key-file': join(directory, 'key.pem'),
  }
  const tls = { ca: authority.cert, servername: 'localhost' }
  const setup = await startSetup(t, { ...options, settings: { ...flags, ...settings }, tls })
  /** Connects as a client that knows the authority. */
  const connect = (more?: ConnectionOptions) => rawTlsClient(t, setup.sidecar.port, { ...tls, ...more })
  return {
    ...setup,
    authority,
    /** Where `cert.pem` and `key.pem` are. */
    directory,
    flags,
    connect,
    /** The status of a request on a connection of its own. */
    async get(more?: ConnectionOptions) {
      const client = await connect(more)
      client.send(setup.head('GET /object', 'Connection: close'))
      const { status } = await client.response()
      client.socket.destroy()
      return status
    },
  }
}

/**
 * A TLS upstream with one response to every request;
 * its connections, and the names of their client certificates.
 */
export async function tlsUpstream(t: Test, options: TlsOptions, reply = OK) {
  const sockets: TLSSocket[] = []
  const clients: string[] = []
  const server = createServer(options, (socket) => {
    sockets.push(socket)
    clients.push(String(socket.getPeerCertificate().subject?.CN))
    socket.on('error', () => {})
    socket.on('data', () => socket.write(reply))
  })
  server.on('tlsClientError', () => {})
  t.teardown(() => {
    for (const socket of sockets) {
      socket.destroy()
    }
  })
  return { port: await listen(t, server), sockets, clients }
}
