import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { startListening } from '../support/listening.ts'

const get = (target: string) => `GET ${target} HTTP/1.1\r\nHost: h\r\n\r\n`

const two = { limits: { headerBytes: 16_384, connections: 100, inFlightPerConnection: 2 } }

t.test('a connection has its share of requests under way; the rest follow in order', async (t) => {
  const listening = await startListening(t, () => {}, two)
  const client = await listening.connect()
  client.send(['/1', '/2', '/3', '/4', '/5'].map(get).join(''))
  const urls = () => listening.started.map(({ req }) => req.url)
  await eventually(() => listening.started.length === 2, 'two requests')
  t.equal(listening.listener.inFlight, 2)
  // The second is answered first: it waits for its turn, and nothing else is started for it.
  listening.started[1]?.res.end('second')
  t.same(urls(), ['/1', '/2'])
  listening.started[0]?.res.end('first')
  t.equal((await client.response()).body.toString(), 'first')
  t.equal((await client.response()).body.toString(), 'second')
  await eventually(() => listening.started.length === 4, 'the next two')
  listening.started[3]?.res.end('fourth')
  listening.started[2]?.res.end('third')
  await eventually(() => listening.started.length === 5, 'the last one')
  listening.started[4]?.res.end('fifth')
  for (const body of ['third', 'fourth', 'fifth']) t.equal((await client.response()).body.toString(), body)
  t.same(urls(), ['/1', '/2', '/3', '/4', '/5'])
  t.equal(listening.listener.inFlight, 0)
  client.send(get('/6'))
  await eventually(() => listening.started.length === 6, 'a request on the kept connection')
})

t.test('while requests are held no more are read, however many a client sends', async (t) => {
  const listening = await startListening(t, () => {}, two)
  const client = await listening.connect()
  client.send(get('/').repeat(200_000))
  await eventually(() => listening.started.length === 2, 'two requests')
  const { socket } = listening.started[0]?.connection ?? {}
  for (let turn = 0; turn < 200; turn++) await new Promise((resolve) => setImmediate(resolve))
  t.ok(socket !== undefined && socket.bytesRead <= 256 * 1024, `${socket?.bytesRead} bytes were read`)
  t.equal(listening.started.length, 2)
})

t.test(
  'a client that leaves ends every request of its own, and those that were held are never made',
  async (t) => {
    const listening = await startListening(t, () => {}, two)
    const client = await listening.connect()
    client.send(['/1', '/2', '/3'].map(get).join(''))
    await eventually(() => listening.started.length === 2, 'two requests')
    // It cannot be seen to leave while nothing is read: the write of an answer tells.
    client.socket.resetAndDestroy()
    listening.started[0]?.res.end('first')
    await eventually(() => listening.listener.connections === 0, 'the end of the connection')
    t.ok(listening.over.length >= 2)
    t.equal(listening.listener.inFlight, 0)
  },
)

t.test('a response that was told twice to be finished is over once', async (t) => {
  const listening = await startListening(t, ({ res }) => void res.end())
  const client = await listening.connect()
  client.send(get('/'))
  await client.response()
  const [exchange] = listening.started
  exchange?.connection.responseSent(exchange)
  t.equal(listening.over.length, 1)
})

t.test('a response that ends the connection ends what was to come behind it', async (t) => {
  const listening = await startListening(t, () => {}, two)
  const client = await listening.connect()
  client.send(['/1', '/2', '/3'].map(get).join(''))
  await eventually(() => listening.started.length === 2, 'two requests')
  const [first, second] = listening.started
  second?.connection.end()
  second?.res.writeHead(200, ['Connection', 'close', 'Content-Length', '0']).end()
  first?.res.end('first')
  t.equal((await client.response()).body.toString(), 'first')
  t.equal((await client.response()).status, 200)
  t.equal(await client.closed(), 'end')
  t.equal(listening.started.length, 2)
})

t.test('behind a request that was the last nothing is read', async (t) => {
  const listening = await startListening(t, ({ connection }) => connection.end())
  const client = await listening.connect()
  client.send(get('/').repeat(200_000))
  await eventually(() => listening.started.length === 1, 'the request')
  const { socket } = listening.started[0]?.connection ?? {}
  for (let turn = 0; turn < 200; turn++) await new Promise((resolve) => setImmediate(resolve))
  t.ok(socket !== undefined && socket.bytesRead <= 256 * 1024, `${socket?.bytesRead} bytes were read`)
  t.equal(listening.started.length, 1)
})

t.test('what is no request is answered once everything before it has been', async (t) => {
  const listening = await startListening(t, () => {}, two)
  const client = await listening.connect()
  client.send(`${['/1', '/2', '/3'].map(get).join('')}BAD\r\n\r\n`)
  await eventually(() => listening.started.length === 2, 'two requests')
  t.same(listening.refused, [400])
  listening.started[0]?.res.end('first')
  await eventually(() => listening.started.length === 3, 'the third request')
  listening.started[2]?.res.end('third')
  listening.started[1]?.res.end('second')
  for (const body of ['first', 'second', 'third']) t.equal((await client.response()).body.toString(), body)
  t.equal((await client.response()).status, 400)
  t.equal(await client.closed(), 'end')
  client.send('BAD\r\n\r\n')
  t.same(listening.refused, [400], 'refused once')
})
