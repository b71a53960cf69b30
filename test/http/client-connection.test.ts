import { createHash } from 'node:crypto'
import t, { type Test } from 'tap'
import type { BodyTaker } from '../../src/http/client-request.ts'
import type { Exchange } from '../../src/http/exchange.ts'
import type { ListenerOptions } from '../../src/http/listener.ts'
import type { RawTaker } from '../../src/http/request-intake.ts'
import { makeCertificate } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { answerWith, LIMITS, type Listening, startListening } from '../support/listening.ts'
import { isOwnAnswer } from '../support/own-answer.ts'
import { type RawClient, rawTlsClient } from '../support/raw-client.ts'
import { setDeadlines } from '../support/set-deadlines.ts'

const get = (target: string) => `GET ${target} HTTP/1.1\r\nHost: h\r\n\r\n`
const put = (target: string, length: number) =>
  `PUT ${target} HTTP/1.1\r\nHost: h\r\nContent-Length: ${length}\r\n\r\n`
const CHUNKED = 'PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n'
const HANDSHAKE = 'GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'

const two = { limits: { ...LIMITS, inFlightPerConnection: 2 } }

/** Answers with the request's target. */
const echo = (exchange: Exchange) => answerWith(exchange, exchange.req.url)

/** Lets everything happen that can happen by itself. */
async function turns(count = 50): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise((resolve) => setImmediate(resolve))
}

/** The connection whose request was started first. */
function connectionOf({ started }: Listening) {
  const [exchange] = started
  if (exchange === undefined) throw new Error('no request was started')
  return exchange.connection
}

/** A listener on a clock that the test sets: ten seconds for a head, 75 for a connection that is not used. */
async function clocked(
  t: Test,
  handle: (exchange: Exchange) => void,
  options: Partial<ListenerOptions> = {},
) {
  const deadlines = setDeadlines(t)
  const listening = await startListening(t, handle, { deadlines, ...options })
  const client = await listening.connect()
  await eventually(() => listening.listener.connections === 1, 'the connection')
  return { deadlines, listening, client }
}

/** Takes a body and keeps it. */
function collecting(): BodyTaker & {
  readonly chunks: Buffer[]
  ended: boolean
  trailers: readonly string[]
} {
  return {
    chunks: [],
    ended: false,
    trailers: [],
    onRequestBody(chunk) {
      this.chunks.push(Buffer.from(chunk))
    },
    onRequestEnd(rawTrailers) {
      this.ended = true
      this.trailers = rawTrailers
    },
  }
}

t.test('a connection has its share of requests under way; the rest follow in order', async (t) => {
  const listening = await startListening(t, () => {}, two)
  const { started } = listening
  const client = await listening.connect()
  client.send(['/1', '/2', '/3', '/4', '/5'].map(get).join(''))
  const urls = () => started.map(({ req }) => req.url)
  const answer = (at: number) => {
    const exchange = started[at]
    if (exchange !== undefined) echo(exchange)
  }
  await eventually(() => started.length === 2, 'two requests')
  t.equal(listening.listener.inFlight, 2)
  // The second is answered first: it waits for its turn, and nothing else is started for it.
  answer(1)
  t.same(urls(), ['/1', '/2'])
  answer(0)
  for (const body of ['/1', '/2']) t.equal((await client.response()).body.toString(), body)
  await eventually(() => started.length === 4, 'the next two')
  answer(3)
  answer(2)
  await eventually(() => started.length === 5, 'the last one')
  answer(4)
  for (const body of ['/3', '/4', '/5']) t.equal((await client.response()).body.toString(), body)
  t.same(urls(), ['/1', '/2', '/3', '/4', '/5'])
  t.equal(listening.listener.inFlight, 0)
  client.send(get('/6'))
  await eventually(() => started.length === 6, 'a request on the kept connection')
})

t.test('while requests are held no more are read, however many a client sends', async (t) => {
  const listening = await startListening(t, () => {}, two)
  const client = await listening.connect()
  client.send(get('/').repeat(200_000))
  await eventually(() => listening.started.length === 2, 'two requests')
  await turns(200)
  const { socket } = connectionOf(listening)
  t.ok(socket.bytesRead <= 256 * 1024, `${socket.bytesRead} bytes were read`)
  t.equal(listening.started.length, 2)
})

t.test('ten thousand requests in a few packets are answered, at once or later', async (t) => {
  for (const inFlightPerConnection of [16, 10_000]) {
    for (const later of [false, true]) {
      const name = `${inFlightPerConnection} ${later ? 'later' : 'at once'}`
      let count = 0
      const listening = await startListening(
        t,
        (exchange) => {
          count++
          if (later) setImmediate(() => answerWith(exchange, 'no', { status: 400 }))
          else answerWith(exchange, 'no', { status: 400 })
        },
        { limits: { ...LIMITS, inFlightPerConnection } },
      )
      const client = await listening.connect()
      client.send(get('/').repeat(10_000))
      await eventually(() => count === 10_000, name)
      await eventually(() => listening.over.length === 10_000, name)
      await eventually(
        () => client.received().toString('latin1').split('HTTP/1.1 400').length === 10_001,
        name,
      )
      t.ok(
        listening.over.every(({ finished }) => finished),
        name,
      )
    }
  }
})

t.test('ten thousand answers that wait for the first one go out behind it', async (t) => {
  const listening = await startListening(t, () => {}, {
    limits: { ...LIMITS, inFlightPerConnection: 10_000 },
  })
  const client = await listening.connect()
  client.send(get('/').repeat(10_000))
  await eventually(() => listening.started.length === 10_000, 'the requests')
  for (const exchange of listening.started.toReversed()) answerWith(exchange, '')
  await eventually(() => listening.over.length === 10_000, 'the end of all')
  t.ok(listening.over.every(({ finished }) => finished))
})

t.test('requests that were held and answers that come in reverse lose nobody', async (t) => {
  const waiting: Exchange[] = []
  const listening = await startListening(
    t,
    (exchange) => {
      waiting.push(exchange)
      if (waiting.length % 100 === 0) for (const one of waiting.splice(0).reverse()) echo(one)
    },
    { limits: { ...LIMITS, inFlightPerConnection: 100 } },
  )
  const client = await listening.connect()
  for (let at = 0; at < 1000; at++) client.send(get(`/${at}`))
  for (let at = 0; at < 1000; at++) {
    const body = (await client.response()).body.toString()
    if (body !== `/${at}`) t.fail(`${body} instead of /${at}`)
  }
  t.equal(listening.over.length, 1000)
})

t.test(
  'a client that leaves ends each of its requests, once; those that were held are never made',
  async (t) => {
    const listening = await startListening(t, () => {}, two)
    const client = await listening.connect()
    client.send(['/1', '/2', '/3'].map(get).join(''))
    await eventually(() => listening.started.length === 2, 'two requests')
    // It cannot be seen to leave while nothing is read: the write of an answer tells.
    client.socket.resetAndDestroy()
    await turns(5)
    for (const exchange of [...listening.started]) answerWith(exchange, 'x'.repeat(100_000))
    await eventually(() => listening.listener.connections === 0, 'the end of the connection')
    t.equal(listening.over.length, listening.started.length)
    t.equal(listening.listener.inFlight, 0)
  },
)

t.test('a response that ends the connection ends what was to come behind it', async (t) => {
  const listening = await startListening(t, () => {}, two)
  const client = await listening.connect()
  client.send(['/1', '/2', '/3'].map(get).join(''))
  await eventually(() => listening.started.length === 2, 'two requests')
  const [first, second] = listening.started as [Exchange, Exchange]
  second.connection.end()
  answerWith(second, 'second', { close: true })
  t.ok(second.connection.isEnding)
  answerWith(first, 'first')
  t.equal((await client.response()).body.toString(), 'first')
  t.equal((await client.response()).body.toString(), 'second')
  t.equal(await client.closed(), 'end')
  t.equal(listening.started.length, 2)
})

t.test(
  'requests that were started behind a response that would end the connection are answered first',
  async (t) => {
    const listening = await startListening(t, () => {})
    const client = await listening.connect()
    client.send(get('/1') + get('/2'))
    await eventually(() => listening.started.length === 2, 'two requests')
    const [first, second] = listening.started as [Exchange, Exchange]
    first.connection.end()
    answerWith(first, 'first', { close: true })
    client.send(get('/3'))
    answerWith(second, 'second')
    const [one, two] = [await client.response(), await client.response()]
    t.same([one.body.toString(), one.headers['connection']], ['first', 'keep-alive'])
    t.same(
      [two.body.toString(), two.headers['connection']],
      ['second', 'close'],
      'whatever it would have said',
    )
    t.equal(await client.closed(), 'end')
    client.socket.end()
    await eventually(() => listening.over.length === 2, 'the end of both')
    t.same(
      listening.over.map(({ finished }) => finished),
      [true, true],
    )
    t.equal(client.rest().length, 0)
  },
)

t.test('a client that leaves is heard of behind bytes that nobody looks at, or not yet', async (t) => {
  const last = 'GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n'
  for (const bytes of [`${last}\r\n`, `${last}rubbish`, get('/').repeat(5)]) {
    const limits = { ...LIMITS, inFlightPerConnection: 1 }
    const listening = await startListening(t, () => {}, { limits })
    const client = await listening.connect()
    client.send(bytes)
    await eventually(() => listening.started.length === 1, 'the request')
    client.send('more')
    await turns(20)
    client.socket.resetAndDestroy()
    await eventually(() => listening.over.length === 1, 'its end')
    t.equal(listening.over[0]?.finished, false)
  }
})

t.test('behind a request that was the last nothing is read', async (t) => {
  const listening = await startListening(t, ({ connection }) => connection.end())
  const client = await listening.connect()
  client.send(get('/').repeat(200_000))
  await eventually(() => listening.started.length === 1, 'the request')
  await turns(200)
  const { socket } = connectionOf(listening)
  t.ok(socket.bytesRead <= 256 * 1024, `${socket.bytesRead} bytes were read`)
  t.equal(listening.started.length, 1)
})

t.test('a connection that ends after its response was begun ends with it all the same', async (t) => {
  const listening = await startListening(t, ({ res }) => {
    res.startWith({ status: 200, lines: 'Content-Length: 2\r\n', needsDate: false, close: false }, 'length')
    res.flushHead()
  })
  const client = await listening.connect()
  client.send(get('/'))
  await client.until('keep-alive')
  connectionOf(listening).end()
  const [exchange] = listening.started
  exchange?.res.write(Buffer.from('ok'))
  exchange?.res.end()
  t.equal((await client.response()).body.toString(), 'ok')
  t.equal(await client.closed(), 'end')
})

t.test('what is no request is not answered where the connection ends with an answer before it', async (t) => {
  const listening = await startListening(t, () => {})
  const client = await listening.connect()
  client.send(`${get('/1')}BAD\r\n\r\n`)
  await eventually(() => listening.refused.length === 1, 'the refusal')
  connectionOf(listening).end()
  for (const exchange of listening.started) echo(exchange)
  t.equal((await client.response()).body.toString(), '/1')
  t.equal(await client.closed(), 'end')
  t.equal(client.rest().length, 0)
})

t.test('what is no request is answered once everything before it has been', async (t) => {
  const listening = await startListening(t, () => {}, two)
  const client = await listening.connect()
  client.send(`${['/1', '/2', '/3'].map(get).join('')}BAD\r\n\r\n`)
  await eventually(() => listening.started.length === 2, 'two requests')
  t.same(listening.refused, [], 'nothing is looked at behind the limit')
  const answer = (at: number) => {
    const exchange = listening.started[at]
    if (exchange !== undefined) echo(exchange)
  }
  answer(0)
  await eventually(() => listening.started.length === 3, 'the third request')
  t.same(listening.refused, [])
  answer(2)
  answer(1)
  for (const body of ['/1', '/2', '/3']) t.equal((await client.response()).body.toString(), body)
  isOwnAnswer(t, await client.response(), { status: 400, code: 'InvalidArgument' }, 'what is none')
  t.equal(await client.closed(), 'end')
  client.send('BAD\r\n\r\n')
  t.same(listening.refused, [400], 'refused once')
})

t.test('what is no request behind one that is being answered waits for that answer', async (t) => {
  const listening = await startListening(t, () => {})
  const client = await listening.connect()
  client.send(`${get('/1')}BAD\r\n\r\n`)
  await eventually(() => listening.refused.length === 1, 'the refusal')
  t.equal(client.received().length, 0)
  client.send('and more of it')
  await turns()
  const [exchange] = listening.started
  if (exchange !== undefined) echo(exchange)
  t.equal((await client.response()).body.toString(), '/1')
  t.equal((await client.response()).status, 400)
  t.equal(await client.closed(), 'end')
})

t.test('a first head has its time from the beginning of the connection', async (t) => {
  const { deadlines, listening, client } = await clocked(t, echo)
  deadlines.advance(9999)
  client.send('\r\n\r\nGET / HT')
  await turns()
  t.same(listening.refused, [])
  deadlines.advance(1)
  isOwnAnswer(t, await client.response(), { status: 408, code: 'InvalidArgument' }, 'late')
  t.equal(await client.closed(), 'end')
})

t.test('a client that says nothing is told so, when its time is over', async (t) => {
  const { deadlines, client } = await clocked(t, echo)
  deadlines.advance(10_000)
  t.equal((await client.response()).status, 408)
  t.equal(await client.closed(), 'end')
})

t.test('a later head has its time from its first byte on, however slowly the rest comes', async (t) => {
  const { deadlines, listening, client } = await clocked(t, echo)
  client.send(get('/1'))
  t.equal((await client.response()).body.toString(), '/1')
  deadlines.advance(74_000)
  client.send('GET')
  await eventually(() => connectionOf(listening).socket.bytesRead === get('/1').length + 3, 'its first bytes')
  deadlines.advance(9999)
  client.send(' / HTTP/1.1\r\n')
  await turns()
  t.same(listening.refused, [])
  deadlines.advance(1)
  t.equal((await client.response()).status, 408)
  t.equal(await client.closed(), 'end')
})

t.test('empty lines before a head neither start its time nor keep the connection', async (t) => {
  const { deadlines, listening, client } = await clocked(t, echo)
  client.send(get('/1'))
  t.equal((await client.response()).status, 200)
  client.send('\r\n\r\n')
  const { socket } = connectionOf(listening)
  await eventually(() => socket.bytesRead === get('/1').length + 4, 'the empty lines')
  deadlines.advance(10_000)
  t.same(listening.refused, [], 'no head has begun')
  t.equal(listening.listener.connections, 1)
  client.send(get('/2'))
  t.equal((await client.response()).body.toString(), '/2')
  deadlines.advance(74_999)
  client.send('\r\n')
  await eventually(() => socket.bytesRead === 2 * get('/1').length + 6, 'another')
  deadlines.advance(1)
  t.equal(await client.closed(), 'end', 'the time of an unused connection is over')
  t.equal(client.rest().length, 0)
})

t.test('an unused connection is closed after its time, one that is used is not', async (t) => {
  const { deadlines, listening, client } = await clocked(t, ({ req, res }) => {
    if (req.url === '/slow') return
    res.sendWhole({ status: 200, lines: 'Content-Length: 0\r\n', needsDate: false, close: false }, '')
  })
  client.send(get('/'))
  await client.response()
  t.ok(connectionOf(listening).isUnused)
  deadlines.advance(74_999)
  client.send(get('/slow'))
  await eventually(() => listening.started.length === 2, 'the slow one')
  t.notOk(connectionOf(listening).isUnused)
  for (let minute = 0; minute < 5; minute++) deadlines.advance(60_000)
  t.equal(listening.listener.connections, 1)
  const [, slow] = listening.started
  if (slow !== undefined) answerWith(slow, 'slow')
  t.equal((await client.response()).body.toString(), 'slow')
  deadlines.advance(75_000)
  t.equal(await client.closed(), 'end')
  t.equal(deadlines.waiting.size, 0)
})

t.test('a head that stops behind a request in flight is answered after it', async (t) => {
  const { deadlines, listening, client } = await clocked(t, () => {})
  client.send(`${get('/1')}GET / HT`)
  await eventually(() => listening.started.length === 1, 'the request')
  t.equal(connectionOf(listening).isUnused, false)
  deadlines.advance(10_000)
  t.same(listening.refused, [408])
  client.send('TP/1.1\r\nHost: h\r\n\r\n')
  await turns()
  deadlines.advance(100_000)
  const [exchange] = listening.started
  if (exchange !== undefined) echo(exchange)
  t.equal((await client.response()).body.toString(), '/1')
  t.equal((await client.response()).status, 408)
  t.equal(await client.closed(), 'end')
  t.equal(listening.started.length, 1)
})

t.test('an answer that goes out meanwhile gives no head more time', async (t) => {
  const { deadlines, listening, client } = await clocked(t, () => {})
  client.send(`${get('/1')}GET / HT`)
  await eventually(() => listening.started.length === 1, 'the request')
  deadlines.advance(5000)
  for (const exchange of listening.started) echo(exchange)
  t.equal((await client.response()).body.toString(), '/1')
  deadlines.advance(4999)
  t.same(listening.refused, [])
  deadlines.advance(1)
  t.equal((await client.response()).status, 408)
})

t.test('a head that stops on a connection that ends already is not answered', async (t) => {
  const { deadlines, listening, client } = await clocked(t, () => {})
  client.send(`${get('/1')}GET / HT`)
  await eventually(() => listening.started.length === 1, 'the request')
  connectionOf(listening).end()
  deadlines.advance(10_000)
  t.same(listening.refused, [])
  const [exchange] = listening.started
  if (exchange !== undefined) answerWith(exchange, 'last', { close: true })
  t.equal((await client.response()).body.toString(), 'last')
  t.equal(await client.closed(), 'end')
  t.equal(client.rest().length, 0)
})

t.test('the body of a request whose head was believed is nothing else', async (t) => {
  const taker = collecting()
  const listening = await startListening(t, (exchange) => {
    if (exchange.req.method === 'PUT')
      exchange.req.giveTo({
        onRequestBody: (chunk) => taker.onRequestBody(chunk),
        onRequestEnd: (trailers) => {
          taker.onRequestEnd(trailers)
          echo(exchange)
        },
      })
    else echo(exchange)
  })
  const client = await listening.connect()
  client.send(`${put('/put', get('/x').length)}${get('/x')}${get('/get')}`)
  t.equal((await client.response()).body.toString(), '/put')
  t.equal((await client.response()).body.toString(), '/get')
  t.equal(Buffer.concat(taker.chunks).toString(), get('/x'))
  client.send(`${CHUNKED}3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n${get('/get')}`)
  t.equal((await client.response()).body.toString(), '/')
  t.equal((await client.response()).body.toString(), '/get')
  t.same(taker.trailers, ['X-Sum', '1'])
})

t.test(
  'a body that is left unread ends the connection, and does not cost the client its answer',
  async (t) => {
    const { deadlines, listening, client } = await clocked(t, (exchange) => {
      exchange.connection.end()
      exchange.req.leaveUnread()
      answerWith(exchange, 'no', { close: true })
    })
    client.send(put('/', 10_000_000))
    client.send(Buffer.alloc(9_000_000))
    t.equal((await client.response()).body.toString(), 'no')
    t.equal(await client.closed(), 'end')
    await eventually(() => {
      deadlines.advance(0)
      return listening.listener.connections === 0
    }, 'the close')
    t.same(
      listening.over.map(({ finished }) => finished),
      [true],
    )
  },
)

t.test('a refused upload behind a slow request is not read before its turn', async (t) => {
  const listening = await startListening(t, (exchange) => {
    if (exchange.req.method === 'GET') return
    exchange.connection.end()
    exchange.req.leaveUnread()
    answerWith(exchange, 'no', { close: true })
  })
  const client = await listening.connect()
  client.send(get('/') + put('/', 10_000_000))
  client.send(Buffer.alloc(9_000_000))
  await eventually(() => listening.started.length === 2, 'both requests')
  await turns(200)
  const { socket } = connectionOf(listening)
  t.ok(socket.bytesRead < 256 * 1024, `${socket.bytesRead} bytes were read`)
  const [slow] = listening.started
  if (slow !== undefined) answerWith(slow, 'slow')
  t.equal((await client.response()).body.toString(), 'slow')
  t.equal((await client.response()).body.toString(), 'no')
  t.equal(await client.closed(), 'end')
  await eventually(() => listening.listener.connections === 0, 'the close')
})

t.test('a client that goes on sending behind the last answer is dropped after a second', async (t) => {
  const { deadlines, listening, client } = await clocked(t, () => {})
  client.send('BAD\r\n\r\n')
  t.equal((await client.response()).status, 400)
  t.equal(await client.closed(), 'end')
  client.send('x'.repeat(1000))
  await turns()
  deadlines.advance(999)
  t.equal(listening.listener.connections, 1)
  deadlines.advance(1)
  await eventually(() => listening.listener.connections === 0, 'the close')
})

t.test('what a client sent before the last answer does not shorten the time behind it', async (t) => {
  const { deadlines, listening, client } = await clocked(t, (exchange) => {
    exchange.req.giveTo({ onRequestBody: () => {}, onRequestEnd: () => echo(exchange) })
  })
  client.send(put('/', 1_000_000))
  client.send(Buffer.alloc(1_000_000))
  t.equal((await client.response()).status, 200)
  client.send('BAD\r\n\r\n')
  t.equal((await client.response()).status, 400)
  t.equal(await client.closed(), 'end')
  client.send('x')
  await turns()
  deadlines.advance(999)
  t.equal(listening.listener.connections, 1)
  client.send(Buffer.alloc(1_000_000))
  await eventually(() => {
    deadlines.advance(0)
    return listening.listener.connections === 0
  }, 'the close: this is too much')
})

t.test('a client that ends behind the last answer is not waited for', async (t) => {
  const { listening, client } = await clocked(t, () => {})
  client.send('BAD\r\n\r\n')
  t.equal(await client.closed(), 'end')
  client.socket.end()
  await eventually(() => listening.listener.connections === 0, 'the close')
})

t.test('a body that is malformed is told to its taker, and whoever answers says so', async (t) => {
  const listening = await startListening(t, (exchange) => {
    exchange.attach({
      onFinished: () => {},
      onClientGone: () => {},
      onMalformedBody: () => answerWith(exchange, 'malformed', { status: 400, close: true }),
    })
    exchange.req.giveTo({ onRequestBody: () => {}, onRequestEnd: () => t.fail('no end') })
  })
  for (const [before, after] of [
    [CHUNKED, 'zz\r\n'],
    [`${CHUNKED}1\r\na\r\n`, '1\r\nab\r\n'],
    [`${CHUNKED}1\r\na\r\nzz\r\n`, ''],
    [`${CHUNKED}1\r\na\r\n0\r\n`, 'bad trailer\r\n\r\n'],
  ] as const) {
    const client = await listening.connect()
    client.send(before)
    await turns(20)
    client.send(`${after}${get('/')}`)
    t.equal((await client.response()).body.toString(), 'malformed')
    t.equal(await client.closed(), 'end')
    t.equal(client.rest().length, 0)
  }
  t.equal(listening.started.length, 4, 'nothing is a request behind it')
  t.same(listening.refused, [])
})

t.test('a body that turns out to be malformed while it is answered ends the connection behind', async (t) => {
  const listening = await startListening(t, ({ req, res }) => {
    req.giveTo(collecting())
    res.startWith({ status: 200, lines: 'Content-Length: 2\r\n', needsDate: false, close: false }, 'length')
    res.flushHead()
  })
  const client = await listening.connect()
  client.send(CHUNKED)
  await client.until('\r\n\r\n')
  client.send('zz\r\n')
  await eventually(() => connectionOf(listening).isEnding, 'the fault')
  const [exchange] = listening.started
  exchange?.res.write(Buffer.from('ok'))
  exchange?.res.end()
  t.equal((await client.response()).body.toString(), 'ok')
  t.equal(await client.closed(), 'end')
})

t.test('a body that turns out to be malformed when it has been answered ends the connection', async (t) => {
  const listening = await startListening(t, (exchange) => {
    exchange.req.giveTo(collecting())
    echo(exchange)
  })
  for (const rest of ['zz\r\n', undefined]) {
    const client = await listening.connect()
    client.send(CHUNKED)
    t.equal((await client.response()).headers['connection'], 'keep-alive')
    if (rest === undefined) client.socket.end()
    else client.send(rest)
    t.equal(await client.closed(), 'end')
    client.socket.end()
    await eventually(() => listening.listener.connections === 0, 'the close')
  }
  t.same(listening.refused, [])
})

t.test('a client that ends between requests is let go', async (t) => {
  const listening = await startListening(t, echo)
  const silent = await listening.connect()
  silent.socket.end()
  t.equal(await silent.closed(), 'end')
  const used = await listening.connect()
  used.send(get('/'))
  await used.response()
  used.socket.end()
  t.equal(await used.closed(), 'end')
  await eventually(() => listening.listener.connections === 0, 'the close')
  t.same([silent.received().length, used.rest().length], [0, 0])
})

t.test('a client that ends within a head is told', async (t) => {
  const listening = await startListening(t, echo)
  const client = await listening.connect()
  client.send('GET / HTTP/1.1\r\nHo')
  await turns(10)
  client.socket.end()
  t.equal((await client.response()).status, 400)
  t.equal(await client.closed(), 'end')
  await eventually(() => listening.listener.connections === 0, 'the close')
})

t.test('a client that ends within a body has sent none', async (t) => {
  let told = 0
  const listening = await startListening(t, (exchange) => {
    exchange.req.giveTo(collecting())
    exchange.attach({
      onFinished: () => {},
      onClientGone: () => {},
      onMalformedBody: () => {
        told++
        answerWith(exchange, 'cut', { status: 400, close: true })
      },
    })
  })
  for (const sent of [`${put('/', 10)}12345`, CHUNKED, `${CHUNKED}5\r\n12`, `${CHUNKED}5`]) {
    const client = await listening.connect()
    client.send(sent)
    await turns(10)
    client.socket.end()
    t.equal((await client.response()).body.toString(), 'cut')
    t.equal(await client.closed(), 'end')
  }
  await eventually(() => listening.listener.connections === 0, 'the close')
  t.equal(told, 4)
})

t.test('a client that has ended its way is not told the answer, and is let go', async (t) => {
  const listening = await startListening(t, () => {})
  const client = await listening.connect()
  client.send(get('/'))
  await eventually(() => listening.started.length === 1, 'the request')
  const [exchange] = listening.started
  client.socket.end()
  t.equal(await client.closed(), 'end')
  if (exchange !== undefined) echo(exchange)
  await eventually(() => listening.listener.connections === 0, 'the close')
  t.same(
    listening.over.map(({ finished }) => finished),
    [false],
  )
  t.equal(client.received().length, 0)
})

t.test(
  'a client that ends while an answer without a length is on its way takes no part for the whole',
  async (t) => {
    const listening = await startListening(t, ({ res }) => {
      res.startWith({ status: 200, lines: '', needsDate: false, close: false }, 'close')
      res.write(Buffer.from('a part'))
    })
    const client = await listening.connect()
    client.send('GET / HTTP/1.0\r\n\r\n')
    await client.until('a part')
    client.socket.end()
    t.equal(await client.closed(), 'reset')
    await eventually(() => listening.over.length === 1, 'the end')
    t.equal(listening.over[0]?.finished, false)
  },
)

t.test('cutting a connection lets nobody take a part for the whole', async (t) => {
  const listening = await startListening(t, ({ res }) => {
    res.startWith({ status: 200, lines: '', needsDate: false, close: false }, 'close')
    res.write(Buffer.from('a part'))
  })
  const client = await listening.connect()
  client.send('GET / HTTP/1.0\r\n\r\n')
  await client.until('a part')
  listening.listener.cut()
  t.equal(await client.closed(), 'reset')
})

t.test('bytes behind a request that says it is the last are nobody’s, and cost it no answer', async (t) => {
  const listening = await startListening(t, () => {})
  const client = await listening.connect()
  client.send(`GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n${get('/')}rubbish`)
  await eventually(() => listening.started.length === 1, 'the request')
  client.send('more')
  await turns(20)
  const [exchange] = listening.started
  if (exchange !== undefined) echo(exchange)
  const response = await client.response()
  t.same([response.body.toString(), response.headers['connection']], ['/', 'close'])
  t.equal(await client.closed(), 'end')
  t.equal(client.rest().length, 0)
  t.same([listening.started.length, listening.refused.length], [1, 0])
})

t.test('a request that says it is the last closes the connection with its answer', async (t) => {
  const listening = await startListening(t, echo)
  for (const [request, connection, kept] of [
    ['GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n', 'close', false],
    ['GET / HTTP/1.0\r\n\r\n', 'close', false],
    ['GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n', 'keep-alive', true],
    ['GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n', 'close', false],
    [get('/'), 'keep-alive', true],
  ] as const) {
    const client = await listening.connect()
    client.send(request)
    const response = await client.response()
    t.same([response.body.toString(), response.headers['connection']], ['/', connection], request)
    if (kept) {
      client.send(request)
      t.equal((await client.response()).body.toString(), '/', request)
      client.socket.destroy()
    } else t.equal(await client.closed(), 'end', request)
    await eventually(() => listening.listener.connections === 0, 'the close')
  }
})

t.test('the end of a connection is written in its time, or not at all', async (t) => {
  const { deadlines, listening, client } = await clocked(t, (exchange) => {
    // As a socket is whose client acknowledges and reads nothing.
    exchange.connection.socket.end = () => exchange.connection.socket
    echo(exchange)
  })
  client.send('GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n')
  t.equal((await client.response()).status, 200)
  deadlines.advance(74_999)
  t.equal(listening.listener.connections, 1)
  deadlines.advance(1)
  await client.closed()
  await eventually(() => listening.listener.connections === 0, 'the close')
})

/** Takes what a connection carries that has left HTTP. */
function rawTaker(): RawTaker & { text: string; ended: boolean } {
  return {
    text: '',
    ended: false,
    onRaw(chunk) {
      this.text += chunk.toString('latin1')
    },
    onRawEnd() {
      this.ended = true
    },
  }
}

t.test(
  'what follows a handshake is for whoever takes the connection, whenever that is decided',
  async (t) => {
    for (const when of ['at once', 'later']) {
      const taker = rawTaker()
      const listening = await startListening(t, ({ connection }) => {
        if (when === 'at once') connection.intake.leaveHttp(taker)
      })
      const client = await listening.connect()
      client.send(`${HANDSHAKE}early ${get('/')}`)
      await eventually(() => listening.started.length === 1, 'the handshake')
      client.send('later ')
      await turns(20)
      if (when === 'later') {
        t.equal(taker.text, '')
        connectionOf(listening).intake.leaveHttp(taker)
      }
      client.send('last')
      await eventually(() => taker.text.endsWith('last'), 'all of it')
      t.equal(taker.text, `early ${get('/')}later last`, when)
      t.equal(listening.started.length, 1)
      client.socket.end()
      await eventually(() => taker.ended, 'the end')
      t.equal(listening.listener.connections, 1, 'the other way is the taker’s to end')
      listening.listener.cut()
    }
  },
)

t.test(
  'a connection that has left HTTP has nothing to answer, and is closed with the other tunnels',
  async (t) => {
    const taker = rawTaker()
    const listening = await startListening(t, (exchange) => {
      exchange.connection.intake.leaveHttp(taker)
      exchange.connection.end()
      exchange.switched = true
      exchange.connection.socket.write('x'.repeat(10_000_000))
    })
    const client = await listening.connect()
    const other = await listening.connect()
    client.send(HANDSHAKE)
    await eventually(() => client.received().length === 10_000_000, 'what was written')
    const connection = connectionOf(listening)
    t.same([connection.isTunnel, connection.unanswered, connection.isUnused], [true, 0, false])
    client.socket.end()
    await eventually(() => taker.ended, 'the end of its way')
    t.equal(listening.over.length, 0)
    listening.listener.closeTunnels()
    t.equal(await client.closed(), 'end')
    await eventually(() => listening.listener.connections === 1, 'the other one alone')
    t.equal(other.received().length, 0)
    t.equal(listening.over[0]?.finished, false)
  },
)

t.test('a handshake behind which nothing came yet is decided later, too', async (t) => {
  const taker = rawTaker()
  const listening = await startListening(t, () => {})
  const client = await listening.connect()
  client.send(HANDSHAKE)
  await eventually(() => listening.started.length === 1, 'the handshake')
  connectionOf(listening).intake.leaveHttp(taker)
  client.send('raw')
  await eventually(() => taker.text === 'raw', 'the bytes')
})

t.test('nothing behind a handshake that was refused is believed, whenever that is decided', async (t) => {
  for (const when of ['at once', 'later']) {
    const refuse = (exchange: Exchange) => {
      exchange.connection.end()
      answerWith(exchange, 'no', { status: 400, close: true })
    }
    const listening = await startListening(t, (exchange) => {
      if (when === 'at once') refuse(exchange)
    })
    const client = await listening.connect()
    client.send(`${HANDSHAKE}${get('/smuggled')}`)
    await eventually(() => listening.started.length === 1, 'the handshake')
    await turns(20)
    const [exchange] = listening.started
    if (when === 'later' && exchange !== undefined) refuse(exchange)
    t.equal((await client.response()).body.toString(), 'no')
    t.equal(await client.closed(), 'end', when)
    t.equal(client.rest().length, 0)
    t.equal(listening.started.length, 1)
  }
})

t.test('an answer to a handshake is the end of the connection even where it does not say so', async (t) => {
  const listening = await startListening(t, () => {})
  const client = await listening.connect()
  client.send(`${HANDSHAKE}${get('/smuggled')}`)
  await eventually(() => listening.started.length === 1, 'the handshake')
  const [exchange] = listening.started
  if (exchange !== undefined) echo(exchange)
  t.equal((await client.response()).body.toString(), '/ws')
  await client.closed()
  t.equal(listening.started.length, 1)
})

t.test('nothing is read behind a request that was not admitted', async (t) => {
  const listening = await startListening(t, echo)
  const client = await listening.connect()
  client.send(
    `PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n${get('/')}`,
  )
  t.equal((await client.response()).headers['connection'], 'close')
  t.equal(await client.closed(), 'end')
  t.equal(listening.started.length, 1)
})

t.test(
  'a fault of whoever handles a request ends its connection, and is not taken for one of the client',
  async (t) => {
    const fault = new Error('ours')
    const listening = await startListening(t, (exchange) => {
      if (exchange.req.url === '/fault') throw fault
      echo(exchange)
    })
    const client = await listening.connect()
    client.send(get('/'))
    await client.response()
    client.send(get('/fault'))
    await client.closed()
    t.same([listening.faults, listening.refused], [[fault], []])
    const other = await listening.connect()
    other.send(get('/'))
    t.equal((await other.response()).status, 200, 'and costs nobody else anything')
  },
)

t.test('a request whose connection is destroyed while it is handled is over once', async (t) => {
  const listening = await startListening(t, (exchange) => {
    exchange.connection.socket.destroy()
    echo(exchange)
  })
  const client = await listening.connect()
  client.send(get('/1') + get('/2') + put('/3', 4))
  await client.closed()
  await eventually(() => listening.listener.connections === 0, 'the close')
  t.same(
    listening.over.map(({ exchange, finished }) => [exchange.req.url, finished]),
    [['/1', false]],
  )
})

t.test('an answer that could not be handed over is not finished', async (t) => {
  const listening = await startListening(t, (exchange) => answerWith(exchange, 'x'.repeat(20_000_000)))
  const client = await listening.connect()
  client.socket.pause()
  client.send(get('/'))
  await eventually(() => listening.started.length === 1, 'the request')
  await turns()
  t.equal(listening.over.length, 0)
  client.socket.resetAndDestroy()
  await eventually(() => listening.over.length === 1, 'the end')
  t.equal(listening.over[0]?.finished, false)
  t.equal(listening.started[0]?.res.sent, false)
})

t.test('an answer to a client that reads slowly is finished when it has been handed over', async (t) => {
  const listening = await startListening(t, (exchange) => answerWith(exchange, 'x'.repeat(20_000_000)), two)
  const client = await listening.connect()
  client.socket.pause()
  client.send(get('/').repeat(3))
  await eventually(() => listening.started.length === 2, 'two requests')
  t.equal(listening.over.length, 0)
  client.socket.resume()
  for (let at = 0; at < 3; at++) t.equal((await client.response()).body.length, 20_000_000)
  await eventually(() => listening.over.length === 3, 'the end of all')
  t.ok(listening.over.every(({ finished }) => finished))
})

/** Bytes that look different everywhere. */
function noise(length: number): Buffer {
  const bytes = Buffer.alloc(length)
  for (let at = 0; at + 4 <= length; at += 4) bytes.writeUInt32LE(Math.imul(at + 1, 2654435761) >>> 0, at)
  return bytes
}

const UPLOAD = noise(20 * 2 ** 20)

/** Takes an upload slowly, holding what it is given; says in the answer what it was. */
function slowly(exchange: Exchange) {
  const { req } = exchange
  const hash = createHash('sha256')
  const held: { chunk: Buffer; release: () => void }[] = []
  let bytes = 0
  req.giveTo({
    onRequestBody(chunk) {
      held.push({ chunk, release: req.hold() })
      if (held.length === 1) setImmediate(look)
      if (held.length > 3) req.pause()
    },
    onRequestEnd() {
      look()
      answerWith(exchange, `${bytes} ${hash.digest('hex')}`)
    },
  })
  /** What was told a while ago must still be what it was. */
  function look() {
    for (const { chunk, release } of held.splice(0)) {
      bytes += chunk.length
      hash.update(chunk)
      release()
    }
    req.resume()
  }
}

async function uploads(t: Test, listening: Listening, client: RawClient) {
  const sum = `${UPLOAD.length} ${createHash('sha256').update(UPLOAD).digest('hex')}`
  client.send(put('/', UPLOAD.length))
  client.send(UPLOAD)
  t.equal((await client.response()).body.toString(), sum, 'of known length')
  client.send(CHUNKED)
  for (let at = 0, size = 1; at < UPLOAD.length; at += size, size = (size * 7) % 99_991) {
    const piece = UPLOAD.subarray(at, at + size)
    client.send(`${piece.length.toString(16)}\r\n`)
    client.send(piece)
    client.send('\r\n')
  }
  client.send(`0\r\n\r\n`)
  t.equal((await client.response()).body.toString(), sum, 'in chunks')
  await eventually(() => listening.over.length === 2, 'the end of both')
}

t.test('an upload is taken byte for byte at the pace of a taker that holds what it is given', async (t) => {
  const listening = await startListening(t, slowly)
  await uploads(t, listening, await listening.connect())
})

t.test('so is one over TLS', async (t) => {
  const { cert, key } = makeCertificate({ commonName: 'localhost' })
  const certificates = { cert: Buffer.from(cert), key: Buffer.from(key) }
  const listening = await startListening(t, slowly, { certificates })
  await uploads(t, listening, await rawTlsClient(t, listening.port, { rejectUnauthorized: false }))
})

t.test('uploads on several connections at a time do not write over each other', async (t) => {
  const listening = await startListening(t, slowly)
  await Promise.all(
    [1, 2, 3, 4].map(async (seed) => {
      const body = noise(2 ** 21 + seed).subarray(seed)
      const client = await listening.connect()
      client.send(put('/', body.length))
      for (let at = 0; at < body.length; at += 50_000) {
        client.send(body.subarray(at, at + 50_000))
        await turns(1)
      }
      const sum = createHash('sha256').update(body).digest('hex')
      t.equal((await client.response()).body.toString(), `${body.length} ${sum}`)
    }),
  )
})

t.test(
  'of an upload that nobody wants yet no more is read than came with it, and none is lost',
  async (t) => {
    const { cert, key } = makeCertificate({ commonName: 'localhost' })
    for (const certificates of [undefined, { cert: Buffer.from(cert), key: Buffer.from(key) }]) {
      const listening = await startListening(t, () => {}, { certificates })
      const client = certificates
        ? await rawTlsClient(t, listening.port, { rejectUnauthorized: false })
        : await listening.connect()
      client.send(put('/', UPLOAD.length))
      client.send(UPLOAD)
      await eventually(() => listening.started.length === 1, 'the request')
      await turns(200)
      const { socket } = connectionOf(listening)
      t.ok(socket.isPaused())
      t.ok(socket.bytesRead <= 512 * 1024, `${socket.bytesRead} bytes were read`)
      const [exchange] = listening.started
      if (exchange !== undefined) slowly(exchange)
      const sum = createHash('sha256').update(UPLOAD).digest('hex')
      t.equal((await client.response()).body.toString(), `${UPLOAD.length} ${sum}`)
    }
  },
)

t.test('requests and their ends are the same over TLS', async (t) => {
  const { cert, key } = makeCertificate({ commonName: 'localhost' })
  const certificates = { cert: Buffer.from(cert), key: Buffer.from(key) }
  const deadlines = setDeadlines(t)
  const listening = await startListening(t, echo, { certificates, deadlines, ...two })
  const connect = () => rawTlsClient(t, listening.port, { rejectUnauthorized: false })
  const silent = await connect()
  await eventually(() => deadlines.waiting.size === 1, 'the connection')
  deadlines.advance(10_000)
  t.equal((await silent.response()).status, 408)
  t.equal(await silent.closed(), 'end')
  const many = await connect()
  many.send(Array.from({ length: 1000 }, (_, at) => get(`/${at}`)).join(''))
  for (let at = 0; at < 1000; at++) {
    const body = (await many.response()).body.toString()
    if (body !== `/${at}`) t.fail(`${body} instead of /${at}`)
  }
  many.send('BAD\r\n\r\n')
  t.equal((await many.response()).status, 400)
  t.equal(await many.closed(), 'end')
  const last = await connect()
  last.send('GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n')
  t.equal((await last.response()).headers['connection'], 'close')
  t.equal(await last.closed(), 'end')
  const ending = await connect()
  ending.send('GET / HT')
  ending.socket.end()
  t.equal((await ending.response()).status, 400)
})
