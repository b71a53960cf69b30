import t from 'tap'
import { HeaderKind, headerKind, parseConnection } from '../../src/http/headers.ts'
import { responseHeaders, responseTrailers } from '../../src/proxy/response-headers.ts'

const headOf = (rawHeaders: readonly string[], status = 200) => {
  const kinds = rawHeaders.filter((_, at) => at % 2 === 0).map(headerKind)
  const values = rawHeaders.filter((_, at) => at % 2 === 1 && kinds[(at - 1) / 2] === HeaderKind.connection)
  const options = values.length === 0 ? undefined : parseConnection(values.join())
  return { rawHeaders, kinds, connectionOptions: options, status }
}

/** What passes to the client before the request id. */
function passed(rawHeaders: readonly string[], { status = 200, hasTrailers = false } = {}): string[] {
  const headers = responseHeaders(headOf(rawHeaders, status), 'created-here', hasTrailers)
  if (headers.splice(-2).join(': ') !== 'X-Request-Id: created-here')
    throw new Error('no request id at the end')
  return headers
}

t.test('hop-by-hop headers, identities and connection options do not reach the client', async (t) => {
  const rawHeaders = [
    ...['Connection', 'keep-alive, X-Private', 'connection', ',x-other ,\tset-cookie2,date'],
    ...['Keep-Alive', 'timeout=5', 'Proxy-Connection', 'close', 'Transfer-Encoding', 'chunked', 'TE'],
    ...['trailers', 'Proxy-Authenticate', 'Basic', 'Proxy-Authorization', 'x', 'Upgrade', 'h2c'],
    ...['HTTP2-Settings', 'a', 'X-PRIVATE', '1', 'x-private', '2', 'X-Other', '3', 'Set-Cookie2', '4'],
    ...['Date', 'today', 'X-Authenticated-Account-Id', 'acme', 'x_authenticated_access_key', 'AK'],
    ...['X.Authenticated.Assertion', 'a', 'X-Request-Id', 'from-upstream', 'x-request-ID', 'again'],
    ...['X-Kept', 'x'],
  ]
  t.strictSame(passed(rawHeaders), ['X-Kept', 'x'])
  const length = ['Connection', 'content-length', 'Content-Length', '5']
  t.strictSame(passed(length), length.slice(2), 'it frames the body, nominated or not')
})

t.test('a length stays on every status but 1xx and 204', async (t) => {
  const length = ['Content-Length', '5']
  for (const status of [200, 206, 304, 404]) t.strictSame(passed(length, { status }), length)
  for (const status of [101, 103, 204]) t.strictSame(passed(length, { status }), [])
})

t.test('Content-Length moves after Content-Disposition, which Node would otherwise decode', async (t) => {
  const first = ['Content-Disposition', 'a']
  const second = ['content-disposition', 'b']
  const length = ['Content-Length', '5']
  t.strictSame(passed([...length, ...first, 'X', 'y', ...second]), [...first, ...second, ...length, 'X', 'y'])
  t.strictSame(passed([...first, ...length]), [...first, ...length])
})

t.test('Trailer passes only if trailers can follow', async (t) => {
  const trailer = ['Trailer', 'X-Sum']
  t.strictSame(passed(trailer, { hasTrailers: true }), trailer)
  t.strictSame(passed(trailer), [])
  t.strictSame(passed([...trailer, 'Connection', 'Trailer'], { hasTrailers: true }), [])
})

t.test('trailers pass without framing, identity, hop-by-hop fields and connection options', async (t) => {
  const removed = [
    ...['Content-Length', 'Transfer-Encoding', 'Content_Length', 'Connection', 'Keep-Alive', 'Trailer'],
    ...['Upgrade', 'X-Request-Id', 'X-Authenticated-Account-Id', 'x_authenticated_account_id'],
    ...['Proxy-Authenticate', 'X-Private'],
  ].flatMap((name) => [name, '1'])
  const kept = ['X-Sum', 'abc', 'x-sum', 'def', 'X_Meta', '']
  const { connectionOptions } = headOf(['Connection', 'x-private'])
  t.strictSame(responseTrailers([...removed, ...kept], connectionOptions).flat(), kept)
})
