import fc from 'fast-check'
import t from 'tap'
import { ERRORS } from '../../src/errors.ts'
import { requestIdOf } from '../../src/gate/admission.ts'
import { admission, admitted, type HeadParts, HOST, type Line, MAX_LINES } from '../support/request-heads.ts'

/** Why a head is refused: its status and, for a bad token, the code; undefined when it is admitted. */
function refusal(parts: HeadParts): string | undefined {
  const result = admission(parts)
  if (result.ok) return undefined
  return result.reason === 'malformed' ? result.error.code : String(result.error.status)
}

/** Lines of one name. */
const lines = (name: string, ...values: string[]): Line[] => values.map((value): Line => [name, value])

t.test('a plain request is admitted with everything that later stages need', async (t) => {
  t.strictSame(admission({ url: '/b/k?x=1', more: [['Authorization', 'Bearer a']] }), {
    ok: true,
    request: {
      method: 'GET',
      target: '/b/k?x=1',
      path: '/b/k',
      host: 'storage.example',
      authorization: 'Bearer a',
      hasBody: false,
      chunked: false,
      contentLength: 0,
      expectsContinue: false,
      webSocket: false,
      requestId: undefined,
      connectionOptions: undefined,
      origin: undefined,
      preflight: false,
    },
  })
})

t.test('every method but CONNECT and TRACE is admitted', async (t) => {
  for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND', 'M-SEARCH'])
    t.equal(admitted({ method }).method, method)
  for (const method of ['CONNECT', 'TRACE']) t.equal(refusal({ method }), '400', method)
})

t.test('only HTTP/1.1 and HTTP/1.0 are admitted, though Node parses two more versions', async (t) => {
  for (const version of ['1.0', '1.1'] as const) t.equal(refusal({ version }), undefined, version)
  for (const version of ['0.9', '2.0'] as const) t.equal(refusal({ version }), '400', version)
})

t.test('a request names exactly one host; HTTP/1.0 may name none', async (t) => {
  t.equal(refusal({ more: [HOST] }), '400', 'the same host twice')
  t.equal(refusal({ more: [['HOST', 'other.example']] }), '400')
  t.equal(refusal({ more: [HOST], version: '1.0' }), '400')
  t.equal(refusal({ lines: [] }), '400')
  t.equal(refusal({ lines: [['Host', 'user@storage.example']] }), '400')
  t.equal(refusal({ lines: [['Host', '']], version: '1.0' }), '400')
  t.equal(admitted({ lines: [], version: '1.0' }).host, undefined)
})

t.test('the path is the bytes of the target before the question mark', async (t) => {
  for (const [url, path] of [
    ['/?', '/'],
    ['/b//c/../%2e%2e/d;x=1?a=%20&b', '/b//c/../%2e%2e/d;x=1'],
    ['/b?/v2/auth/token', '/b'],
    ['/b?x=/healthz?y', '/b'],
    ['/v2/auth/token%3fx', '/v2/auth/token%3fx'],
    ['http://storage.example?/v2/auth/token', '/'],
  ] as const)
    t.equal(admitted({ url }).path, path, url)
  for (const url of ['*', '/b#/v2/auth/token', 'http://evil.example/'])
    t.equal(refusal({ url, method: 'OPTIONS' }), '400', url)
})

t.test('Content-Length is one plain decimal number, once', async (t) => {
  for (const [value, contentLength] of [
    ['0', 0],
    ['5', 5],
    ['16384', 16_384],
    ['999999999999999', 999_999_999_999_999],
  ] as const) {
    const request = admitted({ method: 'PUT', more: lines('Content-Length', value) })
    t.match(request, { contentLength, hasBody: contentLength > 0, chunked: false })
  }
  t.equal(admitted({ more: lines('content-length', '5') }).hasBody, true, 'with GET, too')
  t.equal(admitted({ method: 'POST' }).hasBody, false, 'neither length nor chunks: no body')
  for (const value of [
    ...['', ' ', '+5', '-0', '-5', '0x5', '05', '00', '5 ', ' 5', '5\t', '5.0', '5e0', '5;', '"5"', '1_000'],
    ...['5,5', '5, 5', '\xb2', 'five', '1000000000000000', '18446744073709551616'],
  ])
    t.equal(refusal({ method: 'PUT', more: lines('Content-Length', value) }), '400', JSON.stringify(value))
  for (const second of ['5', '6', '0'])
    t.equal(refusal({ more: [...lines('Content-Length', '5'), ...lines('content-length', second)] }), '400')
})

t.test('Transfer-Encoding is exactly chunked, once, alone and in HTTP/1.1', async (t) => {
  for (const value of ['chunked', 'Chunked', 'CHUNKED', 'chUnKed'])
    t.match(admitted({ more: lines('Transfer-Encoding', value) }), {
      chunked: true,
      hasBody: true,
      contentLength: 0,
    })
  for (const value of [
    ...['', 'identity', 'gzip', 'gzip, chunked', 'chunked, identity', 'chunked, chunked', 'chunked,'],
    ...[',chunked', 'chunked;q=1', 'chunked; a', 'xchunked', 'chunkedx', 'chunke', '"chunked"'],
    ...["'chunked'", 'chu nked', 'chunked\x0b', '\x0bchunked', 'chunked\0', 'chunked\xa0', 'chunked '],
    ...[' chunked', 'chunked\r\n x'],
  ])
    t.equal(refusal({ more: lines('Transfer-Encoding', value) }), '400', JSON.stringify(value))
  t.equal(refusal({ more: lines('Transfer-Encoding', 'chunked', 'chunked') }), '400')
  t.equal(refusal({ more: lines('Transfer-Encoding', 'chunked', 'identity') }), '400')
  t.equal(refusal({ version: '1.0', more: lines('Transfer-Encoding', 'chunked') }), '400')
  for (const length of ['0', '5']) {
    const both = [...lines('Transfer-Encoding', 'chunked'), ...lines('Content-Length', length)]
    t.equal(refusal({ more: both }), '400', 'CL.TE and TE.CL have no reading (CVE-2022-32213 and others)')
    t.equal(refusal({ more: both.reverse() }), '400')
  }
})

t.test('look-alikes of framing, Authorization and Host are refused, other odd names pass', async (t) => {
  for (const name of ['Transfer_Encoding', 'Content.Length', 'Authorization_', '-Host', 'CONTENT_LENGTH'])
    t.equal(refusal({ more: [[name, '0']] }), '400', name)
  for (const name of ['x-amz-meta-my_key', 'a.b', 'X_Authenticated_Account_Id', 'X_Request_Id', 'Keep_Alive'])
    t.equal(refusal({ more: [[name, '0']] }), undefined, name)
})

t.test('Connection nominates names over any number of lines', async (t) => {
  for (const [values, names] of [
    [['close'], ['close']],
    [['Keep-Alive, X-Custom'], ['keep-alive', 'x-custom']],
    [
      ['x-a,x-b', 'X-C', 'X-A'],
      ['x-a', 'x-b', 'x-c'],
    ],
    [[' ,, x-a\t,,'], ['x-a']],
    [[''], []],
    [['te, upgrade, expect, x-request-id'], ['te', 'upgrade', 'expect', 'x-request-id']],
  ] as const)
    t.strictSame([...(admitted({ more: lines('Connection', ...values) }).connectionOptions ?? [])], names)
})

t.test('Connection must not nominate framing, Host, Authorization or an identity', async (t) => {
  for (const name of [
    ...['host', 'authorization', 'content-length', 'transfer-encoding', 'x-authenticated-account-id'],
    ...['x-authenticated-', 'content_length', 'transfer.encoding', 'authorization_'],
    ...['x_authenticated_token_id'],
  ]) {
    for (const value of [name, name.toUpperCase(), `close, ${name}`, `${name},close`, `,\t${name} ,`])
      t.equal(refusal({ more: lines('Connection', value) }), '400', value)
    t.equal(refusal({ more: lines('Connection', 'close', name) }), '400', `${name} on a second line`)
  }
})

t.test('a second Authorization is a malformed token, unless the request is ambiguous as well', async (t) => {
  const twice = [...lines('Authorization', 'Bearer a'), ...lines('authorization', 'Bearer a')]
  t.strictSame(admission({ more: twice }), { ok: false, error: ERRORS.invalidToken, reason: 'malformed' })
  t.equal(refusal({ more: [...twice, HOST] }), '400')
  t.equal(refusal({ more: twice, url: '/#' }), '400')
  t.equal(admitted({ more: lines('AUTHORIZATION', '') }).authorization, '')
})

t.test('a head has a bounded number of lines', async (t) => {
  const some = (count: number) => lines('X', ...Array<string>(count).fill(''))
  t.equal(refusal({ more: some(MAX_LINES - 1) }), undefined)
  t.equal(refusal({ more: some(MAX_LINES) }), '431')
  t.equal(refusal({ more: lines('Content-Length', ...Array<string>(MAX_LINES).fill('x')) }), '431')
})

t.test('a request id is kept if it is plain and stands there once', async (t) => {
  const kept = (...ids: string[]) => {
    const more = lines('x-request-ID', ...ids)
    const found = requestIdOf(more.flat())
    t.equal(admitted({ more }).requestId, found, 'a refused request keeps the same id')
    return found
  }
  for (const id of ['a', '0', 'az09AZ._-', 'x'.repeat(128)]) t.equal(kept(id), id)
  for (const id of [
    '',
    'x'.repeat(129),
    'a b',
    'a,b',
    'a/b',
    '\xe9',
    'a\r\nX: 1',
    'a\0',
    'a\x1b[2J',
    '$(id)',
    '"',
  ])
    t.equal(kept(id), undefined, JSON.stringify(id))
  t.equal(kept(), undefined)
  t.equal(kept('abc', 'abc'), undefined)
  t.equal(requestIdOf(['X_Request_Id', 'abc']), undefined)
  t.equal(requestIdOf(['X-Other', 'X-Request-Id']), undefined, 'a value is no name')
})

t.test('a WebSocket handshake is a GET with one Upgrade that Connection nominates', async (t) => {
  const handshake: Line[] = [
    ['Connection', 'keep-alive, Upgrade'],
    ['Upgrade', 'WebSocket'],
  ]
  t.equal(admitted({ more: handshake }).webSocket, true)
  t.equal(admitted({ more: [...handshake, ['Content-Length', '0']] }).webSocket, true)
  const others: readonly [string, HeadParts][] = [
    ['not nominated', { more: lines('Upgrade', 'websocket') }],
    ['not offered', { more: lines('Connection', 'upgrade') }],
    ['another method', { method: 'PUT', more: handshake }],
    ['HTTP/1.0', { version: '1.0', more: handshake }],
    ['a body', { more: [...handshake, ['Content-Length', '5']] }],
    ['chunks', { more: [...handshake, ['Transfer-Encoding', 'chunked']] }],
    ['two lines', { more: [...handshake, ['Upgrade', 'websocket']] }],
    ['a list', { more: [...lines('Connection', 'upgrade'), ...lines('Upgrade', 'websocket, h2c')] }],
    ['another protocol', { more: [...lines('Connection', 'upgrade'), ...lines('Upgrade', 'h2c')] }],
  ]
  for (const [what, parts] of others) t.equal(admitted(parts).webSocket, false, what)
})

t.test('the only expectation is 100-continue, and HTTP/1.0 has none', async (t) => {
  t.equal(admitted({}).expectsContinue, false)
  t.equal(admitted({ more: lines('expect', '100-Continue') }).expectsContinue, true)
  for (const value of ['', '100', '100-continued', '100-continue;q=1', 'x, 100-continue'])
    t.equal(refusal({ more: lines('Expect', value) }), '417', value)
  t.equal(refusal({ more: lines('Expect', '100-continue', 'x') }), '417')
  t.equal(admitted({ version: '1.0', more: lines('Expect', '100-continue') }).expectsContinue, false)
})

t.test('a preflight is OPTIONS with Origin and Access-Control-Request-Method', async (t) => {
  const origin: Line = ['ORIGIN', 'https://app.example']
  const wanted: Line = ['access-control-request-Method', 'PUT']
  t.match(admitted({ method: 'OPTIONS', more: [wanted, origin] }), { preflight: true, origin: origin[1] })
  t.equal(admitted({ method: 'OPTIONS', more: [origin] }).preflight, false)
  t.equal(admitted({ method: 'OPTIONS', more: [wanted] }).preflight, false)
  t.equal(admitted({ method: 'GET', more: [origin, wanted] }).preflight, false)
})

t.test(
  'no head makes admission throw, and an admitted one has one host, one framing, one token',
  async (t) => {
    const character = fc.oneof(
      fc.constantFrom(...' \t\r\n\0:,;/?#@[]%\\"*-_.\x7f\xa0aA09'),
      fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)),
    )
    const text = fc.string({ unit: character, maxLength: 20 })
    const name = fc.oneof(
      fc.constantFrom(
        'Host',
        'Content-Length',
        'Transfer-Encoding',
        'Connection',
        'Authorization',
        'Upgrade',
      ),
      text,
    )
    const value = fc.oneof(fc.constantFrom('a', '0', '5', 'chunked', 'close', 'Bearer a', '[::1]:80'), text)
    const heads = fc.record({
      method: fc.constantFrom('GET', 'OPTIONS', 'PUT'),
      url: fc.oneof(fc.constantFrom('/', '/b?x', 'http://a/', '*'), text),
      version: fc.constantFrom('1.1', '1.0'),
      lines: fc.array(fc.tuple(name, value), { maxLength: 6 }),
    })
    let admissions = 0
    const property = fc.property(heads, (parts) => {
      const result = admission(parts)
      if (!result.ok) return true
      admissions++
      const { request } = result
      const count = (wanted: string) => parts.lines.filter(([found]) => found.toLowerCase() === wanted).length
      return (
        /^\/[^\0-\x20#\x7f]*$/.test(request.target) &&
        request.path === request.target.split('?')[0] &&
        count('host') === (request.host === undefined ? 0 : 1) &&
        (request.host !== undefined || parts.version === '1.0') &&
        count('content-length') + count('transfer-encoding') <= 1 &&
        request.chunked === (count('transfer-encoding') === 1) &&
        request.hasBody === (request.chunked || request.contentLength > 0) &&
        count('authorization') === (request.authorization === undefined ? 0 : 1)
      )
    })
    fc.assert(property, { numRuns: 10_000, seed: 42 })
    t.ok(admissions > 100, `${admissions} heads were admitted`)
  },
)
