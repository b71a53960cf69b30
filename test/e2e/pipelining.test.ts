import type { Socket } from 'node:net'
import t from 'tap'
import { eventually, standsStill } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { bodyReply, OK, type RecordedRequest } from '../support/recording-upstream.ts'
import { startSecured } from '../support/secured.ts'
import { startSetup } from '../support/setup.ts'

/** A response whose body says which request it belongs to. */
const answerTo = ({ target }: RecordedRequest) =>
  `HTTP/1.1 200 OK\r\nContent-Length: ${target.length}\r\n\r\n${target}`

const echo = (socket: Socket, request: RecordedRequest) => {
  socket.write(answerTo(request))
}

/** Responds later, after the following requests have arrived. */
const echoLater = (socket: Socket, request: RecordedRequest) => {
  setTimeout(echo, 20, socket, request)
}

const BAD_REQUEST = { status: 400, code: 'InvalidArgument' }
const NO_TOKEN = { status: 400, code: 'InvalidToken', details: 'missing' }

t.test('pipelined requests are served in order, and nothing more is read while 16 wait', async (t) => {
  for (const { upstream, head, connect, sidecar } of [await startSetup(t), await startSecured(t)]) {
    let atOnce = 0
    let peak = 0
    let answer = () => {}
    const first = new Promise<void>((resolve) => {
      answer = resolve
    })
    upstream.reply(async (socket, request) => {
      atOnce++
      peak = Math.max(peak, atOnce)
      await first
      atOnce--
      echo(socket, request)
    })
    const client = await connect()
    const count = 1000
    const body = 'x'.repeat(16_000)
    for (let at = 0; at < count; at++) {
      client.send(at % 2 === 0 ? head(`GET /${at}`) : head(`PUT /${at}`, 'Content-Length: 16000') + body)
    }
    await standsStill(() => client.socket.writableLength)
    t.ok(client.socket.writableLength > 1_000_000, 'most of it is not read')
    const waiting = await sidecar.metric('auth_sidecar_requests_in_flight')
    t.ok(waiting >= 17 && waiting < 500, `${waiting} requests have been read`)
    answer()
    for (let at = 0; at < count; at++) {
      if ((await client.response()).body.toString() !== `/${at}`) {
        t.fail(`the response to ${at}`)
      }
    }
    t.equal(peak, 1)
  }
})

t.test('the time in which nothing is read does not count for a head', async (t) => {
  const settings = { 'timeouts-headers-seconds': '0.5' }
  const { upstream, head, connect } = await startSetup(t, { settings })
  let answer = () => {}
  const first = new Promise<void>((resolve) => {
    answer = resolve
  })
  upstream.reply(async (socket, request) => {
    await first
    echo(socket, request)
  })
  const client = await connect()
  const last = head('GET /18')
  client.send(Array.from({ length: 18 }, (_, at) => head(`GET /${at}`)).join('') + last.slice(0, 20))
  await new Promise((resolve) => setTimeout(resolve, 2000)) // Node has looked for late heads
  answer()
  for (let at = 0; at < 18; at++) {
    t.equal((await client.response()).body.toString(), `/${at}`)
  }
  client.send(last.slice(20))
  t.equal((await client.response()).body.toString(), '/18')
})

t.test('bodies and heads of pipelined requests do not mix in any packet split', async (t) => {
  const { upstream, head, connect } = await startSetup(t)
  upstream.reply(echo)
  const client = await connect()
  const bodies = ['', 'with a length', 'in chunks']
  const requests = Array.from({ length: 15 }, (_, at) => {
    if (at % 3 === 0) {
      return head(`GET /${at}`)
    }
    if (at % 3 === 1) {
      return `${head(`PUT /${at}`, 'Content-Length: 13')}with a length`
    }
    return `${head(`PUT /${at}`, 'Transfer-Encoding: chunked')}3\r\nin \r\n6\r\nchunks\r\n0\r\n\r\n`
  })
  const bytes = requests.join('')
  for (let at = 0; at < bytes.length; at += 97) {
    client.send(bytes.slice(at, at + 97))
    await new Promise((resolve) => setImmediate(resolve))
  }
  for (const at of requests.keys()) {
    t.equal((await client.response()).body.toString(), `/${at}`)
  }
  t.same(
    upstream.requests.map(({ target, body }) => [target, body.toString()]),
    requests.map((_, at) => [`/${at}`, bodies[at % 3]]),
  )
})

t.test('requests before a malformed one are served first, then the connection closes', async (t) => {
  const { sidecar, upstream, authorization, head, upstreamSaw, send } = await startSetup(t, {
    credentials: [{ accountId: 'a' }, { accountId: 'b', accessKey: 'AKB' }],
  })
  const tokenOfB = await sidecar.mint({ claims: { sub: 'b', client_id: 'AKB' } })
  upstream.reply(echoLater)
  for (const bad of [
    'BAD\r\n\r\n',
    'GET /3 HTTP/1.1\r\nHost : h\r\n\r\n',
    'GET /3 HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n',
    'GET * HTTP/1.1\r\nHost: h\r\n\r\n',
    `PUT /3 HTTP/1.1\r\nHost: h\r\n${authorization}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    'CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n',
    'CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\nbytes for the tunnel',
    'TRACE / HTTP/1.1\r\nHost: h\r\n\r\n',
    'GET /3 HTTP/2.0\r\nHost: h\r\n\r\n',
    '\x16\x03\x01\x02\x00',
  ]) {
    for (const behind of ['', head('GET /4')]) {
      const client = await send(
        `${head('GET /1')}GET /2 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${tokenOfB}\r\n\r\n${bad}${behind}`,
      )
      t.equal((await client.response()).body.toString(), '/1')
      t.equal((await client.response()).body.toString(), '/2')
      isOwnResponse(t, await client.response(), BAD_REQUEST, JSON.stringify(bad))
      t.equal(await client.closed(), 'end')
      t.equal(client.rest().length, 0)
      t.same(
        upstream.requests.map(({ target, headers }) => [target, headers['x-authenticated-account-id']]),
        [
          ['/1', 'a'],
          ['/2', 'b'],
        ],
      )
      await upstreamSaw(t, 2)
    }
  }
})

t.test('a refused token in a pipeline keeps the connection open', async (t) => {
  const { upstream, authorization, head, upstreamSaw, send } = await startSetup(t)
  upstream.reply(echoLater)
  const noToken = (target: string) => head(`GET ${target}`).replace(authorization, '')
  const client = await send(
    head('GET /1') +
      noToken('/2') +
      head('GET /3') +
      noToken('/v2/auth/token') +
      head('GET /v2/auth/token') +
      head('GET /6'),
  )
  t.equal((await client.response()).body.toString(), '/1')
  isOwnResponse(t, await client.response(), NO_TOKEN)
  t.equal((await client.response()).body.toString(), '/3')
  isOwnResponse(t, await client.response(), NO_TOKEN)
  isOwnResponse(t, await client.response(), { status: 200 })
  t.equal((await client.response()).body.toString(), '/6')
  client.socket.destroy()
  await upstreamSaw(t, 3)
})

t.test('a pipelined upload is read in its turn', async (t) => {
  const { upstream, authorization, head, upstreamSaw, send } = await startSetup(t)
  upstream.reply((socket, request) => {
    setTimeout(echo, 50, socket, request)
  })
  const put = head('PUT /up', 'Transfer-Encoding: chunked')

  const good = await send(`${head('GET /slow')}${put}3\r\nabc\r\n`)
  await upstream.received(1)
  const more = 'd'.repeat(300_000)
  good.send(`${more.length.toString(16)}\r\n${more}\r\n0\r\n\r\n`)
  t.equal((await good.response()).body.toString(), '/slow')
  t.equal((await good.response()).body.toString(), '/up')
  t.equal(upstream.requests[1]?.body.length, 300_003)
  good.socket.destroy()
  await upstreamSaw(t, 2)

  const broken = await send(head('GET /slow'))
  await upstream.received(1)
  broken.send(`${put}c350\r\n${'x'.repeat(50_000)}\r\nzz\r\n`) // more than Node 20 buffers, in one read
  t.equal((await broken.response()).body.toString(), '/slow')
  isOwnResponse(t, await broken.response(), BAD_REQUEST, 'a malformed body')
  broken.send(Buffer.alloc(16_000_000))
  t.equal(await broken.closed(), 'end')
  await upstreamSaw(t, 1)

  const refused = await send(
    `${head('GET /slow')}${head('PUT /up', 'Content-Length: 200000').replace(authorization, '')}abc`,
  )
  t.equal((await refused.response()).body.toString(), '/slow')
  isOwnResponse(t, await refused.response(), NO_TOKEN, 'an upload without a token')
  refused.send(Buffer.alloc(200_000 - 3))
  t.equal(await refused.closed(), 'end')
  await upstreamSaw(t, 1)
})

t.test('a last response says Connection: close, and no later request is forwarded', async (t) => {
  const { upstream, authorization, head, request, upstreamSaw, send } = await startSetup(t)
  upstream.reply(echoLater)
  const closing = await request('GET /1', ['Connection: close'], head('GET /2'))
  t.match(await closing.response(), { status: 200, headers: { connection: 'close' } })
  t.equal(await closing.closed(), 'end')
  t.equal(closing.rest().length, 0)
  await upstreamSaw(t, 1)

  // An upload that fails early.
  await upstream.close()
  const half = await send(`${head('PUT /1', 'Content-Length: 10')}abc`)
  const failed = await half.response()
  t.match(failed, { status: 503, headers: { connection: 'close' } })
  half.send(`defghij${head('GET /2').replace(authorization, '')}${head('GET /3')}`)
  t.equal(await half.closed(), 'end')
  t.equal(half.rest().length, 0)
})

t.test('a last response arrives completely, and what is behind it costs no memory', async (t) => {
  const { upstream, sidecar, request, head, recovers } = await startSetup(t)
  const large = Buffer.alloc(500_000, 'x')
  upstream.reply((socket) => {
    socket.end(`HTTP/1.1 200 OK\r\n\r\n${large}`)
  })
  const sent = 'auth_sidecar_requests_total{route="proxy",method="GET",status="200"}'
  const upload = head('PUT /2', `Content-Length: ${large.length}`) + large
  for (const [before, behind] of [upload, 'no request'].entries()) {
    const client = await request('GET /1', [], behind)
    client.socket.pause()
    await eventually(async () => (await sidecar.metric(sent)) === before + 1, 'the response to be sent')
    const heap = process.memoryUsage().heapUsed
    await new Promise((resolve) => client.socket.write(Buffer.alloc(30_000_000, head('GET /3')), resolve))
    t.ok(process.memoryUsage().heapUsed - heap < 50_000_000)
    client.socket.resume()
    t.equal(await client.closed(), 'end')
    t.equal((await client.response()).body.length, large.length)
    t.equal(upstream.requests.length, before + 1)
  }
  await recovers()
})

t.test('unread responses cost no memory: later requests wait', async (t) => {
  const { sidecar, upstream, head, connect } = await startSetup(t, {
    settings: { 'timeouts-idle-seconds': '60' },
  })
  const body = Buffer.alloc(8 * 2 ** 20)
  upstream.reply(bodyReply(body))
  const clients = await Promise.all(Array.from({ length: 20 }, () => connect()))
  for (const client of clients) {
    client.socket.pause()
    client.send(head('GET /large').repeat(16))
  }
  const inFlight = () => sidecar.metric('auth_sidecar_requests_in_flight')
  await eventually(async () => (await inFlight()) === 20 * 16, 'all requests')
  await upstream.received(20)
  t.equal(upstream.requests.length, 20, 'one of each connection')
  for (const { socket } of clients) {
    socket.destroy()
  }
  await eventually(async () => (await inFlight()) === 0, 'nothing in flight')
})

t.test('of many clients that pipeline thousands of requests, some are closed', async (t) => {
  const { sidecar, upstream, head, connect, recovers } = await startSetup(t)
  const waiting: Socket[] = []
  upstream.reply((socket) => {
    waiting.push(socket)
  })
  const clients = await Promise.all(Array.from({ length: 16 }, () => connect()))
  const closed = Promise.race(clients.map((client) => client.closed()))
  for (const client of clients) {
    client.send(head('GET /') + 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(2300))
  }
  await closed
  const inFlight = () => sidecar.metric('auth_sidecar_requests_in_flight')
  t.ok((await inFlight()) < 20_000, 'of 36,800')
  t.notOk(
    clients.every(({ socket }) => socket.destroyed),
    'the first ones go on',
  )
  upstream.reply(OK)
  for (const socket of waiting) {
    socket.write(OK)
  }
  await eventually(async () => (await inFlight()) === 0, 'nothing in flight')
  await recovers()
})

t.test('100 Continue for a request after a slow one is sent in its turn', async (t) => {
  const { upstream, request, head } = await startSetup(t)
  let answerSlow = () => {}
  upstream.reply((socket, { target }) => {
    if (target === '/slow') {
      answerSlow = () => {
        socket.write(OK)
      }
    } else {
      socket.write(OK)
    }
  })
  const put = head('PUT /waits', 'Expect: 100-continue', 'Content-Length: 4')
  const client = await request('GET /slow', [], put)
  await upstream.received(1)
  t.equal(client.received().length, 0)
  answerSlow()
  t.equal((await client.response()).status, 200)
  t.equal((await client.response()).status, 100)
  client.send('body')
  t.equal((await client.response()).status, 200)
  t.equal(upstream.requests[1]?.body.toString(), 'body')
})

t.test('a drain ends a pipeline with Connection: close', async (t) => {
  const { upstream, sidecar, request, head } = await startSetup(t, {
    settings: { 'shutdown-lame-duck-seconds': '0', 'shutdown-deadline-seconds': '5' },
  })
  let answer = () => {}
  upstream.reply((socket) => {
    answer = () => {
      socket.write(OK)
    }
  })
  const client = await request(
    'PUT /a',
    ['Content-Length: 1'],
    `x${`${head('PUT /a', 'Content-Length: 1')}x`.repeat(3)}`,
  )
  await upstream.received(1)
  const stopped = sidecar.stop()
  answer()
  t.match(await client.response(), { status: 200, headers: { connection: 'close' } })
  t.equal(await client.closed(), 'end')
  await stopped
  t.equal(client.rest().length, 0)
  t.equal(upstream.requests.length, 1, 'requests without a response have not been forwarded')
})

t.test('a connection is kept or closed as its client requests', async (t) => {
  const { authorization, upstream, upstreamSaw, send } = await startSetup(t)
  const get = (version: string, lines: string) =>
    `GET /b/k HTTP/${version}\r\nHost: h\r\n${authorization}${lines}\r\n`
  for (const [version, lines, closes] of [
    ['1.1', '', false],
    ['1.1', 'Connection: keep-alive\r\n', false],
    ['1.1', 'Connection: close\r\n', true],
    ['1.1', 'Connection: Close\r\n', true],
    ['1.1', 'Connection: x-a, close\r\n', true],
    ['1.1', 'Connection: keep-alive\r\nConnection: close\r\n', true],
    ['1.1', 'Proxy-Connection: keep-alive\r\nConnection: close\r\n', true],
    ['1.0', '', true],
    ['1.0', 'Connection: close\r\n', true],
    ['1.0', 'Connection: keep-alive, close\r\n', true],
    ['1.0', 'Connection: keep-alive\r\n', false],
    ['1.0', 'Connection: Keep-Alive\r\n', false],
  ] as const) {
    const name = `${version} ${lines.trim()}`
    for (const request of [get(version, lines), get(version, lines).replace(authorization, '')]) {
      const client = await send(request)
      const response = await client.response()
      t.equal(response.headers['connection'], closes ? 'close' : 'keep-alive', name)
      t.equal(response.headers['transfer-encoding'], undefined)
      if (closes) {
        t.equal(await client.closed(), 'end', name)
      } else {
        t.equal(response.headers['keep-alive'], 'timeout=75')
        client.send(request)
        t.equal((await client.response()).status, response.status, `${name}: again`)
      }
      client.socket.destroy()
    }
  }
  upstream.requests.length = 0
  await upstreamSaw(t, 0)
})

t.test('the connection closes after an ignored upgrade whose head came with other bytes', async (t) => {
  const { upstream, head, send } = await startSetup(t)
  upstream.reply(echoLater)
  const last = head('GET /last')
  for (const name of ['Connection', 'Proxy-Connection']) {
    const offer = head('GET /offer', `${name}: Upgrade`, 'Upgrade: h2c')
    // Node drops the bytes after such a head, even if a part of the head arrived with the previous request.
    for (const early of [0, last.length + 5, offer.length - 10, offer.length + last.length]) {
      const client = await send(head('GET /first') + (offer + last).slice(0, early))
      t.equal((await client.response()).body.toString(), '/first')
      client.send((offer + last).slice(early))
      const { body, headers } = await client.response()
      t.equal(body.toString(), '/offer')
      t.equal(headers['connection'], 'close', `${name}: ${early} bytes of its head came early`)
      t.equal(await client.closed(), 'end')
    }
  }
})
