import t from 'tap'
import { ResponseParser } from '../../src/forward/response-parser.ts'
import type { MessageReader } from '../../src/http1/message-reader.ts'
import { RequestReader } from '../../src/http1/request-reader.ts'
import { countedWork } from '../support/counted-work.ts'
import { bodyOf } from '../support/request-reading.ts'

const LIMITS = { headerBytes: 1 << 20, headerLines: 1 << 20 }
const sink = { onInformational: () => {}, onBody: () => {}, onEnd: () => {} }
const requests = () => new RequestReader({ ...sink, onHead: bodyOf }, LIMITS)
const responses = () => new ResponseParser({ ...sink, onHead: () => {} }, false, LIMITS)

/** Work for each of the bytes, when they come one by one. */
function workPerByte(reader: MessageReader, text: string): number {
  const bytes = Array.from(Buffer.from(text, 'latin1'), (byte) => Buffer.of(byte))
  const work = countedWork(() => {
    for (const byte of bytes) {
      if (reader instanceof RequestReader && reader.done) reader.next()
      reader.push(byte)
    }
  })
  return work / bytes.length
}

const CHUNKED = 'PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n'
const OK = 'HTTP/1.1 200 OK\r\n'
const long = (length: number) => 'a'.repeat(length)
const many = (length: number, line: string) => line.repeat(length / line.length)

const table: readonly [what: string, make: () => MessageReader, bytes: (length: number) => string][] = [
  ['a target', requests, (length) => `GET /${long(length)}`],
  ['a whole target', requests, (length) => `GET /${long(length)} HTTP/1.1\r\n\r\n`],
  ['a value', requests, (length) => `GET / HTTP/1.1\r\nX: ${long(length)}`],
  ['a name', requests, (length) => `GET / HTTP/1.1\r\n${long(length)}`],
  ['many lines', requests, (length) => `GET / HTTP/1.1\r\n${many(length, 'X: y\r\n')}`],
  ['many lines, to their end', requests, (length) => `GET / HTTP/1.1\r\n${many(length, 'X: y\r\n')}\r\n`],
  ['line ends that are none', requests, (length) => `GET /${many(length, '\r')}`],
  ['empty lines', requests, (length) => many(length, '\r\n')],
  ['many requests', requests, (length) => many(length, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n')],
  ['chunks', requests, (length) => CHUNKED + many(length, '1\r\na\r\n')],
  ['lines of chunks', requests, (length) => CHUNKED + many(length, `1;${long(200)}\r\na\r\n`)],
  ['a trailer', requests, (length) => `${CHUNKED}0\r\nX: ${long(length)}`],
  ['many trailers', requests, (length) => `${CHUNKED}0\r\n${many(length, 'X: y\r\n')}\r\n`],
  ['a reason', responses, (length) => `HTTP/1.1 200 ${long(length)}`],
  ['a value of a response', responses, (length) => `${OK}X: ${long(length)}`],
  ['lines of a response', responses, (length) => `${OK}${many(length, 'X: y\r\n')}\r\n`],
]

t.test('what drips in costs as much for each byte, however much there is of it', async (t) => {
  for (const [what, make, bytes] of table) {
    const little = workPerByte(make(), bytes(2_000))
    const much = workPerByte(make(), bytes(16_000))
    t.ok(much < 1.5 * little + 1, `${what}: ${little} of 2000, ${much} of 16000`)
    t.ok(much < 300, `${what}: ${much}`)
  }
})
