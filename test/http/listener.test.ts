import t from 'tap'
import { createListener } from '../../src/http/listener.ts'
import { createPeers } from '../../src/http/peer.ts'
import { eventually } from '../support/eventually.ts'
import { startListening } from '../support/listening.ts'
import { isOwnAnswer } from '../support/own-answer.ts'

const GET = 'GET / HTTP/1.1\r\nHost: h\r\n\r\n'
const HANDSHAKE =
  'GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n'

t.test('a port that is taken is said to whoever wants to listen', async (t) => {
  const first = await startListening(t, () => {})
  const second = createListener({
    host: '127.0.0.1',
    port: first.port,
    limits: { headerBytes: 1, connections: 1, inFlightPerConnection: 1 },
    upgrade: false,
    timeouts: { headersSeconds: 1, keepAliveSeconds: 1 },
    peerOf: createPeers([]),
    monotonicNow: () => 0,
    handle: () => {},
    onOver: () => {},
    onRefused: () => {},
    onFault: () => {},
  })
  await t.rejects(second.listen(), { code: 'EADDRINUSE' })
})

t.test('connections beyond the limit are closed at once, and counted', async (t) => {
  const limits = { headerBytes: 16_384, connections: 1, inFlightPerConnection: 16 }
  const { listener, connect, faults } = await startListening(t, ({ res }) => void res.end('ok'), { limits })
  const first = await connect()
  first.send(GET)
  t.equal((await first.response()).status, 200)
  t.equal(listener.connections, 1)
  const second = await connect().catch(() => undefined)
  if (second !== undefined) {
    await second.closed()
    t.equal(second.received().length, 0)
  }
  await eventually(() => listener.droppedConnections === 1, 'the count')
  first.send(GET)
  t.equal((await first.response()).status, 200)
  t.same(faults, [])
})

t.test('closing lets requests finish, and is over when the last connection is', async (t) => {
  const { listener, connect, started, over } = await startListening(t, () => {})
  const busy = await connect()
  busy.send(GET)
  await eventually(() => started.length === 1, 'the request')
  let closed = false
  const closing = listener.close().then(() => {
    closed = true
    t.equal(over.length, 1, 'the request was over before')
  })
  await t.rejects(connect(), { code: 'ECONNREFUSED' })
  listener.closeUnused()
  t.equal(closed, false)
  t.equal(listener.inFlight, 1)
  started[0]?.res.end('ok')
  t.equal((await busy.response()).body.toString(), 'ok')
  await eventually(() => listener.inFlight === 0, 'the end of the request')
  listener.closeUnused()
  await closing
  t.equal(await busy.closed(), 'end')
})

t.test('a connection is unused when it has answered, or has said nothing for a while', async (t) => {
  let now = 0
  const { listener, connect, started } = await startListening(
    t,
    ({ req, res }) => void (req.url === '/' && res.end('ok')),
    { monotonicNow: () => now },
  )
  const silent = await connect()
  const used = await connect()
  used.send(GET)
  await used.response()
  const busy = await connect()
  busy.send('GET /busy HTTP/1.1\r\nHost: h\r\n\r\n')
  await eventually(() => started.length === 2, 'the busy one')
  listener.closeUnused()
  t.equal(await used.closed(), 'end')
  await eventually(() => listener.connections === 2, 'one less')
  now = 999
  listener.closeUnused()
  t.equal(listener.connections, 2, 'its first request may be on its way')
  now = 1000
  listener.closeUnused()
  await silent.closed()
  await eventually(() => listener.connections === 1, 'the busy one alone')
})

t.test('cutting destroys every connection and tells how many requests that cost', async (t) => {
  const { listener, connect, started, over } = await startListening(t, () => {})
  const clients = await Promise.all([connect(), connect(), connect()])
  for (const client of clients.slice(0, 2)) client.send(GET + GET)
  await eventually(() => started.length === 4, 'the requests')
  t.equal(listener.cut(), 4)
  for (const client of clients) await client.closed()
  await eventually(() => listener.connections === 0, 'the end of all')
  t.same(
    over.map(({ finished }) => finished),
    [false, false, false, false],
  )
  t.equal(listener.cut(), 0)
})

t.test('what the parser refuses is answered and told', async (t) => {
  const timeouts = { headersSeconds: 0.1, keepAliveSeconds: 75 }
  const { connect, refused } = await startListening(t, () => {}, { timeouts })
  for (const [bytes, status] of [
    ['BAD\r\n\r\n', 400],
    [`GET / HTTP/1.1\r\nX: ${'x'.repeat(40_000)}`, 431],
    ['GET / HTTP/1.1\r\n', 408],
    ['CONNECT h:1 HTTP/1.1\r\n\r\n', 400],
  ] as const) {
    const client = await connect()
    client.send(bytes)
    isOwnAnswer(t, await client.response(), { status, code: 'InvalidArgument' }, bytes.slice(0, 20))
    t.equal(await client.closed(), 'end')
  }
  t.same(refused, [400, 431, 408, 400])
})

t.test('a client that has ended its way cannot be told anything, and is not', async (t) => {
  const { listener, connect, started, refused } = await startListening(t, () => {})
  const gone = await connect()
  gone.send(GET)
  await eventually(() => started.length === 1, 'the request')
  gone.socket.end()
  t.equal(await gone.closed(), 'end')
  gone.socket.destroy()
  await eventually(() => listener.connections === 0, 'the end')
  t.same(refused, [])
})

t.test('bytes behind a request that says it is the last are nobody’s', async (t) => {
  const { connect, started, refused } = await startListening(t, () => {})
  const client = await connect()
  client.send(`GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n${GET}rubbish`)
  await eventually(() => started.length === 1, 'the request')
  client.send('more')
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
  started[0]?.res.end('ok')
  t.equal((await client.response()).body.toString(), 'ok')
  await client.closed()
  t.equal(client.rest().length, 0)
  t.same([started.length, refused.length], [1, 0])
})

t.test('expectations are told apart: to be told to go on, or anything else', async (t) => {
  const { connect, started } = await startListening(t, ({ res }) => void res.end())
  for (const expect of ['100-continue', '100-Continue', 'miracles']) {
    const client = await connect()
    client.send(`GET / HTTP/1.1\r\nHost: h\r\nExpect: ${expect}\r\n\r\n`)
    t.equal((await client.response()).status, 200)
  }
  t.same(
    started.map(({ expectsContinue }) => expectsContinue),
    [true, true, false],
  )
})

t.test('without upgrades a handshake is a request like any other', async (t) => {
  const { connect, started } = await startListening(t, ({ res }) => void res.end('plain'))
  const client = await connect()
  client.send(HANDSHAKE)
  t.equal((await client.response()).body.toString(), 'plain')
  t.equal(started[0]?.upgradeHead, undefined)
})

t.test(
  'with upgrades a handshake brings what was sent behind it, and its answer ends the connection',
  async (t) => {
    const { connect, started, listener } = await startListening(t, ({ res }) => void res.end('no'), {
      upgrade: true,
    })
    const client = await connect()
    client.send(`${HANDSHAKE}early`)
    const response = await client.response()
    t.same([response.body.toString(), response.headers['connection']], ['no', 'close'])
    t.equal(await client.closed(), 'end')
    t.equal(started[0]?.upgradeHead?.toString(), 'early')
    client.socket.resetAndDestroy()
    await eventually(() => listener.connections === 0, 'the end')
  },
)

t.test('a handshake behind requests that are not answered is refused when they are', async (t) => {
  const { connect, started, refused } = await startListening(t, () => {}, { upgrade: true })
  const client = await connect()
  client.send(GET + HANDSHAKE)
  await eventually(() => refused.length === 1, 'the refusal')
  started[0]?.res.end('first')
  t.equal((await client.response()).body.toString(), 'first')
  isOwnAnswer(t, await client.response(), { status: 400, code: 'InvalidArgument' }, 'the handshake')
  t.equal(await client.closed(), 'end')
  t.equal(started.length, 1)
})

t.test('a tunnel is no request in flight, and is closed when tunnels are', async (t) => {
  const { connect, listener, over, started } = await startListening(
    t,
    (exchange) => {
      exchange.res.detachSocket(exchange.connection.socket)
      exchange.switched = true
      exchange.connection.socket.write('tunnel')
    },
    { upgrade: true },
  )
  const client = await connect()
  const other = await connect()
  client.send(HANDSHAKE)
  await client.until('tunnel')
  t.equal(listener.inFlight, 0)
  client.socket.end()
  const { socket } = started[0]?.connection ?? {}
  socket?.resume()
  await eventually(() => socket?.readableEnded === true, 'the end of its way')
  socket?.write('half open')
  await client.until('half open')
  t.equal(over.length, 0, 'in a tunnel the other way goes on')
  listener.closeTunnels()
  await client.closed()
  await eventually(() => listener.connections === 1, 'the other one alone')
  t.equal(other.received().length, 0)
  t.equal(over.length, 1)
})

t.test('a client that leaves before its handshake is answered is let go', async (t) => {
  const { connect, listener, started, over } = await startListening(t, () => {}, { upgrade: true })
  const client = await connect()
  client.send(HANDSHAKE)
  await eventually(() => started.length === 1, 'the handshake')
  started[0]?.connection.socket.resume()
  client.socket.end()
  t.equal(await client.closed(), 'end')
  client.socket.destroy()
  await eventually(() => listener.connections === 0, 'the end')
  t.same(
    over.map(({ finished }) => finished),
    [false],
  )
})

t.test('a connection that fails of itself is gone, whatever it failed of', async (t) => {
  const { connect, listener, started, over, refused } = await startListening(t, () => {})
  for (const fault of [Object.assign(new Error('timed out'), { code: 'ETIMEDOUT' }), new Error('anything')]) {
    const client = await connect()
    const { length } = started
    client.send(GET)
    await eventually(() => started.length > length, 'the request')
    started.at(-1)?.connection.socket.destroy(fault)
    await client.closed()
    await eventually(() => listener.connections === 0, 'the end')
  }
  t.same(
    over.map(({ finished }) => finished),
    [false, false],
  )
  t.same(refused, [])
})
