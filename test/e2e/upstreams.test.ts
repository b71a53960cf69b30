import dns from 'node:dns/promises'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { mock } from 'node:test'
import { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import type { UpstreamOutcome } from '../../src/base/errors.ts'
import { SidecarResponse } from '../../src/client/response.ts'
import { makeCertificate, type TestCertificate } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { isOwnResponse, unavailable } from '../support/own-response.ts'
import { rawClient, rawRequest } from '../support/raw-client.ts'
import { OK, recordingUpstream } from '../support/recording-upstream.ts'
import { tlsUpstream } from '../support/secured.ts'
import { idle, outcomes, startSetup } from '../support/setup.ts'
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
      '/',
      '/x',
      '/ab',
      '/a;x',
      '/a%2fb',
      '/a\\b',
      '/./a',
      '/A/x',
      '/%61/x',
      '//a/x',
      '/x/../a/b',
      '/?/a/b',
      '/cd',
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
  upstream.reply((socket) => {
    socket.end('HTTP/1.1 200 OK\r\n\r\nclosed', () => socket.destroy())
  })
  const client = await rawClient(t, sidecar.port)
  client.send(`GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
  t.equal(await client.closed(), 'end', 'a write to a closed unix socket fails, but nothing is missing')
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
  const signed = (options: object) =>
    makeCertificate({ commonName: 'localhost', names, issuer: authority, ...options })
  const otherAddress = signed({ commonName: '127.0.0.1', names: ['localhost', '127.0.0.2'] })
  const otherCa = file('stranger.pem', stranger.cert)
  const refused: readonly (readonly [string, cause: string, TestCertificate, host?: string, ca?: string])[] =
    [
      ['an unknown authority', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', good, 'localhost', ''],
      ['another authority signed it', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', good, 'localhost', otherCa],
      ['it signed itself', 'DEPTH_ZERO_SELF_SIGNED_CERT', signed({ issuer: undefined })],
      ['no authority signed it', 'INVALID_', { ...byLeaf, cert: byLeaf.cert + leaf.cert }],
      ['it is for another name', 'ERR_TLS_CERT_ALTNAME_INVALID', signed({ names: ['other.example'] })],
      ['it is for another address', 'ERR_TLS_CERT_ALTNAME_INVALID', otherAddress, '127.0.0.1'],
      ['it has expired', 'CERT_HAS_EXPIRED', signed({ notAfter: Date.now() - 1000 })],
    ]
  for (const [why, cause, certificate, host = 'localhost', ca = caFile] of refused) {
    await t.test(`is refused: ${why}`, async (t) => {
      const { port, sockets } = await tlsUpstream(t, certificate)
      const sidecar = await sidecarFor(t, `https://${host}:${port}`, ca === '' ? {} : { caFile: ca })
      // A client that names what the certificate is good for does not change that.
      for (const name of [host, 'other.example']) {
        isOwnResponse(t, await get(t, sidecar, '/', name), unavailable('tls_certificate_error'))
        t.match(sidecar.log.at(-1), { reason: 'tls_certificate_error', cause })
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
      onConnection: (socket) => {
        socket.write('HTTP/1.1 400 Bad\r\n\r\n')
      },
    })
    const sidecar = await sidecarFor(t, `https://localhost:${upstream.port}`, { caFile })
    isOwnResponse(t, await get(t, sidecar), unavailable('tls_protocol_error'))
    await upstream.until(() => upstream.open() === 0, 'the connection to be closed')
  })

  await t.test('is a closed connection if the upstream closes during the handshake', async (t) => {
    const upstream = await recordingUpstream(t, {
      onConnection: (socket) => {
        socket.end()
      },
    })
    const sidecar = await sidecarFor(t, `https://localhost:${upstream.port}`, { caFile })
    isOwnResponse(t, await get(t, sidecar), unavailable('connection_terminated'))
  })

  await t.test('serves one request after the other', async (t) => {
    // In another thread: in the event loop of the sidecar, no response would arrive before
    // the end of its write is reported.
    const connections = new Int32Array(new SharedArrayBuffer(4))
    const code = `const { parentPort, workerData } = require('node:worker_threads')
      const server = require('node:tls').createServer(workerData.good, (socket) => {
        Atomics.add(workerData.connections, 0, 1)
        socket.on('error', () => {}).on('data', () => socket.write(workerData.OK))
      })
      server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port))`
    const upstream = new Worker(code, { eval: true, workerData: { good, connections, OK } })
    t.teardown(() => upstream.terminate())
    const [port] = await once(upstream, 'message')
    const sidecar = await sidecarFor(t, `https://localhost:${port}`, { caFile })
    for (let request = 0; request < 100; request++) {
      t.equal((await get(t, sidecar)).status, 200)
    }
    t.equal(Atomics.load(connections, 0), 1)
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
      for (const socket of fillers) {
        socket.destroy()
      }
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
      if (name === 'localhost') {
        return [{ address: '127.0.0.1', family: 4 }]
      }
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
    for (const target of ['/plain', '/tls', '/plain']) {
      isOwnResponse(t, await get(t, sidecar, target), unavailable('dns_error'))
    }
    t.equal((await get(t, sidecar)).status, 200)
    t.same(names, ['silent.example', 'localhost'], 'one lookup for all connections')
    t.equal(await outcomes(sidecar, 'dns_error', '/plain'), 2)
  })
})

t.test('an unreachable upstream is a 503 with the reason and without an address', async (t) => {
  const port = await freePort()
  for (const [what, upstreamUrl, outcome, cause] of [
    ['no listener', `http://127.0.0.1:${port}`, 'connection_refused', 'ECONNREFUSED'],
    ['no listener at any address', `http://localhost:${port}`, 'connection_refused', 'ECONNREFUSED'],
    ['the name does not exist', `http://storage.invalid:${port}`, 'dns_error', /^ENOTFOUND$|^EAI_AGAIN$/],
    ['there is no such socket', 'unix:/nonexistent/api.sock', 'connection_refused', 'ENOENT'],
  ] as const) {
    await t.test(what, async (t) => {
      const sidecar = await startSidecar(t, { upstreamUrl })
      for (let count = 1; count <= 2; count++) {
        const client = await rawClient(t, sidecar.port)
        client.send(`GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
        const response = await client.response()
        isOwnResponse(t, response, unavailable(outcome))
        t.equal(await client.closed(), 'end', 'the next request may reach another replica')
        t.match(sidecar.log.at(-1), { reason: outcome, cause })
        t.notMatch(client.received().toString(), /127\.0\.0\.1|storage\.invalid|nonexistent/)
        t.equal(await outcomes(sidecar, outcome), count)
      }
      await idle(sidecar)
    })
  }
})

t.test('a recovered upstream is used at once', async (t) => {
  const port = await freePort()
  const sidecar = await startSidecar(t, { upstreamUrl: `http://127.0.0.1:${port}` })
  const get = `GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`
  const ask = async () => (await rawRequest(t, sidecar.port, get)).status
  t.equal(await ask(), 503)
  const server = createServer((socket: Socket) => {
    socket.once('data', () => socket.end(OK))
  })
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
  t.teardown(() => {
    server.close()
  })
  t.equal(await ask(), 200)
})

/**
 * What an upstream does instead of responding, and the log.
 * Every malformed head stands in response-parser.test.ts.
 */
const INSTEAD_OF_A_HEAD: readonly (readonly [
  what: string,
  reply: string | ((socket: Socket) => void),
  cause: string | undefined,
  reason?: UpstreamOutcome,
])[] = [
  ['closes', (socket) => socket.end(), undefined, 'connection_terminated'],
  ['resets', (socket) => socket.resetAndDestroy(), 'ECONNRESET', 'connection_terminated'],
  ['closes within its head', (socket) => socket.end('HTTP/1.1 200 O'), undefined, 'http_response_incomplete'],
  ['is no HTTP server', '\x00\x01\x02\x03 garbage\r\n\r\n', 'bad status line'],
  ['is an SSH server', 'SSH-2.0-OpenSSH_9.6\r\n', 'no HTTP response'],
  ['speaks TLS', '\x15\x03\x03\x00\x02\x02\x46', 'no HTTP response'],
  [
    'says a length and chunks',
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok',
    'a length beside chunks',
  ],
  [
    'has a head of 20 KiB',
    `HTTP/1.1 200 OK\r\nX-Long: ${'x'.repeat(20_480)}\r\nContent-Length: 2\r\n\r\nok`,
    'head or trailers too large',
  ],
  [
    'switches protocols unasked',
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n',
    '101 without an upgrade',
  ],
]

t.test('an upstream that sends no response head', async (t) => {
  const { upstream, sidecar, request, recovers, outcome } = await startSetup(t)
  for (const [what, reply, cause, reason = 'http_protocol_error'] of INSTEAD_OF_A_HEAD) {
    const isSyntax = reason === 'http_protocol_error'
    const answer = isSyntax ? { status: 500, code: 'InternalError', error: reason } : unavailable(reason)
    await t.test(`but ${what}: ${answer.status}, and no request is repeated`, async (t) => {
      const requests = upstream.requests.length
      const before = await outcome(reason)
      for (const [method, lines, body] of [
        ['GET', [], ''],
        ['PUT', ['Content-Length: 3'], 'abc'],
        ['POST', ['Transfer-Encoding: chunked'], '3\r\nabc\r\n0\r\n\r\n'],
        ['DELETE', [], ''],
      ] as const) {
        upstream.reply(reply)
        const client = await request(`${method} /object`, lines, body)
        isOwnResponse(t, await client.response(), answer)
        // The next request must not meet the rest of the response.
        await upstream.until(() => upstream.open() === 0, 'the connection to be closed')
        t.equal(sidecar.log.at(-1)?.['cause'], cause)
      }
      t.equal(upstream.requests.length - requests, 4)
      t.equal((await outcome(reason)) - before, 4)
      await recovers()
      await upstream.until(() => upstream.open() <= 1, 'one connection')
      for (const socket of upstream.sockets) {
        socket.destroy()
      }
    })
  }
})

t.test('a connection that the upstream accepts and closes before the request is a 503', async (t) => {
  const { ask, head, outcome } = await startSetup(t, {
    hooks: {
      onConnection: (socket) => {
        socket.destroy()
      },
    },
  })
  isOwnResponse(t, await ask(head('GET /')), unavailable('connection_terminated'))
  t.equal(await outcome('connection_terminated'), 1)
})

t.test('an unexpected error while a response is forwarded is logged once, with its stack', async (t) => {
  const { upstream, sidecar, request, recovers, outcome } = await startSetup(t)
  const breakOnce = (name: 'writeHead' | 'addTrailers') => {
    SidecarResponse.prototype[name] = (): never => {
      Reflect.deleteProperty(SidecarResponse.prototype, name)
      throw new TypeError(`${name} is broken`)
    }
  }
  breakOnce('writeHead')
  upstream.reply(OK)
  const refused = await request('GET /a', ['X-Request-Id: r-1'])
  isOwnResponse(t, await refused.response(), {
    status: 500,
    code: 'InternalError',
    error: 'proxy_internal_error',
  })
  breakOnce('addTrailers')
  upstream.reply('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n')
  const aborted = await request('GET /b', ['X-Request-Id: r-2'])
  await aborted.closed()
  t.notMatch(aborted.received().toString(), /\n0\r\n/, 'a response that had begun is not complete')
  breakOnce('writeHead') // of the error response
  upstream.reply('SSH-2.0-x\r\n')
  await (await request('GET /c', ['X-Request-Id: r-3'])).closed()
  t.match(
    sidecar.log.filter(({ level }) => level === 50),
    [
      {
        msg: 'request failed with an internal error',
        requestId: 'r-1',
        err: { stack: /writeHead is broken\n/ },
      },
      { requestId: 'r-2', err: { stack: /addTrailers is broken\n/ } },
      { requestId: 'r-3', err: { stack: /writeHead is broken\n/ } },
    ],
  )
  t.equal(await outcome('proxy_internal_error'), 2)
  await recovers()
})

interface Truncation {
  readonly framing: string
  /** The response, up to the middle of its body. */
  readonly begin: string
  /** What the upstream sends last. */
  readonly last: string
  readonly end: string
  readonly version: string
  /** Whether the end comes together with the first bytes, or once the client has received them. */
  readonly isTogether: boolean
}

const FRAMINGS = [
  { framing: 'with a length', begin: 'Content-Length: 100\r\n\r\npart of it', last: '' },
  { framing: 'in chunks', begin: 'Transfer-Encoding: chunked\r\n\r\na\r\npart of it\r\n', last: '' },
  {
    framing: 'with a bad chunk',
    begin: 'Transfer-Encoding: chunked\r\n\r\na\r\npart of it\r\n',
    last: 'zz\r\n',
  },
  { framing: 'until the close', begin: '\r\npart of it', last: '' },
]

const TRUNCATIONS: readonly Truncation[] = FRAMINGS.flatMap((framing) =>
  ['a reset', 'a close']
    // A close is the regular end of such a body.
    .filter((end) => framing.framing !== 'until the close' || end !== 'a close')
    .flatMap((end) =>
      ['1.1', '1.0'].flatMap((version) => [
        { ...framing, end, version, isTogether: true },
        { ...framing, end, version, isTogether: false },
      ]),
    ),
)

function showsTruncation(t: Test, { isTogether }: Truncation, received: string, closed: string): void {
  if (!isTogether) {
    t.equal(closed, 'reset', 'for clients that do not count')
  }
  if (received === '' || received.startsWith('HTTP/1.1 5')) {
    t.ok(isTogether, 'nothing or an error, only where nothing had been sent')
  } else if (/^content-length:/im.test(received)) {
    t.ok((received.split('\r\n\r\n')[1] ?? '').length < 100, 'fewer bytes than promised')
  } else if (/^transfer-encoding: chunked/im.test(received)) {
    t.notMatch(received, /\r\n0\r\n/, 'no last chunk')
  } else {
    t.equal(closed, 'reset')
  }
}

t.test('a truncated body never looks complete', async (t) => {
  const { upstream, sidecar, recovers, outcome } = await startSetup(t)
  const failures = async () =>
    (await outcome('http_response_incomplete')) + (await outcome('http_protocol_error'))
  for (const truncation of TRUNCATIONS) {
    const { framing, begin, last, end, version, isTogether } = truncation
    const when = isTogether ? 'together with the last bytes' : 'later'
    await t.test(`${framing}, by ${end}, ${when}, HTTP/${version}`, async (t) => {
      const before = await failures()
      const client = await rawClient(t, sidecar.port)
      upstream.reply(async (socket) => {
        socket.write(`HTTP/1.1 200 OK\r\n${begin}`)
        if (!isTogether) {
          await client.until('part of it')
        }
        socket.write(last)
        if (end === 'a reset') {
          socket.resetAndDestroy()
        } else {
          socket.end()
        }
      })
      client.send(`GET / HTTP/${version}\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
      const closed = await client.closed()
      showsTruncation(t, truncation, client.received().toString('latin1'), closed)
      t.equal(await failures(), before + 1)
    })
  }
  await recovers()
})

t.test('a body that ends with a clean close is complete', async (t) => {
  const { upstream, sidecar, request, recovers, send } = await startSetup(t)
  upstream.reply((socket) => socket.end('HTTP/1.1 200 OK\r\n\r\nall of it'))
  const client = await request('GET /')
  const response = await client.response()
  t.match(response.headers, { connection: 'close', 'transfer-encoding': undefined })
  t.equal(response.body.toString(), 'all of it')
  t.equal(await client.closed(), 'end')
  const old = await send(`GET / HTTP/1.0\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
  t.equal(await old.closed(), 'end')
  t.match(old.received().toString(), /\r\n\r\nall of it$/)
  await recovers()
})

t.test('an HTTP/1.0 client that half-closes during a response body gets no clean end', async (t) => {
  const { upstream, sidecar, recovers, send } = await startSetup(t)
  upstream.reply('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n')
  const client = await send(`GET / HTTP/1.0\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
  await client.until('part')
  client.socket.end()
  t.equal(await client.closed(), 'reset')
  await recovers()
})

t.test('a body that becomes malformed after the response has begun aborts the response', async (t) => {
  const { upstream, request, recovers } = await startSetup(t, {
    hooks: {
      onConnection: (socket) => {
        socket.once('data', () => {
          if (upstream.sockets.length === 1) {
            socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart')
          }
        })
      },
    },
  })
  const client = await request('PUT /', ['Transfer-Encoding: chunked'], '4\r\npart\r\n')
  await client.until('\r\n\r\npart')
  client.send('nonsense\r\n')
  await client.closed()
  t.match(client.received().toString(), /\r\n\r\npart$/)
  await recovers()
})

t.test('a malformed body in the packet of its head is truncated after its valid part', async (t) => {
  const { upstream, sidecar, send } = await startSetup(t)
  for (const body of ['5\r\nhelloXX', '5\r\nhello\r\nzz\r\n', '5\r\nhello\r\n0\r\nbad trailer\r\n\r\n']) {
    upstream.reply(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${body}`)
    const client = await send(`GET / HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
    await client.closed()
    t.match(client.received().toString(), /^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\n5\r\nhello\r\n$/, body)
  }
})
