import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { startSetup } from '../support/setup.ts'
import { DECLINES_UPGRADES, HANDSHAKE } from '../support/websocket.ts'

/** The first bytes of a TLS handshake, as a client sends them that was given the wrong port. */
const CLIENT_HELLO = Buffer.from(
  '16030100c8010000c40303000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f0000021301',
  'hex',
)

t.test('bytes that are not HTTP/1.x get a JSON response and the connection is closed', async (t) => {
  const setup = await startSetup(t)
  for (const [name, bytes] of [
    ['a TLS handshake', CLIENT_HELLO],
    ['SSH', 'SSH-2.0-OpenSSH_9.7\r\n'],
    ['SMTP', 'EHLO example\r\n'],
    ['SOCKS', Buffer.from('05010000', 'hex')],
    ['the PROXY protocol', 'PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n'],
    ['NULs', Buffer.alloc(64)],
    ['bytes beyond ASCII', Buffer.alloc(64, 0xff)],
    ['a response', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'],
    ['HTTP/0.9', 'GET /b/k\r\n\r\n'],
    ['HTTP/0.9 by name', 'GET /b/k HTTP/0.9\r\nHost: h\r\n\r\n'],
    ['HTTP/1.2', 'GET /b/k HTTP/1.2\r\nHost: h\r\n\r\n'],
    ['HTTP/1.10', 'GET /b/k HTTP/1.10\r\nHost: h\r\n\r\n'],
    ['HTTP/2.0', 'GET /b/k HTTP/2.0\r\nHost: h\r\n\r\n'],
    ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0'],
    ['HTTP/3', 'GET /b/k HTTP/3\r\nHost: h\r\n\r\n'],
    ['http/1.1', 'GET /b/k http/1.1\r\nHost: h\r\n\r\n'],
    ['another protocol', 'GET /b/k FTP/1.0\r\n\r\n'],
    ['no version', 'GET /b/k HTTP/\r\n\r\n'],
    ['text after the version', 'GET /b/k HTTP/1.1x\r\nHost: h\r\n\r\n'],
    ['no target', 'GET HTTP/1.1\r\nHost: h\r\n\r\n'],
  ] as const) {
    const client = await setup.send(bytes)
    isOwnResponse(t, await client.response(), { status: 400, code: 'InvalidArgument' }, name)
    client.socket.end()
    t.equal(await client.closed(), 'end', name)
    t.equal(client.rest().length, 0, `${name}: one answer`)
  }
  await setup.upstreamSaw(t, 0)
})

t.test('an Upgrade header is ignored while upgrades are disabled', async (t) => {
  const setup = await startSetup(t)
  for (const lines of [
    `${HANDSHAKE.join('\r\n')}\r\n`,
    'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n',
    'Upgrade: websocket\r\n',
    'Connection: upgrade\r\nUpgrade: TLS/1.0\r\n',
  ]) {
    for (const [method, target] of [
      ['GET', '/b/k'],
      ['POST', '/b/k'],
      ['GET', '/v2/auth/token'],
      ['POST', '/v2/auth/token'],
    ] as const) {
      const client = await setup.send(setup.head(`${method} ${target}`, ...lines.trimEnd().split('\r\n')))
      // A login without a body is an invalid argument.
      t.equal((await client.response()).status, `${method} ${target}` === 'POST /v2/auth/token' ? 400 : 200)
      if (DECLINES_UPGRADES || !lines.startsWith('Connection')) {
        client.send(setup.head('GET /behind'))
        t.equal((await client.response()).status, 200, 'the connection goes on')
        client.socket.destroy()
      } else t.equal(await client.closed(), 'end')
      for (const { headers } of setup.upstream.requests.splice(0)) {
        t.same(
          [headers['upgrade'], headers['connection'], headers['http2-settings']],
          [undefined, undefined, undefined],
        )
      }
    }
  }
})

/** Header lines of this many bytes as they are counted: names, values, `: ` and line ends. */
const linesOf = (bytes: number) => `X: ${'x'.repeat(bytes - 5)}\r\n`

t.test('a head up to the allowed size is accepted; a larger one is a 431', async (t) => {
  const setup = await startSetup(t)
  const fixed = `Host: h\r\n${setup.authorization}`
  // Node counts the target and the names and values of the lines, without what separates them.
  const room = 16384 - fixed.length - 100
  const withHead = (bytes: number) => `GET /b/k HTTP/1.1\r\n${fixed}${linesOf(bytes)}\r\n`
  t.equal((await setup.ask(withHead(room))).status, 200)
  await setup.upstreamSaw(t, 1)
  const tooLarge = { status: 431, code: 'InvalidArgument' }
  for (const [name, bytes] of [
    ['a little too large', withHead(room + 200)],
    ['twice as many', withHead(2 * room)],
    ['100 KiB in a line', withHead(100 * 1024)],
    ['1 MiB in a line', withHead(1024 * 1024)],
    ['100 KiB of target', `GET /${'x'.repeat(100 * 1024)} HTTP/1.1\r\n${fixed}\r\n`],
    ['16 KiB and a byte of target', `GET /${'x'.repeat(16384)} HTTP/1.1\r\n${fixed}\r\n`],
    ['100 KiB of a name', `GET /b/k HTTP/1.1\r\n${fixed}${'X'.repeat(100 * 1024)}: 1\r\n\r\n`],
    ['one line too many', `GET /b/k HTTP/1.1\r\n${fixed}${'a: b\r\n'.repeat(199)}\r\n`],
    ['100,000 lines', `GET /b/k HTTP/1.1\r\n${fixed}${'a: b\r\n'.repeat(100_000)}\r\n`],
    ['a head without end', `GET /b/k HTTP/1.1\r\n${fixed}X: ${'x'.repeat(40_000)}`],
    ['a token', `GET /b/k HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${'a'.repeat(40_000)}\r\n\r\n`],
  ] as const) {
    for (const bytesAt of name === 'a token' ? [bytes] : [bytes, bytes.replace('/b/k', '/v2/auth/token')]) {
      const client = await setup.send(bytesAt)
      isOwnResponse(t, await client.response(), tooLarge, name)
      client.socket.end()
      await client.closed()
      t.equal(client.rest().length, 0, name)
    }
  }
  t.equal((await setup.ask(`GET /b/k HTTP/1.1\r\n${fixed}${'a: b\r\n'.repeat(198)}\r\n`)).status, 200)
  await setup.upstreamSaw(t, 1)
})

t.test('a request head that takes too long is a 408, even if it drips', async (t) => {
  const setup = await startSetup(t, { settings: { 'timeouts-headers-seconds': '1' } })
  const late = { status: 408, code: 'InvalidArgument' }
  const silent = await setup.connect()
  const half = await setup.send('GET /b/k HTTP/1.1\r\nHost: h\r\nX: ')
  const dripping = await setup.connect()
  const drip = setInterval(() => dripping.send('a'), 20)
  t.teardown(() => clearInterval(drip))
  dripping.send(`GET /b/k HTTP/1.1\r\nHost: h\r\n${setup.authorization}X: `)
  const second = await setup.send(setup.head('GET /b/k'))
  t.equal((await second.response()).status, 200)
  second.send('GET /b/k HTTP/1.1\r\n')
  for (const [name, client] of Object.entries({ silent, half, dripping, second })) {
    isOwnResponse(t, await client.response(), late, name)
    if (name === 'dripping') clearInterval(drip)
    client.socket.end()
    t.equal(await client.closed(), 'end', name)
    t.equal(client.rest().length, 0)
  }
  await setup.upstreamSaw(t, 1)
})

t.test('a client that half-closes during a request gets a 400', async (t) => {
  const setup = await startSetup(t)
  for (const bytes of [
    'GET /b/k HTTP/1.1\r\nHost: h\r\n',
    `PUT /b/k HTTP/1.1\r\nHost: h\r\n${setup.authorization}Content-Length: 5\r\n\r\nhell`,
    `PUT /b/k HTTP/1.1\r\nHost: h\r\n${setup.authorization}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n`,
    'POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\n{',
  ]) {
    const client = await setup.send(bytes)
    client.socket.end()
    isOwnResponse(t, await client.response(), { status: 400, code: 'InvalidArgument' }, bytes.slice(-20))
    t.equal(await client.closed(), 'end')
  }
  const nothing = await setup.connect()
  nothing.socket.end()
  t.equal(await nothing.closed(), 'end')
  t.equal(nothing.received().length, 0, 'no bytes get no response')
  await setup.upstreamSaw(t, 0)
})

t.test('connections above the limit are closed at once', async (t) => {
  const setup = await startSetup(t, { settings: { 'limits-connections': '2' } })
  const get = setup.head('GET /b/k')
  const first = await setup.connect()
  const second = await setup.connect()
  for (const client of [first, second]) {
    client.send(get)
    t.equal((await client.response()).status, 200)
  }
  for (let at = 0; at < 10; at++) {
    const third = await setup.connect().catch(() => undefined)
    if (third === undefined) continue
    third.send(get)
    await third.closed()
    t.equal(third.received().length, 0)
  }
  first.send(get)
  t.equal((await first.response()).status, 200, 'those that are there go on')
  second.socket.destroy()
  const isServed = () =>
    setup
      .ask(get)
      .then(({ status }) => status === 200)
      .catch(() => false)
  await eventually(isServed, 'room for another connection')
})
