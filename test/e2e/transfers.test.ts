import { createHash, randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { standsStill } from '../support/eventually.ts'
import { rawClient } from '../support/raw-client.ts'
import { bodyReply, type Reply } from '../support/recording-upstream.ts'
import { startSetup } from '../support/setup.ts'

const KIB = 1024
const MIB = 1024 * KIB
const SIZES = [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 20 * MIB]
const RANDOM = randomBytes(20 * MIB)

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** A body in chunks of uneven sizes. */
function chunked(body: Buffer, trailers = ''): Buffer {
  const parts: Buffer[] = []
  let at = 0
  let size = 1
  while (at < body.length) {
    const chunk = body.subarray(at, at + size)
    parts.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from('\r\n'))
    at += chunk.length
    size = (size * 7) % 100_003
  }
  return Buffer.concat([...parts, Buffer.from(`0\r\n${trailers}\r\n`)])
}

t.test('a request arrives unchanged except for the identity', async (t) => {
  const { upstream, sidecar, ask } = await startSetup(t)
  const response = await ask(
    `PUT /b//c/%2e%2e/d;x=1?a=%20&b HTTP/1.1\r\nhOsT: storage.example:80\r\nX-Meta_Key: a\r\nAuthorization: Bearer ${sidecar.token}\r\n` +
      'x-dup: 1\r\nX-Dup: 2\r\nContent-length: 5\r\nX-Latin: caf\xe9\r\nX-Empty:\r\nOrigin: https://app.example\r\n\r\nhello',
  )
  t.equal(response.status, 200)
  t.same(response.body.toString(), 'ok')
  const [request] = upstream.requests
  t.equal(request?.target, '/b//c/%2e%2e/d;x=1?a=%20&b')
  t.same(request?.rawHeaders.slice(0, 16), [
    'hOsT',
    'storage.example:80',
    'X-Meta_Key',
    'a',
    'x-dup',
    '1',
    'X-Dup',
    '2',
    'Content-length',
    '5',
    'X-Latin',
    'caf\xe9',
    'X-Empty',
    '',
    'Origin',
    'https://app.example',
  ])
  t.equal(request?.body.toString(), 'hello')
  t.equal(request?.headers['x-authenticated-account-id'], 'acme')
  t.equal(request?.headers['authorization'], undefined)
})

function chunkedReply(body: Buffer): Reply {
  const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
  return Buffer.concat([Buffer.from(head), chunked(body)])
}

function closeDelimitedReply(body: Uint8Array): Reply {
  return (socket) => {
    socket.write('HTTP/1.1 200 OK\r\n\r\n')
    socket.end(body)
  }
}

t.test('a body of any size arrives unchanged', async (t) => {
  const { upstream, sidecar, ask, head, recovers } = await startSetup(t)
  const client = await rawClient(t, sidecar.port)
  upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
  let bytes = 0
  for (const size of SIZES) {
    const body = RANDOM.subarray(0, size)
    await t.test(`${size} bytes up, with a length and in chunks`, async (t) => {
      client.send(head('PUT /up', `Content-Length: ${size}`))
      client.send(body)
      t.equal((await client.response()).status, 200)
      client.send(head('PUT /up', 'Transfer-Encoding: chunked'))
      client.send(chunked(body))
      t.equal((await client.response()).status, 200)
      const [first, second] = upstream.requests.slice(-2)
      t.equal(first?.body.length, size)
      t.equal(sha256(first?.body ?? Buffer.alloc(0)), sha256(body))
      t.equal(second?.body.length, size)
      t.equal(sha256(second?.body ?? Buffer.alloc(0)), sha256(body))
    })
    await t.test(`${size} bytes down, with a length, in chunks and until the close`, async (t) => {
      const ways = [
        { how: 'with a length', reply: bodyReply(body), contentLength: String(size) },
        { how: 'in chunks', reply: chunkedReply(body), contentLength: undefined },
        { how: 'until the close', reply: closeDelimitedReply(body), contentLength: undefined },
      ]
      for (const { how, reply, contentLength } of ways) {
        upstream.reply(reply)
        const response = await ask(head('GET /down'))
        t.equal(response.headers['content-length'], contentLength, how)
        t.equal(response.body.length, size, how)
        t.equal(sha256(response.body), sha256(body), how)
        bytes += size
      }
      upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
    })
  }
  t.equal(upstream.requests.length, 5 * SIZES.length, 'as many requests as were sent')
  await recovers()
  const up = 2 * SIZES.reduce((sum, size) => sum + size, 0)
  t.equal(await sidecar.metric('auth_sidecar_transferred_bytes_total{direction="in"}'), up)
  // And the last request's own.
  t.equal(await sidecar.metric('auth_sidecar_transferred_bytes_total{direction="out"}'), bytes + 2)
})

/** What concerns one connection, and claims of an identity. */
const STOPPED = [
  'Connection: keep-alive, X-Private',
  'connection: ,x-other ,\tset-cookie2',
  'Keep-Alive: timeout=5',
  'Proxy-Connection: close',
  'TE: trailers',
  'Proxy-Authenticate: Basic',
  'Proxy-Authorization: x',
  'Upgrade: h2c',
  'HTTP2-Settings: a',
  'X-PRIVATE: 1',
  'x-private: 2',
  'X-Other: 3',
  'Set-Cookie2: 4',
  'X-Authenticated-Account-Id: evil',
  'x_authenticated_key: evil',
  'X.Authenticated.Assertion: evil',
]

t.test('hop-by-hop headers, connection options and claims of an identity stop here', async (t) => {
  const { upstream, request } = await startSetup(t)
  upstream.reply(
    `HTTP/1.1 200 OK\r\n${STOPPED.join('\r\n')}\r\nX-Request-Id: theirs\r\nX-Kept: x\r\nContent-Length: 2\r\n\r\nok`,
  )
  const { headers } = await (await request('GET /a', [...STOPPED, 'X-Kept: x'])).response()
  const ours = /^(?:connection|keep-alive|date|forwarded|x-forwarded-\w+)$/
  const names = (all: object) => Object.keys(all).filter((name) => !ours.test(name))
  t.same(names(headers).sort(), ['content-length', 'x-kept', 'x-request-id'])
  t.not(headers['x-request-id'], 'theirs')
  const received = upstream.requests[0]?.headers ?? {}
  t.same(
    names(received).filter((name) => !/^x-authenticated-(?:account-id|access-key|token-)/.test(name)),
    ['host', 'x-kept', 'x-request-id'],
  )
  t.equal(received['connection'] ?? received['keep-alive'], undefined)
  t.notMatch(upstream.bytes[0]?.toString(), /evil/)
})

t.test('trailers pass in both directions, without framing, identity and connection options', async (t) => {
  const { upstream, request, recovers } = await startSetup(t)
  upstream.reply(
    'HTTP/1.1 200 OK\r\nTrailer: X-Checksum\r\nConnection: X-Hop\r\nProxy-Authenticate: Basic\r\nTransfer-Encoding: chunked\r\n\r\n' +
      '2\r\nok\r\n0\r\nX-Checksum: down\r\nX-Hop: 1\r\nContent-Length: 9\r\n\r\n',
  )
  const client = await request(
    'PUT /object',
    ['Transfer-Encoding: chunked', 'Trailer: X-Checksum, X-Authenticated-Account-Id', 'Connection: X-Hop'],
    '3\r\nabc\r\n0\r\nX-Checksum: up\r\nX-Authenticated-Account-Id: evil\r\nX_Authenticated.Account-Id: evil\r\n' +
      'Authorization: Bearer x\r\nHost: evil\r\nX-Forwarded-For: 9.9.9.9\r\nX-Request-Id: evil\r\n' +
      'Connection: close\r\nX-Hop: 1\r\nX-Other: kept\r\nDestination: /kept\r\n\r\n',
  )
  const response = await client.response()
  t.same(response.rawTrailers, ['X-Checksum', 'down'])
  t.equal(response.headers['trailer'], 'X-Checksum')
  t.equal(response.headers['proxy-authenticate'], undefined)
  t.equal(response.headers['connection'], 'close', "Node's parser obeys it in trailers, too")
  t.same(upstream.requests[0]?.rawTrailers, ['X-Checksum', 'up', 'X-Other', 'kept', 'Destination', '/kept'])
  t.equal(upstream.requests[0]?.headers['x-authenticated-account-id'], 'acme')
  await recovers()
})

t.test('an HTTP/1.0 client gets the body without trailers', async (t) => {
  const { upstream, sidecar, recovers, send } = await startSetup(t)
  upstream.reply(
    'HTTP/1.1 200 OK\r\nTrailer: X-Checksum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Checksum: down\r\n\r\n',
  )
  const client = await send(`GET / HTTP/1.0\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
  t.equal(await client.closed(), 'end')
  const received = client.received().toString()
  t.match(received, /\r\n\r\nok$/)
  t.notMatch(received, /trailer|checksum|transfer-encoding/i)
  await recovers()
})

/** Responses whose framing is easily got wrong, each with what the client gets. */
const FRAMINGS: readonly (readonly [
  what: string,
  method: string,
  reply: string,
  status: number,
  headers: Readonly<Record<string, string | undefined>>,
])[] = [
  ['HEAD with a length', 'HEAD', '200 OK\r\nContent-Length: 1000', 200, { 'content-length': '1000' }],
  ['HEAD with chunks', 'HEAD', '200 OK\r\nTransfer-Encoding: chunked', 200, { 'content-length': undefined }],
  ['HEAD with both', 'HEAD', '200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 4', 200, {}],
  ['HEAD with neither', 'HEAD', '200 OK\r\nETag: "a"', 200, { etag: '"a"' }],
  ['204', 'DELETE', '204 No Content', 204, { 'content-length': undefined }],
  [
    '204 with a length',
    'DELETE',
    '204 No Content\r\nContent-Length: 0',
    204,
    { 'content-length': undefined },
  ],
  ['304 with a length', 'GET', '304 Not Modified\r\nContent-Length: 1000', 304, { 'content-length': '1000' }],
  ['304 with chunks', 'GET', '304 Not Modified\r\nTransfer-Encoding: chunked', 304, {}],
  ['304 with both', 'GET', '304 Not Modified\r\nContent-Length: 4\r\nTransfer-Encoding: chunked', 304, {}],
  ['an empty body', 'GET', '200 OK\r\nContent-Length: 0', 200, { 'content-length': '0' }],
  ['412', 'PUT', '412 Precondition Failed\r\nContent-Length: 0', 412, { 'content-length': '0' }],
  ['no reason', 'GET', '299 \r\nContent-Length: 0', 299, {}],
]

t.test('a response without a body leaves the connection reusable', async (t) => {
  const { upstream, sidecar, head, recovers } = await startSetup(t)
  const client = await rawClient(t, sidecar.port)
  for (const [what, method, reply, status, headers] of FRAMINGS) {
    await t.test(what, async (t) => {
      upstream.reply(`HTTP/1.1 ${reply}\r\n\r\n`)
      client.send(head(`${method} /framing`))
      const response = await client.response({ head: method === 'HEAD' })
      t.equal(response.status, status)
      t.equal(response.headers['transfer-encoding'], undefined)
      t.match(response.headers, headers)
      for (const [name, value] of Object.entries(headers)) {
        t.equal(response.headers[name], value)
      }
      upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext')
      client.send(head('GET /next'))
      t.equal((await client.response()).body.toString(), 'next')
    })
  }
  t.equal(upstream.sockets.length, 1, 'all on one connection')
  await recovers()
})

t.test('a body after a bodiless response reaches no client', async (t) => {
  const { upstream, sidecar, head, recovers } = await startSetup(t)
  const client = await rawClient(t, sidecar.port)
  for (const [method, reply, status] of [
    ['HEAD', '200 OK\r\nContent-Length: 4', 200],
    ['DELETE', '204 No Content\r\nContent-Length: 4', 204],
    ['DELETE', '204 No Content\r\nTransfer-Encoding: chunked', 204],
    ['GET', '304 Not Modified\r\nContent-Length: 4', 304],
    ['GET', '200 OK\r\nContent-Length: 0', 200],
  ] as const) {
    upstream.reply(`HTTP/1.1 ${reply}\r\n\r\nevil`)
    client.send(head(`${method} /a`))
    t.equal((await client.response({ head: method === 'HEAD' })).status, status)
    await upstream.until(() => upstream.open() === 0, 'the connection to be closed')
    upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext')
    client.send(head('GET /b'))
    t.equal((await client.response()).body.toString(), 'next')
    upstream.sockets.at(-1)?.destroy()
  }
  t.notMatch(client.received().toString(), /evil/)
  await recovers()
})

t.test('ranges, encodings, validators and repeated headers pass unchanged', async (t) => {
  const { upstream, sidecar, head, recovers } = await startSetup(t)
  const client = await rawClient(t, sidecar.port)
  const zipped = gzipSync(RANDOM.subarray(0, 5000))
  const parts = Buffer.from(
    '--cut\r\nContent-Range: bytes 0-1/9\r\n\r\nab\r\n--cut\r\nContent-Range: bytes 4-5/9\r\n\r\nef\r\n--cut--\r\n',
  )
  for (const [status, headers, body] of [
    [
      '206 Partial Content',
      ['Content-Range', 'bytes 5-9/10', 'Accept-Ranges', 'bytes'],
      Buffer.from('56789'),
    ],
    ['206 Partial Content', ['Content-Type', 'multipart/byteranges; boundary=cut'], parts],
    ['200 OK', ['Content-Encoding', 'gzip', 'ETag', '"x"', 'Vary', 'Accept-Encoding'], zipped],
    [
      '200 OK',
      ['Content-MD5', 'XUFAKrxLKna5cZ2REBfFkg==', 'Set-Cookie', 'a=1', 'set-cookie', 'b=2'],
      RANDOM.subarray(0, 9),
    ],
    ['416 Range Not Satisfiable', ['Content-Range', 'bytes */10'], Buffer.alloc(0)],
  ] as const) {
    const lines = [...headers, 'Content-Length', String(body.length), 'Date', 'Mon, 01 Jan 2024 00:00:00 GMT']
    let text = `HTTP/1.1 ${status}\r\n`
    for (let at = 0; at < lines.length; at += 2) {
      text += `${lines[at]}: ${lines[at + 1]}\r\n`
    }
    upstream.reply(Buffer.concat([Buffer.from(`${text}\r\n`), body]))
    client.send(
      head(
        'GET /object',
        'Range: bytes=5-',
        'If-None-Match: "a", W/"b"',
        'If-Range: "a"',
        'Accept-Encoding: gzip',
      ),
    )
    const response = await client.response()
    t.equal(`${response.status} ${response.reason}`, status)
    t.same(response.rawHeaders.slice(0, lines.length), lines)
    t.equal(sha256(response.body), sha256(body))
    t.match(upstream.requests.at(-1)?.headers, {
      range: 'bytes=5-',
      'if-none-match': '"a", W/"b"',
      'if-range': '"a"',
      'accept-encoding': 'gzip',
    })
  }
  await recovers()
})

/** Writes as much as the other side takes. */
function pour(socket: Socket, total: number): { sent: number } {
  const chunk = RANDOM.subarray(0, 256 * KIB)
  const poured = { sent: 0 }
  const more = () => {
    while (poured.sent < total) {
      const size = Math.min(chunk.length, total - poured.sent)
      poured.sent += size
      if (!socket.write(chunk.subarray(0, size))) {
        break
      }
    }
  }
  socket.on('drain', more)
  more()
  return poured
}

/** What the kernel may keep of one transfer: two connections, each with a send and a receive buffer. */
const KERNEL_BYTES = 32 * MIB

t.test('clients that do not read pause the upstream and cost no memory', async (t) => {
  const { upstream, sidecar, head, recovers } = await startSetup(t)
  const poured: { sent: number }[] = []
  upstream.reply((socket) => {
    socket.write('HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n')
    poured.push(pour(socket, 1024 * MIB))
  })
  const before = process.memoryUsage().rss
  const clients = []
  for (let count = 0; count < 16; count++) {
    const client = await rawClient(t, sidecar.port)
    client.socket.pause()
    client.send(head('GET /large'))
    clients.push(client)
  }
  await upstream.received(16)
  const sent = await standsStill(() => poured.reduce((sum, each) => sum + each.sent, 0))
  t.ok(sent < 16 * KERNEL_BYTES, `the upstream was made to wait after ${Math.round(sent / MIB)} MiB`)
  const grown = (process.memoryUsage().rss - before) / MIB
  t.ok(grown < 64, `${Math.round(grown)} MiB for 16 objects of 1 GiB`)
  for (const client of clients) {
    client.socket.destroy()
  }
  await upstream.until(() => upstream.open() === 0, 'the connections to be closed')
  await recovers()
})

t.test('upstreams that do not read pause their clients and cost no memory', async (t) => {
  const hold: Socket[] = []
  const { upstream, head, send } = await startSetup(t, {
    hooks: {
      read: false,
      onConnection: (socket) => {
        hold.push(socket.pause())
      },
    },
  })
  const before = process.memoryUsage().rss
  const poured: { sent: number }[] = []
  const clients = []
  for (let count = 0; count < 16; count++) {
    const client = await send(head('PUT /large', 'Content-Length: 1073741824'))
    poured.push(pour(client.socket, 1024 * MIB))
    clients.push(client)
  }
  await upstream.until(() => upstream.sockets.length === 16, 'all connections')
  const sent = await standsStill(() => poured.reduce((sum, each) => sum + each.sent, 0))
  t.ok(sent < 16 * KERNEL_BYTES, `the clients were made to wait after ${Math.round(sent / MIB)} MiB`)
  const grown = (process.memoryUsage().rss - before) / MIB
  t.ok(grown < 64, `${Math.round(grown)} MiB for 16 objects of 1 GiB`)
  for (const client of clients) {
    client.socket.destroy()
  }
  for (const socket of hold) {
    socket.resume()
  }
  await upstream.until(() => upstream.open() === 0, 'the connections to be closed')
})

// `\xc4\x8d\xc4\x8a` are two letters in UTF-8 whose code points end in CR and LF.
const VALUES = ['\xe4\xff\xc3\xa4', '\xc4\x8d\xc4\x8aX-Injected: 1']

t.test('non-ASCII bytes in a response header arrive unchanged with any framing', async (t) => {
  const setup = await startSetup(t)
  for (const [when, framing, body] of [
    ['with the head', 'Content-Length: 2', 'ok'],
    ['later', 'Content-Length: 2', ''],
    ['later, in chunks', 'Transfer-Encoding: chunked', ''],
    ['later, ended by the close', 'Connection: close', ''],
    ['not at all', 'Content-Length: 0', ''],
  ] as const) {
    // Node decodes Content-Disposition as UTF-8 where a length is known.
    for (const name of ['X-Bytes', 'Content-Disposition', 'content-disposition']) {
      for (const value of VALUES) {
        for (const lines of [`${name}: ${value}\r\n${framing}`, `${framing}\r\n${name}: ${value}`]) {
          setup.upstream.reply(`HTTP/1.1 200 OK\r\n${lines}\r\n\r\n${body}`)
          const client = await setup.request('GET /a')
          await client.until('\r\n\r\n')
          const line = Buffer.from(`\r\n${name}: ${value}\r\n`, 'latin1')
          t.ok(client.received().includes(line), `${name}, the body comes ${when}`)
          client.socket.destroy()
        }
      }
    }
  }
  await setup.recovers()
})
