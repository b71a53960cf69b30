import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { hearLastWords } from '../../src/forward/last-words.ts'

/** Two ends of a connection, ours with last words heard if they are expected; what happens to ours is noted. */
async function ends(t: Test, expected: boolean): Promise<{ ours: Socket; theirs: Socket; noted: string[] }> {
  const server = createServer({ noDelay: true })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => void server.close())
  const accepted = new Promise<Socket>((resolve) => server.once('connection', resolve))
  const noted: string[] = []
  const ours = connect({
    port: (server.address() as AddressInfo).port,
    host: '127.0.0.1',
    onread: {
      buffer: Buffer.alloc(1024),
      callback: (length, bytes) => {
        noted.push(Buffer.from(bytes.buffer, bytes.byteOffset, length).toString())
        return true
      },
    },
  })
  hearLastWords(ours, () => expected)
  for (const event of ['end', 'error', 'close']) ours.on(event, () => void noted.push(event))
  const connected = new Promise<void>((resolve) => void ours.once('connect', () => resolve()))
  const theirs = await accepted
  await connected
  theirs.on('error', () => {})
  t.teardown(() => {
    ours.destroy()
    theirs.destroy()
  })
  return { ours, theirs, noted }
}

const closed = (socket: Socket) => new Promise<void>((resolve) => void socket.once('close', () => resolve()))

t.test('what had arrived before a write failed is read, then the socket is closed', async (t) => {
  const { ours, theirs, noted } = await ends(t, true)
  theirs.write('last words')
  theirs.resetAndDestroy()
  ours.write('too late')
  await closed(ours)
  t.same(noted, ['last words', 'error', 'close'])
})

t.test('what nobody expects is not read', async (t) => {
  const { ours, theirs, noted } = await ends(t, false)
  theirs.write('no answer')
  theirs.resetAndDestroy()
  ours.write('too late')
  await closed(ours)
  t.same(noted, ['error', 'close'])
})

t.test('a socket that is closed for another reason is closed at once', async (t) => {
  for (const error of [
    undefined,
    new Error('another'),
    Object.assign(new Error('of a read'), { syscall: 'read', code: 'ECONNRESET' }),
    Object.assign(new Error('of another kind'), { syscall: 'write', code: 'EINVAL' }),
  ]) {
    const { ours } = await ends(t, true)
    ours.destroy(error)
    t.ok(ours.destroyed)
  }
})
