import { once } from 'node:events'
import { createServer } from 'node:http'
import t from 'tap'
import { createLog, loggable, openLogDestination, type WriteDescriptor } from '../../src/ops/log.ts'
import { eventually } from '../support/eventually.ts'
import { rawClient } from '../support/raw-client.ts'

type Done = Parameters<WriteDescriptor>[3]

/** A descriptor whose writes end when and how the test says. */
function scriptedDescriptor() {
  const writes: { text: string; done: Done }[] = []
  const write: WriteDescriptor = (fd, bytes, offset, done) => {
    if (fd !== 1) throw new Error('standard output is descriptor 1')
    writes.push({ text: bytes.toString('utf8', offset), done })
  }
  return {
    writes,
    write,
    /** Ends the last write, all of it written unless told otherwise. */
    end(written = Buffer.byteLength(writes.at(-1)?.text ?? '')) {
      writes.at(-1)?.done(null, written)
    },
    fail(code: string) {
      writes.at(-1)?.done(Object.assign(new Error(code), { code }), 0)
    },
  }
}

t.test('lines that come while one is being written are written together, in order', async (t) => {
  const descriptor = scriptedDescriptor()
  const destination = openLogDestination({ ...descriptor, gatherMs: 0 })
  destination.write('a\n')
  destination.write('b\n')
  destination.write('ç\n')
  t.strictSame(
    descriptor.writes.map(({ text }) => text),
    ['a\n'],
  )
  descriptor.end()
  t.strictSame(
    descriptor.writes.map(({ text }) => text),
    ['a\n', 'b\nç\n'],
  )
  descriptor.end()
  t.equal(descriptor.writes.length, 2)
  t.equal(destination.dropped, 0)
})

t.test('lines that follow each other closely are gathered, the first is not made to wait', async (t) => {
  const descriptor = scriptedDescriptor()
  const clock = { now: 1000 }
  const timers: { act: () => void; ms: number }[] = []
  t.intercept(globalThis, 'setTimeout', {
    value: (act: () => void, ms: number) => timers.push({ act, ms }),
  })
  const destination = openLogDestination({ ...descriptor, gatherMs: 10, monotonicNow: () => clock.now })
  destination.write('a\n')
  t.equal(descriptor.writes[0]?.text, 'a\n')
  descriptor.end()
  clock.now += 4
  destination.write('b\n')
  destination.write('c\n')
  t.equal(descriptor.writes.length, 1)
  t.same(
    timers.map(({ ms }) => ms),
    [6],
  )
  timers[0]?.act()
  t.equal(descriptor.writes[1]?.text, 'b\nc\n')
  destination.write('d\n')
  descriptor.end()
  t.equal(descriptor.writes.length, 2, 'the one behind a write waits, too')
  clock.now += 10
  timers[1]?.act()
  t.equal(descriptor.writes[2]?.text, 'd\n')
  descriptor.end()
  clock.now += 10
  destination.write('e\n')
  t.equal(descriptor.writes[3]?.text, 'e\n', 'after a while a line is written at once')
})

t.test(
  'with other writers on the descriptor, whole lines go out, no more than a pipe takes in one piece',
  async (t) => {
    const descriptor = scriptedDescriptor()
    const destination = openLogDestination({ ...descriptor, gatherMs: 0 })
    destination.share()
    const lines = ['first', 'ä'.repeat(1500), 'b'.repeat(1000), 'c'.repeat(100), 'd'.repeat(5000), 'e', 'f']
    for (const line of lines) destination.write(`${line}\n`)
    for (let write = 0; write < descriptor.writes.length; write++) descriptor.end()
    t.strictSame(
      descriptor.writes.map(({ text }) => text.split('\n').map((line) => line.length)),
      [
        [5, 0],
        [1500, 1000, 0],
        [100, 0],
        [5000, 0],
        [1, 1, 0],
      ],
    )
    t.equal(descriptor.writes.map(({ text }) => text).join(''), lines.map((line) => `${line}\n`).join(''))
  },
)

t.test('flush does not wait for more lines', async (t) => {
  const descriptor = scriptedDescriptor()
  const destination = openLogDestination({ ...descriptor, gatherMs: 2 ** 30 })
  destination.write('a\n')
  descriptor.end()
  destination.write('b\n')
  t.equal(descriptor.writes.length, 1)
  const flushed = destination.flush()
  t.equal(descriptor.writes[1]?.text, 'b\n')
  destination.write('c\n')
  descriptor.end()
  t.equal(descriptor.writes[2]?.text, 'c\n')
  descriptor.end()
  await flushed
})

t.test('what the system did not take is written next', async (t) => {
  const descriptor = scriptedDescriptor()
  const destination = openLogDestination({ ...descriptor, gatherMs: 0 })
  destination.write('abc\n')
  destination.write('d\n')
  descriptor.end(1)
  t.equal(descriptor.writes.at(-1)?.text, 'bc\n')
  descriptor.end()
  t.equal(descriptor.writes.at(-1)?.text, 'd\n')
})

t.test('a full pipe is tried again, and no line lost', async (t) => {
  const descriptor = scriptedDescriptor()
  const destination = openLogDestination({ ...descriptor, gatherMs: 0 })
  destination.write('a\n')
  descriptor.fail('EAGAIN')
  destination.write('b\n')
  t.equal(descriptor.writes.length, 1, 'not at once: that would be a busy loop')
  await eventually(() => descriptor.writes.length === 2, 'a second try')
  t.equal(descriptor.writes[1]?.text, 'a\n')
  descriptor.end()
  t.equal(descriptor.writes[2]?.text, 'b\n')
  t.equal(destination.dropped, 0)
})

t.test('what waits for a reader is bounded, what is more is dropped and counted', async (t) => {
  const descriptor = scriptedDescriptor()
  const destination = openLogDestination({ ...descriptor, maxWaiting: 6, gatherMs: 0 })
  for (const line of ['a\n', 'b\n', 'c\n', 'd\n', 'e\n', 'f\n']) destination.write(line)
  t.equal(destination.dropped, 2)
  descriptor.end()
  t.equal(descriptor.writes.at(-1)?.text, 'b\nc\nd\n')
  destination.write('g\n')
  t.equal(destination.dropped, 2, 'there is room again')
})

t.test('lines for a reader that is gone are counted, and the next ones tried all the same', async (t) => {
  const descriptor = scriptedDescriptor()
  const destination = openLogDestination({ ...descriptor, gatherMs: 0 })
  destination.write('a\n')
  destination.write('b\n')
  destination.write('c\n')
  descriptor.fail('EPIPE')
  t.equal(destination.dropped, 1)
  descriptor.fail('ENOSPC')
  t.equal(destination.dropped, 3)
  destination.write('d\n')
  t.equal(descriptor.writes.at(-1)?.text, 'd\n', 'the disk may have room again')
})

t.test('flush waits until the last line is written', async (t) => {
  const descriptor = scriptedDescriptor()
  const destination = openLogDestination({ ...descriptor, gatherMs: 0 })
  await destination.flush(0)
  destination.write('a\n')
  destination.write('b\n')
  let flushed = 0
  const flushing = [destination.flush(30_000), destination.flush(30_000)]
  for (const one of flushing) one.then(() => flushed++)
  descriptor.end()
  await new Promise(setImmediate)
  t.equal(flushed, 0, 'one line is still to be written')
  descriptor.end()
  await Promise.all(flushing)
})

t.test('flush does not wait for a reader that never reads', async (t) => {
  const descriptor = scriptedDescriptor()
  const destination = openLogDestination({ ...descriptor, gatherMs: 0 })
  destination.write('a\n')
  await destination.flush(1)
  t.equal(descriptor.writes.length, 1)
})

t.test('of an error only its name, code, message and stack are logged', async (t) => {
  const lines: string[] = []
  const log = createLog('info', { write: (line) => void lines.push(line) })
  // What Node makes of a request that it cannot parse carries the raw bytes.
  const server = createServer().listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  const address = server.address()
  const client = await rawClient(t, typeof address === 'object' ? (address?.port ?? 0) : 0)
  client.send('GET / HTTP/1.1\r\nAuthorization: Bearer canary\r\nbad header\r\n\r\n')
  const [error] = await once(server, 'clientError')
  client.socket.destroy()
  t.ok(error.rawPacket.includes('canary'), 'the danger is real')
  log.error({ err: error }, 'fault')
  log.error({ err: new TypeError('plain') }, 'fault')
  log.error({ err: 'canary' }, 'fault')
  t.notMatch(lines.join(''), /canary/)
  const [first, second, third] = lines.map((line) => JSON.parse(line))
  t.match(first, { level: 50, msg: 'fault', err: { type: 'Error', code: /^HPE_/, message: /./, stack: /./ } })
  t.match(second, { err: { type: 'TypeError', message: 'plain' } })
  t.strictSame(third.err, { type: 'string' })
})

t.test('a line has its time in ISO form, and neither host nor process', async (t) => {
  const lines: string[] = []
  const log = createLog('warn', { write: (line) => void lines.push(line) })
  log.info('not severe enough')
  log.warn({ a: 1 }, 'words')
  t.equal(lines.length, 1)
  t.match(lines[0], /^\{"level":40,"time":"\d{4}-\d\d-\d\dT[\d:.]+Z","a":1,"msg":"words"\}\n$/)
})

t.test('text of clients is cut, and has nothing that could move a cursor or begin a line', async (t) => {
  t.equal(loggable('/plain path/é/\u{1F600}'), '/plain path/é/\u{1F600}')
  t.equal(loggable('a\r\nb\tc\0d\x1b[2Je\x7ff\x9bg\u2028h\u2029i\u202ej'), 'a��b�c�d�[2Je�f�g�h�i�j')
  t.equal(loggable('x'.repeat(256)), 'x'.repeat(256))
  t.equal(loggable('x'.repeat(10_240)), `${'x'.repeat(256)}…`)
  t.equal(loggable('xyz', 2), 'xy…')
})
