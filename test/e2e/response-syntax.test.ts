/**
 * Responses in the syntax of RFC 9112 that few servers use reach the client, and ambiguous ones are a 500.
 */
import t from 'tap'
import { isOwnResponse } from '../support/own-response.ts'
import { startSetup } from '../support/setup.ts'

t.test('unusual but legal responses reach the client whole, on a connection that is reused', async (t) => {
  const { upstream, head, send } = await startSetup(t)
  const client = await send('')
  const chunks = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
  for (const [what, reply, length] of [
    ['no space after the status code', 'HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok', '2'],
    ['the same length twice', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\ncontent-length: 2\r\n\r\nok', '2'],
    ['the same length twice in a line', 'HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok', '2'],
    ['blanks after a chunk size', `${chunks}2 \t\r\nok\r\n0 \r\n\r\n`, undefined],
    ['blanks before an extension', `${chunks}2 ;a=b\r\nok\r\n0\t;c\r\n\r\n`, undefined],
  ] as const) {
    upstream.reply(reply)
    client.send(head('GET /'))
    const response = await client.response()
    t.equal(response.status, 200, what)
    t.equal(response.body.toString(), 'ok', what)
    t.equal(response.headers['content-length'], length, what)
  }
  t.equal(upstream.sockets.length, 1, 'no response has closed the connection')
})

t.test('ambiguous responses are a 500', async (t) => {
  const { upstream, head, ask, outcome } = await startSetup(t)
  const replies = [
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!',
    'HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok!',
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    'HTTP/1.1 200OK\r\nContent-Length: 2\r\n\r\nok',
  ]
  for (const reply of replies) {
    upstream.reply(reply)
    const expected = { status: 500, code: 'InternalError', error: 'http_protocol_error' }
    isOwnResponse(t, await ask(head('GET /')), expected, JSON.stringify(reply))
  }
  t.equal(await outcome('http_protocol_error'), replies.length)
})
