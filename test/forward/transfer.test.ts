import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import t, { type Test } from 'tap'
import { upstreamRequestHead } from '../../src/forward/towards-upstream.ts'
import { Transfer, type TransferContext } from '../../src/forward/transfer.ts'
import type { Connect } from '../../src/forward/upstream-address.ts'
import type { UpstreamOutcome } from '../../src/forward/upstream-fault.ts'
import { UpstreamPool } from '../../src/forward/upstream-pool.ts'
import { admit } from '../../src/gate/admission.ts'
import type { Exchange } from '../../src/http/exchange.ts'
import { LINGER_BYTES } from '../../src/http/linger.ts'
import { createListener } from '../../src/http/listener.ts'
import { createPeers } from '../../src/http/peer.ts'
import { createResponder } from '../../src/http/respond.ts'
import { eventually } from '../support/eventually.ts'
import { isOwnAnswer } from '../support/own-answer.ts'
import { rawClient } from '../support/raw-client.ts'
import { OK, recordingUpstream, type UpstreamHooks } from '../support/recording-upstream.ts'
import { setDeadlines } from '../support/set-deadlines.ts'
import { connectTo } from './fake-user.ts'

const LIMITS = { headerBytes: 16_384, headerLines: 200, connections: 100, inFlightPerConnection: 16 }
const RESPONSE_MS = 60_000
const IDLE_MS = 20_000

/** What a test may want otherwise. */
interface Wanted {
  readonly hooks?: UpstreamHooks
  readonly maxConnections?: number
  readonly connect?: Connect
  readonly sendQueue?: TransferContext['sendQueue']
  readonly isClosing?: () => boolean
}

/** Listener, transfers and pool on a set clock: nothing ends unless the test lets time pass. */
async function transferring(t: Test, wanted: Wanted = {}) {
  const upstream = await recordingUpstream(t, wanted.hooks)
  const deadlines = setDeadlines(t)
  const isClosing = wanted.isClosing ?? (() => false)
  const responder = createResponder({ isClosing, deadlines, idleMs: IDLE_MS })
  const outcomes: UpstreamOutcome[] = []
  const firstBytes: number[] = []
  const exchanges: Exchange[] = []
  const over: boolean[] = []
  const pool = new UpstreamPool({
    connect: wanted.connect ?? connectTo(upstream.port),
    readyEvent: 'connect',
    deadlines,
    connectMs: 3000,
    limits: LIMITS,
    maxConnections: wanted.maxConnections ?? 8,
    maxQueue: 8,
  })
  const context: TransferContext = {
    pool,
    deadlines,
    idleMs: IDLE_MS,
    responseMs: RESPONSE_MS,
    isClosing,
    refuse: (exchange, error, outcome, close) => responder.refuse(exchange, error, { error: outcome }, close),
    sendQueue: wanted.sendQueue ?? (() => Promise.resolve(undefined)),
    onOutcome: (outcome) => void outcomes.push(outcome),
    onFirstByte: (ms) => void firstBytes.push(ms),
  }
  const peerOf = createPeers([])
  const listener = createListener({
    host: '127.0.0.1',
    port: 0,
    limits: LIMITS,
    upgrade: false,
    timeouts: { headersSeconds: 10, keepAliveSeconds: 75 },
    peerOf,
    monotonicNow: deadlines.monotonicNow,
    handle: (exchange) => {
      exchanges.push(exchange)
      const admission = admit(exchange.req, LIMITS)
      if (!admission.ok) throw new Error('not admitted')
      exchange.admitted = admission.request
      exchange.requestId = 'id'
      const head = upstreamRequestHead({
        request: admission.request,
        rawHeaders: exchange.req.rawHeaders,
        identity: undefined,
        requestId: 'id',
        peer: exchange.connection.peer,
        forwardAuthorization: false,
        upgradeTo: undefined,
        upstreamHost: 'upstream',
      })
      new Transfer(exchange, head, admission.request, context).start()
    },
    onOver: (_exchange, finished) => void over.push(finished),
    onRefused: () => {},
    onFault: () => {},
  })
  const { port } = await listener.listen()
  t.teardown(async () => {
    const closed = listener.close()
    listener.cut()
    await closed
  })
  return {
    upstream,
    deadlines,
    pool,
    outcomes,
    firstBytes,
    exchanges,
    over,
    client: () => rawClient(t, port),
    /** Sends a request and waits until the upstream has something of it. */
    async asks(text: string) {
      const client = await rawClient(t, port)
      const connections = upstream.sockets.length
      client.send(text)
      await upstream.until(() => upstream.sockets.length > connections, 'a connection')
      await upstream.until(() => upstream.sockets.at(-1)?.bytesRead !== 0, 'the request')
      return client
    },
    /** Fails unless nothing waits but unused connections. */
    async isQuiet(unused: number) {
      await eventually(
        () => deadlines.waiting.size === unused && pool.connections === unused,
        `${unused} unused connections alone`,
      )
      t.equal(pool.queued, 0)
    },
  }
}

/** A connection that is there at once, and takes what is written when it is told to. */
class Stuck extends Duplex {
  /** Everything it was given. */
  taken = ''
  release = (): void => {}
  constructor() {
    super({ highWaterMark: 16_384 }) // Node's default differs between versions
  }
  setNoDelay(): this {
    return this
  }
  override _read(): void {}
  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.taken += chunk.toString('latin1')
    this.release = done
  }
  readonly connect = (): Socket => {
    process.nextTick(() => this.emit('connect'))
    return this as unknown as Socket
  }
}

const GET = 'GET /a HTTP/1.1\r\nHost: a\r\n\r\n'
const PUT = 'PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n'
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
  t.same(over, [true, true])
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
    t.same(over, [false])
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
    t.equal(exchanges[0]?.req.isPaused(), true)
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
    exchanges[0]?.res.socket?.cork() // as if the client took nothing for a while
    for (const [at, letter] of letters.entries()) {
      socket.write(letter.repeat(3000))
      await eventually(() => exchanges[0]?.bytesOut === (at + 1) * 3000, 'each piece')
    }
    exchanges[0]?.res.socket?.uncork()
  })
  const client = await asks(GET)
  const { body } = await client.response()
  t.equal(String(body), letters.map((letter) => letter.repeat(3000)).join(''))
})

t.test('what is left of a body when its upstream fails is sent to nobody', async (t) => {
  const stuck = new Stuck()
  const { client, exchanges, outcomes, isQuiet } = await transferring(t, { connect: stuck.connect })
  const one = await client()
  one.send('PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n')
  one.send(Buffer.alloc(40_000))
  await eventually(() => exchanges[0]?.req.isPaused() === true, 'the upstream to be full')
  one.send(Buffer.alloc(10_000))
  await eventually(() => exchanges[0]?.req.complete === true, 'the body to be read')
  const taken = stuck.taken.length
  stuck.destroy()
  isOwnAnswer(t, await one.response(), unavailable('connection_terminated'))
  one.socket.end()
  await one.closed()
  t.equal(stuck.taken.length, taken)
  t.same(outcomes, ['connection_terminated'])
  await isQuiet(0)
})

t.test('an upload that is answered while it is held back is read on for a while', async (t) => {
  // So that a client which sends first and reads then can read the answer.
  const { upstream, client, exchanges, outcomes, isQuiet } = await transferring(t, {
    hooks: { read: false, onConnection: (socket) => void socket.pause() },
  })
  const size = 64_000_000
  const one = await client()
  one.send(`PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`)
  one.send(Buffer.alloc(size))
  await eventually(() => exchanges[0]?.req.isPaused() === true, 'the upstream to be full')
  upstream.sockets[0]?.write('HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig')
  t.equal((await one.response()).status, 413)
  const [exchange] = exchanges
  await eventually(() => exchange?.req.socket.destroyed === true, 'the connection to be closed')
  t.same(outcomes, ['ok'])
  t.ok((exchange?.req.socket.bytesRead ?? 0) - (exchange?.bytesIn ?? 0) > LINGER_BYTES)
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
      await eventually(() => exchanges[0]?.res.writableNeedDrain === true, 'the client to be full')
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
      await eventually(() => exchanges[0]?.req.isPaused() === true, 'the upstream to be full')
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
    await eventually(() => exchanges[0]?.res.writableNeedDrain === true, 'the client to be full')
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
    await eventually(() => exchanges[0]?.res.writableNeedDrain === true, 'the client to be full')
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
  await eventually(() => over.length === 1, 'the exchange to be over')
  t.same(outcomes, ['client_aborted'])
  t.same(over, [false])
  t.equal(exchanges[0]?.reason, 'client_aborted')
  await isQuiet(0)
})
