import { once } from 'node:events'
import { createServer } from 'node:http'
import t from 'tap'
import { createLog, loggable } from '../../src/ops/log.ts'
import { listen } from '../support/listen.ts'
import { rawClient } from '../support/raw-client.ts'

t.test('only name, code, message and stack of an error are logged', async (t) => {
  const lines: string[] = []
  const log = createLog('info', { write: (line) => void lines.push(line) })
  // Node's error for a malformed request carries the raw bytes.
  const server = createServer()
  const client = await rawClient(t, await listen(t, server))
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

t.test('fields that may hold a token or a secret are redacted', async (t) => {
  const lines: string[] = []
  const log = createLog('info', { write: (line) => void lines.push(line) })
  log.info({ authorization: 'canary', token: 'canary', secret: 'canary', headers: ['canary'] }, 'words')
  t.notMatch(lines.join(''), /canary/)
})

t.test('a line has its time in ISO form, and neither host nor process', async (t) => {
  const lines: string[] = []
  const log = createLog('warn', { write: (line) => void lines.push(line) })
  log.info('not severe enough')
  log.warn({ a: 1 }, 'words')
  t.equal(lines.length, 1)
  t.match(lines[0], /^\{"level":40,"time":"\d{4}-\d\d-\d\dT[\d:.]+Z","a":1,"msg":"words"\}\n$/)
})

t.test('client text is truncated, and control characters and line breaks are replaced', async (t) => {
  t.equal(loggable('/plain path/é/\u{1F600}'), '/plain path/é/\u{1F600}')
  t.equal(loggable('a\r\nb\tc\0d\x1b[2Je\x7ff\x9bg\u2028h\u2029i\u202ej'), 'a��b�c�d�[2Je�f�g�h�i�j')
  t.equal(loggable('x'.repeat(256)), 'x'.repeat(256))
  t.equal(loggable('x'.repeat(10_240)), `${'x'.repeat(256)}…`)
  t.equal(loggable('xyz', 2), 'xy…')
})
