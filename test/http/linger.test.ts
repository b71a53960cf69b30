import { type AddressInfo, createServer, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { LINGER_BYTES, LINGER_MS, lingerThenClose, writeLastAndLinger } from '../../src/http/linger.ts'
import { createResponder } from '../../src/http/respond.ts'
import { eventually } from '../support/eventually.ts'
import { admitted, startListening } from '../support/listening.ts'
import { rawClient } from '../support/raw-client.ts'
import { setDeadlines } from '../support/set-deadlines.ts'

/** A connection, both ends of it. */
async function connected(t: Test) {
  let take: (socket: Socket) => void = () => {}
  const accepted = new Promise<Socket>((resolve) => {
    take = resolve
  })
  const server = createServer({ allowHalfOpen: true }, (socket) => take(socket))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const client = await rawClient(t, (server.address() as AddressInfo).port)
  const socket = await accepted
  socket.on('error', () => {})
  return { client, socket }
}

t.test('a client that is still sending reads the last answer and the end', async (t) => {
  const { client, socket } = await connected(t)
  client.send('x'.repeat(1000))
  writeLastAndLinger(socket, 'caf\xe9')
  t.equal(await client.closed(), 'end')
  t.equal(client.received().toString('latin1'), 'caf\xe9')
  client.send('y'.repeat(1000))
  client.socket.end()
  const started = performance.now()
  await eventually(() => socket.destroyed, 'the close')
  t.equal(client.socket.errored, null)
  t.ok(performance.now() - started < LINGER_MS / 2, 'a client that ends is not waited for')
})

t.test('a client that never stops is closed on after a moment', async (t) => {
  const { client, socket } = await connected(t)
  writeLastAndLinger(socket, 'last')
  t.equal(await client.closed(), 'end')
  const started = performance.now()
  const drip = setInterval(() => client.send('x'), 10)
  t.teardown(() => clearInterval(drip))
  await eventually(() => socket.destroyed, 'the close')
  t.ok(performance.now() - started > LINGER_MS / 2, 'it had its time')
  t.ok(socket.bytesRead > 10, 'and was read')
})

t.test('a client that sends much is not read for long', async (t) => {
  const { client, socket } = await connected(t)
  let bytes = 0
  socket.on('close', () => {
    bytes = socket.bytesRead
  })
  writeLastAndLinger(socket, 'last')
  client.send(Buffer.alloc(64 * 2 ** 20))
  await eventually(() => bytes > 0, 'the close')
  await client.closed()
  t.equal(client.received().toString(), 'last', 'the answer was there all the same')
  t.ok(bytes > LINGER_BYTES && bytes < 2 * LINGER_BYTES, `${bytes} bytes were read`)
})

t.test('a client that has ended already is closed on as soon as it has everything', async (t) => {
  const { client, socket } = await connected(t)
  socket.resume()
  client.socket.end()
  await eventually(() => socket.readableEnded, 'its end')
  writeLastAndLinger(socket, 'last')
  t.equal(await client.closed(), 'end')
  t.equal(client.received().toString(), 'last')
  await eventually(() => socket.destroyed, 'the close')
})

t.test('whoever listened to the socket before hears nothing more', async (t) => {
  const { client, socket } = await connected(t)
  const heard: Buffer[] = []
  socket.on('data', (chunk) => heard.push(chunk))
  client.send('before')
  await eventually(() => heard.length === 1, 'the data')
  lingerThenClose(socket)
  client.send('after')
  await client.closed()
  client.socket.end()
  await eventually(() => socket.destroyed, 'the close')
  t.equal(Buffer.concat(heard).toString(), 'before')
})

t.test('a refused upload is drained once its answer is out, and not before', async (t) => {
  const deadlines = setDeadlines(t)
  const responder = createResponder({ isClosing: () => false, deadlines, idleMs: 1000 })
  const listening = await startListening(t, (exchange) => {
    admitted(exchange)
    if (exchange.req.method === 'PUT')
      responder.respond(exchange, { status: 400, headers: ['Content-Length', '2'], body: 'no' })
  })
  const client = await listening.connect()
  client.send(
    'GET / HTTP/1.1\r\nHost: h\r\n\r\nPUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\n',
  )
  client.send(Buffer.alloc(9_000_000))
  await eventually(() => listening.started.length === 2, 'both requests')
  for (let turn = 0; turn < 200; turn++) await new Promise((resolve) => setImmediate(resolve))
  const { socket } = listening.started[0]?.connection ?? {}
  t.ok(socket !== undefined && socket.bytesRead < LINGER_BYTES, `${socket?.bytesRead} bytes were read`)
  listening.started[0]?.res.end('first')
  t.equal((await client.response()).body.toString(), 'first')
  t.equal((await client.response()).body.toString(), 'no')
  t.equal(await client.closed(), 'end')
  await eventually(() => listening.listener.connections === 0, 'the close')
  t.same(
    listening.over.map(({ finished }) => finished),
    [true, true],
  )
})
