import t from 'tap'
import type { ResponseHead } from '../../src/forward/response-parser.ts'
import {
  clientResponseLines,
  clientTrailers,
  switchedResponseHead,
} from '../../src/forward/towards-client.ts'
import { parseFieldLines } from '../../src/http1/field-lines.ts'

/** A response head, 200 with a length but for what is wanted. */
function head(rawHeaders: readonly string[], wanted: Partial<ResponseHead> = {}): ResponseHead {
  return {
    status: 200,
    reason: 'OK',
    framing: 'length',
    contentLength: 0,
    keepAlive: true,
    keepAliveSeconds: undefined,
    ...wanted,
    rawHeaders,
  }
}

const ID = ['X-Request-Id', 'made-here']

/** The client's list without our request id, which always ends it. */
function passed(rawHeaders: readonly string[], wanted: Partial<ResponseHead> = {}, chunks = true): string[] {
  const { lines, hasDate } = clientResponseLines(head(rawHeaders, wanted), { requestId: 'made-here', chunks })
  const headers = parseFieldLines(lines.slice(0, -2), 0, 1000)
  if (hasDate !== headers.some((name, at) => at % 2 === 0 && name.toLowerCase() === 'date'))
    throw new Error(`hasDate is ${hasDate}`)
  const ours = headers.splice(-2)
  if (ours.join() !== ID.join()) throw new Error(`the list ends with ${ours}`)
  return headers
}

t.test("names, order, case, values and multiplicity are the upstream's", async (t) => {
  const rawHeaders = [
    ...['set-cookie', 'a=1', 'Set-Cookie', 'b=2', 'SET-COOKIE', 'c=3'],
    ...['Content-length', '5', 'eTag', '"x"', 'Content-Type', '', 'Date', 'Thu, 01 Jan 1970 00:00:00 GMT'],
    ...[
      'X-Latin',
      'caf\u00e9',
      'X-Meta_Key',
      'a',
      'Content_Length',
      '7',
      'Server',
      'nginx',
      'Vary',
      'a',
      'Vary',
      'b',
    ],
    ...['Host', 'a', 'Authorization', 'b', 'X-Forwarded-For', 'c', 'Expect', 'd'],
  ]
  t.same(passed(rawHeaders), rawHeaders)
})

t.test('hop-by-hop headers and what Connection nominates end here', async (t) => {
  const rawHeaders = [
    ...['Connection', 'keep-alive, X-Private', 'connection', ',x-other ,\tset-cookie2'],
    ...['Keep-Alive', 'timeout=5', 'Proxy-Connection', 'close', 'Transfer-Encoding', 'chunked'],
    ...[
      'TE',
      'trailers',
      'Upgrade',
      'h2c',
      'X-PRIVATE',
      '1',
      'x-private',
      '2',
      'X-Other',
      '3',
      'Set-Cookie2',
      '4',
    ],
    ...['X-Kept', 'x'],
  ]
  t.same(passed(rawHeaders, { framing: 'chunked' }), ['X-Kept', 'x'])
})

t.test('a length is kept even when Connection nominates it: it frames the body', async (t) => {
  t.same(passed(['Connection', 'content-length', 'Content-Length', '5']), ['Content-Length', '5'])
})

t.test('our own headers do not come back to the client', async (t) => {
  const rawHeaders = [
    ...['X-Authenticated-Account-Id', 'acme', 'x_authenticated_access_key', 'AK'],
    ...['X-Request-Id', 'from-upstream', 'x-request-ID', 'again', 'X-Kept', 'x'],
  ]
  t.same(passed(rawHeaders), ['X-Kept', 'x'])
})

t.test('a response that has no body by its status tells no length, but for 304', async (t) => {
  const length = ['Content-Length', '5']
  t.same(passed(length, { status: 204, framing: 'none' }), [])
  t.same(passed(length, { status: 101, framing: 'none' }), [])
  t.same(passed(length, { status: 304, framing: 'none' }), length)
  t.same(passed(length, { status: 200, framing: 'none' }, false), length, 'the answer to HEAD')
})

t.test('trailers are announced only where there will be chunks', async (t) => {
  const trailer = ['Trailer', 'X-Sum']
  t.same(passed(trailer, { framing: 'chunked' }), trailer)
  t.same(passed(trailer, { framing: 'close' }), trailer)
  t.same(passed(trailer, { framing: 'chunked' }, false), [])
  t.same(passed(trailer, { framing: 'length' }), [])
  t.same(passed(trailer, { framing: 'none' }), [])
  t.same(passed([...trailer, 'Connection', 'Trailer'], { framing: 'chunked' }), [])
})

t.test('trailers pass, but for those that would frame, route or identify', async (t) => {
  t.same(clientTrailers([]), [])
  const kept = ['X-Sum', 'abc', 'x-sum', 'def', 'X_Meta', '']
  const removed = [
    'Content-Length',
    'Transfer-Encoding',
    'Content_Length',
    'Connection',
    'Keep-Alive',
    'Trailer',
    'Upgrade',
    'X-Request-Id',
    'X-Authenticated-Account-Id',
    'x_authenticated_account_id',
  ].flatMap((name) => [name, '1'])
  t.same(clientTrailers([...removed, ...kept]), [
    ['X-Sum', 'abc'],
    ['x-sum', 'def'],
    ['X_Meta', ''],
  ])
})

t.test('a switch of protocols', async (t) => {
  const switched = (rawHeaders: readonly string[]) =>
    switchedResponseHead(head(rawHeaders, { status: 101, reason: 'Switching', framing: 'none' }), 'made-here')

  t.test('is passed on with the headers of the other protocol', async (t) => {
    const rawHeaders = [
      ...['Upgrade', 'WebSocket', 'Connection', 'keep-alive, Upgrade', 'Keep-Alive', 'timeout=5'],
      ...[
        'Sec-WebSocket-Accept',
        's3pPLMBiTxaQ9kYGzzhZRbK+xOo=',
        'Content-Length',
        '0',
        'X-Authenticated-Account-Id',
        'a',
      ],
    ]
    t.equal(
      switched(rawHeaders),
      'HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
        'Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nX-Request-Id: made-here\r\n\r\n',
    )
  })

  t.test('is none where it does not say that it leads to WebSocket', async (t) => {
    for (const rawHeaders of [
      [],
      ['Upgrade', 'websocket'],
      ['Connection', 'upgrade'],
      ['Upgrade', 'h2c', 'Connection', 'upgrade'],
      ['Upgrade', 'websocket, h2c', 'Connection', 'upgrade'],
      ['Upgrade', 'websocket', 'Upgrade', 'websocket', 'Connection', 'upgrade'],
      ['Upgrade', 'websocket', 'Connection', 'keep-alive'],
      ['X-Upgrade', 'Upgrade', 'Upgrade', 'x', 'Connection', 'upgrade'],
    ]) {
      t.equal(switched(rawHeaders), undefined, rawHeaders.join())
    }
  })
})
