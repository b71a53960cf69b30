import { METHODS } from 'node:http'
import t from 'tap'
import { type RawRequestHead, RequestReader } from '../../src/http1/request-reader.ts'
import { type How, type Reading, readAnyhow, readRequests } from '../support/request-reading.ts'

const HOST = 'Host: storage.example\r\n'
const GET = `GET /b/k HTTP/1.1\r\n${HOST}\r\n`
const PUT = `PUT /b/k HTTP/1.1\r\n${HOST}Content-Length: 5\r\n\r\n`
const CHUNKED = `PUT /b/k HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n`

const shown = (text: string) => JSON.stringify(text)
const isFault = (bytes: string, how?: How) => readAnyhow(bytes, how).fault !== undefined
const lines = ({ requests }: Reading) =>
  requests.map(({ method, url, httpVersion }) => `${method} ${url} HTTP/${httpVersion}`)

t.test('a head is told as it stood on the wire', async (t) => {
  const { requests, fault, atHead, isWithin } = readAnyhow(
    `PROPFIND /b/%2f?x=%e9 HTTP/1.1\r\nhost:storage.example\r\nX-Empty:\r\nX-A: \t b \t\r\nx-a: c\r\n\r\n`,
  )
  t.equal(fault, undefined)
  t.strictSame(requests, [
    {
      method: 'PROPFIND',
      url: '/b/%2f?x=%e9',
      httpVersion: '1.1',
      rawHeaders: ['host', 'storage.example', 'X-Empty', '', 'X-A', 'b', 'x-a', 'c'],
      body: '',
      last: false,
      trailers: [],
    },
  ])
  t.same([atHead, isWithin], [true, false])
  t.strictSame(readAnyhow('GET / HTTP/1.0\r\n\r\n').requests[0]?.rawHeaders, [], 'a head may be one line')
})

t.test('a request line is read in one way only', async (t) => {
  t.test('a request line has a method, a target and a version', async (t) => {
    for (const line of [
      'GET / HTTP/1.1',
      'GET / HTTP/1.0',
      'OPTIONS * HTTP/1.1',
      'CONNECT storage.example:443 HTTP/1.1',
      'GET http://storage.example/b HTTP/1.1',
      'GET // HTTP/1.1',
      'GET HTTP/1.1 HTTP/1.1',
      'GET /a"<>\\^`{|}#b HTTP/1.1',
      `GET /${'a'.repeat(3000)} HTTP/1.1`,
    ])
      t.same(lines(readAnyhow(`${line}\r\n${HOST}\r\n`)), [line], shown(line))
  })

  t.test('the methods that HTTP knows are taken, in their one spelling', async (t) => {
    for (const method of METHODS)
      t.same(lines(readAnyhow(`${method} / HTTP/1.1\r\n\r\n`)), [`${method} / HTTP/1.1`])
    for (const method of [
      'get',
      'Get',
      'GETS',
      'GE',
      'TRACK',
      'PRI',
      'constructor',
      '__proto__',
      'X'.repeat(24),
    ])
      t.equal(isFault(`${method} / HTTP/1.1\r\n${HOST}\r\n`), true, method)
  })

  t.test('request lines of anything else are refused', async (t) => {
    for (const line of [
      'GET',
      'GET ',
      'GET /',
      'GET / ',
      'GET HTTP/1.1',
      'GET  HTTP/1.1',
      'GET   HTTP/1.1',
      ' / HTTP/1.1',
      '/ HTTP/1.1',
      ' GET / HTTP/1.1',
      '\tGET / HTTP/1.1',
      'GET  / HTTP/1.1',
      'GET /  HTTP/1.1',
      'GET / HTTP/1.1 ',
      'GET / HTTP/1.1\t',
      'GET\t/ HTTP/1.1',
      'GET /\tHTTP/1.1',
      'GET\t/\tHTTP/1.1',
      'GET\x0b/ HTTP/1.1',
      'GET\x0c/ HTTP/1.1',
      'GET\xa0/ HTTP/1.1',
      'GET /a b HTTP/1.1',
      'GET /\tb HTTP/1.1',
      'GET / HTTP/1.1 HTTP/1.1',
      'GET / HTTP/1.1, HTTP/1.1',
      'GET / HTTP/1.1\r',
      'GET /\r HTTP/1.1',
      'GET\r / HTTP/1.1',
      '\rGET / HTTP/1.1',
      'GET / \rHTTP/1.1',
      'GET / HTTP/1.1\n',
      'GET /\n HTTP/1.1',
      'GET\n / HTTP/1.1',
      '\nGET / HTTP/1.1',
      'GET / HTTP/1.1\nX: y HTTP/1.1',
      'GET /\nX: y HTTP/1.1',
      'GET /\rX: y HTTP/1.1',
      'GET /a\0b HTTP/1.1',
      'GET /a\x1fb HTTP/1.1',
      'GET /a\x7fb HTTP/1.1',
      'GET\0 / HTTP/1.1',
      '\0GET / HTTP/1.1',
      'GET / HTTP/1.1\0',
      'GET /',
      'GET / HTTP/0.9',
      'GET / HTTP/1.2',
      'GET / HTTP/1.10',
      'GET / HTTP/01.1',
      'GET / HTTP/2',
      'GET / HTTP/2.0',
      'GET / HTTP/11',
      'GET / HTTP/1,1',
      'GET / HTTP/+1.1',
      'GET / http/1.1',
      'GET / Http/1.1',
      'GET / HTTPS/1.1',
      'GET / ICE/1.0',
      'GET / RTSP/1.0',
      'GET /HTTP/1.1',
      'G\xc9T / HTTP/1.1',
      'GET: / HTTP/1.1',
      '"GET" / HTTP/1.1',
      'HTTP/1.1 200 OK',
      'X: y',
    ]) {
      t.equal(isFault(`${line}\r\n${HOST}\r\n`), true, shown(line))
      t.same(readRequests(`${GET}${line}\r\n${HOST}\r\n`).requests.length, 1, 'behind another request, too')
    }
    for (let code = 0; code < 256; code++) {
      const isTarget = code > 0x20 && code < 0x7f
      t.equal(
        isFault(`GET /a${String.fromCharCode(code)}b HTTP/1.1\r\n\r\n`),
        !isTarget,
        `byte ${code} in a target`,
      )
    }
  })
})

t.test('field lines are read in one way only', async (t) => {
  for (const line of [
    'X',
    ':',
    ': y',
    'X : y',
    'X\t: y',
    ' X: y',
    '\tX: y',
    ' ',
    'X: a\r\n b',
    'X: a\r\n\tb',
    'Content-Length:\r\n 5',
    'Transfer-Encoding:\r\n chunked',
    'X Y: z',
    'X\xe9: z',
    'X\0: z',
    'X\r: z',
    'X\n: z',
    'X: a\0',
    'X: a\rb',
    'X: a\r',
    'X: \r',
    'X: a\nTransfer-Encoding: chunked',
    'X: a\rTransfer-Encoding: chunked',
    'X: a\n\rTransfer-Encoding: chunked',
    'X: a\n',
    'X: a\n\nGET /hidden HTTP/1.1',
    'X: a\r\rGET /hidden HTTP/1.1',
    'X: a\x7f',
    'X: a\x0bb',
    'GET /hidden HTTP/1.1',
  ]) {
    t.equal(isFault(`GET / HTTP/1.1\r\n${line}\r\n${HOST}\r\n`), true, `${shown(line)} first`)
    t.equal(isFault(`GET / HTTP/1.1\r\n${HOST}${line}\r\n\r\n`), true, `${shown(line)} last`)
    t.same(
      readRequests(`GET / HTTP/1.1\r\n${HOST}${line}\r\n\r\n`).requests,
      [],
      'nobody is told of such a head',
    )
  }
})

t.test('a head ends at an empty line, and at nothing that others take for one', async (t) => {
  for (const end of [
    '\n\n',
    '\r\n\n',
    '\n\r\n',
    '\r\r',
    '\n\r\n\r\n',
    '\r\n\r\r\n',
    '\r\n \r\n\r\n',
    '\r\n\0\r\n\r\n',
  ])
    t.equal(isFault(`GET / HTTP/1.1\r\nX: y${end}GET /hidden HTTP/1.1\r\n\r\n`), true, shown(end))
})

t.test('empty lines before a request are skipped, and nothing else is', async (t) => {
  for (const before of ['\r\n', '\r\n\r\n', '\r\n'.repeat(20)]) {
    t.equal(readAnyhow(`${before}${GET}`).requests.length, 1, shown(before))
    t.equal(readAnyhow(`${PUT}hello${before}${GET}${before}`).requests.length, 2, 'behind a body, too')
  }
  for (const before of [
    '\n',
    '\r',
    ' ',
    '\0',
    ' \r\n',
    '\r\n ',
    '\r\n\n',
    '\n\r\n',
    '\r\r\n',
    '\r\n\r',
    '\t\r\n',
    '0\r\n\r\n',
  ])
    t.equal(isFault(`${before}${GET}`), true, shown(before))
})

t.test('an empty line is not the beginning of a request', async (t) => {
  for (const [bytes, isWithin] of [
    ['', false],
    ['\r\n', false],
    ['\r\n\r\n\r\n', false],
    ['\r', false],
    ['\r\n\r', false],
    ['\r\nG', true],
    ['G', true],
    ['GET / HTTP/1.1\r\n', true],
    ['GET / HTTP/1.1\r\n\r', true],
    [GET, false],
    [`${GET}\r\n`, false],
    [`${GET}\r\nG`, true],
    [PUT, false],
    [`${PUT}hell`, false],
    [`${PUT}hello`, false],
    [`${PUT}hello\r`, false],
    [`${PUT}hello\r\n\r`, false],
    [`${PUT}hello\r\nG`, true],
    [`\r\n${CHUNKED}1\r`, true],
    [`\r\n${CHUNKED}1\r\na\r`, true],
  ] as const) {
    const reading = readAnyhow(bytes)
    t.same([reading.isWithin, reading.fault], [isWithin, undefined], shown(bytes))
    t.equal(reading.atHead, !bytes.includes('PUT') || bytes.includes('hello'))
  }
})

t.test('requests follow each other', async (t) => {
  t.test('what stands behind the end of a request is the next one', async (t) => {
    const reading = readAnyhow(
      `${GET}${PUT}GET /${CHUNKED}3;x\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n${GET.replace('GET', 'DELETE')}${GET}`,
    )
    t.equal(reading.fault, undefined)
    t.same(
      reading.requests.map(({ method, body, last, trailers }) => [method, body, last, trailers]),
      [
        ['GET', '', false, []],
        ['PUT', 'GET /', true, []],
        ['PUT', 'abc', false, ['X-Sum', '1']],
        ['DELETE', '', false, []],
        ['GET', '', false, []],
      ],
    )
  })

  t.test('a body is never read as a request, whatever stands in it', async (t) => {
    const hidden = 'GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n'
    const put = `PUT / HTTP/1.1\r\nContent-Length: ${hidden.length}\r\n\r\n`
    t.same(lines(readAnyhow(put + hidden + GET)), ['PUT / HTTP/1.1', 'GET /b/k HTTP/1.1'])
    const size = hidden.length.toString(16)
    t.same(lines(readAnyhow(`${CHUNKED}${size}\r\n${hidden}\r\n0\r\n\r\n${GET}`)), [
      'PUT /b/k HTTP/1.1',
      'GET /b/k HTTP/1.1',
    ])
    t.same(
      lines(readAnyhow(`${CHUNKED}0\r\n\r\n${hidden}`)),
      ['PUT /b/k HTTP/1.1', 'GET /hidden HTTP/1.1'],
      'what stands behind its end is one',
    )
  })

  t.test('where a body ends is said by the sink alone', async (t) => {
    const none = { chunked: false, contentLength: 0 }
    t.equal(isFault(`${PUT}hello\r\n`, { follows: () => none }), true, 'it is the next request then')
    t.same(lines(readAnyhow(`${CHUNKED}${GET}`, { follows: () => none })).length, 2)
    t.same(
      readAnyhow(`${GET}hello`, { follows: () => ({ chunked: false, contentLength: 5 }) }).requests[0]?.body,
      'hello',
    )
    t.same(
      readAnyhow(`${PUT}5\r\nhello\r\n0\r\n\r\n`, { follows: () => ({ chunked: true, contentLength: 5 }) })
        .requests[0]?.body,
      'hello',
    )
  })

  t.test('requests before a mistake are told whole', async (t) => {
    for (const mistake of ['X', '\0', 'GET /\r\n', 'GET / HTTP/1.1\r\n X: y\r\n\r\n', `${CHUNKED}x\r\n`]) {
      const { requests, fault } = readAnyhow(`${GET}${PUT}hello${mistake}`)
      t.same(
        requests.slice(0, 2).map(({ trailers }) => trailers),
        [[], []],
        shown(mistake),
      )
      t.equal(fault === undefined, mistake === 'X', shown(mistake))
    }
  })
})

t.test('nothing is read where nothing follows that could be', async (t) => {
  const reading = readAnyhow(`${GET}${PUT}hello\0\n`, {
    follows: ({ method }) => (method === 'PUT' ? undefined : { chunked: false, contentLength: 0 }),
  })
  t.equal(reading.fault, undefined)
  t.same(
    reading.requests.map(({ trailers }) => trailers),
    [[], undefined],
    'no end is told of it either',
  )
  t.equal(reading.left, 'hello\0\n')
  t.equal(reading.atHead, false)
})

t.test('other protocols are told at once', async (t) => {
  for (const bytes of [
    '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', // TLS
    'PRI * HTTP/2.0\r\n',
    'SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n',
    'EHLO mail.example\r\n',
    'PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n',
    '\r\n\r\n\0\r\nQUIT\n', // PROXY, version 2
    '\x05\x01\x00', // SOCKS
    '*1\r\n', // Redis
    '{"a":',
    '<?xml',
    '\0',
    '\n',
    ' ',
    '\x80',
    '\rG',
    'X'.repeat(25),
    'GET / HTTP/1.1\nHost: a\n\n',
    'GET / HTTP/1.1\n',
    'GET /\r\n',
    'get / HTTP/1.1\r\n',
    'GET / HTTP/1.1\r\nHost: a\n',
    'GET / HTTP/1.1\r\nHost: a\r\n\n',
    'GET / HTTP/1.1\r\nHost\r\n',
    'GET / HTTP/1.1\r\n ',
    'GET / HTTP/1.1\r\nHost ',
    'GET / HTTP/1.1\r\nX: \0',
    'GET / HTTP/1.1\r\nX: a\rb',
    'GET / HTTP/1.1\r\n \r\n',
    'GET / HTTP/1.1\r\nX: y\r\n z\r\n',
  ])
    t.equal(isFault(bytes), true, shown(bytes))
  for (const bytes of ['G', 'X', 'X'.repeat(24), 'X ', 'M-SEARCH', 'GET /\0', 'GET / HTTP/1.1\r'])
    t.equal(isFault(bytes), false, `not yet: ${shown(bytes)}`)
})

t.test('a head has so many bytes at most', async (t) => {
  const limits = { headerBytes: 100, headerLines: 5 }
  /** A head of so many bytes without its empty line. */
  const head = (bytes: number, start = 'GET / HTTP/1.1\r\nX: ') =>
    `${start}${'a'.repeat(bytes - start.length)}`
  const most = 2 * 100 + 24 + ' HTTP/1.1\r\n '.length

  t.test('a head of just that many is taken, in pieces, too', async (t) => {
    const line = 'GET / HTTP/1.1\r\nX: y'
    const long = line.replace('/', `/${'a'.repeat(most - line.length)}`)
    for (const bytes of [long, `\r\n\r\n${long}`])
      t.equal(readAnyhow(`${bytes}\r\n\r\n`, { limits }).requests.length, 1)
    t.equal(readAnyhow(`${GET}${long}\r\n\r\n`, { limits }).requests.length, 2)
  })

  t.test('its lines have as many as is set, white space and line ends included', async (t) => {
    for (const [value, taken] of [
      [' '.padEnd(96, 'a'), 1],
      [' '.padEnd(97, 'a'), 0],
      ['a'.padStart(96), 1],
      ['a'.padStart(97), 0],
      ['a'.padEnd(97), 0],
    ] as const) {
      const read = readAnyhow(`GET / HTTP/1.1\r\nX:${value}\r\n\r\n`, { limits })
      t.same([read.requests.length, read.tooLarge], [taken, taken === 0])
    }
  })

  t.test('a head of more is refused', async (t) => {
    for (const bytes of [
      `${head(most + 1)}\r\n\r\n`,
      `${head(2000)}\r\n\r\n`,
      head(most + 4),
      head(2000, 'GET /'),
      `GET / HTTP/1.1\r\n${'X: y\r\n'.repeat(100)}`,
      `\r\n${head(most + 4)}`,
    ]) {
      t.equal(isFault(bytes, { limits }), true)
      t.equal(readRequests(bytes, { limits }).tooLarge, true)
    }
    t.equal(isFault(head(most + 3), { limits }), false, 'not before it is known')
    t.equal(readRequests(`${head(most)}\0`, { limits }).tooLarge, false)
  })

  t.test('lines are not counted here: the gate says how many there may be', async (t) => {
    const roomy = { limits: { headerBytes: 1000, headerLines: 5 } }
    const read = readAnyhow(`GET / HTTP/1.1\r\n${'X:\r\n'.repeat(40)}\r\n`, roomy)
    t.equal(read.requests[0]?.rawHeaders.length, 80)
  })

  t.test('bodies and empty lines are not counted', async (t) => {
    const body = 'a'.repeat(1000)
    t.equal(
      readAnyhow(`PUT / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n${body}`, { limits }).requests[0]?.body,
      body,
    )
    t.equal(readAnyhow(`${'\r\n'.repeat(500)}${GET}`, { limits }).requests.length, 1)
  })
})

t.test('a mistake that is no matter of size is not called one', async (t) => {
  for (const bytes of ['GET /\r\n\r\n', 'GET / HTTP/1.1\r\nX\r\n\r\n', '\0', `${CHUNKED}x\r\n`]) {
    const { fault, tooLarge } = readRequests(bytes)
    t.ok(fault)
    t.equal(tooLarge, false, shown(bytes))
  }
  const trailers = `${CHUNKED}0\r\nX: ${'a'.repeat(20_000)}`
  t.match(readRequests(trailers), { fault: 'trailers too large', tooLarge: true })
  t.match(readRequests(`${CHUNKED}0\r\n${'X:\r\n'.repeat(201)}\r\n`), { tooLarge: true })
})

t.test('a client cannot end a request by closing', async (t) => {
  const sink = { onHead: () => undefined, onBody: () => {}, onEnd: () => t.fail() }
  t.equal(new RequestReader(sink, { headerBytes: 100, headerLines: 5 }).close(), false)
})

t.test('a list of header lines is given again while the lines stay the same, byte for byte', async (t) => {
  const heads: RawRequestHead[] = []
  const sink = { onBody: () => {}, onEnd: () => {} }
  const reader = new RequestReader(
    {
      ...sink,
      onHead: (head) => {
        heads.push(head)
        return { chunked: false, contentLength: 0 }
      },
    },
    { headerBytes: 16384, headerLines: 200 },
  )
  const ask = (line: string, fields: string) => {
    reader.push(Buffer.from(`${line}\r\n${fields}\r\n`))
    reader.next()
    return heads.at(-1)
  }
  const first = ask('GET /a HTTP/1.1', HOST)
  t.match(first, { url: '/a', isRemembered: true })
  const again = ask('PUT /b HTTP/1.0', HOST)
  t.match(again, { method: 'PUT', url: '/b', httpVersion: '1.0', isRemembered: true })
  t.equal(again?.rawHeaders, first?.rawHeaders)
  for (const fields of [HOST.toLowerCase(), `${HOST}X: y\r\n`, HOST.replace(' ', ''), HOST]) {
    const before = heads.at(-1)?.rawHeaders
    t.not(ask('GET /a HTTP/1.1', fields)?.rawHeaders, before, shown(fields))
  }
  t.match(ask('GET /a HTTP/1.1', ''), { rawHeaders: [], isRemembered: false })
  t.match(ask('GET /a HTTP/1.1', HOST), { rawHeaders: ['Host', 'storage.example'], isRemembered: true })
  const long = `X: ${'a'.repeat(3000)}\r\n`
  t.match(ask('GET /a HTTP/1.1', long), { isRemembered: false })
  t.match(ask('GET /a HTTP/1.1', long), { isRemembered: false }, 'what is long is not kept')
})
