import t from 'tap'
import { ERRORS } from '../../src/errors.ts'
import { type Answer, errorAnswer, jsonAnswer, rawAnswer } from '../../src/http/answers.ts'
import { joined, parseResponse, splitLines } from '../support/raw-client.ts'

/** The header lines of an answer, by lower-cased name. */
function headersOf({ lines }: Answer): Record<string, string> {
  return joined(splitLines(lines.trimEnd().split('\r\n')))
}

t.test('an answer is JSON of known length that nobody stores', async (t) => {
  const { status, lines, body } = jsonAnswer(200, { name: 'é😀' }, ['X-Extra', '1'])
  t.equal(status, 200)
  t.equal(
    lines,
    `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n` +
      'Cache-Control: no-store\r\nX-Extra: 1\r\n',
  )
  t.same(JSON.parse(body), { name: 'é😀' })
})

t.test('every error says its code and message to the client and its kind to proxies', async (t) => {
  for (const [name, error] of Object.entries(ERRORS)) {
    const answer = errorAnswer(error, { error: 'http_request_error' })
    const headers = headersOf(answer)
    t.equal(answer.status, error.status, name)
    t.same(JSON.parse(answer.body), { code: error.code, message: error.message })
    t.equal(headers['proxy-status'], 'storage-auth-sidecar; error=http_request_error')
    t.equal(headers['retry-after'], error.status === 503 ? '1' : undefined, 'only 503 says when to retry')
    t.equal(headers['allow'], undefined)
    t.match(answer.body, /^[\x20-\x7e]+$/, 'its length in bytes is its length')
  }
})

t.test(
  'details, the time to wait and the methods that are allowed are said where they are known',
  async (t) => {
    const denied = errorAnswer(ERRORS.expiredToken, { error: 'http_request_denied', details: 'expired' })
    t.equal(
      headersOf(denied)['proxy-status'],
      'storage-auth-sidecar; error=http_request_denied; details="expired"',
    )
    const busy = errorAnswer(ERRORS.serviceNotReady, { error: 'dns_error', retryAfterSeconds: 42 })
    t.equal(headersOf(busy)['retry-after'], '42')
    const method = errorAnswer(ERRORS.methodNotAllowed, { error: 'http_request_error', allow: 'GET, HEAD' })
    t.equal(headersOf(method)['allow'], 'GET, HEAD')
  },
)

t.test('as bytes an answer is a whole response that ends its connection', async (t) => {
  const answer = errorAnswer(ERRORS.headersTooLarge, { error: 'http_request_error' })
  const bytes = Buffer.from(rawAnswer(answer, 'id-1'), 'latin1')
  const parsed = parseResponse(bytes, false, false)
  t.equal(parsed?.length, bytes.length)
  t.match(parsed?.response, {
    status: 431,
    reason: 'Request Header Fields Too Large',
    headers: { connection: 'close', 'x-request-id': 'id-1', 'cache-control': 'no-store' },
    body: Buffer.from(answer.body),
  })
  t.notOk(Number.isNaN(Date.parse(parsed?.response.headers['date'] ?? '')))
})
