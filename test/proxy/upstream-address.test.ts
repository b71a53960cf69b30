import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import {
  createSecureContext,
  createServer as createTlsServer,
  type TLSSocket,
  type TlsOptions,
} from 'node:tls'
import t, { type Test } from 'tap'
import { upstreamAddress } from '../../src/proxy/upstream-connection.ts'
import { faultOf } from '../../src/proxy/upstream-errors.ts'
import { makeCertificate } from '../support/certificates.ts'

const authority = makeCertificate({ commonName: 'test authority', authority: true })
const ca = authority.cert

async function listen(t: Test, server: Server): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => sockets.add(socket))
  server.on('tlsClientError', () => {})
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return (server.address() as AddressInfo).port
}

/** A TLS server with a certificate for these names, and its first connection. */
async function tlsServer(t: Test, names: readonly string[], options: TlsOptions = {}) {
  const { cert, key } = makeCertificate({ commonName: 'upstream', names, issuer: authority })
  const server = createTlsServer({ cert, key, ALPNProtocols: ['h2', 'http/1.1'], ...options })
  const accepted = new Promise<TLSSocket>((resolve) => server.once('secureConnection', resolve))
  return { port: await listen(t, server), accepted }
}

/** Connects: `ready`, or the fault. */
function outcome(t: Test, address: ReturnType<typeof upstreamAddress>): Promise<string> {
  const socket = address.open()
  t.teardown(() => socket.destroy())
  return new Promise((resolve) => {
    socket.once(address.tls ? 'secureConnect' : 'connect', () => resolve('ready'))
    socket.once('error', (error) => resolve(faultOf(error)))
  })
}

const connectTo = (t: Test, url: string, ...context: Parameters<typeof createSecureContext>) =>
  outcome(
    t,
    upstreamAddress(url, () => createSecureContext(...context)),
  )

t.test('a request without Host gets the one of the URL', async (t) => {
  for (const [url, host] of [
    ['http://storage.internal:9000', 'storage.internal:9000'],
    ['http://storage.internal:80/', 'storage.internal'],
    ['HTTP://Storage.Internal', 'storage.internal'],
    ['http://[::1]:9000', '[::1]:9000'],
    ['https://storage.internal:8443', 'storage.internal:8443'],
    ['unix:/run/storage/api.sock', 'localhost'],
  ] as const)
    t.equal(upstreamAddress(url).host, host, url)
})

t.test('TLS asks for the name of the URL and for HTTP/1.1', async (t) => {
  const named = await tlsServer(t, ['localhost'])
  t.equal(await connectTo(t, `https://localhost:${named.port}`, { ca }), 'ready')
  const socket = await named.accepted
  t.strictSame([socket.servername, socket.alpnProtocol], ['localhost', 'http/1.1'])
  const addressed = await tlsServer(t, ['127.0.0.1'])
  t.equal(await connectTo(t, `https://127.0.0.1:${addressed.port}`, { ca }), 'ready')
  t.equal((await addressed.accepted).servername, false, 'an address is no server name (RFC 6066, section 3)')
})

t.test('a certificate must be valid, for the name, from a known authority', async (t) => {
  const named = await tlsServer(t, ['localhost'])
  const url = `https://localhost:${named.port}`
  const other = makeCertificate({ commonName: 'other authority', authority: true })
  t.equal(await outcome(t, upstreamAddress(url)), 'tls_certificate_error', 'no public authority')
  t.equal(await connectTo(t, url, { ca: other.cert }), 'tls_certificate_error')
  t.equal(
    await connectTo(t, `https://127.0.0.1:${named.port}`, { ca }),
    'tls_certificate_error',
    'another name',
  )
  const leaf = makeCertificate({ commonName: 'leaf', issuer: authority })
  for (const more of [{ notAfter: Date.now() - 1000, issuer: authority }, { issuer: leaf }]) {
    const { cert, key } = makeCertificate({ commonName: 'upstream', names: ['localhost'], ...more })
    const { port } = await tlsServer(t, [], { cert: cert + leaf.cert, key })
    t.equal(await connectTo(t, `https://localhost:${port}`, { ca }), 'tls_certificate_error')
  }
  const plain = await listen(
    t,
    createServer((socket) => void socket.write('HTTP/1.1 400 Bad Request\r\n\r\n')),
  )
  t.equal(await connectTo(t, `https://localhost:${plain}`, { ca }), 'tls_protocol_error')
})

t.test('each connection uses the certificates that are current when it begins', async (t) => {
  const { port, accepted } = await tlsServer(t, ['localhost'], { requestCert: true, ca })
  const { cert, key } = makeCertificate({ commonName: 'sidecar', issuer: authority })
  const other = makeCertificate({ commonName: 'other authority', authority: true })
  let current = createSecureContext({ ca: other.cert })
  const address = upstreamAddress(`https://localhost:${port}`, () => current)
  t.equal(await outcome(t, address), 'tls_certificate_error')
  current = createSecureContext({ ca, cert, key })
  t.equal(await outcome(t, address), 'ready')
  t.equal((await accepted).getPeerCertificate().subject.CN, 'sidecar')
})
