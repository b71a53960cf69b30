import t from 'tap'
import { expectedResponse } from './expected-responses.ts'

const HEAD = 'HTTP/1.1 200 OK\r\n'

t.test('a response is read by the letter', async (t) => {
  for (const [bytes, ending, method, wanted] of [
    [
      `${HEAD}Content-Length: 2\r\n\r\nokHTTP/1.1 stray`,
      'keep',
      'GET',
      { kind: 'whole', status: 200, body: 'ok' },
    ],
    [`${HEAD}Content-Length: 2\r\n\r\n`, 'keep', 'HEAD', { kind: 'whole', body: '', framing: 'none' }],
    [
      `${HEAD}Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
      'reset',
      'GET',
      { kind: 'whole', body: 'ok' },
    ],
    [`${HEAD}\r\nall of it`, 'close', 'GET', { kind: 'whole', body: 'all of it', framing: 'close' }],
    [
      `HTTP/1.1 103 Hints\r\nLink: a\r\n\r\nHTTP/1.1 204 \r\n\r\n`,
      'keep',
      'GET',
      { kind: 'whole', status: 204 },
    ],
    ['HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n', 'keep', 'GET', { kind: 'either' }],
    [`${HEAD}Content_Length: 3\r\nContent-Length: 0\r\n\r\n`, 'keep', 'GET', { kind: 'either' }],
  ] as const) {
    t.match(expectedResponse(bytes, ending, method), wanted, JSON.stringify(bytes))
  }
})

t.test('what is none, or is cut, is a fault', async (t) => {
  for (const [bytes, ending] of [
    ['', 'close'],
    ['SSH-2.0-x\r\n', 'close'],
    ['HTTP/2.0 200 OK\r\n\r\n', 'close'],
    ['HTTP/1.1 1000 Much\r\n\r\n', 'close'],
    ['HTTP/1.1 101 Switching\r\n\r\n', 'keep'],
    [`${HEAD}Content-Length: 2\r\n\r\no`, 'close'],
    [`${HEAD}Content-Length: 2\r\nContent-Length: 2\r\n\r\nok`, 'keep'],
    [`${HEAD}Content-Length: 2, 2\r\n\r\nok`, 'keep'],
    [`${HEAD}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`, 'keep'],
    [`${HEAD}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`, 'keep'],
    [`${HEAD}Transfer-Encoding: chunked\r\n\r\n2\nok`, 'close'],
    [`${HEAD}no colon\r\n\r\n`, 'close'],
    [`${HEAD}X: ${'y'.repeat(17_000)}\r\n\r\n`, 'close'],
    [`${HEAD}\r\nnot all of it`, 'reset'],
  ] as const) {
    t.same(expectedResponse(bytes, ending, 'GET'), { kind: 'fault' }, JSON.stringify(bytes.slice(0, 80)))
  }
})
