import { createServer, type Socket } from 'node:net'
import t from 'tap'
import { SidecarResponse } from '../../src/request/response.ts'
import { freePort } from '../support/free-port.ts'
import { isOwnResponse, unavailable } from '../support/own-response.ts'
import { rawClient, rawRequest } from '../support/raw-client.ts'
import { OK } from '../support/recording-upstream.ts'
import { idle, outcomes, startSetup } from '../support/setup.ts'
import { startSidecar } from '../support/sidecar.ts'

const GARBAGE = { status: 500, code: 'InternalError', error: 'http_protocol_error' }

t.test('an unreachable upstream is a 503 with the reason and without an address', async (t) => {
  const port = await freePort()
  for (const [what, upstreamUrl, outcome] of [
    ['no listener', `http://127.0.0.1:${port}`, 'connection_refused'],
    ['no listener at any address of the name', `http://localhost:${port}`, 'connection_refused'],
    ['the name does not exist', `http://storage.invalid:${port}`, 'dns_error'],
    ['there is no such socket', 'unix:/nonexistent/api.sock', 'connection_refused'],
  ] as const) {
    await t.test(what, async (t) => {
      const sidecar = await startSidecar(t, { upstreamUrl })
      for (let count = 1; count <= 2; count++) {
        const client = await rawClient(t, sidecar.port)
        client.send(`GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
        const response = await client.response()
        isOwnResponse(t, response, unavailable(outcome))
        t.equal(await client.closed(), 'end', 'the next request may reach another replica')
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
  const ask = async () => (await rawRequest(t, sidecar.port, get)).status
  const get = `GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`
  t.equal(await ask(), 503)
  const server = createServer((socket: Socket) => void socket.once('data', () => socket.end(OK)))
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
  t.teardown(() => void server.close())
  t.equal(await ask(), 200)
})

/** What an upstream does instead of responding, and the client's response. Every malformed head stands in response-parser.test.ts. */
const INSTEAD_OF_A_HEAD: readonly (readonly [
  what: string,
  reply: string | ((socket: Socket) => void),
  answer: { readonly status: number; readonly code: string; readonly error: string },
])[] = [
  ['closes', (socket) => socket.end(), unavailable('connection_terminated')],
  ['resets', (socket) => socket.resetAndDestroy(), unavailable('connection_terminated')],
  [
    'closes within its head',
    (socket) => socket.end('HTTP/1.1 200 O'),
    unavailable('http_response_incomplete'),
  ],
  ['is no HTTP server', '\x00\x01\x02\x03 garbage\r\n\r\n', GARBAGE],
  ['is an SSH server', 'SSH-2.0-OpenSSH_9.6\r\n', GARBAGE],
  ['speaks TLS', '\x15\x03\x03\x00\x02\x02\x46', GARBAGE],
  [
    'says a length and chunks',
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok',
    GARBAGE,
  ],
  [
    'has a head of 20 KiB',
    `HTTP/1.1 200 OK\r\nX-Long: ${'x'.repeat(20_480)}\r\nContent-Length: 2\r\n\r\nok`,
    GARBAGE,
  ],
  [
    'switches protocols unasked',
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n',
    GARBAGE,
  ],
  ['sends no end of informational heads', 'HTTP/1.1 102 Processing\r\n\r\n'.repeat(101), GARBAGE],
]

t.test('an upstream that sends no response head', async (t) => {
  const { upstream, request, recovers, outcome } = await startSetup(t)
  for (const [what, reply, answer] of INSTEAD_OF_A_HEAD) {
    await t.test(`but ${what}: ${answer.status}, and no request is repeated`, async (t) => {
      const error = answer.error as Parameters<typeof outcome>[0]
      const [requests, before] = [upstream.requests.length, await outcome(error)]
      for (const [method, lines, body] of [
        ['GET', [], ''],
        ['PUT', ['Content-Length: 3'], 'abc'],
        ['POST', ['Transfer-Encoding: chunked'], '3\r\nabc\r\n0\r\n\r\n'],
        ['DELETE', [], ''],
      ] as const) {
        upstream.reply(reply)
        const client = await request(`${method} /object`, lines, body)
        isOwnResponse(t, await client.response(), answer)
        // What the fault came on is of no more use: the next request must not meet the rest of it.
        await upstream.until(() => upstream.open() === 0, 'the connection to be closed')
      }
      t.equal(upstream.requests.length - requests, 4)
      t.equal((await outcome(error)) - before, 4)
      await recovers()
      await upstream.until(() => upstream.open() <= 1, 'one connection')
      for (const socket of upstream.sockets) socket.destroy()
    })
  }
})

t.test('a connection that the upstream accepts and closes before the request is a 503', async (t) => {
  const { ask, head, outcome } = await startSetup(t, {
    hooks: { onConnection: (socket) => void socket.destroy() },
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
  t.match(
    sidecar.log.filter(({ level }) => level === 50),
    [
      {
        msg: 'request failed with an internal error',
        requestId: 'r-1',
        err: { stack: /writeHead is broken\n/ },
      },
      { requestId: 'r-2', err: { stack: /addTrailers is broken\n/ } },
    ],
  )
  t.equal(await outcome('proxy_internal_error'), 1)
  await recovers()
})

/** libuv below 1.52 reports a reset that arrives together with the last data as a clean end. */
const RESETS_ARE_ENDS = Number(process.versions.uv.split('.')[1]) < 52

t.test('a truncated body never looks complete', async (t) => {
  const { upstream, sidecar, recovers, outcome } = await startSetup(t)
  const framings = {
    'with a length': 'Content-Length: 100\r\n\r\npart of it',
    'in chunks': 'Transfer-Encoding: chunked\r\n\r\na\r\npart of it\r\n',
    'with a bad chunk': 'Transfer-Encoding: chunked\r\n\r\na\r\npart of it\r\n',
    'until the close': '\r\npart of it',
  }
  const ends: Record<string, (socket: Socket) => void> = {
    'a reset': (socket) => socket.resetAndDestroy(),
    'a close': (socket) => socket.end(),
  }
  for (const [framing, text] of Object.entries(framings)) {
    for (const [end, act] of Object.entries(ends)) {
      if (framing === 'until the close' && end === 'a close') continue // that is the end of the body
      for (const version of ['1.1', '1.0']) {
        for (const together of [true, false]) {
          if (framing === 'until the close' && together && RESETS_ARE_ENDS) continue
          const how = together ? 'together with the last bytes' : 'later'
          await t.test(`${framing}, by ${end}, ${how}, HTTP/${version}`, async (t) => {
            const faults = ['http_response_incomplete', 'http_protocol_error'] as const
            const count = async () => (await outcome(faults[0])) + (await outcome(faults[1]))
            const before = await count()
            const client = await rawClient(t, sidecar.port)
            const last = framing === 'with a bad chunk' ? 'zz\r\n' : ''
            upstream.reply((socket) => {
              socket.write(`HTTP/1.1 200 OK\r\n${text}`)
              const cut = () => {
                socket.write(last)
                act(socket)
              }
              if (together) cut()
              else void client.until('part of it').then(cut)
            })
            client.send(`GET / HTTP/${version}\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
            const closed = await client.closed()
            if (!together) t.equal(closed, 'reset', 'for clients that do not count')
            const received = client.received().toString('latin1')
            if (received === '' || received.startsWith('HTTP/1.1 5')) {
              t.ok(together, 'nothing or an error, only where nothing had been sent')
            } else if (/^content-length:/im.test(received)) {
              t.ok((received.split('\r\n\r\n')[1] ?? '').length < 100, 'fewer bytes than promised')
            } else if (/^transfer-encoding: chunked/im.test(received)) {
              t.notMatch(received, /\r\n0\r\n/, 'no last chunk')
            } else {
              t.equal(closed, 'reset')
            }
            t.equal(await count(), before + 1)
          })
        }
      }
    }
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
          if (upstream.sockets.length === 1) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart')
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
