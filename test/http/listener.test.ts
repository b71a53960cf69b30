import t from 'tap'
import { createDeadlines } from '../../src/http/deadlines.ts'
import type { Exchange } from '../../src/http/exchange.ts'
import { createListener } from '../../src/http/listener.ts'
import { createPeers } from '../../src/http/peer.ts'
import { eventually } from '../support/eventually.ts'
import { answerWith, LIMITS, startListening } from '../support/listening.ts'
import { isOwnAnswer } from '../support/own-answer.ts'
import { setDeadlines } from '../support/set-deadlines.ts'

const GET = 'GET / HTTP/1.1\r\nHost: h\r\n\r\n'
const ok = (exchange: Exchange) => answerWith(exchange, 'ok')

t.test('a port that is taken is said to whoever wants to listen', async (t) => {
  const first = await startListening(t, () => {})
  const deadlines = createDeadlines()
  t.teardown(deadlines.stop)
  const second = createListener({
    host: '127.0.0.1',
    port: first.port,
    limits: LIMITS,
    timeouts: { headersSeconds: 1, keepAliveSeconds: 1 },
    peerOf: createPeers([]),
    deadlines,
    handle: () => {},
    onOver: () => {},
    onRefused: () => {},
    onFault: () => {},
  })
  await t.rejects(second.listen(), { code: 'EADDRINUSE' })
})

t.test('connections beyond the limit are closed at once, and counted', async (t) => {
  const limits = { ...LIMITS, connections: 1 }
  const { listener, connect, faults } = await startListening(t, ok, { limits })
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
  for (const exchange of started) ok(exchange)
  t.equal((await busy.response()).body.toString(), 'ok')
  await eventually(() => listener.inFlight === 0, 'the end of the request')
  listener.closeUnused()
  await closing
  t.equal(await busy.closed(), 'end')
})

t.test('a connection is unused when it has answered, or has said nothing for a while', async (t) => {
  const deadlines = setDeadlines(t)
  const { listener, connect, started } = await startListening(
    t,
    (exchange) => {
      if (exchange.req.url === '/') ok(exchange)
    },
    { deadlines },
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
  deadlines.advance(999)
  listener.closeUnused()
  t.equal(listener.connections, 2, 'its first request may be on its way')
  deadlines.advance(1)
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
  ] as const) {
    const client = await connect()
    client.send(bytes)
    isOwnAnswer(t, await client.response(), { status, code: 'InvalidArgument' }, bytes.slice(0, 20))
    t.equal(await client.closed(), 'end')
  }
  t.same(refused, [400, 431, 408])
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
