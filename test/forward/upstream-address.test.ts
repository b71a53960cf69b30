import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  createSecureContext,
  createServer as createTlsServer,
  type SecureContextOptions,
  type TLSSocket,
  type TlsOptions,
} from 'node:tls'
import t, { type Test } from 'tap'
import { upstreamAddress } from '../../src/forward/upstream-address.ts'
import { faultOf } from '../../src/forward/upstream-fault.ts'
import { makeCertificate } from '../support/certificates.ts'

/** Listens; the port is 0 on a path. */
async function listen(t: Test, server: Server, path?: string): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => sockets.add(socket))
  server.on('tlsClientError', () => {})
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  await new Promise<void>((resolve) => {
    if (path === undefined) server.listen(0, '127.0.0.1', resolve)
    else server.listen(path, resolve)
  })
  return path === undefined ? (server.address() as AddressInfo).port : 0
}

/** Connects as the address says: `ready`, or the fault it ends with. */
async function connectTo(t: Test, url: string, certificates?: SecureContextOptions): Promise<string> {
  const context = certificates && createSecureContext(certificates)
  const { connect, readyEvent } = upstreamAddress({ prefix: '/', url }, context && (() => context))
  const socket = connect()
  t.teardown(() => socket.destroy())
  return new Promise((resolve) => {
    socket.once(readyEvent, () => resolve('ready'))
    socket.once('error', (error) => resolve(faultOf(error)))
  })
}

t.test('an upstream is reached over TCP', async (t) => {
  const port = await listen(t, createServer())
  t.equal(await connectTo(t, `http://127.0.0.1:${port}`), 'ready')
  t.equal(await connectTo(t, `http://localhost:${port}`), 'ready')
})

t.test('an upstream is reached over a unix socket', async (t) => {
  // The operating system takes 107 bytes of such a path: a checkout may be deep.
  const directory = await mkdtemp(join(tmpdir(), 'upstream-'))
  t.teardown(() => rm(directory, { recursive: true, force: true }))
  const path = join(directory, 's')
  await listen(t, createServer(), path)
  t.equal(await connectTo(t, `unix:${path}`), 'ready')
  t.equal(await connectTo(t, `unix:${path}-other`), 'connection_refused')
})

t.test('Host names the address of the upstream for a request that has none', async (t) => {
  for (const [url, host] of [
    ['http://storage.internal:9000', 'storage.internal:9000'],
    ['http://storage.internal', 'storage.internal'],
    ['http://storage.internal:80/', 'storage.internal'],
    ['HTTP://Storage.Internal:9000', 'storage.internal:9000'],
    ['http://[::1]:9000', '[::1]:9000'],
    ['https://storage.internal:8443', 'storage.internal:8443'],
    ['https://storage.internal', 'storage.internal'],
    ['unix:/run/storage/api.sock', 'localhost'],
  ] as const) {
    t.equal(upstreamAddress({ prefix: '/', url }).host, host, url)
  }
})

t.test('an upstream is reached over TLS', async (t) => {
  const authority = makeCertificate({ commonName: 'test authority', authority: true })
  const ca = authority.cert

  /** A server with a certificate for these names, and the names it was asked for. */
  const tlsServer = async (names: readonly string[], options: TlsOptions = {}) => {
    const { cert, key } = makeCertificate({ commonName: 'upstream', names, issuer: authority })
    const server = createTlsServer({ cert, key, ALPNProtocols: ['h2', 'http/1.1'], ...options })
    const accepted = new Promise<TLSSocket>((resolve) => server.once('secureConnection', resolve))
    return { port: await listen(t, server), accepted }
  }

  t.test('the upstream is asked for by its name, for HTTP/1.1', async (t) => {
    const { port, accepted } = await tlsServer(['localhost'])
    t.equal(await connectTo(t, `https://localhost:${port}`, { ca }), 'ready')
    const socket = await accepted
    t.equal(socket.servername, 'localhost')
    t.equal(socket.alpnProtocol, 'http/1.1')
  })

  t.test(
    'an upstream that is an address is asked for without a name, and checked all the same',
    async (t) => {
      const { port, accepted } = await tlsServer(['127.0.0.1'])
      t.equal(await connectTo(t, `https://127.0.0.1:${port}`, { ca }), 'ready')
      t.equal((await accepted).servername, false)
      const named = await tlsServer(['localhost'])
      const url = `https://127.0.0.1:${named.port}`
      t.equal(await connectTo(t, url, { ca }), 'tls_certificate_error')
    },
  )

  t.test('a certificate that does not hold is refused', async (t) => {
    const url = ({ port }: { readonly port: number }) => `https://localhost:${port}`
    const good = await tlsServer(['localhost'])
    t.equal(await connectTo(t, url(good)), 'tls_certificate_error', 'an authority that nobody knows')
    const other = makeCertificate({ commonName: 'other authority', authority: true })
    t.equal(await connectTo(t, url(good), { ca: other.cert }), 'tls_certificate_error')
    const elsewhere = await tlsServer(['elsewhere.example'])
    t.equal(await connectTo(t, url(elsewhere), { ca }), 'tls_certificate_error', 'another name')
    const old = makeCertificate({
      commonName: 'upstream',
      names: ['localhost'],
      issuer: authority,
      notAfter: Date.now() - 1000,
    })
    const expired = await tlsServer([], { cert: old.cert, key: old.key })
    t.equal(await connectTo(t, url(expired), { ca }), 'tls_certificate_error', 'run out')
    const noAuthority = makeCertificate({ commonName: 'leaf', issuer: authority })
    const leaf = makeCertificate({ commonName: 'upstream', names: ['localhost'], issuer: noAuthority })
    const chained = await tlsServer([], { cert: leaf.cert + noAuthority.cert, key: leaf.key })
    t.equal(await connectTo(t, url(chained), { ca }), 'tls_certificate_error', 'signed by no authority')
  })

  t.test('an upstream that does not speak TLS is refused', async (t) => {
    const port = await listen(
      t,
      createServer((socket) => void socket.write('HTTP/1.1 400 Bad Request\r\n\r\n')),
    )
    t.equal(await connectTo(t, `https://localhost:${port}`, { ca }), 'tls_protocol_error')
  })

  t.test('our own certificate is shown to an upstream that asks for it', async (t) => {
    const ours = makeCertificate({ commonName: 'sidecar', issuer: authority })
    const { port, accepted } = await tlsServer(['localhost'], { requestCert: true, ca: authority.cert })
    const { cert, key } = ours
    t.equal(await connectTo(t, `https://localhost:${port}`, { ca, cert, key }), 'ready')
    const socket = await accepted
    t.equal(socket.getPeerCertificate().subject.CN, 'sidecar')
    t.equal(socket.authorized, true)
  })

  t.test('each connection is made with what is in force when it begins', async (t) => {
    const { port } = await tlsServer(['localhost'])
    const stranger = makeCertificate({ commonName: 'another authority', authority: true })
    let trusted = stranger.cert
    const address = upstreamAddress({ prefix: '/', url: `https://localhost:${port}` }, () =>
      createSecureContext({ ca: trusted }),
    )
    const outcome = () =>
      new Promise((resolve) => {
        const socket = address.connect()
        t.teardown(() => socket.destroy())
        socket.once(address.readyEvent, () => resolve('ready'))
        socket.once('error', (error) => resolve(faultOf(error)))
      })
    t.equal(await outcome(), 'tls_certificate_error')
    trusted = ca
    t.equal(await outcome(), 'ready')
  })
})
