import t from 'tap'
import { inTime } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { sendSteadily } from '../support/raw-client.ts'
import { OK } from '../support/recording-upstream.ts'
import { startSetup } from '../support/setup.ts'

/** The informational responses of an upstream, and the lines of them that a client receives. */
const INFORMATIONAL: readonly [what: string, lines: readonly string[], received: readonly string[]][] = [
  ['102 Processing', [], []],
  [
    '103 Early Hints',
    ['Link: </a.css>; rel=preload', 'link: </b.js>;foo'],
    ['Link', '</a.css>; rel=preload', 'link', '</b.js>;foo'],
  ],
  ['103 Early Hints', [`Link: <x>${';a=b'.repeat(60)};"`], ['Link', `<x>${';a=b'.repeat(60)};"`]],
  [
    '104 Upload Resumption Supported',
    ['Upload-Offset: 50', 'X-Meta: caf\xe9'],
    ['Upload-Offset', '50', 'X-Meta', 'caf\xe9'],
  ],
  [
    '199 Hm',
    ['Content-Length: 5', 'X-A: b', 'X-Request-Id: theirs', 'X-Authenticated-Account-Id: a'],
    ['X-A', 'b'],
  ],
  [
    '199 ',
    [
      'Connection: close, X-Hop',
      'X-Hop: h',
      'Keep-Alive: timeout=1',
      'Upgrade: h2c',
      'Transfer-Encoding: chunked',
      'Trailer: t',
    ],
    [],
  ],
]

t.test('informational responses are forwarded at once, with their header lines', async (t) => {
  const { upstream, head, connect, recovers } = await startSetup(t)
  const client = await connect()
  for (const [statusLine, lines, received] of INFORMATIONAL) {
    await t.test(`${statusLine} ${lines.join(' ')}`.slice(0, 100), async (t) => {
      let sendFinal = () => {}
      upstream.reply((socket) => {
        socket.write(Buffer.from(`HTTP/1.1 ${statusLine}\r\n${[...lines, '', ''].join('\r\n')}`, 'latin1'))
        sendFinal = () => {
          socket.write(OK)
        }
      })
      client.send(head('GET /'))
      const informational = await client.response()
      t.equal(`${informational.status} ${informational.reason}`, statusLine)
      t.same(informational.rawHeaders, received)
      sendFinal()
      t.match(await client.response(), { status: 200, body: Buffer.from('ok') })
      t.equal(client.rest().length, 0)
    })
  }
  t.equal(upstream.sockets.length, 1, 'and the connection is used again')
  await recovers()
})

t.test('100 of an upstream is not forwarded, nor are more than 32 others', async (t) => {
  const { upstream, head, connect, recovers } = await startSetup(t)
  const many = 'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n'.repeat(200)
  upstream.reply(`${many}${OK}`)
  const client = await connect()
  client.send(head('GET /'))
  for (let at = 0; at < 32; at++) {
    t.equal((await client.response()).status, 102)
  }
  t.equal((await client.response()).status, 200)
  client.send(head('GET /'))
  t.equal((await client.response()).status, 102, 'of the next request')
  await recovers()
})

t.test('pipelined requests have their informational responses in order', async (t) => {
  const { upstream, head, send, recovers } = await startSetup(t)
  upstream.reply(`HTTP/1.1 104 Hm\r\nUpload-Offset: 1\r\n\r\n${OK}`)
  const client = await send(head('GET /1') + head('GET /2'))
  const statuses: number[] = []
  for (let at = 0; at < 4; at++) {
    statuses.push((await client.response()).status)
  }
  t.same(statuses, [104, 200, 104, 200])
  await recovers()
})

t.test('an HTTP/1.0 client gets no informational response', async (t) => {
  const { upstream, authorization, recovers, ask } = await startSetup(t)
  upstream.reply(`HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n${OK}`)
  t.equal((await ask(`GET / HTTP/1.0\r\n${authorization}\r\n`)).status, 200)
  await recovers()
})

const EXPECTING = 'Expect: 100-continue\r\n'
const tokenHead = (method: string, length: number) =>
  `${method} /v2/auth/token HTTP/1.1\r\nHost: h\r\n${EXPECTING}Content-Length: ${length}\r\n\r\n`

t.test('a client gets 100 Continue only after its token is verified', async (t) => {
  const setup = await startSetup(t)
  for (const expect of [EXPECTING, 'expect: 100-Continue\r\n']) {
    for (const [framing, body, arrives] of [
      ['Content-Length: 5\r\n', 'hello', 'hello'],
      ['Transfer-Encoding: chunked\r\n', '5\r\nhello\r\n0\r\n\r\n', 'hello'],
    ] as const) {
      const client = await setup.send(
        `PUT /b/k HTTP/1.1\r\nHost: h\r\n${setup.authorization}${expect}${framing}\r\n`,
      )
      const goOn = await client.response()
      t.same([goOn.status, goOn.rawHeaders], [100, []])
      t.equal(setup.upstream.requests.length, 0, 'the upstream has the head at most')
      client.send(body)
      t.equal((await client.response()).status, 200)
      t.equal(setup.upstream.requests[0]?.body.toString(), arrives)
      t.equal(setup.upstream.requests[0]?.headers['expect'], undefined, 'the sidecar handled it')
      client.send(setup.head('GET /b/k'))
      t.equal((await client.response()).status, 200, 'the connection is kept')
      client.socket.destroy()
      await setup.upstreamSaw(t, 2)
    }
  }
})

t.test('a refused client gets no 100 Continue', async (t) => {
  const setup = await startSetup(t)
  for (const [name, request, code] of [
    ['no token', 'PUT /b/k HTTP/1.1\r\nHost: h\r\n', 'InvalidToken'],
    ['a bad token', 'PUT /b/k HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a.b.c\r\n', 'InvalidToken'],
    ['a bad host', `PUT /b/k HTTP/1.1\r\nHost: a,b\r\n${setup.authorization}`, 'InvalidArgument'],
    [
      'a bad content type',
      'POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n',
      'InvalidArgument',
    ],
  ] as const) {
    const client = await setup.connect()
    client.send(`${request}${EXPECTING}Content-Length: 500\r\n\r\n`)
    const answer = await client.response()
    isOwnResponse(t, answer, { status: 400, code }, name)
    t.equal(answer.headers['connection'], 'close', name)
    const sending = sendSteadily(t, [client])
    t.equal(await inTime(client.closed(), 'the end, though more of the body comes', 20_000), 'end', name)
    clearInterval(sending)
  }
  const method = await setup.ask(tokenHead('PUT', 5))
  isOwnResponse(t, method, { status: 405, code: 'InvalidArgument' }, 'another method')
  const large = await setup.ask(tokenHead('POST', 16_385))
  isOwnResponse(t, large, { status: 400, code: 'InvalidArgument' }, 'too large a login')
  await setup.upstreamSaw(t, 0)
})

t.test('a client of an unreachable upstream gets no 100 Continue', async (t) => {
  const setup = await startSetup(t)
  await setup.upstream.close()
  const client = await setup.send(setup.head('PUT /b/k', 'Expect: 100-continue', 'Content-Length: 5'))
  isOwnResponse(t, await client.response(), { status: 503, code: 'ServiceNotReady' }, 'refused')
  t.equal(await client.closed(), 'end')
})

t.test('a client that does not wait for 100 Continue is served', async (t) => {
  const setup = await startSetup(t)
  const client = await setup.send(
    `PUT /b/k HTTP/1.1\r\nHost: h\r\n${setup.authorization}${EXPECTING}Content-Length: 5\r\n\r\nhello`,
  )
  t.equal((await client.response()).status, 100)
  t.equal((await client.response()).status, 200)
  client.send(`DELETE /b/k HTTP/1.1\r\nHost: h\r\n${setup.authorization}${EXPECTING}\r\n`)
  t.equal((await client.response()).status, 200, 'without a body there is nothing to wait for')
  t.equal(setup.upstream.requests[0]?.body.toString(), 'hello')
  await setup.upstreamSaw(t, 2)
})

t.test('a login may wait for 100 Continue', async (t) => {
  const setup = await startSetup(t)
  const body = JSON.stringify(setup.sidecar.logins[0])
  const client = await setup.send(tokenHead('POST', body.length))
  t.equal((await client.response()).status, 100)
  client.send(body)
  isOwnResponse(t, await client.response(), { status: 200 }, 'the token')
})

t.test('an early response of the upstream reaches a client that got 100 Continue', async (t) => {
  const setup = await startSetup(t)
  const client = await setup.request('PUT /up', ['Expect: 100-continue', 'Content-Length: 5'])
  t.equal((await client.response()).status, 100)
  await setup.upstream.until(() => setup.upstream.bytes[0]?.includes('/up') === true, 'the head')
  setup.upstream.sockets[0]?.write('HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno')
  t.match(await client.response(), { status: 413, body: Buffer.from('no'), headers: { connection: 'close' } })
  client.socket.end()
  t.equal(await client.closed(), 'end')
  await setup.upstreamSaw(t, 0)
})

t.test('any other expectation is a 417', async (t) => {
  const setup = await startSetup(t)
  for (const line of [
    'Expect: miracles',
    'Expect: 100-continue, miracles',
    'Expect:',
    'Expect: 100',
    'Expect: 100-continued',
    'Expect: 100-continue;q=1',
    'Expect: 100-continue\r\nExpect: x',
  ]) {
    for (const target of ['PUT /b/k', 'GET /b/k', 'POST /v2/auth/token']) {
      const response = await setup.ask(`${setup.head(target, line, 'Content-Length: 5')}hello`)
      isOwnResponse(t, response, { status: 417, code: 'InvalidArgument' }, line)
    }
  }
  t.equal((await setup.ask('GET / HTTP/1.0\r\nHost: h\r\nExpect: x\r\n\r\n')).status, 417)
  await setup.upstreamSaw(t, 0)
})

t.test('an HTTP/1.0 request gets no 100 Continue', async (t) => {
  const setup = await startSetup(t)
  const text = await setup.exchange(
    `PUT /b/k HTTP/1.0\r\nHost: h\r\n${setup.authorization}${EXPECTING}Content-Length: 5\r\n\r\nhello`,
  )
  t.match(text, /^HTTP\/1\.1 200 OK\r\n/)
  await setup.upstreamSaw(t, 1)
})
