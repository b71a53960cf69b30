import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse, unavailable } from '../support/own-response.ts'
import { rawClient } from '../support/raw-client.ts'
import { bodyReply, fillBuffers, OK } from '../support/recording-upstream.ts'
import { startSetup } from '../support/setup.ts'

const IDLE = { 'timeouts-idle-seconds': '0.3' }
t.test('an upstream without a response head in time is a 503, and its connection is closed', async (t) => {
  const { upstream, request, recovers, outcome } = await startSetup(t, {
    settings: { 'timeouts-upstream-response-seconds': '0.3' },
  })
  const replies: Readonly<Record<string, string>> = {
    '/nothing': '',
    '/informational': 'HTTP/1.1 100 Continue\r\n\r\n',
    '/part-of-a-head': 'HTTP/1.1 200 OK\r\nContent-',
  }
  upstream.reply((socket, { target }) => {
    socket.write(replies[target] ?? '')
  })
  const answers = Object.keys(replies).flatMap((target) => [
    request(`GET ${target}`),
    request(`PUT ${target}`, ['Content-Length: 5'], 'hello'),
    request(`POST ${target}`, ['Transfer-Encoding: chunked'], '0\r\n\r\n'),
  ])
  for (const client of await Promise.all(answers)) {
    const response = await client.response()
    isOwnResponse(t, response, unavailable('http_response_timeout'))
    t.not(response.headers['connection'], 'close', 'the client keeps its connection')
  }
  await upstream.until(() => upstream.open() === 0, 'the connections to be closed')
  t.equal(await outcome('http_response_timeout'), answers.length)
  t.equal(upstream.requests.length, answers.length)
  await recovers()
})

t.test('a request that waits too long for a connection is a 503', async (t) => {
  const { upstream, head, request, outcome, send } = await startSetup(t, {
    settings: { 'timeouts-upstream-response-seconds': '0.5', 'limits-upstream-connections': '1' },
  })
  // An unfinished body keeps the only connection busy.
  upstream.reply((socket) => {
    socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
    const more = setInterval(() => socket.write('1\r\nx\r\n'), 50)
    socket.on('close', () => clearInterval(more))
  })
  const busy = await request('GET /endless')
  await busy.until('\r\n\r\n')
  const waits = await send(head('GET /'))
  isOwnResponse(t, await waits.response(), unavailable('connection_limit_reached'))
  t.equal(await outcome('connection_limit_reached'), 1)
  t.equal(upstream.requests.length, 1)
  t.notOk(busy.socket.destroyed, 'and no other request is aborted for it')
  busy.socket.destroy()
  upstream.reply(OK)
  await upstream.until(() => upstream.open() === 0, 'the connection to be closed')
  waits.send(head('GET /'))
  t.equal((await waits.response()).status, 200)
})

t.test('an idle download is aborted on both sides', async (t) => {
  const settings = { 'timeouts-idle-seconds': '1' } // also the longest between a connection and its request
  const { upstream, sidecar, recovers, outcome, send } = await startSetup(t, { settings })
  const framings: Readonly<Record<string, string>> = {
    '/length': 'Content-Length: 100\r\n\r\npart',
    '/length-without-a-byte': 'Content-Length: 100\r\nX-Part: part\r\n\r\n',
    '/chunks': 'Transfer-Encoding: chunked\r\n\r\n4\r\npart\r\n',
    '/close': '\r\npart',
  }
  upstream.reply((socket, { target }) => {
    socket.write(`HTTP/1.1 200 OK\r\n${framings[target]}`)
  })
  const ends = Object.keys(framings).flatMap((target) =>
    ['1.1', '1.0'].map(async (version) => {
      const client = await send(
        `GET ${target} HTTP/${version}\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`,
      )
      await client.until('part')
      const bytes = setInterval(() => client.send('\r\n'), 100) // of the client: they do not count
      const closed = await client.closed()
      clearInterval(bytes)
      const received = client.received().toString()
      if (!/content-length|transfer-encoding/i.test(received)) {
        t.equal(closed, 'reset', 'no clean end')
      }
      t.notMatch(received, /\r\n0\r\n/, 'no last chunk')
    }),
  )
  await Promise.all(ends)
  await upstream.until(() => upstream.open() === 0, 'the connections to be closed')
  t.equal(await outcome('connection_read_timeout'), ends.length)
  await recovers()
})

t.test('an idle upload is a 408 and is aborted at the upstream', async (t) => {
  const { upstream, request, recovers, outcome } = await startSetup(t, { settings: IDLE })
  const answers = [
    request('PUT /', ['Content-Length: 100'], 'part'),
    request('PUT /', ['Transfer-Encoding: chunked'], '4\r\npart\r\n'),
    request('PUT /', ['Content-Length: 100']),
    request('PUT /', ['Content-Length: 100', 'Expect: 100-continue']).then(async (client) => {
      t.equal((await client.response()).status, 100)
      return client
    }),
  ]
  for (const client of await Promise.all(answers)) {
    const response = await client.response()
    isOwnResponse(t, response, { status: 408, code: 'InvalidArgument', error: 'http_request_error' })
    t.equal(response.headers['connection'], 'close')
    client.socket.end()
    await client.closed()
  }
  await upstream.until(() => upstream.open() === 0, 'the connections to be closed')
  t.equal(await outcome('client_idle'), answers.length)
  t.equal(upstream.requests.length, 0, 'no complete request arrived')
  await recovers()
})

t.test('an upload below the minimum rate is a 408, and a faster one goes on', async (t) => {
  const { request, recovers, outcome } = await startSetup(t, {
    settings: { 'timeouts-idle-seconds': '1', 'limits-upload-bytes-per-second': '100' },
  })
  const slow = [
    await request('PUT /slow', ['Content-Length: 1000']),
    await request('PUT /slow', ['Transfer-Encoding: chunked']),
  ]
  const [withLength, withChunks] = slow
  const fast = await request('PUT /fast', ['Content-Length: 10000000'])
  let fastBytes = 0
  const sending = setInterval(() => {
    withLength?.send('x')
    withChunks?.send('1\r\nx\r\n')
    fast.send('x'.repeat(1000))
    fastBytes += 1000
  }, 50)
  t.teardown(() => clearInterval(sending))
  for (const client of slow) {
    const expected = { status: 408, code: 'InvalidArgument', error: 'http_request_error' }
    isOwnResponse(t, await client.response(), expected)
  }
  t.equal(await outcome('client_idle'), slow.length)
  clearInterval(sending)
  fast.send('x'.repeat(10_000_000 - fastBytes))
  t.equal((await fast.response()).status, 200)
  await recovers()
})

t.test('an idle upload whose response has begun is aborted', async (t) => {
  const { upstream, request, recovers, outcome } = await startSetup(t, {
    settings: IDLE,
    hooks: {
      onConnection: (socket) => {
        if (upstream.sockets.length === 1) {
          socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart'))
        }
      },
    },
  })
  const client = await request('PUT /', ['Content-Length: 100'], 'x')
  await client.until('part')
  await client.closed()
  await upstream.until(() => upstream.open() === 0, 'the connection to be closed')
  t.equal(await outcome('client_idle'), 1)
  await recovers()
})

t.test('an upload that stalls in the queue is a 408 after it gets a connection', async (t) => {
  const { upstream, head, request, outcome, send } = await startSetup(t, {
    settings: { ...IDLE, 'limits-upstream-connections': '1' },
  })
  let answer = () => {}
  upstream.reply((socket, { target }) => {
    if (target === '/busy') {
      answer = () => {
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
      }
    }
  })
  const busy = await request('GET /busy')
  await upstream.until(() => upstream.requests.length === 1, 'the first request')
  const client = await send(`${head('PUT /', 'Content-Length: 100')}x`)
  await sleep(700) // more than two idle times, which must not count while it waits
  answer()
  t.equal((await busy.response()).status, 200)
  isOwnResponse(t, await client.response(), { status: 408, code: 'InvalidArgument' })
  client.socket.end()
  await client.closed()
  t.equal(await outcome('client_idle'), 1)
})

t.test('an upstream that does not read an upload is a 503, unless its response continues', async (t) => {
  const onHead = async (socket: Socket, head: Buffer) => {
    socket.pause()
    if (!head.includes('PUT /refused')) {
      return
    }
    socket.write('HTTP/1.1 413 Content Too Large\r\nContent-Length: 6\r\n\r\n')
    // More than an idle time in all. Far less from byte to byte, even if other processes want the cores, too.
    for (const byte of 'slowly') {
      await sleep(250).then(() => socket.write(byte))
    }
  }
  const { upstream, sidecar, head, outcome, send } = await startSetup(t, {
    settings: { 'timeouts-idle-seconds': '1' },
    hooks: {
      read: false,
      onConnection: (socket) => {
        socket.once('data', (bytes) => onHead(socket, bytes))
      },
    },
  })
  const upload = async (target: string) => {
    const client = await send(head(`PUT ${target}`, 'Content-Length: 100000000'))
    client.send(Buffer.alloc(100_000_000))
    const response = await client.response()
    await client.closed()
    return response
  }
  isOwnResponse(t, await upload('/'), unavailable('connection_write_timeout'))
  t.match(await upload('/refused'), { status: 413, body: Buffer.from('slowly') })
  t.equal(await outcome('connection_write_timeout'), 1)
  t.equal(await outcome('ok'), 1)
  await eventually(
    async () => (await sidecar.metric('auth_sidecar_upstream_connections{upstream="/"}')) === 0,
    'the connections to be given up',
  )
  for (const socket of upstream.sockets) {
    socket.destroy()
  }
})

t.test('a client that does not read a download is disconnected, and so is the upstream', async (t) => {
  const { upstream, sidecar, head, recovers, outcome } = await startSetup(t, { settings: IDLE })
  const body = Buffer.alloc(50_000_000)
  upstream.reply(bodyReply(body))
  const client = await rawClient(t, sidecar.port)
  client.socket.pause()
  client.send(head('GET /'))
  await upstream.until(
    () => upstream.sockets.length === 1 && upstream.open() === 0,
    'the connection to be closed',
  )
  t.equal(await outcome('client_idle'), 1)
  client.socket.resume()
  await client.closed()
  t.ok(client.received().length < body.length)
  await recovers()
})

t.test('a slow transfer that makes progress is never aborted', async (t) => {
  const settings = {
    'timeouts-idle-seconds': '1.5',
    'timeouts-upstream-response-seconds': '1.5',
    'timeouts-headers-seconds': '1.5',
    'limits-upload-bytes-per-second': '0',
  }

  await t.test('downloads and uploads of one byte at a time', async (t) => {
    const { upstream, request, recovers } = await startSetup(t, { settings })
    upstream.reply(async (socket, { method }) => {
      if (method === 'PUT') {
        socket.write(OK)
        return
      }
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n')
      for (let sent = 0; sent < 10; sent++) {
        await sleep(300)
        socket.write('x')
      }
    })
    const down = await request('GET /')
    const up = await request('PUT /', ['Content-Length: 10'])
    for (let sent = 0; sent < 10; sent++) {
      await sleep(300)
      up.send('x')
    }
    t.equal((await up.response()).status, 200)
    t.equal((await down.response()).body.toString(), 'x'.repeat(10))
    upstream.sockets[0]?.destroy()
    await recovers()
  })

  // Buffers of the kernel move in steps of up to a megabyte,
  // so that a part must be larger to be seen as progress.
  const PART = 4_000_000
  const body = Buffer.alloc(6 * PART)

  await t.test('a client that reads rarely', async (t) => {
    const { upstream, sidecar, head, recovers } = await startSetup(t, { settings })
    upstream.reply(bodyReply(body))
    const client = await rawClient(t, sidecar.port)
    client.socket.pause()
    client.send(head('GET /'))
    while (client.received().length < body.length) {
      await sleep(300)
      const expected = Math.min(client.received().length + PART, body.length)
      client.socket.resume()
      await eventually(() => client.received().length >= expected, 'more of the body')
      client.socket.pause()
    }
    client.socket.resume()
    t.equal((await client.response()).body.length, body.length)
    await recovers()
  })

  await t.test('an upstream that reads rarely', async (t) => {
    const { upstream, head, recovers, send } = await startSetup(t, {
      settings,
      hooks: {
        onConnection: (socket) => {
          upstream.sockets.length === 1 && socket.pause()
        },
      },
    })
    const client = await send(head('PUT /', `Content-Length: ${body.length}`))
    client.send(body)
    await upstream.until(() => upstream.sockets.length === 1, 'a connection')
    const received = () => upstream.bytes[0]?.length ?? 0
    while (received() < body.length) {
      await sleep(300)
      const expected = Math.min(received() + PART, body.length)
      upstream.sockets[0]?.resume()
      await upstream.until(() => received() >= expected, 'more of the body')
      upstream.sockets[0]?.pause()
    }
    upstream.sockets[0]?.resume()
    t.equal((await client.response()).status, 200)
    t.equal(upstream.requests[0]?.body.length, body.length)
    await recovers()
  })
})

t.test('the idle timeout is off while the response head is awaited', async (t) => {
  const { upstream, request, recovers } = await startSetup(t, { settings: IDLE })
  const answerLate = (socket: Socket) => {
    setTimeout(() => socket.write(OK), 900)
  }
  upstream.reply(answerLate)
  const clients = await Promise.all([
    request('GET /'),
    request('PUT /', ['Content-Length: 5'], 'hello'),
    // Too large for one write: the upstream reads its end after it has been sent.
    request(`GET /${'x'.repeat(7000)}`, [`X-Large: ${'y'.repeat(7000)}`]),
  ])
  for (const client of clients) {
    t.equal((await client.response()).status, 200)
  }
  t.equal(upstream.requests.length, 3)
  for (const socket of upstream.sockets.slice(1)) {
    socket.destroy()
  }
  await recovers()
})

t.test('an unused client connection is closed without a response', async (t) => {
  const { request } = await startSetup(t, { settings: { 'timeouts-keep-alive-seconds': '0.3001' } })
  const client = await request('GET /')
  t.equal((await client.response()).status, 200)
  t.equal(await client.closed(), 'end')
  t.equal(client.rest().length, 0)
})

t.test('empty lines do not keep a connection open', async (t) => {
  const { request } = await startSetup(t, { settings: { 'timeouts-headers-seconds': '0.3' } })
  const client = await request('GET /')
  await client.response()
  const timer = setInterval(() => client.send('\r\n'), 100)
  t.equal((await client.response()).status, 408)
  clearInterval(timer)
})

t.test('a client that reads no responses is disconnected after the idle time', async (t) => {
  const { sidecar, upstream, request, head } = await startSetup(t, { settings: IDLE })
  const body = 'x'.repeat(50_000)
  upstream.reply(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  const client = await request('GET /')
  client.socket.pause()
  await upstream.received(1)
  await fillBuffers(client, upstream, head('GET /'))
  await eventually(
    async () => (await sidecar.metric('auth_sidecar_client_connections')) === 0,
    'the connection to be closed',
  )
})
