import type { Socket } from 'node:net'
import t from 'tap'
import type { Exchange } from '../../src/http/exchange.ts'
import { LINGER_BYTES } from '../../src/http/linger.ts'
import { eventually } from '../support/eventually.ts'
import { isOwnAnswer } from '../support/own-answer.ts'
import { OK } from '../support/recording-upstream.ts'
import { IDLE_MS, RESPONSE_MS, Stuck, transferring } from './transferring.ts'

const GET = 'GET /a HTTP/1.1\r\nHost: a\r\n\r\n'
const PUT = 'PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n'
/** Whether more of an upload is there than the upstream takes. */
const isHeldBack = (exchange: Exchange | undefined) =>
  exchange !== undefined && exchange.bytesIn > 0 && !exchange.req.wantsBytes
const unavailable = (error: string) => ({ status: 503, code: 'ServiceNotReady', error })

t.test('a transfer that ends well leaves an unused connection and is counted once', async (t) => {
  const { upstream, deadlines, client, exchanges, outcomes, firstBytes, over, isQuiet } =
    await transferring(t)
  upstream.reply((socket) => {
    deadlines.advance(25)
    socket.write(OK)
  })
  const one = await client()
  one.send(`${PUT}hello`)
  t.equal((await one.response()).status, 200)
  one.send(GET)
  t.equal((await one.response()).status, 200)
  await isQuiet(1)
  t.same(outcomes, ['ok', 'ok'])
  t.same(firstBytes, [25, 25])
  t.same(over(), [true, true])
  t.same(
    exchanges.map(({ bytesIn, bytesOut, reason }) => [bytesIn, bytesOut, reason]),
    [
      [5, 2, undefined],
      [0, 2, undefined],
    ],
  )
})

t.test('a wait is over neither early nor late', async (t) => {
  const held = 'PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel'
  for (const [what, request, ms, answer, outcome] of [
    ['for a response head', GET, RESPONSE_MS, unavailable('http_response_timeout'), 'http_response_timeout'],
    [
      'for one behind a body',
      `${PUT}hello`,
      RESPONSE_MS,
      unavailable('http_response_timeout'),
      'http_response_timeout',
    ],
    [
      'for more of a body',
      held,
      IDLE_MS,
      { status: 408, code: 'InvalidArgument', error: 'client_idle' },
      'client_idle',
    ],
  ] as const) {
    await t.test(what, async (t) => {
      const { upstream, deadlines, asks, outcomes, isQuiet } = await transferring(t)
      upstream.reply(() => {})
      const client = await asks(request)
      await upstream.until(() => /hel|GET/.test(String(upstream.bytes[0])), 'all that was sent')
      deadlines.advance(ms - 1)
      t.same(outcomes, [])
      deadlines.advance(1)
      isOwnAnswer(t, await client.response(), answer)
      t.same(outcomes, [outcome])
      await isQuiet(0)
    })
  }

  await t.test('for a connection', async (t) => {
    const { upstream, deadlines, asks, client, outcomes, pool } = await transferring(t, { maxConnections: 1 })
    upstream.reply((socket) => void socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx'))
    const first = await asks(GET)
    await first.until('\r\n\r\nx')
    const second = await client()
    second.send(GET)
    await eventually(() => pool.queued === 1, 'the second to wait')
    // The first one goes on, so that only the second is late.
    for (let part = 0; part < 3; part++) {
      deadlines.advance(RESPONSE_MS / 4)
      upstream.sockets[0]?.write('x')
      await first.until('x'.repeat(2 + part))
    }
    deadlines.advance(RESPONSE_MS / 4 - 1)
    t.same(outcomes, [])
    deadlines.advance(1)
    isOwnAnswer(t, await second.response(), unavailable('connection_limit_reached'))
    t.same(outcomes, ['connection_limit_reached'])
    t.equal(pool.queued, 0)
    t.equal(pool.connections, 1)
  })

  await t.test('for more of a response', async (t) => {
    const { upstream, deadlines, asks, outcomes, over, exchanges, isQuiet } = await transferring(t)
    upstream.reply((socket) => void socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx'))
    const client = await asks(GET)
    await client.until('\r\n\r\nx')
    deadlines.advance(IDLE_MS - 1)
    upstream.sockets[0]?.write('x')
    await client.until('xx')
    deadlines.advance(IDLE_MS - 1)
    t.same(outcomes, [], 'a byte is progress')
    deadlines.advance(1)
    await client.closed()
    t.same(outcomes, ['connection_read_timeout'])
    await isQuiet(0)
    t.same(over(), [false])
    t.equal(exchanges[0]?.reason, 'connection_read_timeout')
  })
})

t.test('a head that is not taken at once', async (t) => {
  const line = `X-Large: ${'y'.repeat(16_000)}\r\n`

  await t.test('is followed by the wait for the response once it is', async (t) => {
    const stuck = new Stuck()
    const { deadlines, client, outcomes } = await transferring(t, { connect: stuck.connect })
    const one = await client()
    one.send(`GET /${'x'.repeat(1000)} HTTP/1.1\r\nHost: a\r\n${line}\r\n`)
    await eventually(() => stuck.writableNeedDrain, 'the head')
    deadlines.advance(RESPONSE_MS / 2)
    stuck.release()
    await eventually(() => !stuck.writableNeedDrain, 'the head to be taken')
    deadlines.advance(RESPONSE_MS - 1)
    t.same(outcomes, [], 'which is not the time for a body')
    stuck.push(OK)
    t.equal((await one.response()).status, 200)
  })

  await t.test('holds the body back until it is', async (t) => {
    const stuck = new Stuck()
    const { client, exchanges } = await transferring(t, { connect: stuck.connect })
    const one = await client()
    one.send(`PUT /${'x'.repeat(1000)} HTTP/1.1\r\nHost: a\r\n${line}Content-Length: 5\r\n\r\nhello`)
    await eventually(() => stuck.writableNeedDrain, 'the head')
    t.equal(exchanges[0]?.req.wantsBytes, false)
    t.notMatch(stuck.taken, /hello/)
    stuck.release()
    await eventually(() => stuck.taken.endsWith('hello'), 'the body')
    stuck.push(OK)
    t.equal((await one.response()).status, 200)
  })
})

t.test('bytes that wait to be written are not read over by those behind them', async (t) => {
  const { upstream, asks, exchanges } = await transferring(t)
  const letters = ['a', 'b', 'c', 'd']
  upstream.reply(async (socket) => {
    socket.write('HTTP/1.1 200 OK\r\nContent-Length: 12000\r\n\r\n')
    await eventually(() => exchanges[0]?.res.headersSent === true, 'the head')
    exchanges[0]?.connection.socket.cork() // as if the client took nothing for a while
    for (const [at, letter] of letters.entries()) {
      socket.write(letter.repeat(3000))
      await eventually(() => exchanges[0]?.bytesOut === (at + 1) * 3000, 'each piece')
    }
    exchanges[0]?.connection.socket.uncork()
  })
  const client = await asks(GET)
  const { body } = await client.response()
  t.equal(String(body), letters.map((letter) => letter.repeat(3000)).join(''))
})

t.test('what is left of a body when its upstream fails is sent to nobody', async (t) => {
  const stuck = new Stuck()
  const { client, exchanges, outcomes, isQuiet } = await transferring(t, { connect: stuck.connect })
  const one = await client()
  one.send('PUT /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n')
  await eventually(() => stuck.taken !== '', 'a connection')
  stuck.release()
  const chunk = `4e20\r\n${'x'.repeat(20_000)}\r\n`
  one.send(`${chunk}5\r\nafter\r\n0\r\n\r\n`) // read at once; the upstream is full with the first
  await eventually(() => exchanges[0]?.req.complete === true, 'the body to be read')
  t.ok(isHeldBack(exchanges[0]))
  const taken = stuck.taken.length
  stuck.destroy()
  isOwnAnswer(t, await one.response(), unavailable('connection_terminated'))
  one.socket.end()
  await one.closed()
  t.equal(stuck.taken.length, taken)
  t.notMatch(stuck.taken, /after/)
  t.same(outcomes, ['connection_terminated'])
  await isQuiet(0)
})

t.test('an upload that is answered while it is held back is read on for a while', async (t) => {
  // So that a client which sends first and reads then can read the answer.
  const { upstream, deadlines, client, exchanges, outcomes, isQuiet } = await transferring(t, {
    hooks: { read: false, onConnection: (socket) => void socket.pause() },
  })
  const size = 64_000_000
  const one = await client()
  one.send(`PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`)
  one.send(Buffer.alloc(size))
  await eventually(() => isHeldBack(exchanges[0]), 'the upstream to be full')
  upstream.sockets[0]?.write('HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig')
  t.equal((await one.response()).status, 413)
  const [exchange] = exchanges
  await eventually(() => {
    deadlines.advance(0)
    return exchange?.connection.socket.destroyed === true
  }, 'the connection to be closed')
  t.same(outcomes, ['ok'])
  t.ok((exchange?.connection.socket.bytesRead ?? 0) - (exchange?.bytesIn ?? 0) > LINGER_BYTES)
  for (const socket of upstream.sockets) socket.destroy()
  await isQuiet(0)
})

/** A side that takes nothing, and what the kernel says of its send queue at each look. */
t.test('a side that takes nothing', async (t) => {
  const large = 64_000_000
  const respond = (socket: Socket) => {
    socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${large}\r\n\r\n`)
    socket.write(Buffer.alloc(large))
  }
  /** Lets the time of one look pass. */
  const look = async (deadlines: { advance(ms: number): void }) => {
    deadlines.advance(IDLE_MS / 4)
    for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate)
  }

  for (const [what, queue] of [
    ['whose queue does not move', () => 5],
    ['whose queue cannot be known', () => undefined],
  ] as const) {
    await t.test(`${what} is a client that is cut`, async (t) => {
      const { upstream, deadlines, client, outcomes, exchanges, isQuiet } = await transferring(t, {
        sendQueue: () => Promise.resolve(queue()),
      })
      upstream.reply(respond)
      const one = await client()
      one.socket.pause()
      one.send(GET)
      await eventually(
        () => exchanges[0]?.connection.socket.writableNeedDrain === true,
        'the client to be full',
      )
      for (let count = 0; count < 3; count++) await look(deadlines)
      t.same(outcomes, [], 'not before the idle time is over')
      for (let count = 0; count < 2; count++) await look(deadlines)
      t.same(outcomes, ['client_idle'])
      await isQuiet(0)
    })

    await t.test(`${what} is an upstream that is left`, async (t) => {
      const { upstream, deadlines, client, outcomes, exchanges, isQuiet } = await transferring(t, {
        sendQueue: () => Promise.resolve(queue()),
        hooks: { read: false, onConnection: (socket) => void socket.pause() },
      })
      const one = await client()
      one.send(`PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: ${large}\r\n\r\n`)
      one.send(Buffer.alloc(large))
      await eventually(() => isHeldBack(exchanges[0]), 'the upstream to be full')
      for (let count = 0; count < 5; count++) await look(deadlines)
      t.same(outcomes, ['connection_write_timeout'])
      isOwnAnswer(t, await one.response(), unavailable('connection_write_timeout'))
      for (const socket of upstream.sockets) socket.destroy()
      await isQuiet(0)
    })
  }

  await t.test('but whose queue moves is not cut', async (t) => {
    let queued = 1000
    const { upstream, deadlines, client, outcomes, exchanges } = await transferring(t, {
      sendQueue: () => Promise.resolve(queued--),
    })
    upstream.reply(respond)
    const one = await client()
    one.socket.pause()
    one.send(GET)
    await eventually(
      () => exchanges[0]?.connection.socket.writableNeedDrain === true,
      'the client to be full',
    )
    for (let count = 0; count < 40; count++) await look(deadlines)
    t.same(outcomes, [])
    one.socket.resume()
    t.equal((await one.response()).body.length, large)
    t.same(outcomes, ['ok'])
  })

  await t.test('and leaves while it is looked at is no fault', async (t) => {
    let tell = (_queued: number) => {}
    const { upstream, deadlines, client, outcomes, exchanges, isQuiet } = await transferring(t, {
      sendQueue: () =>
        new Promise((resolve) => {
          tell = resolve
        }),
    })
    upstream.reply(respond)
    const one = await client()
    one.socket.pause()
    one.send(GET)
    await eventually(
      () => exchanges[0]?.connection.socket.writableNeedDrain === true,
      'the client to be full',
    )
    await look(deadlines)
    one.socket.destroy()
    await eventually(() => outcomes.length > 0, 'the client to be gone')
    tell(5)
    await isQuiet(0)
    t.same(outcomes, ['client_aborted'])
  })
})

t.test('a response that waits for those before it on its connection is not idle', async (t) => {
  const { upstream, deadlines, client, outcomes } = await transferring(t)
  const sockets = new Map<string, Socket>()
  upstream.reply((socket, { target }) => {
    sockets.set(target, socket)
    if (target === '/second') socket.write('HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsec')
  })
  const one = await client()
  one.send('GET /first HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n')
  await upstream.received(2)
  await new Promise((resolve) => setTimeout(resolve, 20)) // for the part of the second response to arrive
  deadlines.advance(IDLE_MS)
  deadlines.advance(IDLE_MS)
  t.same(outcomes, [])
  sockets.get('/second')?.write('ond')
  sockets.get('/first')?.write(OK)
  t.equal((await one.response()).body.toString(), 'ok')
  t.equal((await one.response()).body.toString(), 'second')
})

t.test('a body that turns out to be none behind its own answer does not take the answer away', async (t) => {
  const { upstream, client, outcomes, isQuiet } = await transferring(t, {
    hooks: {
      read: false,
      onConnection: (socket) => {
        socket.once('data', (chunk) => {
          if (chunk.includes('PUT')) socket.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno')
        })
      },
    },
  })
  const one = await client()
  one.send(`${GET}PUT /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n`)
  await eventually(() => outcomes.length === 1, 'the second request to be answered')
  one.send('nonsense\r\n')
  await new Promise((resolve) => setTimeout(resolve, 20)) // for it to be read
  for (const socket of upstream.sockets) if (!socket.destroyed) socket.write(OK)
  t.equal((await one.response()).status, 200)
  t.equal((await one.response()).status, 403)
  t.same(outcomes.sort(), ['ok', 'ok'])
  one.socket.destroy()
  await isQuiet(1)
})

t.test('a body that is none before anybody wants to read it never reaches the upstream', async (t) => {
  const { upstream, client, outcomes, exchanges, isQuiet } = await transferring(t, { maxConnections: 1 })
  upstream.reply(() => {})
  const one = await client()
  one.send(GET)
  await upstream.received(1)
  const two = await client()
  two.send('PUT /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n')
  isOwnAnswer(t, await two.response(), { status: 400, code: 'InvalidArgument', error: 'client_aborted' })
  t.same(outcomes, ['client_aborted'])
  t.equal(exchanges.length, 2)
  t.equal(upstream.sockets.length, 1)
  one.socket.destroy()
  await isQuiet(0)
})

t.test('a body that is none behind the refusal of its request is nothing more', async (t) => {
  const { upstream, client, outcomes, exchanges } = await transferring(t, { maxConnections: 1, maxQueue: 0 })
  upstream.reply(() => {})
  const one = await client()
  one.send(GET)
  await upstream.received(1)
  const two = await client()
  two.send('PUT /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n')
  isOwnAnswer(t, await two.response(), unavailable('connection_limit_reached'))
  t.equal(await two.closed(), 'end')
  t.same(outcomes, ['connection_limit_reached'])
  t.equal(exchanges[1]?.reason, 'connection_limit_reached')
  t.equal(two.rest().length, 0, 'one answer')
})

t.test('what still comes of an upload whose response broke off is sent to nobody', async (t) => {
  const { upstream, client, outcomes, exchanges, over, isQuiet } = await transferring(t)
  const part = 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart'
  upstream.reply(() => {})
  const one = await client()
  one.send(GET)
  await upstream.received(1)
  one.send('PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\nhello')
  await upstream.until(() => String(upstream.bytes[1]).endsWith('hello'), 'the upload')
  upstream.sockets[1]?.write(part)
  await eventually(() => exchanges[1]?.bytesOut === 4, 'its response')
  upstream.sockets[1]?.resetAndDestroy()
  await eventually(() => outcomes.length === 1, 'its end')
  const size = 1_000_000
  const socket = exchanges[0]?.connection.socket
  const before = socket?.bytesRead ?? 0
  one.send(Buffer.alloc(size))
  await eventually(() => socket?.bytesRead === before + size, 'what still comes to be read')
  t.equal(exchanges[1]?.bytesIn, 5)
  upstream.sockets[0]?.write(OK)
  t.equal((await one.response()).status, 200, 'the response before it is not lost')
  t.equal(await one.closed(), 'end', 'nor is it taken away by a reset, whatever still comes')
  one.socket.destroy()
  await isQuiet(1)
  t.equal(one.rest().length, 0)
  t.same(outcomes, ['http_response_incomplete', 'ok'])
  t.same(over(), [true, false])
})

t.test('an upload that goes on behind its response is sent to its end', async (t) => {
  const { upstream, client, outcomes, isQuiet } = await transferring(t, {
    hooks: {
      onConnection: (socket) => {
        socket.once('data', () =>
          socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n'),
        )
      },
    },
  })
  upstream.reply((socket) => void socket.write('0\r\n\r\n'))
  const size = 20_000_000
  const one = await client()
  one.send(`PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`)
  await one.until('ok')
  one.send(Buffer.alloc(size))
  t.equal((await one.response()).body.toString(), 'ok')
  t.equal(upstream.requests[0]?.body.length, size)
  t.same(outcomes, ['ok'])
  await isQuiet(1)
})

t.test('responses end their connections while we are stopping', async (t) => {
  const { client, isQuiet } = await transferring(t, { isClosing: () => true })
  const one = await client()
  one.send(GET)
  t.equal((await one.response()).headers['connection'], 'close')
  t.equal(await one.closed(), 'end')
  await isQuiet(1)
})

t.test('a client that leaves is counted once, whatever comes of its request', async (t) => {
  const { upstream, asks, outcomes, over, exchanges, isQuiet } = await transferring(t)
  upstream.reply(() => {})
  const client = await asks(GET)
  client.socket.resetAndDestroy()
  await eventually(() => over().length === 1, 'the exchange to be over')
  t.same(outcomes, ['client_aborted'])
  t.same(over(), [false])
  t.equal(exchanges[0]?.reason, 'client_aborted')
  await isQuiet(0)
})

t.test('a client that waits to be told to go on', async (t) => {
  const EXPECTING = 'PUT /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n'
  const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n'

  await t.test('is told when there is a connection for its body, and not sooner', async (t) => {
    const { upstream, client, pool, outcomes } = await transferring(t, { maxConnections: 1 })
    upstream.reply(() => {})
    const first = await client()
    first.send(GET)
    await upstream.received(1)
    const second = await client()
    second.send(EXPECTING)
    await eventually(() => pool.queued === 1, 'the second to wait')
    t.equal(second.received().length, 0)
    upstream.reply(OK)
    upstream.sockets[0]?.write(OK)
    await second.until(CONTINUE)
    t.equal(upstream.requests.length, 1)
    second.send('hello')
    await second.until(`${CONTINUE}HTTP/1.1 200 OK`)
    t.equal(upstream.requests[1]?.body.toString(), 'hello')
    t.same(outcomes, ['ok', 'ok'])
  })

  await t.test('is told behind the answers to its earlier requests', async (t) => {
    const { upstream, client } = await transferring(t)
    upstream.reply((socket, { method }) => {
      if (method === 'PUT') socket.write(OK)
    })
    const one = await client()
    one.send(`${GET}${EXPECTING}`)
    await upstream.until(() => upstream.sockets.length === 2, 'both requests')
    await upstream.received(1)
    for (const socket of upstream.sockets) if (socket.bytesRead > 0) socket.write(OK)
    t.equal((await one.response()).status, 200)
    t.equal((await one.response()).status, 100)
    one.send('hello')
    t.equal((await one.response()).status, 200)
  })

  await t.test('is told nothing of the kind when there is no upstream', async (t) => {
    const { upstream, client, outcomes } = await transferring(t)
    await upstream.close()
    const one = await client()
    one.send(EXPECTING)
    isOwnAnswer(t, await one.response(), unavailable('connection_refused'))
    t.equal(await one.closed(), 'end', 'for it may send its body all the same')
    t.same(outcomes, ['connection_refused'])
  })
})

t.test('an upload that is given up while its bytes still come', async (t) => {
  for (const [what, framing] of [
    ['with a length', 'Content-Length: 64000000'],
    ['in chunks', 'Transfer-Encoding: chunked'],
  ] as const) {
    await t.test(`${what}, by its upstream, is answered`, async (t) => {
      const { upstream, deadlines, client, exchanges, outcomes, isQuiet } = await transferring(t, {
        hooks: {
          read: false,
          onConnection: (socket) => void socket.once('data', () => socket.resetAndDestroy()),
        },
      })
      const one = await client()
      one.send(`PUT /a HTTP/1.1\r\nHost: a\r\n${framing}\r\n\r\n`)
      await upstream.until(() => upstream.sockets.length > 0, 'a connection')
      const chunk = Buffer.alloc(16_000, 'x')
      one.socket.on('error', () => {}) // bytes behind the answer are dropped for a while, then refused
      for (let count = 0; count < 200 && !one.socket.destroyed; count++) {
        if (what === 'in chunks') one.send('3e80\r\n')
        one.send(chunk)
        if (what === 'in chunks') one.send('\r\n')
        await new Promise(setImmediate)
      }
      isOwnAnswer(t, await one.response(), unavailable('connection_terminated'))
      t.same(outcomes, ['connection_terminated'])
      await eventually(() => {
        deadlines.advance(1000)
        return exchanges[0]?.connection.socket.destroyed
      }, 'the connection to be closed')
      await isQuiet(0)
    })
  }
})
