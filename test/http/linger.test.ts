import { type AddressInfo, createServer, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { LINGER_BYTES, LINGER_MS, lingerThenClose } from '../../src/http/linger.ts'
import { eventually } from '../support/eventually.ts'
import { rawClient } from '../support/raw-client.ts'

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

/** Writes a last answer, and closes. */
function writeLastAndLinger(socket: Socket, last: string): void {
  socket.write(last, 'latin1')
  lingerThenClose(socket)
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
