import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type ConnectionOptions, connect } from 'node:tls'
import t from 'tap'
import { WebSocket } from 'ws'
import { makeCertificate } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { rawClient } from '../support/raw-client.ts'
import { bodyReply, OK } from '../support/recording-upstream.ts'
import { type Secured, startSecured } from '../support/secured.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { echoServer } from '../support/websocket.ts'

/** How a handshake, and the first moment after it, end: `ok`, or the code of the error. */
async function handshake({ sidecar, authority }: Secured, options: ConnectionOptions = {}): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ port: sidecar.port, host: '127.0.0.1', ca: authority.cert, ...options })
    // With TLS 1.3 a server refuses a client certificate only after the client's side of the handshake.
    socket.once('secureConnect', () => socket.write('GET /v2/auth/token HTTP/1.1\r\nHost: a\r\n\r\n'))
    socket.once('data', () => resolve('ok'))
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
    socket.once('close', () => {
      socket.destroy()
      resolve('closed')
    })
  })
}

t.test('TLS 1.2 and 1.3 are accepted, with HTTP/1.1', async (t) => {
  const secured = await startSecured(t)
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    const client = await secured.connect({
      minVersion: version,
      maxVersion: version,
      ALPNProtocols: ['h2', 'http/1.1'],
    })
    t.equal(client.socket.getProtocol(), version)
    t.equal(client.socket.alpnProtocol, 'http/1.1')
    client.send(secured.head('GET /object'))
    t.equal((await client.response()).body.toString(), 'ok')
    client.send(secured.head('GET /object'))
    t.equal((await client.response()).body.toString(), 'ok', 'and the connection is kept')
  }
  t.equal(secured.upstream.requests.length, 4)
  t.equal(await handshake(secured), 'ok', 'a client without ALPN speaks HTTP/1.1')
  const old = await secured.connect({ ALPNProtocols: ['http/1.0'] })
  old.send(secured.head('GET /object').replace('HTTP/1.1', 'HTTP/1.0'))
  t.equal((await old.response()).body.toString(), 'ok', 'HTTP/1.0, too')
})

t.test('older TLS versions and other ALPN protocols are refused', async (t) => {
  const secured = await startSecured(t)
  const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const
  t.match(await handshake(secured, old), /PROTOCOL_VERSION/)
  t.match(await handshake(secured, { ALPNProtocols: ['h2'] }), /NO_APPLICATION_PROTOCOL/)
  t.equal(await secured.get(), 200)
})

t.test('a client cannot renegotiate TLS', async (t) => {
  const secured = await startSecured(t)
  const { socket } = await secured.connect({ maxVersion: 'TLSv1.2' })
  const error = await new Promise((resolve) => {
    socket.once('error', resolve)
    socket.renegotiate({}, resolve)
  })
  t.match(error, { code: 'ERR_SSL_NO_RENEGOTIATION' })
  socket.destroy()
  await eventually(async () => (await openConnections(secured)) === 0, 'the connection to be closed')
  t.equal(await secured.get(), 200)
})

t.test('the forwarding headers have https and the port', async (t) => {
  const { sidecar, upstream, request } = await startSecured(t)
  await (await request('GET /a', ['X-Forwarded-Proto: http'])).response()
  t.match(upstream.requests[0]?.headers, {
    'x-forwarded-proto': 'https',
    'x-forwarded-port': String(sidecar.port),
    'x-forwarded-for': '127.0.0.1',
    forwarded: 'for=127.0.0.1;proto=https;host="storage.example"',
  })
})

t.test('with client authorities, only clients with one of their certificates are accepted', async (t) => {
  const clients = makeCertificate({ commonName: 'clients', authority: true })
  const clientCaFile = join(await temporaryDirectory(t), 'clients.pem')
  writeFileSync(clientCaFile, clients.cert)
  const settings = { 'listen-tls-client-ca-file': clientCaFile }
  const secured = await startSecured(t, { settings })
  const own = (options: Parameters<typeof makeCertificate>[0]) => {
    const { cert, key } = makeCertificate(options)
    return { cert, key }
  }
  const good = own({ commonName: 'a client', issuer: clients })
  const strangers = {
    'no certificate': {},
    'a certificate that signed itself': own({ commonName: 'a client' }),
    'a certificate of the authority of servers': own({ commonName: 'a client', issuer: secured.authority }),
    'a certificate that has expired': own({
      commonName: 'a client',
      issuer: clients,
      notAfter: Date.now() - 1000,
    }),
  }
  for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
    t.equal(await handshake(secured, { ...good, maxVersion }), 'ok', maxVersion)
    for (const [what, certificate] of Object.entries(strangers)) {
      t.not(await handshake(secured, { ...certificate, maxVersion }), 'ok', `${maxVersion}, ${what}`)
    }
  }
  t.equal(await secured.get(good), 200)
  t.equal(secured.upstream.requests.length, 1)
  t.notOk(secured.sidecar.log.some(({ level }) => Number(level) > 30))
})

t.test('plain HTTP on the TLS port closes that connection only', async (t) => {
  const secured = await startSecured(t)
  const lines = secured.sidecar.log.length
  for (const text of [
    'GET / HTTP/1.1\r\nHost: a\r\n\r\n',
    '\0',
    'PRI * HTTP/2.0\r\n\r\n',
    'x'.repeat(100_000),
  ]) {
    const client = await rawClient(t, secured.sidecar.port)
    client.send(text)
    client.socket.end()
    await client.closed()
    t.equal(client.received().includes('HTTP'), false)
  }
  t.equal(secured.sidecar.log.length, lines, 'a flood of them does not fill the log')
  t.equal(await secured.get(), 200)
})

t.test('a handshake that takes too long is closed, even if bytes trickle', async (t) => {
  const settings = { 'timeouts-headers-seconds': '1' }
  const secured = await startSecured(t, { settings })
  const silent = await rawClient(t, secured.sidecar.port)
  const slow = await rawClient(t, secured.sidecar.port)
  slow.send('\x16\x03\x01\x02\x00\x01')
  const trickle = setInterval(() => slow.send('\0'), 20)
  t.teardown(() => clearInterval(trickle))
  await eventually(async () => (await openConnections(secured)) === 2, 'both to count as connections')
  await Promise.all([silent.closed(), slow.closed()])
  await eventually(async () => (await openConnections(secured)) === 0, 'none to count')
  t.equal(await secured.get(), 200)
})

t.test('handshakes count toward the connection limit', async (t) => {
  const secured = await startSecured(t, { settings: { 'limits-connections': '1' } })
  const silent = await rawClient(t, secured.sidecar.port)
  await eventually(async () => (await openConnections(secured)) === 1, 'the first connection')
  t.not(await handshake(secured), 'ok')
  t.equal(await secured.sidecar.metric('auth_sidecar_client_connections_dropped_total'), 1)
  silent.socket.destroy()
  await eventually(async () => (await openConnections(secured)) === 0, 'room')
  t.equal(await secured.get(), 200)
})

t.test('a truncated object over TLS never looks complete', async (t) => {
  const { upstream, sidecar, request, send } = await startSecured(t)
  const heads = {
    'framed by its length': 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart',
    'in chunks': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n',
  }
  for (const [framed, text] of Object.entries(heads)) {
    upstream.reply((socket) => void socket.write(text, () => setTimeout(() => socket.destroy(), 20)))
    const client = await request('GET /a')
    await client.until('part')
    await client.closed()
    t.notMatch(client.received().toString(), /\r\n0\r\n/, framed)
  }
  const old = () => send(`GET /a HTTP/1.0\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
  // Framed by its close: many clients take an end without a close_notify for a complete object.
  const cut = await old()
  await cut.until('part')
  t.equal(await cut.closed(), 'reset')
  upstream.reply((socket) => socket.end('HTTP/1.1 200 OK\r\n\r\nwhole'))
  const whole = await old()
  t.equal((await whole.response()).body.toString(), 'whole')
  t.equal(await whole.closed(), 'end')
})

t.test('over TLS a client that does not read is disconnected, a slow one is not', async (t) => {
  const settings = { 'timeouts-idle-seconds': '1' }
  const { upstream, sidecar, request } = await startSecured(t, { settings })
  const body = Buffer.alloc(30_000_000, 'x')
  upstream.reply(bodyReply(body))
  const stalled = await request('GET /stalled')
  stalled.socket.pause()
  const slow = await request('GET /slow')
  let step: NodeJS.Timeout | undefined
  const steps = setInterval(() => {
    slow.socket.resume()
    step = setTimeout(() => slow.socket.pause(), 2)
  }, 100)
  const outcome = (word: string) =>
    sidecar.metric(`auth_sidecar_upstream_requests_total{upstream="/",outcome="${word}"}`)
  await eventually(async () => (await outcome('client_idle')) === 1, 'the stalled one to be cut')
  clearInterval(steps)
  clearTimeout(step)
  slow.socket.resume()
  t.equal((await slow.response()).body.length, body.length)
  t.equal(await outcome('ok'), 1)
})

t.test('a WebSocket client talks to a WebSocket server over TLS', async (t) => {
  const { port } = await echoServer(t)
  const settings = { 'upgrade-enabled': 'true', 'upstream-url': `http://127.0.0.1:${port}` }
  const { sidecar, authority } = await startSecured(t, { settings })
  const client = new WebSocket(`wss://localhost:${sidecar.port}/chat`, {
    ca: authority.cert,
    headers: { authorization: `Bearer ${sidecar.token}` },
  })
  await new Promise((resolve, reject) => client.once('open', resolve).once('error', reject))
  const big = Buffer.alloc(300_000, 7)
  const echoed = new Promise<Buffer>((resolve) => client.once('message', (data) => resolve(data as Buffer)))
  client.send(big)
  t.ok(big.equals(await echoed))
  const closed = new Promise<number>((resolve) => client.once('close', resolve))
  client.close(1000)
  t.equal(await closed, 1000)
  await eventually(async () => (await openConnections({ sidecar })) === 0, 'the tunnel to be over')
  const bytes = (direction: string) =>
    sidecar.metric(`auth_sidecar_transferred_bytes_total{direction="${direction}"}`)
  t.ok((await bytes('in')) >= big.length && (await bytes('in')) < big.length + 1000, 'what passed is counted')
  t.ok((await bytes('out')) >= big.length && (await bytes('out')) < big.length + 1000)
})

t.test('a drain waits for requests, not for handshakes or unused connections', async (t) => {
  const secured = await startSecured(t, { settings: { 'shutdown-deadline-seconds': '20' } })
  const { sidecar, upstream, connect, request } = secured
  const shaking = await rawClient(t, sidecar.port)
  shaking.send('\x16\x03\x01\x02\x00\x01')
  const unused = await connect()
  const asked = await request('GET /asked')
  await asked.response()
  let finish = () => {}
  upstream.reply((socket) => {
    finish = () => void socket.write(OK)
  })
  const client = await request('GET /a')
  await upstream.received(2)
  const stopped = sidecar.app.stop()
  await Promise.all([shaking.closed(), unused.closed(), asked.closed()])
  t.equal(await sidecar.metric('auth_sidecar_requests_in_flight'), 1)
  finish()
  t.equal((await client.response()).status, 200)
  t.strictSame(await stopped, { drained: 1, cut: 0, tunnels: 0 })
})

t.test('handshakes are aborted at the drain deadline', async (t) => {
  const { sidecar } = await startSecured(t, { settings: { 'shutdown-deadline-seconds': '0.1' } })
  const shaking = await rawClient(t, sidecar.port)
  t.strictSame(await sidecar.app.stop(), { drained: 0, cut: 0, tunnels: 0 })
  await shaking.closed()
})

function openConnections({ sidecar }: Pick<Secured, 'sidecar'>): Promise<number> {
  return sidecar.metric('auth_sidecar_client_connections')
}
