import t from 'tap'
import { inTime } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { rawClient, sendSteadily } from '../support/raw-client.ts'
import { OK } from '../support/recording-upstream.ts'
import { startSetup } from '../support/setup.ts'

t.test('informational responses are not taken for the final response', async (t) => {
  const { upstream, sidecar, head, recovers } = await startSetup(t)
  const client = await rawClient(t, sidecar.port)
  for (const [what, before] of [
    ['100', 'HTTP/1.1 100 Continue\r\n\r\n'],
    ['102', 'HTTP/1.1 102 Processing\r\n\r\n'],
    [
      '102 twice, and 100',
      'HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n',
    ],
    ['an unknown one with headers', 'HTTP/1.1 199 Hm\r\nContent-Length: 5\r\nX-A: b\r\n\r\n'],
    ['103 without links', 'HTTP/1.1 103 Early Hints\r\nX-A: b\r\n\r\n'],
    ['a link that costs time', `HTTP/1.1 103 Early Hints\r\nLink: <x>${';a=b'.repeat(60)};"\r\n\r\n`],
  ] as const) {
    await t.test(what, async (t) => {
      for (const together of [true, false]) {
        upstream.reply((socket) => {
          socket.write(together ? before + OK : before)
          if (!together) {
            setTimeout(() => socket.write(OK), 20)
          }
        })
        client.send(head('GET /'))
        const response = await client.response()
        t.equal(response.status, 200)
        t.equal(response.body.toString(), 'ok')
      }
      t.equal(client.rest().length, 0)
    })
  }
  t.equal(upstream.sockets.length, 1, 'and the connection is used again')
  await recovers()
})

t.test('early hints are forwarded with their links at once', async (t) => {
  const { upstream, request, recovers } = await startSetup(t)
  let go = () => {}
  upstream.reply((socket) => {
    socket.write(
      'HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nX-Other: no\r\nlink: </b.js>; rel=preload\r\n\r\n',
    )
    go = () => {
      socket.write(OK)
    }
  })
  const client = await request('GET /')
  const hints = await client.response()
  t.equal(hints.status, 103)
  t.equal(hints.headers['link'], '</a.css>; rel=preload, </b.js>; rel=preload')
  t.equal(hints.headers['x-other'], undefined)
  go()
  t.equal((await client.response()).status, 200)
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
    ...['Expect: miracles', 'Expect: 100-continue, miracles', 'Expect:', 'Expect: 100'],
    ...['Expect: 100-continued', 'Expect: 100-continue;q=1', 'Expect: 100-continue\r\nExpect: x'],
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
