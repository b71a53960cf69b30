import t, { type Test } from 'tap'
import { type Body, readBody } from '../../src/http/read-body.ts'
import { eventually } from '../support/eventually.ts'
import { answerWith, startListening } from '../support/listening.ts'
import { setDeadlines } from '../support/set-deadlines.ts'

const CHUNKED = 'POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n'

/** A listener that reads bodies of at most ten bytes; they may rest for a second. */
async function reading(t: Test) {
  const deadlines = setDeadlines(t)
  const bodies: Body[] = []
  const listening = await startListening(t, (exchange) => {
    readBody(exchange, { maxBytes: 10, idleMs: 1000, deadlines }).then((body) => {
      bodies.push(body)
      answerWith(exchange, '')
    })
  })
  const client = await listening.connect()
  const begun = () => eventually(() => listening.started.length === 1, 'the request')
  const settled = () => eventually(() => bodies.length === 1, 'the body')
  return { deadlines, bodies, listening, client, begun, settled }
}

t.test('a body is read whole, in however many pieces it comes', async (t) => {
  const { bodies, client, listening, settled, begun, deadlines } = await reading(t)
  client.send(`${CHUNKED}5\r\nhello\r\n`)
  await begun()
  await eventually(() => listening.started[0]?.bytesIn === 5, 'the first piece')
  client.send('5\r\nworld\r\n0\r\n\r\n')
  await settled()
  t.same(bodies, [{ ok: true, bytes: Buffer.from('helloworld') }])
  t.equal(listening.started[0]?.answerer, undefined)
  t.equal(deadlines.waiting.size, 0)
  t.equal((await client.response()).status, 200)
})

t.test('no body is an empty one', async (t) => {
  const { bodies, client, settled } = await reading(t)
  client.send('POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n')
  await settled()
  t.same(bodies, [{ ok: true, bytes: Buffer.alloc(0) }])
})

t.test('a body beyond the limit is given up on at its first byte too many', async (t) => {
  const { bodies, client, settled, deadlines } = await reading(t)
  client.send(`${CHUNKED}b\r\nhello world\r\n`)
  await settled()
  t.same(bodies, [{ ok: false, reason: 'too_large' }])
  t.equal(deadlines.waiting.size, 0)
})

t.test('a client that stops is not waited for longer than it may rest', async (t) => {
  const { bodies, client, listening, settled, begun, deadlines } = await reading(t)
  client.send(`${CHUNKED}1\r\na\r\n`)
  await begun()
  await eventually(() => listening.started[0]?.bytesIn === 1, 'the first byte')
  deadlines.advance(999)
  client.send('1\r\nb\r\n')
  await eventually(() => listening.started[0]?.bytesIn === 2, 'the second byte')
  deadlines.advance(999)
  t.same(bodies, [], 'each byte starts the time anew')
  deadlines.advance(1)
  await settled()
  t.same(bodies, [{ ok: false, reason: 'idle' }])
})

t.test('a body that turns out to be none is malformed', async (t) => {
  const { bodies, client, settled } = await reading(t)
  client.send(`${CHUNKED}1\r\na\r\nzz\r\n`)
  await settled()
  t.same(bodies, [{ ok: false, reason: 'malformed' }])
})

t.test('a client that leaves leaves nobody to answer', async (t) => {
  const { bodies, client, settled, begun, deadlines } = await reading(t)
  client.send(`${CHUNKED}1\r\na\r\n`)
  await begun()
  client.socket.resetAndDestroy()
  await settled()
  t.same(bodies, [{ ok: false, reason: 'gone' }])
  t.equal(deadlines.waiting.size, 0)
})

t.test('nobody waits for the body of a request that has been answered', async (t) => {
  const { bodies, client, listening, settled, begun, deadlines } = await reading(t)
  client.send(`${CHUNKED}1\r\na\r\n`)
  await begun()
  for (const exchange of listening.started) answerWith(exchange, 'answered')
  await settled()
  t.same(bodies, [{ ok: false, reason: 'gone' }])
  t.equal(deadlines.waiting.size, 0)
})
