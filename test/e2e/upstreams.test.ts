import dns from 'node:dns/promises'
import { writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { mock } from 'node:test'
import { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { makeCertificate, type TestCertificate } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse, unavailable } from '../support/own-response.ts'
import { rawClient, rawRequest } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { tlsUpstream } from '../support/secured.ts'
import { outcomes } from '../support/setup.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

/** Asks once, on a connection of its own. */
function get(t: Test, { port, token }: TestSidecar, target = '/', host = 'storage.example') {
  const lines = `Host: ${host}\r\nAuthorization: Bearer ${token}\r\nConnection: close\r\n`
  return rawRequest(t, port, `GET ${target} HTTP/1.1\r\n${lines}\r\n`)
}

t.test('the longest prefix that ends on a path segment selects the upstream', async (t) => {
  const names = ['/', '/a', '/a/b', '/c/'] as const
  const upstreams = await Promise.all(
    names.map(async (prefix) => {
      const upstream = await recordingUpstream(t)
      upstream.reply((socket) =>
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${prefix.length}\r\n\r\n${prefix}`),
      )
      return { prefix, url: upstream.url, upstream }
    }),
  )
  const settings = { upstreams: JSON.stringify(upstreams.map(({ prefix, url }) => ({ prefix, url }))) }
  const sidecar = await startSidecar(t, { settings })
  const targets: Readonly<Record<(typeof names)[number], readonly string[]>> = {
    '/': [
      ...['/', '/x', '/ab', '/a;x', '/a%2fb', '/a\\b', '/./a', '/A/x', '/%61/x', '//a/x', '/x/../a/b'],
      ...['/?/a/b', '/cd'],
    ],
    '/a': ['/a', '/a?x=/a/b/', '/a/', '/a/bc', '/a//b', '/a/%62'],
    '/a/b': ['/a/b', '/a/b/../../c', '/a/b/c?d'],
    '/c/': ['/c', '/c/d'],
  }
  for (const { prefix, upstream } of upstreams) {
    for (const target of targets[prefix]) {
      t.equal((await get(t, sidecar, target)).body.toString(), prefix, target)
      t.equal(upstream.requests.at(-1)?.target, target, 'and is forwarded completely')
    }
  }
  t.equal(await outcomes(sidecar, 'ok', '/a/b'), 3)
})

t.test('a path without an upstream is a 503', async (t) => {
  const upstream = await recordingUpstream(t)
  const settings = { upstreams: JSON.stringify([{ prefix: '/a', url: upstream.url }]) }
  const sidecar = await startSidecar(t, { settings })
  isOwnResponse(t, await get(t, sidecar, '/b'), unavailable('destination_not_found'))
  t.equal((await get(t, sidecar, '/a/b')).status, 200)
  const client = await rawClient(t, sidecar.port)
  client.send(
    `PUT /ab HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\nContent-Length: 5\r\n\r\n`,
  )
  const response = await client.response()
  isOwnResponse(t, response, unavailable('destination_not_found'))
  t.equal(response.headers['connection'], 'close', 'the unread body ends the connection')
  client.send('hello')
  t.equal(await client.closed(), 'end')
  t.equal(upstream.requests.length, 1)
})

t.test('a unix socket works as an upstream', async (t) => {
  const path = `${await temporaryDirectory(t)}/api.sock`
  const upstream = await recordingUpstream(t, {}, path)
  const sidecar = await startSidecar(t, { upstreamUrl: `unix:${path}` })
  t.equal((await get(t, sidecar, '/a', 'from.the.client')).status, 200)
  t.equal(upstream.requests[0]?.headers['host'], 'from.the.client')
  upstream.reply((socket) => socket.end('HTTP/1.1 200 OK\r\n\r\nuntil the end'))
  t.equal((await get(t, sidecar)).body.toString(), 'until the end')
  await upstream.close()
  isOwnResponse(t, await get(t, sidecar), unavailable('connection_refused'))
})

t.test('TLS to the upstream', async (t) => {
  const authority = makeCertificate({ commonName: 'test authority', authority: true })
  const stranger = makeCertificate({ commonName: 'another authority', authority: true })
  const names = ['localhost', '127.0.0.1']
  const good = makeCertificate({ commonName: 'upstream', names, issuer: authority })
  const client = makeCertificate({ commonName: 'sidecar', issuer: authority })
  const directory = await temporaryDirectory(t)
  const file = (name: string, text: string) => {
    writeFileSync(`${directory}/${name}`, text)
    return `${directory}/${name}`
  }
  const caFile = file('ca.pem', authority.cert)
  const certFile = file('client.pem', client.cert)
  const keyFile = file('client.key', client.key)
  const sidecarFor = (t: Test, url: string, files: object) =>
    startSidecar(t, { settings: { upstreams: JSON.stringify([{ prefix: '/', url, ...files }]) } })

  for (const host of names) {
    await t.test(`is established if the certificate is valid for ${host}`, async (t) => {
      const { port, sockets } = await tlsUpstream(t, { ...good, ALPNProtocols: ['h2', 'http/1.1'] })
      const sidecar = await sidecarFor(t, `https://${host}:${port}`, { caFile })
      t.equal((await get(t, sidecar)).status, 200)
      // The client's Host selects neither the certificate nor the connection.
      t.equal((await get(t, sidecar, '/', 'elsewhere.example')).status, 200)
      t.equal(sockets.length, 1)
      t.equal(sockets[0]?.alpnProtocol, 'http/1.1')
      // An address is no server name (RFC 6066, section 3).
      t.equal(sockets[0]?.servername, host === 'localhost' ? 'localhost' : false)
    })
  }

  const leaf = makeCertificate({ commonName: 'leaf', issuer: authority })
  const byLeaf = makeCertificate({ commonName: 'localhost', names, issuer: leaf })
  const refused: Readonly<Record<string, readonly [TestCertificate, host: string, files: object]>> = {
    'an unknown authority': [good, 'localhost', {}],
    'another authority signed it': [good, 'localhost', { caFile: file('stranger.pem', stranger.cert) }],
    'it signed itself': [makeCertificate({ commonName: 'localhost', names }), 'localhost', { caFile }],
    'no authority signed it': [{ ...byLeaf, cert: byLeaf.cert + leaf.cert }, 'localhost', { caFile }],
    'it is for another name': [
      makeCertificate({ commonName: 'localhost', names: ['other.example'], issuer: authority }),
      'localhost',
      { caFile },
    ],
    'it is for another address': [
      makeCertificate({ commonName: '127.0.0.1', names: ['localhost', '127.0.0.2'], issuer: authority }),
      '127.0.0.1',
      { caFile },
    ],
    'it has expired': [
      makeCertificate({ commonName: 'localhost', names, issuer: authority, notAfter: Date.now() - 1000 }),
      'localhost',
      { caFile },
    ],
  }
  for (const [why, [certificate, host, files]] of Object.entries(refused)) {
    await t.test(`is refused: ${why}`, async (t) => {
      const { port, sockets } = await tlsUpstream(t, certificate)
      const sidecar = await sidecarFor(t, `https://${host}:${port}`, files)
      // A client that names what the certificate is good for does not change that.
      for (const name of [host, 'other.example']) {
        isOwnResponse(t, await get(t, sidecar, '/', name), unavailable('tls_certificate_error'))
      }
      t.equal(await outcomes(sidecar, 'tls_certificate_error'), 2)
      await eventually(() => sockets.every(({ destroyed }) => destroyed), 'the connections to be closed')
    })
  }

  await t.test('presents the client certificate to an upstream that requests one', async (t) => {
    const { port, sockets } = await tlsUpstream(t, { ...good, ca: authority.cert, requestCert: true })
    const sidecar = await sidecarFor(t, `https://localhost:${port}`, { caFile, certFile, keyFile })
    t.equal((await get(t, sidecar)).status, 200)
    t.equal(sockets[0]?.getPeerCertificate().subject.CN, 'sidecar')
  })

  for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
    await t.test(`is a TLS error without a required client certificate (${maxVersion})`, async (t) => {
      const { port } = await tlsUpstream(t, { ...good, ca: authority.cert, requestCert: true, maxVersion })
      const sidecar = await sidecarFor(t, `https://localhost:${port}`, { caFile })
      isOwnResponse(t, await get(t, sidecar), unavailable('tls_protocol_error'))
    })
  }

  await t.test('is a TLS error if the upstream speaks plain HTTP', async (t) => {
    const upstream = await recordingUpstream(t, {
      onConnection: (socket) => void socket.write('HTTP/1.1 400 Bad\r\n\r\n'),
    })
    const sidecar = await sidecarFor(t, `https://localhost:${upstream.port}`, { caFile })
    isOwnResponse(t, await get(t, sidecar), unavailable('tls_protocol_error'))
    await upstream.until(() => upstream.open() === 0, 'the connection to be closed')
  })

  await t.test('is a closed connection if the upstream closes during the handshake', async (t) => {
    const upstream = await recordingUpstream(t, { onConnection: (socket) => void socket.end() })
    const sidecar = await sidecarFor(t, `https://localhost:${upstream.port}`, { caFile })
    isOwnResponse(t, await get(t, sidecar), unavailable('connection_terminated'))
  })

  await t.test('carries bodies of any size, and detects a truncated one', async (t) => {
    const { port, sockets } = await tlsUpstream(t, good)
    const sidecar = await sidecarFor(t, `https://localhost:${port}`, { caFile })
    t.equal((await get(t, sidecar)).status, 200)
    const body = Buffer.alloc(5_000_000, 'x')
    sockets[0]?.removeAllListeners('data')
    sockets[0]?.once('data', () => {
      sockets[0]?.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n`)
      sockets[0]?.write(body)
    })
    t.ok((await get(t, sidecar)).body.equals(body))
    sockets[0]?.once('data', () => {
      sockets[0]?.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart', () => sockets[0]?.destroy())
    })
    const cut = await rawClient(t, sidecar.port)
    cut.send(`GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
    await cut.closed()
    t.equal(await outcomes(sidecar, 'http_response_incomplete'), 1)
  })
})

t.test('an upstream that does not accept a connection in time is a 503', async (t) => {
  const settings = { 'timeouts-upstream-connect-seconds': '0.2' }

  await t.test('because its accept queue is full', async (t) => {
    // A listener whose process never accepts: once its queue is full, the kernel ignores new connections.
    const port = new Int32Array(new SharedArrayBuffer(8))
    const worker = new Worker(
      `const { workerData: port } = require('node:worker_threads')
       const server = require('node:net').createServer().listen(0, '127.0.0.1', 1, () => {
         port[0] = server.address().port
         Atomics.wait(port, 1, 0)
       })`,
      { eval: true, workerData: port },
    )
    t.teardown(async () => {
      Atomics.store(port, 1, 1)
      Atomics.notify(port, 1)
      await worker.terminate()
    })
    await eventually(() => port[0] !== 0, 'the listener')
    const number = port[0] ?? 0
    let connected = 0
    const fillers = Array.from({ length: 4 }, () =>
      connect(number, '127.0.0.1')
        .on('connect', () => connected++)
        .on('error', () => {}),
    )
    t.teardown(() => {
      for (const socket of fillers) socket.destroy()
    })
    await eventually(() => connected >= 2, 'the queue to be full')
    const sidecar = await startSidecar(t, { upstreamUrl: `http://127.0.0.1:${number}`, settings })
    isOwnResponse(t, await get(t, sidecar), unavailable('connection_timeout'))
    t.equal(await outcomes(sidecar, 'connection_timeout'), 1)
  })

  await t.test('because it does not complete the TLS handshake', async (t) => {
    const upstream = await recordingUpstream(t)
    const upstreamUrl = `https://127.0.0.1:${upstream.port}`
    const sidecar = await startSidecar(t, { upstreamUrl, settings })
    isOwnResponse(t, await get(t, sidecar), unavailable('connection_timeout'))
    await upstream.until(() => upstream.open() === 0, 'the connection to be given up')
    t.equal(await outcomes(sidecar, 'connection_timeout'), 1)
  })

  await t.test('because the lookup of its name hangs, which others do not wait for', async (t) => {
    const names: string[] = []
    let fail = () => {}
    mock.method(dns, 'lookup', async (name: string) => {
      names.push(name)
      if (name === 'localhost') return [{ address: '127.0.0.1', family: 4 }]
      return new Promise((_, reject) => {
        fail = () => reject(new Error())
      })
    })
    t.teardown(() => {
      fail()
      mock.restoreAll()
    })
    const upstream = await recordingUpstream(t)
    const upstreams = [
      { prefix: '/plain', url: 'http://silent.example' },
      { prefix: '/tls', url: 'https://silent.example' },
      { prefix: '/', url: `http://localhost:${upstream.port}` },
    ]
    const sidecar = await startSidecar(t, { settings: { ...settings, upstreams: JSON.stringify(upstreams) } })
    for (const target of ['/plain', '/tls', '/plain'])
      isOwnResponse(t, await get(t, sidecar, target), unavailable('dns_error'))
    t.equal((await get(t, sidecar)).status, 200)
    t.same(names, ['silent.example', 'localhost'], 'one lookup for all connections')
    t.equal(await outcomes(sidecar, 'dns_error', '/plain'), 2)
  })
})
