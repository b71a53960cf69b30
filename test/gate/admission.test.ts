import fc from 'fast-check'
import t from 'tap'
import { ERRORS } from '../../src/errors.ts'
import { admit, type LastAdmitted } from '../../src/gate/admission.ts'
import { admitted, ask, LIMITS, type Line, rawHeaders, type Wanted } from '../support/request-heads.ts'

const HOST: Line = ['Host', 'storage.example']

/** Why a request is refused; undefined when it is admitted. */
function refusal(wanted: Wanted): string | undefined {
  const admission = ask(wanted)
  if (admission.ok) return undefined
  return admission.authorization ? 'authorization' : `${admission.error.status} ${admission.error.code}`
}

const MALFORMED = '400 InvalidArgument'
const TOO_LARGE = '431 InvalidArgument'

t.test('of a plain request everything later stages need is known', async (t) => {
  t.strictSame(ask({ url: '/b/k?x=1', more: [['Authorization', 'Bearer a']] }), {
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
      upgrade: undefined,
      requestId: undefined,
      nominated: undefined,
      preflight: false,
      http10: false,
      persistent: true,
    },
  })
})

t.test('every method but CONNECT and TRACE is admitted', async (t) => {
  for (const method of [
    'GET',
    'HEAD',
    'POST',
    'PUT',
    'DELETE',
    'PATCH',
    'OPTIONS',
    'PROPFIND',
    'get',
    'M-SEARCH',
  ])
    t.equal(admitted({ method }).method, method)
  for (const method of ['CONNECT', 'TRACE']) t.equal(refusal({ method }), MALFORMED, method)
})

t.test('the version of the protocol is known', async (t) => {
  t.equal(admitted({ httpVersion: '1.1' }).http10, false)
  t.equal(admitted({ httpVersion: '1.0' }).http10, true)
})

t.test('a request names one host', async (t) => {
  t.test('Host is one host with or without a port', async (t) => {
    for (const host of [
      'storage.example',
      'STORAGE.example',
      'storage.example:8080',
      'storage.example:',
      'storage.example:0',
      'storage.example:65535',
      'storage.example.',
      'my_bucket.storage.example',
      'b~1.storage.example',
      '127.0.0.1',
      '127.0.0.1:80',
      '[::1]',
      '[::1]:9000',
      '[2001:DB8::1]:65535',
      '[::ffff:192.0.2.1]',
      "a!$&'()*+;=b",
      'caf%C3%A9.example',
    ]) {
      t.equal(refusal({ lines: [['Host', host]] }), undefined, host)
      t.equal(admitted({ lines: [['Host', host]] }).host, host)
    }
  })

  t.test('Host that is anything else is refused', async (t) => {
    for (const host of [
      '',
      ' ',
      'a, b',
      'a,b',
      'a b',
      'a\tb',
      'user@a',
      'user:pass@a',
      'a/p',
      'a?q',
      'a#f',
      'a\\b',
      'a"b',
      'a<b',
      'a|b',
      'a^b',
      'a`b',
      'a{b}',
      'a:b',
      'a:80:80',
      'a:-1',
      'a:+80',
      'a: 80',
      'a:8a',
      'a:65536',
      'a:99999',
      'a:000080',
      ':80',
      ':',
      'caf\u00e9',
      'a\u00a0',
      'a\0',
      '[',
      ']',
      '[]',
      '[]:80',
      '[::1',
      '::1',
      '[::1]a',
      '[::1]:80:80',
      '[::1]@a',
      '[::1]/',
      '[:::1]',
      '[1]',
      '[.]',
      '[::g]',
      '[1:2:3:4:5:6:7:8:9]',
      '[127.0.0.1]',
      '[fe80::1%eth0]',
      '[fe80::1%25eth0]',
      '[v1.a]',
      '[[::1]]',
      'a[::1]',
    ]) {
      t.equal(refusal({ lines: [['Host', host]] }), MALFORMED, JSON.stringify(host))
    }
  })

  t.test('a second Host is refused', async (t) => {
    t.equal(refusal({ more: [HOST] }), MALFORMED, 'the same twice')
    t.equal(refusal({ more: [['HOST', 'other.example']] }), MALFORMED)
    t.equal(refusal({ lines: [] }), MALFORMED, 'none')
    t.equal(refusal({ lines: [], httpVersion: '1.0' }), undefined, 'none, as HTTP/1.0 permits')
    t.equal(admitted({ lines: [], httpVersion: '1.0' }).host, undefined)
    t.equal(refusal({ more: [HOST], httpVersion: '1.0' }), MALFORMED)
    t.equal(refusal({ lines: [['Host', '']], httpVersion: '1.0' }), MALFORMED)
  })
})

t.test('a body has one length, that everybody reads alike', async (t) => {
  const withLength = (...values: string[]): Wanted => ({
    method: 'PUT',
    more: values.map((value): Line => ['Content-Length', value]),
  })

  t.test('Content-Length is one plain decimal number', async (t) => {
    for (const value of ['0', '1', '5', '10', '16384', '999999999999999'])
      t.equal(refusal(withLength(value)), undefined, value)
    for (const value of [
      '',
      ' ',
      '+5',
      '-0',
      '-5',
      '0x5',
      '5,5',
      '5, 5',
      '05',
      '00',
      '5 ',
      ' 5',
      '5\t',
      '5.0',
      '5e0',
      '5;',
      '"5"',
      '\u0665',
      '\u00b2',
      '1_000',
      'five',
      '1000000000000000',
      '18446744073709551616',
    ]) {
      t.equal(refusal(withLength(value)), MALFORMED, JSON.stringify(value))
    }
  })

  t.test('a second Content-Length is refused', async (t) => {
    t.equal(refusal(withLength('5', '5')), MALFORMED)
    t.equal(refusal(withLength('5', '6')), MALFORMED)
    t.equal(
      refusal({ more: [HOST, ['content-length', '0'] as const, ['CONTENT-LENGTH', '0'] as const] }),
      MALFORMED,
    )
  })

  t.test('Content-Length says whether a body follows', async (t) => {
    t.equal(admitted(withLength('5')).hasBody, true)
    t.equal(admitted(withLength('0')).hasBody, false)
    t.equal(admitted(withLength('5')).contentLength, 5)
    t.equal(admitted(withLength('999999999999999')).contentLength, 999_999_999_999_999)
    t.equal(admitted({ method: 'POST' }).contentLength, 0)
    t.equal(admitted(withLength('5')).chunked, false)
    t.equal(admitted({ more: [['Content-Length', '5']] }).hasBody, true, 'with GET, too')
    t.equal(admitted({ method: 'POST' }).hasBody, false, 'no length and no chunks: no body')
  })
})

t.test('the only transfer coding is chunked', async (t) => {
  const withCodings = (...values: string[]): Wanted => ({
    method: 'PUT',
    more: values.map((value): Line => ['Transfer-Encoding', value]),
  })

  t.test('Transfer-Encoding is chunked, in any case', async (t) => {
    for (const value of ['chunked', 'Chunked', 'CHUNKED', 'chUnKed']) {
      t.equal(admitted(withCodings(value)).hasBody, true, value)
      t.equal(admitted(withCodings(value)).chunked, true, value)
      t.equal(admitted(withCodings(value)).contentLength, 0, value)
    }
    for (const value of [
      '',
      'gzip, chunked',
      'chunked, identity',
      'chunked, chunked',
      'chunked,',
      ',chunked',
      'identity',
      'gzip',
      'chunked;q=1',
      'chunked; a',
      'xchunked',
      'chunkedx',
      'chunke',
      '"chunked"',
      "'chunked'",
      'chunked\u000b',
      '\u000bchunked',
      'chunked\0',
      'chunked\u00a0',
      'chunked ',
      ' chunked',
      'chu nked',
      'chunked\r\n x',
    ]) {
      t.equal(refusal(withCodings(value)), MALFORMED, JSON.stringify(value))
    }
  })

  t.test('Transfer-Encoding stands there once, never beside a length, and not in HTTP/1.0', async (t) => {
    t.equal(refusal(withCodings('chunked', 'chunked')), MALFORMED)
    t.equal(refusal(withCodings('chunked', 'identity')), MALFORMED)
    for (const length of ['0', '5']) {
      const both: Line[] = [
        ['Transfer-Encoding', 'chunked'],
        ['Content-Length', length],
      ]
      t.equal(refusal({ more: both }), MALFORMED)
      t.equal(refusal({ more: both.reverse() }), MALFORMED)
    }
    t.equal(refusal({ ...withCodings('chunked'), httpVersion: '1.0' }), MALFORMED)
    t.equal(
      refusal({ httpVersion: '1.0', more: [['Content-Length', '5']] }),
      undefined,
      'a length is known there',
    )
  })
})

t.test(
  'names that read as framing or authorization are refused, those with other underscores are not',
  async (t) => {
    for (const name of [
      'Transfer_Encoding',
      'transfer.encoding',
      'Content_Length',
      'CONTENT_LENGTH',
      'Authorization_',
      '_authorization',
      'Host.',
    ]) {
      t.equal(refusal({ more: [[name, 'chunked']] }), MALFORMED, name)
    }
    for (const name of [
      'x-amz-meta-my_key',
      'X_Custom',
      'a.b',
      '_',
      'X_Authenticated_Account_Id',
      'X_Request_Id',
      'Keep_Alive',
      'Te_',
      'Upgrade_',
      'Expect_',
      'Trailer_',
      '-Connection',
      'Proxy_Connection',
      'HTTP2_Settings',
    ])
      t.equal(refusal({ more: [[name, 'value']] }), undefined, name)
  },
)

t.test('Connection nominates what goes no further, and nothing that has to arrive', async (t) => {
  const nominating = (...values: string[]): Wanted => ({
    more: values.map((value): Line => ['Connection', value]),
  })
  const nominated = (...values: string[]) => {
    const { nominated: names } = admitted(nominating(...values))
    return names && [...names].sort()
  }

  t.test('Connection nominates names, over any number of lines', async (t) => {
    t.same(nominated('close'), ['close'])
    t.same(nominated('Keep-Alive, X-Custom'), ['keep-alive', 'x-custom'])
    t.same(nominated('x-a,x-b', 'X-C'), ['x-a', 'x-b', 'x-c'])
    t.same(nominated(' ,, x-a\t,,'), ['x-a'], 'empty members are none')
    t.same(nominated(''), [])
    t.same(nominated('x-a', 'X-A'), ['x-a'])
    t.same(nominated('te, upgrade, expect, trailer, x-request-id, x-forwarded-for'), [
      'expect',
      'te',
      'trailer',
      'upgrade',
      'x-forwarded-for',
      'x-request-id',
    ])
    t.equal(nominated(), undefined)
  })

  t.test('Connection must not nominate what has to arrive', async (t) => {
    for (const name of [
      'host',
      'authorization',
      'content-length',
      'transfer-encoding',
      'x-authenticated-account-id',
      'x-authenticated-access-key',
      'x-authenticated-token-id',
      'x-authenticated-token-expires',
      'x-authenticated-other',
      'x-authenticated-',
      'content_length',
      'transfer.encoding',
      'authorization_',
      'x_authenticated_account_id',
      '_x-authenticated-account-id',
    ]) {
      for (const value of [
        name,
        name.toUpperCase(),
        `close, ${name}`,
        `${name},close`,
        `,\t${name} ,`,
        `x-a,${name},x-b`,
      ])
        t.equal(refusal(nominating(value)), MALFORMED, value)
      t.equal(refusal(nominating('close', name)), MALFORMED, `${name} on a second line`)
      t.equal(refusal(nominating(name, 'close')), MALFORMED, `${name} on a first line`)
    }
  })
})

t.test('a request has one token at most', async (t) => {
  t.test('a second Authorization is a bad token, not a bad request', async (t) => {
    t.equal(admitted({}).authorization, undefined)
    t.equal(admitted({ more: [['AUTHORIZATION', '']] }).authorization, '')
    const twice = ask({
      more: [
        ['Authorization', 'Bearer a'],
        ['authorization', 'Bearer a'],
      ],
    })
    t.strictSame(twice, { ok: false, error: ERRORS.invalidToken, authorization: true })
  })

  t.test('Authorization is judged after everything that makes a request ambiguous', async (t) => {
    const twice: Line[] = [
      ['Authorization', 'Bearer a'],
      ['Authorization', 'Bearer b'],
    ]
    t.equal(refusal({ more: [...twice, HOST] }), MALFORMED)
    t.equal(refusal({ more: twice, url: '/#' }), MALFORMED)
    t.equal(refusal({ more: [...twice, ['Content-Length', 'x']] }), MALFORMED)
    t.equal(refusal({ more: twice, limits: { ...LIMITS, headerBytes: 64 } }), TOO_LARGE)
    t.equal(refusal({ more: twice }), 'authorization')
  })
})

t.test('a request target is taken as it stands, or refused', async (t) => {
  t.test('a target passes as it is, and its bytes before the question mark are the path', async (t) => {
    for (const [url, path] of [
      ['/', '/'],
      ['/?', '/'],
      ['/b//c/../%2e%2e/d;x=1?a=%20&b', '/b//c/../%2e%2e/d;x=1'],
      ['//evil.example/x', '//evil.example/x'],
      ['/v2/auth/token?x=1', '/v2/auth/token'],
      ['/b?/v2/auth/token', '/b'],
      ['/b?x=/healthz?y', '/b'],
      ['/v2/auth/token%3fx', '/v2/auth/token%3fx'],
      ['/a\\b', '/a\\b'],
      ['/a@b:c|d"<>{}^`', '/a@b:c|d"<>{}^`'],
      ['/%', '/%'],
      ['/http://evil.example/', '/http://evil.example/'],
    ] as const) {
      const request = admitted({ url })
      t.equal(request.target, url)
      t.equal(request.path, path)
    }
  })

  t.test('a target holds no fragment, space or control character', async (t) => {
    for (const url of [
      '/#',
      '/b#/v2/auth/token',
      '/?#',
      '/a b',
      '/a\tb',
      '/a\0b',
      '/a\r\nX: y',
      '/a\nb',
      '/\x7f',
      '/\x1f',
    ])
      t.equal(refusal({ url }), MALFORMED, JSON.stringify(url))
  })

  t.test('a target has no other form', async (t) => {
    for (const url of [
      '',
      '*',
      'b/k',
      '?x',
      '\\b',
      ' /',
      'storage.example',
      'storage.example:80',
      '%2fb',
      'http:',
      'http:/storage.example/',
      'http:storage.example/',
      'http//storage.example/',
      'ftp://storage.example/',
      'ws://storage.example/',
      'file:///etc/passwd',
      'unix:/run/x',
      'javascript:x',
      ' http://storage.example/',
    ]) {
      t.equal(refusal({ url }), MALFORMED, JSON.stringify(url))
      t.equal(refusal({ url, method: 'OPTIONS' }), MALFORMED)
    }
  })

  t.test(
    'in absolute form is taken where it names the authority of Host, and put in origin form',
    async (t) => {
      for (const [url, host, target] of [
        ['http://storage.example/b/k?x', 'storage.example', '/b/k?x'],
        ['HTTP://storage.example/b', 'storage.example', '/b'],
        ['https://storage.example/b', 'storage.example', '/b'],
        ['http://STORAGE.Example/B', 'storage.eXample', '/B'],
        ['http://storage.example', 'storage.example', '/'],
        ['http://storage.example?x=/y', 'storage.example', '/?x=/y'],
        ['http://storage.example//b', 'storage.example', '//b'],
        ['http://storage.example:80/b', 'storage.example:80', '/b'],
        ['http://[::1]:9000/b', '[::1]:9000', '/b'],
        ['http://[2001:DB8::1]/b', '[2001:db8::1]', '/b'],
        ['http://storage.example/http://evil.example/', 'storage.example', '/http://evil.example/'],
      ] as const) {
        t.equal(admitted({ url, lines: [['Host', host]] }).target, target, url)
      }
      t.equal(admitted({ url: 'http://storage.example?/v2/auth/token' }).path, '/')
    },
  )

  t.test('a target in absolute form is refused where it names anything else', async (t) => {
    for (const url of [
      'http://evil.example/x',
      'http:///x',
      'http://',
      'http://storage.example:80/x',
      'http://storage.example:/x',
      'http://storage.example:x/',
      'http://storage.example:99999999/x',
      'http://storage.example.evil.example/x',
      'http://storage.example@evil.example/x',
      'http://evil.example@storage.example/x',
      'http://user:pass@storage.example/x',
      'http://storage.example\\x',
      'http://storage.example;x',
      'http://storage.example%2f',
      'http://storage.exampl/x',
      'http://[::1/x',
      'http://[::1]/x',
      'http://storage.example/#x',
      'http://storage.example#x',
      'http://storage.example/ x',
    ]) {
      t.equal(refusal({ url }), MALFORMED, url)
    }
    const noHost: Wanted = { url: 'http://storage.example/x', lines: [], httpVersion: '1.0' }
    t.equal(refusal(noHost), MALFORMED, 'without Host there is nothing that it could equal')
    for (const host of [
      '[::1',
      '[:::1]',
      '[zz]',
      'storage.example:99999',
      'storage.example:x',
      'u@storage.example',
    ])
      t.equal(
        refusal({ url: `http://${host}/x`, lines: [['Host', host]] }),
        MALFORMED,
        `as bad as Host: ${host}`,
      )
  })
})

t.test('the head is bounded', async (t) => {
  const lines = (count: number): Line[] => Array.from({ length: count }, (_, n): Line => [`X-${n}`, ''])

  t.test('a head has so many lines at most', async (t) => {
    t.equal(refusal({ more: lines(199) }), undefined, '200 lines')
    t.equal(refusal({ more: lines(200) }), TOO_LARGE, '201 lines')
    t.equal(refusal({ more: lines(2), limits: { ...LIMITS, headerLines: 2 } }), TOO_LARGE)
    const manyOfOne = Array.from({ length: 201 }, (): Line => ['Content-Length', '0'])
    t.equal(refusal({ more: manyOfOne }), TOO_LARGE, 'none of them is even looked at')
  })

  t.test('the lines of a head have so many bytes at most, line ends included', async (t) => {
    const bytes = (count: number): Line[] => [
      ['X', 'a'.repeat(count - 'Host: storage.example\r\nX: \r\n'.length)],
    ]
    t.equal(refusal({ more: bytes(16384) }), undefined)
    t.equal(refusal({ more: bytes(16385) }), TOO_LARGE)
    t.equal(refusal({ more: bytes(100), limits: { ...LIMITS, headerBytes: 100 } }), undefined)
    t.equal(refusal({ more: bytes(101), limits: { ...LIMITS, headerBytes: 100 } }), TOO_LARGE)
    const longName: Line[] = [['X'.repeat(16384), '']]
    t.equal(refusal({ more: longName }), TOO_LARGE)
  })

  t.test('a request target has so many bytes at most', async (t) => {
    t.equal(refusal({ url: `/${'a'.repeat(16383)}` }), undefined)
    t.equal(refusal({ url: `/${'a'.repeat(16384)}` }), TOO_LARGE)
    t.equal(refusal({ url: 'x'.repeat(100 * 1024) }), TOO_LARGE)
  })
})

t.test('a request id is kept when it is one, and stands there once', async (t) => {
  const withIds = (...ids: string[]): Wanted => ({ more: ids.map((id): Line => ['x-request-ID', id]) })
  t.equal(admitted(withIds('abc-1.2_3')).requestId, 'abc-1.2_3')
  t.equal(admitted(withIds()).requestId, undefined)
  t.equal(admitted(withIds('abc', 'abc')).requestId, undefined)
  t.equal(admitted(withIds('')).requestId, undefined)
  t.equal(admitted(withIds('a b')).requestId, undefined)
  t.equal(admitted({ more: [['X_Request_Id', 'abc']] }).requestId, undefined)
})

t.test('an upgrade is seen whatever the protocol and whether or not Connection nominates it', async (t) => {
  const withLines = (...more: Line[]) => admitted({ more }).upgrade
  t.equal(withLines(['Upgrade', 'websocket']), 'websocket')
  t.equal(withLines(['UPGRADE', 'h2c'], ['Connection', 'close']), 'h2c')
  t.equal(withLines(['upgrade', '']), '', 'even to nothing')
  t.equal(withLines(['Upgrade', 'websocket'], ['upgrade', 'WebSocket']), 'websocket, WebSocket')
  t.equal(withLines(['Upgrade', ''], ['Upgrade', 'websocket'], ['Upgrade', '']), ', websocket, ')
  t.equal(withLines(['Connection', 'upgrade']), undefined)
})

t.test('it is known whether the client waits for 100 Continue', async (t) => {
  const waits = (...values: string[]) =>
    admitted({ more: values.map((value): Line => ['expect', value]) }).expectsContinue
  t.equal(waits(), false)
  for (const value of [
    '100-continue',
    '100-Continue',
    'x, 100-continue',
    '100-continue,x',
    'x\t100-CONTINUE',
  ])
    t.equal(waits(value), true, value)
  for (const value of ['', '100', 'x100-continue', '100-continued', '100-continue;q=1', '100 continue'])
    t.equal(waits(value), false, value)
  t.equal(waits('x', '100-continue'), true)
  t.equal(waits('100-continue', 'x'), true, 'one line of them says so')
  const old: Wanted = { httpVersion: '1.0', more: [['Expect', '100-continue']] }
  t.equal(
    admitted(old).expectsContinue,
    false,
    'HTTP/1.0 has no interim responses (RFC 9110, section 10.1.1)',
  )
})

t.test('it is known whether the client would send another request', async (t) => {
  const persistent = (httpVersion: '1.0' | '1.1', ...values: string[]) =>
    admitted({ httpVersion, more: values.map((value): Line => ['Connection', value]) }).persistent
  const table: readonly [values: string[], http11: boolean, http10: boolean][] = [
    [[], true, false],
    [[''], true, false],
    [['x-a'], true, false],
    [['keep-alive'], true, true],
    [['Keep-Alive, x-a'], true, true],
    [['close'], false, false],
    [['x-a, CLOSE'], false, false],
    [['close, keep-alive'], false, false],
    [['keep-alive', 'close'], false, false],
    [['closed'], true, false],
    [['close;x'], true, false],
  ]
  for (const [values, http11, http10] of table) {
    t.equal(persistent('1.1', ...values), http11, `HTTP/1.1 ${values}`)
    t.equal(persistent('1.0', ...values), http10, `HTTP/1.0 ${values}`)
  }
  t.equal(
    admitted({ httpVersion: '1.0', more: [['Proxy-Connection', 'keep-alive']] }).persistent,
    false,
    'said to another proxy',
  )
})

t.test('what is known of the same header lines is what would be found anew', async (t) => {
  const rawHeaders = [
    'Host',
    'a',
    'Content-Length',
    '5',
    'Origin',
    'o',
    'Access-Control-Request-Method',
    'PUT',
  ]
  const last: LastAdmitted = { rawHeaders: [], fields: undefined }
  for (const [method, url, httpVersion] of [
    ['GET', '/a', '1.1'],
    ['GET', '/b?c', '1.1'],
    ['GET', 'http://a/x', '1.1'],
    ['GET', 'http://b/x', '1.1'],
    ['GET', '/#', '1.1'],
    ['GET', '/a', '1.0'],
    ['OPTIONS', '/a', '1.1'],
    ['OPTIONS', '/a', '1.1'],
    ['TRACE', '/a', '1.1'],
    ['GET', `/${'a'.repeat(20_000)}`, '1.1'],
    ['GET', '/a', '1.1'],
  ] as const) {
    const head = { method, url, httpVersion, rawHeaders }
    t.strictSame(
      admit(head, LIMITS, last),
      admit(head, LIMITS),
      `${method} ${url.slice(0, 20)} ${httpVersion}`,
    )
  }
  for (const lines of [
    ['Host', 'a', 'Authorization', 'x', 'Authorization', 'x'],
    ['X', 'y'],
  ]) {
    const head = { method: 'GET', url: '/', httpVersion: '1.1', rawHeaders: lines } as const
    for (let time = 0; time < 2; time++)
      t.strictSame(admit(head, LIMITS, last), admit(head, LIMITS), `${lines}`)
  }
})

t.test('a preflight is OPTIONS with Origin and Access-Control-Request-Method', async (t) => {
  const origin: Line = ['ORIGIN', 'https://app.example']
  const wantsMethod: Line = ['access-control-request-Method', 'PUT']
  t.equal(admitted({ method: 'OPTIONS', more: [origin, wantsMethod] }).preflight, true)
  t.equal(admitted({ method: 'OPTIONS', more: [wantsMethod, ['X', ''] as const, origin] }).preflight, true)
  t.equal(admitted({ method: 'OPTIONS', more: [origin] }).preflight, false)
  t.equal(admitted({ method: 'OPTIONS', more: [wantsMethod] }).preflight, false)
  t.equal(admitted({ method: 'GET', more: [origin, wantsMethod] }).preflight, false)
  t.equal(admitted({ method: 'options', more: [origin, wantsMethod] }).preflight, false)
})

/** Latin-1 text, as a parser makes it; with the characters that matter more often than the others. */
const character = fc.oneof(
  fc.constantFrom(...' \t\r\n\0:,;/?#@[]%\\"*-_.\x7f\u00a0aA09'),
  fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)),
)
const text = fc.string({ unit: character, maxLength: 30 })
const name = fc.oneof(
  fc.constantFrom(
    'Host',
    'Content-Length',
    'Transfer-Encoding',
    'Connection',
    'Authorization',
    'X-Request-Id',
    'Upgrade',
    'Expect',
  ),
  text,
)
const value = fc.oneof(fc.constantFrom('a', '0', '5', 'chunked', 'close', 'Bearer a', '[::1]:80'), text)
const anyHead = fc.record({
  method: fc.oneof(fc.constantFrom('GET', 'OPTIONS', 'PUT', 'TRACE'), text),
  url: fc.oneof(fc.constantFrom('/', '/b?x', 'http://a/', '*'), text),
  httpVersion: fc.constantFrom('1.1', '1.0'),
  lines: fc.array(fc.tuple(name, value), { maxLength: 8 }),
})

t.test('no head, however odd, makes admission throw; what it admits keeps its promises', async (t) => {
  let admissions = 0
  const promises = fc.property(anyHead, (wanted) => {
    const head = { ...wanted, rawHeaders: rawHeaders(wanted) }
    const before = JSON.stringify(head)
    const admission = admit(head, LIMITS)
    if (JSON.stringify(head) !== before) return false
    if (!admission.ok) return true
    admissions++
    const { request } = admission
    const named = (wantedName: string) => wanted.lines.filter(([n]) => n.toLowerCase() === wantedName)
    return (
      /^\/[^\0-\x20#\x7f]*$/.test(request.target) &&
      request.path === request.target.split('?')[0] &&
      named('host').length === (request.host === undefined ? 0 : 1) &&
      (request.host !== undefined || request.http10) &&
      named('content-length').length + named('transfer-encoding').length <= 1 &&
      request.chunked === (named('transfer-encoding').length === 1) &&
      request.hasBody === (request.chunked || request.contentLength > 0) &&
      String(request.contentLength) === (named('content-length')[0]?.[1] ?? '0') &&
      (request.upgrade !== undefined) === named('upgrade').length > 0 &&
      !(request.persistent && request.nominated?.has('close') === true) &&
      !(request.expectsContinue && named('expect').length === 0) &&
      named('authorization').length === (request.authorization === undefined ? 0 : 1)
    )
  })
  t.doesNotThrow(() => fc.assert(promises, { numRuns: 20_000, seed: 42 }))
  t.ok(admissions > 500, `${admissions} of them were admitted`)
})
