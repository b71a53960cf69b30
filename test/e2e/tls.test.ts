import { once } from 'node:events'
import { rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { join } from 'node:path'
import { type ConnectionOptions, connect } from 'node:tls'
import t, { type Test } from 'tap'
import { WebSocket } from 'ws'
import { makeCertificate, type TestCertificate } from '../support/certificates.ts'
import { eventually, SOON_MS } from '../support/eventually.ts'
import { prepareFiles, runProgram, serve, serveArgs } from '../support/program.ts'
import { rawClient, rawRequest } from '../support/raw-client.ts'
import { bodyReply, OK } from '../support/recording-upstream.ts'
import { NAMES, type Secured, startSecured, tlsUpstream, writePair } from '../support/secured.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'
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

t.test('a plain HTTP request gets a 400 that says so, and nothing of it reaches the upstream', async (t) => {
  const secured = await startSecured(t)
  const client = await rawClient(t, secured.sidecar.port)
  client.send(secured.head('GET /object'))
  const response = await client.response()
  const { message }: { message: string } = JSON.parse(response.body.toString())
  t.match(response, { status: 400, headers: { connection: 'close', 'content-type': 'application/json' } })
  t.match(message, /plain HTTP/)
  await client.closed()
  t.same(secured.upstream.requests, [])
  t.equal(await secured.get(), 200)
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

t.test('other bytes than TLS close that connection only', async (t) => {
  const secured = await startSecured(t)
  const lines = secured.sidecar.log.length
  // Requests without TLS are another matter:
  // the OpenSSL of newer versions of Node knows all methods, and they get a 400.
  for (const text of ['\0', 'SSH-2.0-client\r\n', 'x'.repeat(100_000)]) {
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

t.test('handshakes count toward the connection limit, and the oldest makes room', async (t) => {
  const secured = await startSecured(t, { settings: { 'limits-connections': '2' } })
  const oldest = await rawClient(t, secured.sidecar.port)
  await rawClient(t, secured.sidecar.port)
  await eventually(async () => (await openConnections(secured)) === 2, 'both connections')
  t.equal(await secured.get(), 200)
  await oldest.closed()
  t.equal(await secured.sidecar.metric('auth_sidecar_client_connections_evicted_total'), 1)
  t.equal(await secured.sidecar.metric('auth_sidecar_client_connections_dropped_total'), 0)
})

t.test('a truncated object over TLS never looks complete', async (t) => {
  const { upstream, sidecar, request, send } = await startSecured(t)
  const heads = {
    'framed by its length': 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart',
    'in chunks': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n',
  }
  for (const [framed, text] of Object.entries(heads)) {
    upstream.reply((socket) => {
      socket.write(text, () => setTimeout(() => socket.destroy(), 20))
    })
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
    finish = () => {
      socket.write(OK)
    }
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

/** The certificate that a new connection is shown. */
async function shown(port: number, options: ConnectionOptions): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', servername: 'localhost', ...options })
  try {
    await once(socket, 'secureConnect')
    return String(socket.getPeerCertificate().subject.CN)
  } finally {
    socket.destroy()
  }
}

/** Waits until new connections are shown a certificate. */
async function becomes({ sidecar, authority }: Secured, t: Test, name: string): Promise<void> {
  const isShown = async () => (await shown(sidecar.port, { ca: authority.cert })) === name
  await eventually(isShown, `${name} to be shown`, SOON_MS)
  t.pass(`${name} is shown`)
}

const reloads = (sidecar: TestSidecar, result: string) =>
  sidecar.metric(`auth_sidecar_reloads_total{subject="certificates",result="${result}"}`)

const isFailing = (sidecar: TestSidecar) =>
  sidecar.metric('auth_sidecar_reload_failing{subject="certificates"}')

const serverNamed = (commonName: string, issuer: TestCertificate, notAfter?: number) =>
  makeCertificate({ commonName, names: NAMES, issuer, ...(notAfter !== undefined && { notAfter }) })

t.test('new connections use new certificates, and open ones continue', async (t) => {
  const secured = await startSecured(t)
  const { sidecar, authority, directory, head } = secured
  const kept = await secured.connect()
  let running = true
  const statuses: number[] = []
  const failures: unknown[] = []
  const client = async (keeps: boolean) => {
    let connection = await secured.connect()
    while (running) {
      try {
        connection.send(head('GET /object', ...(keeps ? [] : ['Connection: close'])))
        statuses.push((await connection.response()).status)
        if (!keeps) {
          connection = await secured.connect()
        }
      } catch (error) {
        failures.push(error)
        connection = await secured.connect()
      }
    }
  }
  const clients = [client(true), client(true), client(false), client(false)]
  await becomes(secured, t, 'first')
  for (const name of ['second', 'third', 'fourth']) {
    writePair(directory, serverNamed(name, authority))
    await becomes(secured, t, name)
    const served = statuses.length
    await eventually(() => statuses.length > served + 2 * clients.length, 'requests to go on')
  }
  running = false
  await Promise.all(clients)
  t.strictSame(failures, [])
  t.strictSame(new Set(statuses), new Set([200]))
  kept.send(head('GET /object'))
  t.equal((await kept.response()).status, 200, 'a connection from before lives on')
  t.equal(kept.socket.getPeerCertificate().subject.CN, 'first')
  t.equal(await reloads(sidecar, 'ok'), 3)
  t.equal(await isFailing(sidecar), 0)
})

t.test('a mismatched pair is reported and ignored until it matches', async (t) => {
  const secured = await startSecured(t)
  const { sidecar, authority, directory } = secured
  const notAfter = Math.floor(Date.now() / 1000 + 7 * 86_400) * 1000
  const second = serverNamed('second', authority, notAfter)
  const expiry = () =>
    sidecar.metric('auth_sidecar_certificate_not_after_timestamp_seconds{certificate="listener"}')
  t.not(await expiry(), notAfter / 1000)
  writeFileSync(join(directory, 'cert.pem'), second.cert)
  await eventually(async () => (await reloads(sidecar, 'failed')) === 1, 'half a pair to be reported')
  t.equal(await isFailing(sidecar), 1)
  t.equal(await shown(sidecar.port, { ca: authority.cert }), 'first')
  t.equal(await secured.get(), 200)
  const said = sidecar.log.find(({ subject }) => subject === 'certificates')
  t.match(said?.['problems'], [
    /^listen\.tls\.keyFile: .*key\.pem: must hold the private key of the first cert/,
  ])
  t.notMatch(JSON.stringify(sidecar.log), /BEGIN/)
  writeFileSync(join(directory, 'key.pem'), second.key)
  await becomes(secured, t, 'second')
  t.equal(await isFailing(sidecar), 0)
  t.equal(await reloads(sidecar, 'ok'), 1)
  t.equal(await expiry(), notAfter / 1000)
  rmSync(join(directory, 'key.pem'))
  await eventually(async () => (await isFailing(sidecar)) === 1, 'the missing file to be reported')
  t.equal(await shown(sidecar.port, { ca: authority.cert }), 'second')
})

t.test('changed client authorities apply to new connections', async (t) => {
  const before = makeCertificate({ commonName: 'before', authority: true })
  const after = makeCertificate({ commonName: 'after', authority: true })
  const clientCaFile = join(await temporaryDirectory(t), 'clients.pem')
  writeFileSync(clientCaFile, before.cert)
  const secured = await startSecured(t, { settings: { 'listen-tls-client-ca-file': clientCaFile } })
  const clientOf = (issuer: TestCertificate): ConnectionOptions => {
    const { cert, key } = makeCertificate({ commonName: 'a client', issuer })
    return { cert, key }
  }
  const old = clientOf(before)
  const young = clientOf(after)
  const status = (options: ConnectionOptions) => secured.get(options).catch(() => 0)
  t.equal(await status(old), 200)
  t.equal(await status(young), 0)
  const first = await secured.connect({ ...old, maxVersion: 'TLSv1.2' })
  const session = first.socket.getSession()
  writeFileSync(clientCaFile, after.cert)
  await eventually(async () => (await status(young)) === 200, 'the other authority to be known')
  t.equal(await status(old), 0)
  t.equal(
    await status({ ...old, maxVersion: 'TLSv1.2', ...(session && { session }) }),
    0,
    'nor with a session',
  )
  first.send(secured.head('GET /object'))
  t.equal((await first.response()).status, 200, 'who is in stays in')
})

t.test('new connections to upstreams use the current files', async (t) => {
  const authority = makeCertificate({ commonName: 'test authority', authority: true })
  const stranger = makeCertificate({ commonName: 'another authority', authority: true })
  const directory = await temporaryDirectory(t)
  const path = (name: string) => join(directory, name)
  const ours = (commonName: string) => makeCertificate({ commonName, issuer: authority })
  const options = { ...serverNamed('upstream', authority), ca: authority.cert, requestCert: true }
  // Each connection is used once.
  const closing = OK.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')
  const { port, clients } = await tlsUpstream(t, options, closing)
  const url = `https://localhost:${port}`
  writeFileSync(path('ca.pem'), stranger.cert)
  writePair(directory, ours('before'))
  const files = { caFile: path('ca.pem'), certFile: path('cert.pem'), keyFile: path('key.pem') }
  const sidecar = await startSidecar(t, {
    settings: { upstreams: JSON.stringify([{ prefix: '/', url, ...files }]) },
  })
  const request = `GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`
  const get = async () => (await rawRequest(t, sidecar.port, request)).status
  t.equal(await get(), 503, 'an unknown authority')
  writeFileSync(path('ca.pem'), authority.cert)
  await eventually(async () => (await get()) === 200, 'the authority to be known', SOON_MS)
  t.equal(clients.at(-1), 'before')
  writePair(directory, ours('after'))
  await eventually(
    async () => (await get()) === 200 && clients.at(-1) === 'after',
    'the new client certificate',
  )
  writeFileSync(path('key.pem'), 'no key')
  await eventually(async () => (await isFailing(sidecar)) === 1, 'the broken key to be reported')
  t.equal(await get(), 200)
  t.equal(clients.at(-1), 'after')
  t.ok(
    (await sidecar.metric('auth_sidecar_certificate_not_after_timestamp_seconds{certificate="upstream:/"}')) >
      0,
  )
})

const authority = makeCertificate({ commonName: 'test authority', authority: true })
const named = (commonName: string) => makeCertificate({ commonName, names: NAMES, issuer: authority })

/** The status and body of a page, and the name of the certificate that the admin listener shows. */
function get(port: number, path: string): Promise<{ status: number; body: string; shown: string }> {
  return new Promise((resolve, reject) => {
    request({ port, host: '127.0.0.1', path, ca: authority.cert, agent: false }, (response) => {
      const { socket } = response
      const shown =
        'getPeerCertificate' in socket ? String(Object(socket).getPeerCertificate().subject.CN) : ''
      let body = ''
      response.on('data', (chunk) => {
        body += chunk
      })
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body, shown }))
    })
      .on('error', reject)
      .end()
  })
}

for (const workers of ['1', '2']) {
  t.test(`with ${workers} worker(s) the admin listener speaks TLS and reloads its certificate`, async (t) => {
    const directory = await temporaryDirectory(t)
    writePair(directory, named('first'))
    const { files } = await prepareFiles(t)
    const flags = {
      ...files,
      'upstream-url': 'http://127.0.0.1:9',
      'admin-tls-cert-file': join(directory, 'cert.pem'),
      'admin-tls-key-file': join(directory, 'key.pem'),
      workers,
    }
    const { adminPort } = await serve(t, flags)
    t.match(await get(adminPort, '/livez'), { status: 200, shown: 'first' })
    t.equal(JSON.parse((await get(adminPort, '/.well-known/jwks.json')).body).keys.length, 1)
    t.match((await get(adminPort, '/metrics')).body, /not_after_timestamp_seconds\{certificate="admin"} \d/)
    await t.rejects(fetch(`http://127.0.0.1:${adminPort}/livez`), 'plain HTTP has no response')

    writePair(directory, named('second'))
    await eventually(async () => (await get(adminPort, '/livez')).shown === 'second', 'the new one')
    writeFileSync(join(directory, 'cert.pem'), 'rubbish')
    const isFailing = async () =>
      /reload_failing\{subject="certificates"} 1/.test((await get(adminPort, '/metrics')).body)
    await eventually(isFailing, 'a rejected version')
    t.equal((await get(adminPort, '/livez')).shown, 'second')

    const broken = await runProgram(t, ['serve', ...serveArgs(flags)])
    t.equal(broken.code, 2)
    t.match(broken.stderr, /admin\.tls\.certFile.*holds no certificate/)
  })
}
