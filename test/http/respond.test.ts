import t, { type Test } from 'tap'
import { ERRORS } from '../../src/errors.ts'
import { jsonAnswer } from '../../src/http/answers.ts'
import type { Exchange } from '../../src/http/exchange.ts'
import { createResponder, type Responder } from '../../src/http/respond.ts'
import { eventually } from '../support/eventually.ts'
import { admitted, answerWith, startListening } from '../support/listening.ts'
import { setDeadlines } from '../support/set-deadlines.ts'

const GET = 'GET / HTTP/1.1\r\nHost: h\r\n\r\n'
const OK = jsonAnswer(200, { ok: true })

/** A listener whose requests are admitted and then answered as the test says. */
async function answering(t: Test, answer: (responder: Responder, exchange: Exchange) => void) {
  const deadlines = setDeadlines(t)
  const state = { closing: false }
  const responder = createResponder({ isClosing: () => state.closing, deadlines, idleMs: 1000 })
  const listening = await startListening(t, (exchange) => {
    admitted(exchange)
    answer(responder, exchange)
  })
  return { deadlines, state, responder, listening, client: await listening.connect() }
}

t.test('an answer keeps the connection where it can be kept', async (t) => {
  const { client, listening } = await answering(t, (responder, exchange) => responder.respond(exchange, OK))
  for (const request of [
    GET,
    'PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n',
    'HEAD / HTTP/1.1\r\nHost: h\r\n\r\n',
  ]) {
    client.send(request)
    const response = await client.response({ head: request.startsWith('HEAD') })
    t.equal(response.headers['connection'], 'keep-alive', request)
    t.equal(response.headers['x-request-id'], 'id')
    t.equal(response.headers['content-length'], '11')
  }
  t.same(
    listening.started.map(({ bytesOut }) => bytesOut),
    [11, 11, 0],
    'nothing is counted that HEAD was not sent',
  )
})

t.test(
  'it ends the connection where the body was not read, where it must, and while we are stopping',
  async (t) => {
    const { listening, state } = await answering(t, (responder, exchange) =>
      responder.refuse(
        exchange,
        ERRORS.invalidArgument,
        { error: 'http_request_error' },
        exchange.req.url === '/must' ? true : undefined,
      ),
    )
    for (const request of [
      'PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n',
      'PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n',
      'GET /must HTTP/1.1\r\nHost: h\r\n\r\n',
      'stopping',
    ]) {
      state.closing = request === 'stopping'
      const client = await listening.connect()
      client.send(request === 'stopping' ? GET : request)
      const response = await client.response()
      t.same([response.status, response.headers['connection']], [400, 'close'], request)
      t.equal(await client.closed(), 'end')
      client.socket.destroy()
    }
  },
)

t.test('nobody is answered twice, and nobody who has left', async (t) => {
  const { client, listening, responder } = await answering(t, (responder, exchange) => {
    if (exchange.req.url === '/later') return
    responder.respond(exchange, OK)
    responder.respond(exchange, jsonAnswer(500, {}))
  })
  client.send(GET)
  t.equal((await client.response()).status, 200)
  client.send('GET /later HTTP/1.1\r\nHost: h\r\n\r\n')
  await eventually(() => listening.started.length === 2, 'the second request')
  client.socket.destroy()
  await eventually(() => listening.over.length === 2, 'the end')
  const [, left] = listening.started
  if (left !== undefined) responder.respond(left, OK)
  t.equal(left?.res.headersSent, false)
  t.equal(left?.bytesOut, 0)
  t.equal(client.rest().length, 0)
})

t.test('an answer that waits for those before it may wait as long as they need', async (t) => {
  const { client, listening, deadlines } = await answering(t, (responder, exchange) => {
    if (exchange.req.url === '/') responder.respond(exchange, OK)
  })
  client.send(`GET /slow HTTP/1.1\r\nHost: h\r\n\r\n${GET}`)
  await eventually(() => listening.started.length === 2, 'both requests')
  t.equal(deadlines.waiting.size, 1)
  for (let seconds = 0; seconds < 5; seconds++) deadlines.advance(1000)
  for (const slow of listening.started.slice(0, 1)) answerWith(slow, 'slow')
  t.equal((await client.response()).body.toString(), 'slow')
  t.equal((await client.response()).body.toString(), '{"ok":true}')
  await eventually(() => deadlines.waiting.size === 0, 'nothing to wait for')
})

t.test(
  'the time in which an answer has to be taken does not begin while it waits for those before it',
  async (t) => {
    const { client, listening, deadlines } = await answering(t, (responder, exchange) => {
      if (exchange.req.url === '/') responder.respond(exchange, jsonAnswer(200, 'x'.repeat(20_000_000)))
    })
    client.socket.pause()
    client.send(`GET /slow HTTP/1.1\r\nHost: h\r\n\r\n${GET}`)
    await eventually(() => listening.started.length === 2, 'both requests')
    deadlines.advance(999)
    for (const slow of listening.started.slice(0, 1)) answerWith(slow, 'slow')
    t.equal(listening.started[1]?.res.hasTurn, true)
    deadlines.advance(1)
    deadlines.advance(999)
    t.equal(listening.started[1]?.connection.socket.destroyed, false)
    deadlines.advance(1)
    t.equal(listening.started[1]?.connection.socket.destroyed, true)
    await eventually(() => deadlines.waiting.size === 0, 'nothing to wait for')
  },
)

t.test('a client that does not take its answer has its time, and then no connection', async (t) => {
  const { client, listening, deadlines } = await answering(t, (responder, exchange) =>
    responder.respond(exchange, jsonAnswer(200, 'x'.repeat(2 ** 20))),
  )
  client.socket.pause()
  client.send(GET.repeat(16))
  await eventually(() => deadlines.waiting.size > 0, 'an answer that waits')
  deadlines.advance(999)
  t.equal(listening.listener.connections, 1)
  for (let second = 0; second < 20; second++) deadlines.advance(1000)
  await eventually(() => listening.listener.connections === 0, 'the close')
  t.equal(deadlines.waiting.size, 0)
  t.ok(listening.over.some(({ finished }) => !finished))
  client.socket.resume()
  await client.closed()
})

t.test('what a client sends as a body does not matter any more once it has been answered', async (t) => {
  const { client, listening, responder } = await answering(t, () => {})
  client.send(
    `GET /slow HTTP/1.1\r\nHost: h\r\n\r\nPUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n`,
  )
  await eventually(() => listening.started.length === 2, 'both requests')
  const [slow, refused] = listening.started
  if (refused !== undefined) responder.respond(refused, OK)
  refused?.malformedBody()
  if (slow !== undefined) answerWith(slow, 'slow')
  t.equal((await client.response()).body.toString(), 'slow')
  t.equal((await client.response()).status, 200)
  t.equal(await client.closed(), 'end')
})
