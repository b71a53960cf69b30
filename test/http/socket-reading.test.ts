import { createHash } from 'node:crypto'
import { type AddressInfo, createServer } from 'node:net'
import t, { type Test } from 'tap'
import {
  readAsStream,
  readDirectly,
  type SocketReader,
  type SocketReading,
} from '../../src/http/socket-reading.ts'
import { READ_BYTES, ReadMemory, WORTH_HOLDING } from '../../src/read-memory.ts'
import { eventually } from '../support/eventually.ts'
import { rawClient } from '../support/raw-client.ts'

/** A reader that keeps what it reads, and says whether it receives a body. */
class Reader implements SocketReader {
  receivesBody = false
  readonly chunks: Buffer[] = []
  readonly wasShared: boolean[] = []
  reading: SocketReading | undefined
  ended = false
  closed = false
  /** Called with each chunk as it lies in memory. */
  onChunk: (chunk: Buffer) => void = () => {}

  onBytes(chunk: Buffer): void {
    this.chunks.push(Buffer.from(chunk))
    this.wasShared.push(this.reading?.isShared === true)
    this.onChunk(chunk)
  }

  get text(): string {
    return Buffer.concat(this.chunks).toString('latin1')
  }
}

/** As many bytes as a read has to bring so that the next one goes to a block of its own. */
const much = (letter: string) => letter.repeat(WORTH_HOLDING)

/** A server whose connections are read as the test says; its connections, and what reads them, in order. */
async function serving(t: Test, how: 'directly' | 'as a stream') {
  const memory = new ReadMemory()
  const shared = memory.take()
  const readers: Reader[] = []
  const direct = how === 'directly'
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: direct }, (accepted) => {
    const reader = new Reader()
    const give = () => reader
    const reading = direct ? readDirectly(accepted, give, shared, memory) : readAsStream(accepted, give)
    reader.reading = reading
    reading.socket.on('error', () => {})
    reading.socket.on('end', () => {
      reader.ended = true
    })
    reading.socket.on('close', () => {
      reader.closed = true
    })
    t.teardown(() => reading.socket.destroy())
    readers.push(reader)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  const connect = async () => {
    const { length } = readers
    const client = await rawClient(t, port)
    await eventually(() => readers.length > length, 'the connection')
    const reader = readers.at(-1)
    if (reader?.reading === undefined) throw new Error('no reader')
    return { client, reader, socket: reader.reading.socket, reading: reader.reading }
  }
  return { connect, memory, shared, server }
}

for (const how of ['directly', 'as a stream'] as const) {
  t.test(`what a client sends is read ${how}, up to its end`, async (t) => {
    const { connect } = await serving(t, how)
    const { client, reader, socket } = await connect()
    client.send('hello ')
    await eventually(() => reader.text === 'hello ', 'the first bytes')
    client.send('world')
    client.socket.end()
    await eventually(() => reader.ended, 'the end')
    t.equal(reader.text, 'hello world')
    t.equal(socket.bytesRead, 11)
    socket.write('still there')
    await client.until('still there')
    socket.end()
    t.equal(await client.closed(), 'end')
    await eventually(() => reader.closed, 'the close')
  })

  t.test(`a socket that is read ${how} can be paused, and loses nothing`, async (t) => {
    const { connect } = await serving(t, how)
    const { client, reader, socket } = await connect()
    const bytes = Buffer.alloc(4 * 2 ** 20, 'abcdefg')
    reader.onChunk = () => {
      socket.pause()
      setImmediate(() => socket.resume())
    }
    client.send(bytes)
    client.socket.end()
    await eventually(() => reader.ended, 'the end')
    t.ok(Buffer.concat(reader.chunks).equals(bytes))
  })

  t.test(`nothing is read ${how} of a socket that is paused, its end included`, async (t) => {
    const { connect } = await serving(t, how)
    const { client, reader, socket } = await connect()
    socket.pause()
    client.send('hello')
    client.socket.end()
    for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve))
    t.same([reader.text, reader.ended], ['', false])
    socket.resume()
    await eventually(() => reader.ended, 'the end')
    t.equal(reader.text, 'hello')
  })

  t.test(`a socket that is read ${how} can be reset`, async (t) => {
    const { connect } = await serving(t, how)
    const { client, reader, socket } = await connect()
    client.send('hello')
    await eventually(() => reader.text === 'hello', 'the bytes')
    socket.resetAndDestroy()
    t.equal(await client.closed(), 'reset')
    const other = await connect()
    other.client.socket.resetAndDestroy()
    await eventually(() => other.reader.closed, 'the close')
  })
}

t.test('a socket that was taken over is known by its addresses, and is none of the server’s', async (t) => {
  const { connect, server } = await serving(t, 'directly')
  const { client, socket } = await connect()
  t.same([socket.remotePort, socket.localPort], [client.socket.localPort, client.socket.remotePort])
  t.equal(socket.remoteAddress, '127.0.0.1')
  const closed = new Promise((resolve) => server.close(resolve))
  await closed
  client.send('x')
  socket.write('y')
  await client.until('y')
})

t.test('what is read as a stream is nobody else’s memory', async (t) => {
  const { connect } = await serving(t, 'as a stream')
  const { client, reader, reading } = await connect()
  client.send('hello')
  await eventually(() => reader.text === 'hello', 'the bytes')
  t.equal(reading.isShared, false)
  t.doesNotThrow(reading.hold())
})

t.test('all connections read into one block, but for those on which much of a body comes', async (t) => {
  const { connect, shared } = await serving(t, 'directly')
  const first = await connect()
  const second = await connect()
  const blocks: ArrayBufferLike[] = []
  for (const { reader } of [first, second]) reader.onChunk = (chunk) => void blocks.push(chunk.buffer)
  first.client.send('one')
  await eventually(() => first.reader.text === 'one', 'the first')
  second.client.send('two')
  await eventually(() => second.reader.text === 'two', 'the second')
  t.ok(blocks.every((block) => block === shared.bytes.buffer))
  t.same([first.reader.wasShared, second.reader.wasShared], [[true], [true]])
  t.doesNotThrow(first.reading.hold(), 'there is nothing to hold')
  // The memory of a read is chosen when the read before is over.
  first.reader.receivesBody = true
  first.client.send(much('h'))
  await eventually(() => first.reader.chunks.length === 2, 'the head')
  first.client.send(much('b'))
  await eventually(() => first.reader.chunks.length === 3, 'the body')
  t.same(first.reader.wasShared, [true, true, false])
  t.not(blocks.at(-1), shared.bytes.buffer)
  first.client.send(much('m'))
  await eventually(() => first.reader.chunks.length === 4, 'more of it')
  t.equal(blocks.at(-1), blocks.at(-2), 'nobody held it: it is read into again')
  first.reader.receivesBody = false
  first.client.send(much('l'))
  await eventually(() => first.reader.chunks.length === 5, 'the last of it')
  first.client.send('head')
  await eventually(() => first.reader.chunks.length === 6, 'the next head')
  t.equal(blocks.at(-1), shared.bytes.buffer)
  t.equal(first.reader.text, `one${much('h')}${much('b')}${much('m')}${much('l')}head`)
})

t.test('a body that drips in is read into the block of all', async (t) => {
  const { connect } = await serving(t, 'directly')
  const { client, reader } = await connect()
  reader.receivesBody = true
  client.send(much('m'))
  await eventually(() => reader.chunks.length === 1, 'much of it')
  for (const letter of ['a', 'b', 'c']) {
    const { length } = reader.chunks
    client.send(letter)
    await eventually(() => reader.chunks.length > length, letter)
  }
  t.same(reader.wasShared, [true, false, true, true])
})

t.test('what is held is not read over, and its memory serves again afterwards', async (t) => {
  const { connect, memory } = await serving(t, 'directly')
  const { client, reader, reading } = await connect()
  reader.receivesBody = true
  client.send(much('h'))
  await eventually(() => reader.text === much('h'), 'the head')
  const held: { readonly chunk: Buffer; readonly release: () => void }[] = []
  reader.onChunk = (chunk) => void held.push({ chunk, release: reading.hold() })
  for (const text of ['one', 'two', 'three']) {
    const { length } = held
    client.send(much(text))
    await eventually(() => held.length > length, text)
  }
  t.same(
    held.map(({ chunk }) => chunk.toString()),
    ['one', 'two', 'three'].map(much),
  )
  const blocks = new Set(held.map(({ chunk }) => chunk.buffer))
  t.equal(blocks.size, 3)
  for (const { release } of held) release()
  t.ok(blocks.has(memory.take().bytes.buffer))
  client.socket.end()
  await eventually(() => reader.ended, 'the end')
  reading.socket.destroy()
  await eventually(() => reader.closed, 'the close')
})

t.test('the memory of a connection that is closed serves others when nobody holds it', async (t) => {
  const { connect, memory } = await serving(t, 'directly')
  const { client, reader, reading, socket } = await connect()
  reader.receivesBody = true
  client.send(much('h'))
  await eventually(() => reader.text === much('h'), 'the head')
  let block: ArrayBufferLike | undefined
  let release = () => {}
  reader.onChunk = (chunk) => {
    block = chunk.buffer
    release = reading.hold()
    socket.destroy() // the next read is prepared all the same
  }
  client.send(much('b'))
  await eventually(() => reader.closed, 'the close')
  const prepared = memory.take()
  t.not(prepared.bytes.buffer, block, 'it is held')
  release()
  t.equal(memory.take().bytes.buffer, block)
})

t.test('a large body through a reader that holds every chunk for a while is what was sent', async (t) => {
  const { connect } = await serving(t, 'directly')
  const { client, reader, reading } = await connect()
  const body = Buffer.alloc(8 * 2 ** 20)
  for (let at = 0; at < body.length; at += 4) body.writeUInt32LE(Math.imul(at, 2654435761) >>> 0, at)
  reader.receivesBody = true
  const hash = createHash('sha256')
  let bytes = 0
  const blocks = new Set<ArrayBufferLike>()
  reader.onChunk = (chunk) => {
    // What lies in the shared memory may only be copied.
    const kept = reading.isShared ? Buffer.from(chunk) : chunk
    if (!reading.isShared) blocks.add(chunk.buffer)
    const release = reading.hold()
    setImmediate(() => {
      bytes += kept.length
      hash.update(kept)
      release()
    })
  }
  client.send(body)
  await eventually(() => bytes === body.length, 'all of it')
  t.equal(hash.digest('hex'), createHash('sha256').update(body).digest('hex'))
  t.ok(blocks.size * READ_BYTES <= body.length / 2, `${blocks.size} blocks served for all of it`)
})
