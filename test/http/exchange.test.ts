import t from 'tap'
import type { Answerer } from '../../src/http/exchange.ts'
import { eventually } from '../support/eventually.ts'
import { answerWith, startListening } from '../support/listening.ts'

/** An answerer that counts what it is told. */
function countingAnswerer(): Answerer & { readonly told: string[] } {
  const told: string[] = []
  return {
    told,
    onFinished: () => void told.push('finished'),
    onClientGone: () => void told.push('gone'),
    onMalformedBody: () => void told.push('fault'),
  }
}

t.test('an answerer is told how its response ended, once', async (t) => {
  const answerer = countingAnswerer()
  const listening = await startListening(t, (exchange) => {
    exchange.attach(answerer)
    if (exchange.req.url === '/answered') answerWith(exchange, 'done')
  })
  const client = await listening.connect()
  client.send('GET /answered HTTP/1.1\r\nHost: h\r\n\r\n')
  await client.response()
  t.same(answerer.told, ['finished'])
  client.send('GET /left HTTP/1.1\r\nHost: h\r\n\r\n')
  await eventually(() => listening.started.length === 2, 'the second request')
  client.socket.destroy()
  await eventually(() => listening.over.length === 2, 'the end of the second request')
  t.same(answerer.told, ['finished', 'gone'])
  t.same(
    listening.over.map(({ exchange, finished }) => [exchange.req.url, finished, exchange.over]),
    [
      ['/answered', true, true],
      ['/left', false, true],
    ],
  )
})

t.test('a body that is none is told to whoever works on it, now or later, once', async (t) => {
  const listening = await startListening(t, ({ req }) => {
    // Somebody has to want the body, or it is not read.
    if (req.url === '/read') req.giveTo({ onRequestBody: () => {}, onRequestEnd: () => {} })
  })
  const client = await listening.connect()
  client.send('PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n')
  await eventually(() => listening.started.length === 1, 'the request')
  const [exchange] = listening.started
  const late = countingAnswerer()
  exchange?.attach(late)
  t.same(late.told, ['fault'], 'it was broken before anybody looked')
  const early = countingAnswerer()
  const second = await listening.connect()
  second.send('PUT /read HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n')
  await eventually(() => listening.started.length === 2, 'the second request')
  listening.started[1]?.attach(early)
  t.same(early.told, [])
  second.send('zz\r\n')
  await eventually(() => early.told.length > 0, 'the fault')
  second.send('zz\r\n')
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
  t.same(early.told, ['fault'], 'once')
  t.same(listening.refused, [], 'it is for the answerer to answer')
})

t.test('an exchange knows its response, and the response its exchange', async (t) => {
  const listening = await startListening(t, (exchange) => answerWith(exchange, ''))
  const client = await listening.connect()
  client.send('GET / HTTP/1.1\r\nHost: h\r\n\r\n')
  await client.response()
  const [exchange] = listening.started
  t.equal(exchange?.res.exchange, exchange)
  t.match(exchange, { requestId: '', route: 'proxy', bytesIn: 0, bytesOut: 0 })
})
