import fc from 'fast-check'
import t from 'tap'
import { HeaderLines } from '../../src/http/headers.ts'
import type { UpstreamHead } from '../../src/upstream/response-parser.ts'
import { type How, type Reading, read } from '../support/response-reading.ts'

const OK = 'HTTP/1.1 200 OK\r\n'
const CHUNKED = `${OK}Transfer-Encoding: chunked\r\n\r\n`

/** Reads bytes at once, split at each place, and byte by byte: `of` the reading must be the same. */
function always<T>(bytes: string, how: How, of: (reading: Reading) => T): T {
  const everywhere = Array.from({ length: Math.max(0, bytes.length - 1) }, (_, at) => at + 1)
  const outcomes = [[], everywhere, ...everywhere.map((at) => [at])].map((cuts) =>
    of(read(bytes, { ...how, cuts })),
  )
  const first = outcomes[0] as T
  if (new Set(outcomes.map((outcome) => JSON.stringify(outcome))).size > 1) {
    throw new Error(`depends on how the bytes are split: ${JSON.stringify(bytes)}`)
  }
  return first
}

const fails = (bytes: string, how: How = {}) => always(bytes, how, ({ error }) => error !== undefined)

/** The reading of a complete response. */
function complete(bytes: string, how: How = {}) {
  const reading = always(bytes, how, (reading) => reading)
  if (reading.error !== undefined || reading.trailers === undefined) {
    throw new Error(`incomplete (${reading.error}): ${JSON.stringify(bytes)}`)
  }
  return reading
}

t.test('a head is parsed byte for byte', async (t) => {
  const { head, body, trailers } = complete(
    'HTTP/1.1 201 Very  created \r\nset-Cookie:a=1\r\nSet-Cookie: \t b=2\t \r\nX-Latin: caf\xe9\r\nX-Empty:\r\nContent-Length: 2\r\n\r\nok',
  )
  t.strictSame(head, {
    status: 201,
    statusText: 'Very  created ',
    lines: new HeaderLines([
      'set-Cookie',
      'a=1',
      'Set-Cookie',
      'b=2',
      'X-Latin',
      'caf\xe9',
      'X-Empty',
      '',
      'Content-Length',
      '2',
    ]),
    framing: 'length',
    contentLength: 2,
    keepAliveSeconds: 5,
  })
  t.strictSame([body, trailers], ['ok', []])
})

t.test('a status line has one form', async (t) => {
  for (const [line, status, reason] of [
    ['HTTP/1.1 200 OK', 200, 'OK'],
    ['HTTP/1.1 200 ', 200, ''],
    ['HTTP/1.1 200', 200, ''],
    ['HTTP/1.0 200 OK', 200, 'OK'],
    ['HTTP/1.1 999 x', 999, 'x'],
    ['HTTP/1.1 404 \t a\tb:caf\xe9', 404, '\t a\tb:caf\xe9'],
  ] as const) {
    t.match(complete(`${line}\r\nContent-Length: 0\r\n\r\n`).head, { status, statusText: reason }, line)
  }
  for (const line of [
    'HTTP/1.1 20',
    'HTTP/1.1 20 OK',
    'HTTP/1.1 099 x',
    'HTTP/1.1 000 x',
    'HTTP/1.1 1000 x',
    'HTTP/1.1 +20 x',
    'HTTP/1.1 2e2 x',
    'HTTP/1.1 0x9 x',
    'HTTP/1.1  200 OK',
    'HTTP/1.1\t200 OK',
    'HTTP/1.1 200\tOK',
    'HTTP/1.1 200OK',
    'HTTP/1.1 OK',
    'HTTP/1.1 ',
    'HTTP/1.1',
    'HTTP/',
    'HTTP/0.9 200 OK',
    'HTTP/1.2 200 OK',
    'HTTP/1.10 200 OK',
    'HTTP/2 200',
    'HTTP/2.0 200 OK',
    'http/1.1 200 OK',
    'HTTPS/1.1 200 OK',
    'ICY 200 OK',
    ' HTTP/1.1 200 OK',
    '\r\nHTTP/1.1 200 OK',
    'GET / HTTP/1.1',
    'HTTP/1.1 200 a\0b',
    'HTTP/1.1 200 a\rb',
    'HTTP/1.1 200 a\nb',
    'HTTP/1.1 200 a\x7f',
    'HTTP/1.1 200 a\x1b[2J',
  ]) {
    t.equal(fails(`${line}\r\nContent-Length: 0\r\n\r\n`), true, JSON.stringify(line))
  }
})

t.test('bytes that cannot start a response are refused before the end of a head', async (t) => {
  for (const bytes of [
    'SSH-2.0-OpenSSH_9.2p1\r\n',
    'S',
    '220 mail ESMTP\r\n',
    '<html>',
    '\x15\x03\x01\0\x02',
    '\0',
    '\r\n',
    '\n',
    'h',
    'HTTQ',
    'PRI * HTTP/2.0\r\n',
    'HTTP/1.1 200 OK\n',
    'HTTP/1.1 200 OK\nContent-Length: 2\n\nok',
    'HTTP/1.1 200 OK\r\nX: y\n',
    'HTTP/1.1 200 OK\r\nX: y\r\n\n',
  ]) {
    t.equal(fails(bytes), true, JSON.stringify(bytes))
  }
  for (const bytes of ['', 'H', 'HTTP/', 'HTTP/1.1 200 OK', 'HTTP/1.1 200 OK\r', 'HTTP/1.1 200 OK\r\n\r']) {
    t.strictSame(
      always(bytes, { closes: true }, (reading) => reading),
      read(''),
      JSON.stringify(bytes),
    )
  }
})

t.test('an ambiguous field line is refused', async (t) => {
  for (const line of [
    'X',
    ':',
    ': y',
    'X : y',
    'X\t: y',
    ' X: y',
    '\tX: y',
    'X: a\r\n b',
    'X: a\r\n\tb',
    'X: a\r\n ',
    ' ',
    'X; y',
    'X Y: z',
    'X(Y): z',
    'X\xe9: z',
    'X\0: z',
    'X\x7f: z',
    'X\r: z',
    '{"a":1}',
    '\rX: y',
    '\r',
    'X: a\0b',
    'X: a\rb',
    'X: a\r',
    'X: \r',
    'X: a\nY: b',
    'X: a\n',
    'X: a\x0bb',
    'X: a\x7fb',
    'X: a\x1bb',
  ]) {
    t.equal(fails(`${OK}${line}\r\nContent-Length: 0\r\n\r\n`), true, JSON.stringify(line))
    t.equal(fails(`${OK}Content-Length: 0\r\n${line}\r\n\r\n`), true, `${JSON.stringify(line)} at the end`)
    t.equal(fails(`${CHUNKED}0\r\nY: z\r\n${line}\r\n\r\n`), true, `${JSON.stringify(line)} as a trailer`)
  }
  for (const name of ["!#$%&'*+-.^_`|~09azAZ", 'x', '_']) {
    t.equal(fails(`${OK}${name}: y\r\n\r\n`), false, name)
  }
})

t.test('a body has one length', async (t) => {
  for (const [value, contentLength] of [
    ['0', 0],
    ['05', 5],
    ['999999999999999', 999_999_999_999_999],
  ] as const) {
    t.match(read(`${OK}Content-Length: ${value}\r\n\r\n`).head, { framing: 'length', contentLength }, value)
  }
  for (const value of [
    ...[
      '',
      '+5',
      '-0',
      '-5',
      '0x5',
      '5,6',
      '5, 05',
      '5,',
      ',',
      ',5',
      '5 5',
      '5.0',
      '5e1',
      '"5"',
      'five',
      '\xb2',
    ],
    '1000000000000000',
    '18446744073709551616',
  ]) {
    t.equal(fails(`${OK}Content-Length: ${value}\r\n\r\n`), true, JSON.stringify(value))
  }
  for (const [first, second] of [
    ['Content-Length: 5', 'Content-Length: 05'],
    ['Content-Length: 5', 'Content-Length: '],
    ['Content-Length: 5', 'Content-Length: 5, 6'],
    ['Content-Length: 5', 'content-length: 6'],
    ['Content-Length: 5', 'Transfer-Encoding: chunked'],
    ['Content-Length: 0', 'Transfer-Encoding: chunked'],
    ['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'],
  ]) {
    t.equal(fails(`${OK}${first}\r\n${second}\r\n\r\n`), true, `${first}, ${second}`)
    t.equal(fails(`${OK}${second}\r\n${first}\r\n\r\n`), true, `${second}, ${first}`)
  }
})

t.test('the same length twice is one length, and one line', async (t) => {
  for (const lines of ['Content-Length: 2\r\nX: y\r\ncontent-length: 2', 'Content-Length: 2, 2\r\nX: y']) {
    const { head, body } = complete(`${OK}${lines}\r\n\r\nok`)
    t.match(head, { framing: 'length', contentLength: 2 })
    t.strictSame(head?.lines.raw, ['Content-Length', '2', 'X', 'y'])
    t.equal(body, 'ok')
    t.equal(fails(`${OK}${lines}\r\nTransfer-Encoding: chunked\r\n\r\n`), true, 'beside chunks')
  }
})

t.test('the only transfer coding is chunked, in HTTP/1.1', async (t) => {
  for (const value of ['chunked', 'Chunked', 'CHUNKED', ' chunked\t']) {
    t.equal(read(`${OK}Transfer-Encoding: ${value}\r\n\r\n`).head?.framing, 'chunked', value)
  }
  for (const value of [
    '',
    'identity',
    'gzip',
    'gzip, chunked',
    'chunked, gzip',
    'chunked, chunked',
    'chunked,',
    ',chunked',
    'chunked;q=1',
    'xchunked',
    'chunkedx',
    '"chunked"',
    'chunked\x0b',
  ]) {
    t.equal(fails(`${OK}Transfer-Encoding: ${value}\r\n\r\n`), true, JSON.stringify(value))
    t.equal(fails(`${OK}Transfer-Encoding: ${value}\r\n\r\n`, { isHead: true }), true, `${value}, to HEAD`)
  }
  t.equal(fails('HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'), true)
  t.equal(read(`${OK}Transfer_Encoding: chunked\r\nContent_Length: 5\r\n\r\n`).head?.framing, 'close')
})

t.test('request, status and framing determine where a response ends', async (t) => {
  const both = 'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n'
  const table: readonly [bytes: string, framing: UpstreamHead['framing'], body: string, how?: How][] = [
    [`${OK}Content-Length: 5\r\n\r\nhello`, 'length', 'hello'],
    [`${OK}Content-Length: 0\r\n\r\n`, 'length', ''],
    [`${CHUNKED}5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\n`, 'chunked', 'hello!'],
    [`${OK}X: y\r\n\r\nhello`, 'close', 'hello', { closes: true }],
    ['HTTP/1.0 200 OK\r\n\r\n', 'close', '', { closes: true }],
    [`${OK}Content-Length: 5\r\n\r\n`, 'none', '', { isHead: true }],
    [OK + both, 'none', '', { isHead: true }],
    [`${OK}\r\n`, 'none', '', { isHead: true }],
    ['HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n', 'none', ''],
    ['HTTP/1.1 204 \r\nTransfer-Encoding: chunked\r\n\r\n', 'none', ''],
    ['HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n', 'none', ''],
    [`HTTP/1.1 304 \r\n${both}`, 'none', ''],
    ['HTTP/1.1 205 \r\nContent-Length: 1\r\n\r\nx', 'length', 'x'],
  ]
  for (const [bytes, framing, body, how] of table) {
    const reading = complete(bytes, how)
    t.match(reading, { head: { framing }, body, hasMore: false }, JSON.stringify(bytes))
    if (framing === 'close') {
      continue
    }
    // A second response after it is never read (CVE-2026-48931); the connection cannot be reused.
    const more = complete(`${bytes}HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nall`, how)
    t.strictSame(more, { ...reading, hasMore: true })
  }
})

t.test('a truncated response is never complete', async (t) => {
  for (const bytes of [
    `${OK}Content-Length: 5\r\n\r\nhello`,
    `${CHUNKED}5\r\nhello\r\n0\r\nX-Sum: a\r\n\r\n`,
    'HTTP/1.1 100 \r\n\r\nHTTP/1.1 204 \r\n\r\n',
  ]) {
    for (let length = 0; length < bytes.length; length++) {
      const { error, trailers } = read(bytes.slice(0, length), { closes: true })
      t.strictSame([error, trailers], [undefined, undefined], `${length} bytes`)
    }
  }
})

t.test('a chunk size is hexadecimal digits and an optional extension', async (t) => {
  for (const [line, size] of [
    ['05', 5],
    ['00000000000f', 15],
    ['A', 10],
    ['5;', 5],
    ['5 ', 5],
    ['5\t ', 5],
    ['5 \t;ext', 5],
    ['5;ext=1; more="a;b" \t', 5],
    ['5;caf\xe9', 5],
    [`1;${'x'.repeat(254)}`, 1],
  ] as const) {
    t.equal(
      complete(`${CHUNKED}${line}\r\n${'x'.repeat(size)}\r\n0\r\n\r\n`).body.length,
      size,
      line.slice(0, 30),
    )
  }
  for (const line of [
    '',
    ' 5',
    ' ',
    ' ;ext',
    '5 5',
    '5 x',
    '5\x0b',
    '+5',
    '-5',
    '-0',
    '0x5',
    '5h',
    'g',
    '5,5',
    '5.0',
    '"5"',
    ';ext',
    '0000000000005',
    'fffffffffffffffff',
    '\xb2',
    '5;a\0b',
    '5;a\x7fb',
    '5;a\rb',
    '5;a\nb',
    '5\r',
    '5\n',
    `1;${'x'.repeat(255)}`,
  ]) {
    t.equal(fails(`${CHUNKED}${line}\r\nhello\r\n0\r\n\r\n`), true, JSON.stringify(line.slice(0, 30)))
  }
  t.equal(fails(`${CHUNKED}1;${'x'.repeat(256)}`), true, 'a line without an end')
  t.equal(fails(`${CHUNKED}${'0'.repeat(300)}`), true)
})

t.test('a chunk is as long as its size, and its lines end in CR LF', async (t) => {
  for (const rest of [
    '5\r\nhello!\r\n',
    '5\r\nhello0\r\n\r\n',
    '4\r\nhello\r\n',
    '6\r\nhello\r\n0\r\n\r\n',
    '5\r\nhello\n',
    '5\r\nhello\r0',
    '5\r\nhello\r\r\n',
    '5\nhello\n0\n\n',
    '5;ext\n',
    '0\n',
    '5\r\nhello\r\n0\n\n',
  ]) {
    t.equal(fails(CHUNKED + rest), true, JSON.stringify(rest))
  }
})

t.test('trailers are parsed byte for byte', async (t) => {
  const bytes = `${CHUNKED}1\r\nx\r\n0;last\r\nX-Sum:  abc\t\r\nx-sum: def\r\nX-Empty:\r\n\r\n`
  t.strictSame(complete(bytes).trailers, ['X-Sum', 'abc', 'x-sum', 'def', 'X-Empty', ''])
})

t.test('heads and trailers are bounded in bytes and lines', async (t) => {
  const limits = { headerBytes: 100, headerLines: 5 }
  const informational = `HTTP/1.1 103 \r\nX: ${'a'.repeat(80)}\r\n\r\n`
  for (const [before, section] of [
    ['', `${OK}Content-Length: 0\r\n`],
    [informational + informational, `${OK}Content-Length: 0\r\n`], // each head counts anew
    [`${CHUNKED}0`, '\r\nY: z\r\n'],
  ] as const) {
    const start = before + section
    const filled = (bytes: number) => `${start}X: ${'a'.repeat(bytes - section.length - 3)}`
    t.equal(fails(`${filled(100)}\r\n\r\n`, { limits }), false)
    t.equal(fails(`${filled(101)}\r\n\r\n`, { limits }), true)
    t.equal(fails(filled(104), { limits }), true, 'without an end')
    t.equal(fails(`${start}${'X: y\r\n'.repeat(4)}\r\n`, { limits }), false)
    t.equal(fails(`${start}${'X: y\r\n'.repeat(5)}\r\n`, { limits }), true)
  }
})

t.test(
  'informational responses precede the response, of which 32 are read; the bytes after a 101 end with the connection',
  async (t) => {
    const reading = complete(
      `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\nLink: </a>\r\nContent-Length: 5\r\n\r\n${OK}Content-Length: 2\r\n\r\nok`,
    )
    t.match(reading.informational, [
      { status: 103, lines: { raw: ['Link', '</a>', 'Content-Length', '5'] }, framing: 'none' },
    ])
    t.match(reading, { head: { status: 200 }, body: 'ok' })
    const some = (count: number) => 'HTTP/1.1 102 \r\n\r\n'.repeat(count)
    t.equal(complete(`${some(32)}${OK}Content-Length: 0\r\n\r\n`).informational.length, 32)
    t.equal(read(`${some(1000)}${OK}Content-Length: 0\r\n\r\n`).informational.length, 32)
    const upgrade = 'HTTP/1.1 101 \r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n'
    const switched = `${upgrade}\r\nbytes`
    for (const bytes of [`HTTP/1.1 100 \r\n\r\n${switched}`, `${upgrade}Content-Length: 0\r\n\r\nbytes`]) {
      t.match(read(bytes, { closes: true, isWebSocket: true }), {
        head: { status: 101, framing: 'close', keepAliveSeconds: 0 },
        body: 'bytes',
      })
    }
    t.type(read(switched).error, 'string', 'not asked for')
    for (const lines of ['Upgrade: websocket\r\n', 'Connection: upgrade\r\nUpgrade: h2c\r\n']) {
      t.type(read(`HTTP/1.1 101 \r\n${lines}\r\n`, { isWebSocket: true }).error, 'string', lines)
    }
  },
)

t.test('a head determines whether its connection can be reused', async (t) => {
  const table: readonly [bytes: string, keepAlive: boolean, how?: How][] = [
    [`${OK}Content-Length: 0\r\n\r\n`, true],
    [CHUNKED, true],
    [`${OK}\r\n`, false],
    [`${OK}\r\n`, true, { isHead: true }],
    ['HTTP/1.1 204 \r\n\r\n', true],
    ['HTTP/1.1 204 \r\nContent-Length: 5\r\n\r\n', false],
    ['HTTP/1.1 204 \r\nTransfer-Encoding: chunked\r\n\r\n', false],
    ['HTTP/1.1 304 \r\nContent-Length: 5\r\n\r\n', true],
    ['HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n', false],
    [`${OK}Content-Length: 0\r\nConnection: Keep-Alive\r\nconnection: x , CLOSE\t, y\r\n\r\n`, false],
    [`${OK}Content-Length: 0\r\nConnection: x-close, closed\r\n\r\n`, true],
    [`${OK}Connection: close\r\n\r\n`, false, { isHead: true }],
  ]
  for (const [bytes, keepAlive, how] of table) {
    t.equal(read(bytes, how).head?.keepAliveSeconds !== 0, keepAlive, JSON.stringify(bytes))
  }
  for (const [value, seconds] of [
    ['timeout=4', 4],
    ['max=100, Timeout=15', 15],
    ['max=100,timeout=0', 0],
    ['timeout=-1', 5],
    ['timeout=5s', 5],
    ['timeout=1000000', 5],
  ] as const) {
    t.equal(
      read(`${OK}Content-Length: 0\r\nKeep-Alive: ${value}\r\n\r\n`).head?.keepAliveSeconds,
      seconds,
      value,
    )
  }
})

const latin1 = fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code))
const text = fc.string({
  unit: latin1.filter((character) => !/[\0-\x20\x7f]/.test(character)),
  maxLength: 12,
})
const name = fc
  .string({ unit: fc.constantFrom(..."abXY09!#$%&'*+-.^_`|~"), maxLength: 8 })
  .map((end) => `X${end}`)
const blank = fc.constantFrom('', ' ', '\t', ' \t ')
const lines = fc.array(fc.tuple(name, text, blank, blank), { maxLength: 4 })
const body = fc.string({ unit: latin1, maxLength: 60 })

type Lines = readonly (readonly [name: string, value: string, before: string, after: string])[]
const onWire = (list: Lines) => list.map(([key, value, a, b]) => `${key}:${a}${value}${b}\r\n`).join('')
const raw = (list: Lines) => list.flatMap((line) => line.slice(0, 2))

/** Responses of every framing, and the expected readings. */
const samples = fc
  .record({
    framing: fc.constantFrom('length', 'chunked', 'close', 'none'),
    noBody: fc.constantFrom('HEAD', '204', '304'),
    status: fc.integer({ min: 200, max: 999 }).filter((status) => status !== 204 && status !== 304),
    informational: fc.array(fc.constantFrom(100, 102, 103, 199), { maxLength: 2 }),
    lines,
    chunks: fc.array(fc.tuple(body, fc.constantFrom('', ';a', ';a="b c"')), { maxLength: 4 }),
    body,
    trailers: lines,
  })
  .map((shape) => {
    const { framing, noBody } = shape
    const isHead = framing === 'none' && noBody === 'HEAD'
    const status = framing === 'none' && !isHead ? Number(noBody) : shape.status
    let bytes = shape.informational.map((code) => `HTTP/1.1 ${code} \r\nX: y\r\n\r\n`).join('')
    bytes += `HTTP/1.1 ${status} \r\n${onWire(shape.lines)}`
    let content = ''
    if (framing === 'length') {
      bytes += `content-LENGTH: ${shape.body.length}\r\n`
    }
    if (framing === 'chunked') {
      bytes += 'Transfer-Encoding: Chunked\r\n'
    }
    bytes += '\r\n'
    if (framing === 'length' || framing === 'close') {
      content = shape.body
    }
    bytes += content
    if (framing === 'chunked') {
      for (const [data, extension] of shape.chunks.filter(([data]) => data !== '')) {
        bytes += `${data.length.toString(16)}${extension}\r\n${data}\r\n`
        content += data
      }
      bytes += `0\r\n${onWire(shape.trailers)}\r\n`
    }
    const trailers = framing === 'chunked' ? raw(shape.trailers) : []
    return { ...shape, bytes, isHead, content, trailers, headers: raw(shape.lines) }
  })
const places = fc.array(fc.nat(), { maxLength: 6 })
const within = (cuts: readonly number[], bytes: string) => cuts.map((cut) => cut % (bytes.length + 1))

t.test('every valid response is parsed correctly in any packet split', async () => {
  const property = fc.property(samples, places, body, (sample, cuts, more) => {
    const closes = sample.framing === 'close'
    const bytes = closes ? sample.bytes : sample.bytes + more
    const reading = read(bytes, { cuts: within(cuts, bytes), isHead: sample.isHead, closes })
    const { head } = reading
    const headers = head?.lines.raw.slice(0, sample.headers.length)
    return (
      reading.error === undefined &&
      reading.hasMore === (!closes && more !== '') &&
      reading.informational.length === sample.informational.filter((code) => code !== 100).length &&
      head?.framing === sample.framing &&
      JSON.stringify(headers) === JSON.stringify(sample.headers) &&
      reading.body === sample.content &&
      JSON.stringify(reading.trailers) === JSON.stringify(sample.trailers)
    )
  })
  fc.assert(property, { numRuns: 1500 })
})
