import t from 'tap'
import { ResponseParser } from '../../src/forward/response-parser.ts'
import type { Framing } from '../../src/http1/message-reader.ts'
import { type How, LIMITS, type Reading, read } from '../support/response-reading.ts'

/** Every cut of bytes into two, and into single bytes. */
function* everyCut(bytes: string): Generator<readonly number[]> {
  yield []
  for (let at = 1; at < bytes.length; at++) yield [at]
  yield Array.from({ length: bytes.length - 1 }, (_, at) => at + 1)
}

/** Whether bytes are refused, however they are cut. */
function isFault(bytes: string, how: How = {}): boolean {
  const outcomes = new Set<boolean>()
  for (const cuts of everyCut(bytes)) outcomes.add(read(bytes, { ...how, cuts }).fault !== undefined)
  if (outcomes.size > 1) throw new Error(`depends on the cut: ${JSON.stringify(bytes)}`)
  return outcomes.has(true)
}

/** Reads bytes that are a whole response, however they are cut. */
function whole(bytes: string, how: How = {}): Reading {
  const { lasts: _, ...first } = read(bytes, how)
  if (!first.done || first.fault !== undefined)
    throw new Error(`not whole (${first.fault}): ${JSON.stringify(bytes)}`)
  for (const cuts of everyCut(bytes)) {
    const { lasts: __, ...again } = read(bytes, { ...how, cuts })
    if (JSON.stringify(again) !== JSON.stringify(first))
      throw new Error(`depends on the cut: ${JSON.stringify(bytes)}`)
  }
  return read(bytes, how)
}

const OK = 'HTTP/1.1 200 OK\r\n'
const CHUNKED = `${OK}Transfer-Encoding: chunked\r\n\r\n`

t.test('a head is told as it stood on the wire', async (t) => {
  const bytes =
    'HTTP/1.1 201 Very  created \r\nset-Cookie:a=1\r\nSet-Cookie: \t b=2\t \r\nX-Latin: caf\xe9\r\nX-Empty:\r\nContent-Length: 2\r\n\r\nok'
  const { head, body, taken, trailers } = whole(bytes)
  t.strictSame(head, {
    status: 201,
    reason: 'Very  created ',
    rawHeaders: [
      'set-Cookie',
      'a=1',
      'Set-Cookie',
      'b=2',
      'X-Latin',
      'caf\u00e9',
      'X-Empty',
      '',
      'Content-Length',
      '2',
    ],
    framing: 'length',
    contentLength: 2,
    keepAlive: true,
    keepAliveSeconds: undefined,
  })
  t.equal(body, 'ok')
  t.equal(taken, bytes.length)
  t.same(trailers, [])
})

t.test('a status line is read in one way only', async (t) => {
  t.test('status lines of HTTP/1.1 and HTTP/1.0 are taken, with any reason', async (t) => {
    for (const [line, status, reason] of [
      ['HTTP/1.1 200 OK', 200, 'OK'],
      ['HTTP/1.1 200 ', 200, ''],
      ['HTTP/1.0 200 OK', 200, 'OK'],
      ['HTTP/1.1 599 ', 599, ''],
      ['HTTP/1.1 999 x', 999, 'x'],
      ['HTTP/1.1 404 \t a\tb:c', 404, '\t a\tb:c'],
      ['HTTP/1.1 404 caf\xe9', 404, 'caf\u00e9'],
    ] as const) {
      const { head } = whole(`${line}\r\nContent-Length: 0\r\n\r\n`)
      t.equal(head?.status, status, line)
      t.equal(head?.reason, reason)
    }
  })

  t.test('status lines of anything else are refused', async (t) => {
    for (const line of [
      'HTTP/1.1 200',
      'HTTP/1.1 20 OK',
      'HTTP/1.1 099 x',
      'HTTP/1.1 000 x',
      'HTTP/1.1 1000 x',
      'HTTP/1.1 9999 x',
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
      ' HTTP/1.1 200 OK',
      '\r\nHTTP/1.1 200 OK',
      'ICY 200 OK',
      'HTTP/1.1 200 a\0b',
      'HTTP/1.1 200 a\rb',
      'HTTP/1.1 200 a\nb',
      'HTTP/1.1 200 a\x7f',
      'HTTP/1.1 200 a\x1b[2J',
      'GET / HTTP/1.1',
    ]) {
      t.equal(isFault(`${line}\r\nContent-Length: 0\r\n\r\n`), true, JSON.stringify(line))
    }
  })
})

t.test('bytes that cannot be a response are told at once, before any end of a head', async (t) => {
  for (const bytes of [
    'SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n',
    'S',
    '220 mail.example ESMTP\r\n',
    '<html><body>It works!',
    '\x15\x03\x01\x00\x02\x02\x16',
    '\0',
    '\r\n',
    '\n',
    'h',
    'HTTQ',
    'PRI * HTTP/2.0\r\n',
    'HTTP/1.1 200 OK\nContent-Length: 2\n\nok',
    'HTTP/1.1 200 OK\n',
    'HTTP/1.1 200 OK\r\nX: y\n',
    'HTTP/1.1 200 OK\r\nX: y\r\n\n',
  ]) {
    t.equal(isFault(bytes), true, JSON.stringify(bytes))
  }
  for (const bytes of [
    '',
    'H',
    'HTTP',
    'HTTP/',
    'HTTP/1.1 200 OK',
    'HTTP/1.1 200 OK\r',
    'HTTP/1.1 200 OK\r\n\r',
  ])
    t.same(read(bytes), { ...read(''), taken: bytes.length }, JSON.stringify(bytes))
})

t.test('field lines that two parsers could read differently are refused', async (t) => {
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
    'X Y: z',
    'X(Y): z',
    'X\xe9: z',
    'X\0: z',
    'X\x7f: z',
    'X\r: z',
    'X: a\0b',
    'X: a\rb',
    'X: a\r',
    'X: \r',
    'X: a\nY: b',
    'X: a\n',
    'X: a\x0bb',
    'X: a\x7fb',
    'X: a\x1bb',
    'X; y',
    '{"a":1}',
  ]) {
    t.equal(isFault(`${OK}${line}\r\nContent-Length: 0\r\n\r\n`), true, JSON.stringify(line))
    t.equal(
      isFault(`${OK}Content-Length: 0\r\n${line}\r\n\r\n`),
      true,
      `${JSON.stringify(line)} as the last line`,
    )
  }
  for (const name of ["!#$%&'*+-.^_`|~09azAZ", 'x', '_'])
    t.equal(isFault(`${OK}${name}: y\r\n\r\n`), false, name)
})

t.test('a body has one length, that everybody reads alike', async (t) => {
  t.test('a length is one plain number', async (t) => {
    for (const [value, length] of [
      ['0', 0],
      ['5', 5],
      ['05', 5],
      ['999999999999999', 999_999_999_999_999],
    ] as const) {
      t.equal(read(`${OK}Content-Length: ${value}\r\n\r\n`).head?.contentLength, length, value)
    }
    for (const value of [
      '',
      '+5',
      '-0',
      '-5',
      '0x5',
      '5,5',
      '5, 5',
      '5 5',
      '5.0',
      '5e1',
      '"5"',
      'five',
      '1000000000000000',
      '18446744073709551616',
    ]) {
      t.equal(isFault(`${OK}Content-Length: ${value}\r\n\r\n`), true, JSON.stringify(value))
    }
  })

  t.test('a length stands there once, and not beside chunks', async (t) => {
    for (const [first, second] of [
      ['Content-Length: 5', 'Content-Length: 5'],
      ['Content-Length: 5', 'content-length: 6'],
      ['Content-Length: 0', 'CONTENT-LENGTH: 0'],
      ['Content-Length: 5', 'Transfer-Encoding: chunked'],
      ['Content-Length: 0', 'Transfer-Encoding: chunked'],
    ]) {
      t.equal(isFault(`${OK}${first}\r\n${second}\r\n\r\n`), true, `${first}, ${second}`)
      t.equal(isFault(`${OK}${second}\r\n${first}\r\n\r\n`), true, `${second}, ${first}`)
    }
  })
})

t.test('the only transfer coding is chunked, once, in HTTP/1.1', async (t) => {
  for (const value of ['chunked', 'Chunked', 'CHUNKED', ' chunked\t'])
    t.equal(read(`${OK}Transfer-Encoding: ${value}\r\n\r\n`).head?.framing, 'chunked', value)
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
    t.equal(isFault(`${OK}Transfer-Encoding: ${value}\r\n\r\n`), true, JSON.stringify(value))
    t.equal(isFault(`${OK}Transfer-Encoding: ${value}\r\n\r\n`, { head: true }), true, `${value}, to HEAD`)
  }
  t.equal(isFault(`${OK}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n`), true)
  t.equal(isFault('HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'), true)
  t.equal(
    read(`${OK}Transfer_Encoding: chunked\r\nContent_Length: 5\r\n\r\n`).head?.framing,
    'close',
    'look-alikes frame nothing',
  )
})

t.test('a response ends where its request, status and framing say', async (t) => {
  const table: readonly [what: string, bytes: string, framing: Framing, body: string, how?: How][] = [
    ['by its length', `${OK}Content-Length: 5\r\n\r\nhello`, 'length', 'hello'],
    ['at its head, with a length of none', `${OK}Content-Length: 0\r\n\r\n`, 'length', ''],
    ['by its last chunk', `${CHUNKED}5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\n`, 'chunked', 'hello!'],
    ['at a last chunk that is the first', `${CHUNKED}0\r\n\r\n`, 'chunked', ''],
    ['at a last chunk of many zeros', `${CHUNKED}0000;x\r\n\r\n`, 'chunked', ''],
    ['with its connection', `${OK}X: y\r\n\r\nhello`, 'close', 'hello', { closes: true }],
    ['with its connection, at once', 'HTTP/1.0 200 OK\r\n\r\n', 'close', '', { closes: true }],
    ['at its head, for HEAD', `${OK}Content-Length: 5\r\n\r\n`, 'none', '', { head: true }],
    ['at its head, for HEAD with chunks', CHUNKED, 'none', '', { head: true }],
    [
      'at its head, for HEAD with both',
      `${OK}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n`,
      'none',
      '',
      { head: true },
    ],
    ['at its head, for HEAD with neither', `${OK}\r\n`, 'none', '', { head: true }],
    ['at its head, for 204', 'HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n', 'none', ''],
    ['at its head, for 204 with chunks', 'HTTP/1.1 204 \r\nTransfer-Encoding: chunked\r\n\r\n', 'none', ''],
    ['at its head, for 304', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n', 'none', ''],
    [
      'at its head, for 304 with both',
      'HTTP/1.1 304 \r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n',
      'none',
      '',
    ],
    ['by its length, for 205', 'HTTP/1.1 205 \r\nContent-Length: 1\r\n\r\nx', 'length', 'x'],
  ]
  for (const [what, bytes, framing, body, how] of table) {
    const reading = whole(bytes, how)
    t.equal(reading.head?.framing, framing, what)
    t.equal(reading.body, body)
    t.equal(reading.taken, bytes.length)
    if (framing === 'close') continue
    const more = `${bytes}HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nall`
    const { informational, head, body: sameBody, trailers, taken } = whole(more, how)
    t.same(
      { informational, head, body: sameBody, trailers, taken },
      { informational: [], head: reading.head, body, trailers: [], taken: bytes.length },
      'what stands behind its end is not taken',
    )
  }
})

t.test('a response that is cut is never whole', async (t) => {
  for (const bytes of [
    `${OK}Content-Length: 5\r\n\r\nhello`,
    `${CHUNKED}5\r\nhello\r\n0\r\nX-Sum: a\r\n\r\n`,
    'HTTP/1.1 100 \r\n\r\nHTTP/1.1 204 \r\n\r\n',
  ]) {
    for (let length = 0; length < bytes.length; length++) {
      const { done, fault, trailers } = read(bytes.slice(0, length), { closes: true })
      t.same(
        { done, fault, trailers },
        { done: false, fault: undefined, trailers: undefined },
        `${length} bytes`,
      )
    }
    t.equal(read(bytes).done, true)
  }
})

t.test('closing behind a whole response ends nothing', async (t) => {
  const calls: string[] = []
  const parser = new ResponseParser(
    {
      onInformational: () => calls.push('informational'),
      onHead: () => calls.push('head'),
      onBody: () => {
        calls.push('body')
      },
      onEnd: () => calls.push('end'),
    },
    false,
    LIMITS,
  )
  t.equal(parser.keepAlive, false, 'before its head nothing is known of it')
  t.equal(parser.keepAliveSeconds, undefined)
  const bytes = Buffer.from(`${OK}Content-Length: 0\r\nKeep-Alive: timeout=7\r\n\r\n`)
  t.equal(parser.push(bytes), bytes.length)
  t.equal(parser.done, true)
  t.equal(parser.keepAlive, true)
  t.equal(parser.keepAliveSeconds, 7)
  t.equal(parser.close(), false)
  t.equal(parser.push(Buffer.from('HTTP/1.1 200 OK\r\n\r\n')), 0)
  t.same(calls, ['head', 'end'])
})

t.test('the end of a body is said with its last bytes, where it is known', async (t) => {
  const bytes = `${OK}Content-Length: 5\r\n\r\nhello`
  t.same(read(bytes).lasts, [true])
  t.same(read(bytes, { cuts: [bytes.length - 2] }).lasts, [false, true])
  t.same(read(`${CHUNKED}5\r\nhello\r\n0\r\n\r\n`).lasts, [false])
  t.same(read(`${OK}\r\nhello`, { closes: true }).lasts, [false])
})

t.test('chunks are read in one way only', async (t) => {
  t.test('a chunk has a size of hexadecimal digits and nothing else', async (t) => {
    for (const [line, size] of [
      ['5', 5],
      ['05', 5],
      ['00000000000f', 15],
      ['a', 10],
      ['A', 10],
      ['5;', 5],
      ['5;ext', 5],
      ['5;ext=1; more="a;b" \t', 5],
      ['5;caf\xe9', 5],
      [`1;${'x'.repeat(254)}`, 1],
    ] as const) {
      t.equal(whole(`${CHUNKED}${line}\r\n${'x'.repeat(size)}\r\n0\r\n\r\n`).body.length, size, line)
    }
    for (const line of [
      '',
      ' 5',
      '5 ',
      '5\t',
      '5 ;ext',
      '5\t;ext',
      '+5',
      '-5',
      '-0',
      '0x5',
      '5h',
      'g',
      '5,5',
      '5.0',
      '"5"',
      '0000000000005',
      '00000000000000005',
      'fffffffffffffffff',
      '\u00b2',
      ';ext',
      '5;a\0b',
      '5;a\x7fb',
      '5;a\rb',
      '5;a\nb',
      '5\r',
      `1;${'x'.repeat(255)}`,
    ]) {
      t.equal(isFault(`${CHUNKED}${line}\r\nhello\r\n0\r\n\r\n`), true, JSON.stringify(line))
    }
  })

  t.test('a chunk is as long as it says', async (t) => {
    for (const rest of [
      '5\r\nhello!\r\n',
      '5\r\nhello0\r\n\r\n',
      '4\r\nhello\r\n',
      '5\r\nhello\n',
      '5\r\nhello\r0',
      '5\r\nhello\r\r\n',
    ])
      t.equal(isFault(CHUNKED + rest), true, JSON.stringify(rest))
    const short = read(`${CHUNKED}6\r\nhello\r\n0\r\n\r\n`)
    t.equal(
      short.fault,
      'chunk longer than its size',
      'what follows is taken for a part of them, and is too long',
    )
  })

  t.test('the lines of chunks end as all lines do', async (t) => {
    for (const rest of [
      '5\nhello\n0\n\n',
      '5\n',
      '5;ext\n',
      '0\n',
      '5\r\nhello\r\n0\n\n',
      '0\r\n\n',
      '0\r\nX: y\n',
      '0\r\nX: y\r\n\n',
    ])
      t.equal(isFault(CHUNKED + rest), true, JSON.stringify(rest))
  })

  t.test('the line of a chunk does not grow for ever', async (t) => {
    t.equal(isFault(`${CHUNKED}1;${'x'.repeat(256)}`), true)
    t.equal(read(`${CHUNKED}1;${'x'.repeat(254)}`).fault, undefined)
    t.equal(read(`${CHUNKED}1;${'x'.repeat(254)}\r`).fault, undefined)
    t.equal(isFault(`${CHUNKED}${'0'.repeat(300)}`), true)
  })
})

t.test('trailers are checked as headers are', async (t) => {
  t.test('trailers are told as they stood on the wire', async (t) => {
    const bytes = `${CHUNKED}1\r\nx\r\n0;last\r\nX-Sum:  abc\t\r\nx-sum: def\r\nX-Empty:\r\n\r\n`
    t.same(whole(bytes).trailers, ['X-Sum', 'abc', 'x-sum', 'def', 'X-Empty', ''])
    t.equal(whole(`${bytes}HTTP/1.1 200 OK\r\n\r\n`).taken, bytes.length)
  })

  t.test('trailers are field lines like others', async (t) => {
    for (const line of [
      'X',
      ' X: y',
      'X : y',
      ': y',
      'X: a\0',
      'X: a\r\n b',
      'X: a\nb',
      'X: a\rb',
      '\rX: y',
      '\r',
    ])
      t.equal(isFault(`${CHUNKED}0\r\n${line}\r\n\r\n`), true, JSON.stringify(line))
  })

  t.test('trailers are bounded', async (t) => {
    const limits = { headerBytes: 100, headerLines: 5 }
    const trailers = (bytes: number) => `${CHUNKED}0\r\nX: ${'a'.repeat(bytes - 3)}`
    t.equal(whole(`${trailers(100)}\r\n\r\n`, { limits }).trailers?.[1]?.length, 97)
    t.equal(isFault(`${trailers(101)}\r\n\r\n`, { limits }), true)
    t.equal(isFault(trailers(104), { limits }), true, 'without an end')
    t.equal(whole(`${CHUNKED}0\r\n${'X: y\r\n'.repeat(5)}\r\n`, { limits }).trailers?.length, 10)
    t.equal(isFault(`${CHUNKED}0\r\n${'X: y\r\n'.repeat(6)}\r\n`, { limits }), true)
  })
})

t.test('the head is bounded', async (t) => {
  const limits = { headerBytes: 100, headerLines: 5 }
  const head = (bytes: number) => {
    const start = `${OK}Content-Length: 0\r\nX: `
    return start + 'a'.repeat(bytes - start.length)
  }
  t.test('a head has so many bytes at most', async (t) => {
    t.equal(whole(`${head(100)}\r\n\r\n`, { limits }).done, true)
    t.equal(isFault(`${head(101)}\r\n\r\n`, { limits }), true)
    t.equal(isFault(head(104), { limits }), true, 'without an end')
    t.equal(read(`${OK}X: ${'a'.repeat(20 * 1024)}\r\n\r\n`).fault, 'response head too large')
  })

  t.test('a head has so many lines at most', async (t) => {
    t.equal(
      whole(`${OK}Content-Length: 0\r\n${'X: y\r\n'.repeat(4)}\r\n`, { limits }).head?.rawHeaders.length,
      10,
    )
    t.equal(isFault(`${OK}Content-Length: 0\r\n${'X: y\r\n'.repeat(5)}\r\n`, { limits }), true)
  })

  t.test('each head of an exchange is counted anew', async (t) => {
    const informational = `HTTP/1.1 103 \r\nX: ${'a'.repeat(80)}\r\n\r\n`
    t.equal(whole(`${informational}${informational}${head(100)}\r\n\r\n`, { limits }).informational.length, 2)
  })
})

t.test('informational responses go before the response', async (t) => {
  t.test('informational responses are told, and the response is the one behind them', async (t) => {
    const reading = whole(
      `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\nLink: </a>\r\nContent-Length: 5\r\n\r\nHTTP/1.1 102 \r\n\r\n${OK}Content-Length: 2\r\n\r\nok`,
    )
    t.same(
      reading.informational.map(({ status, rawHeaders, framing }) => [status, rawHeaders, framing]),
      [
        [100, [], 'none'],
        [103, ['Link', '</a>', 'Content-Length', '5'], 'none'],
        [102, [], 'none'],
      ],
    )
    t.equal(reading.head?.status, 200)
    t.equal(reading.body, 'ok')
  })

  t.test('informational responses go before the response to HEAD, too', async (t) => {
    t.equal(
      whole(`HTTP/1.1 100 \r\n\r\n${OK}Content-Length: 2\r\n\r\n`, { head: true }).informational.length,
      1,
    )
  })

  t.test('informational responses do not go on for ever', async (t) => {
    const some = (count: number) => 'HTTP/1.1 102 \r\n\r\n'.repeat(count)
    t.equal(read(`${some(100)}${OK}Content-Length: 0\r\n\r\n`).done, true)
    t.equal(isFault(some(101)), true)
  })
})

t.test('the protocol is switched only where the request asked for it', async (t) => {
  const bytes = 'HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n'

  t.test('a switch of protocols is a fault where nobody asked for it', async (t) => {
    t.equal(isFault(bytes), true)
    t.equal(isFault(`HTTP/1.1 100 \r\n\r\n${bytes}`), true)
  })

  t.test('a switch of protocols ends HTTP where the request asked for it', async (t) => {
    const reading = whole(`${bytes}\x81\x02hi`, { mayUpgrade: true })
    t.equal(reading.taken, bytes.length, 'the rest is the other protocol')
    t.equal(reading.upgraded?.status, 101)
    t.same(reading.upgraded?.rawHeaders, ['Upgrade', 'websocket', 'Connection', 'upgrade'])
    t.same(
      [reading.head, reading.body, reading.trailers],
      [undefined, '', undefined],
      'and no response is told',
    )
  })

  t.test('a switch of protocols may be declined with an ordinary response', async (t) => {
    const reading = whole('HTTP/1.1 403 \r\nContent-Length: 2\r\n\r\nno', { mayUpgrade: true })
    t.equal(reading.upgraded, undefined)
    t.equal(reading.body, 'no')
  })
})

t.test('a head says whether its connection can be used again', async (t) => {
  const table: readonly [bytes: string, keepAlive: boolean, how?: How][] = [
    [`${OK}Content-Length: 0\r\n\r\n`, true],
    [CHUNKED, true],
    [`${OK}\r\n`, false],
    [`${OK}\r\n`, true, { head: true }],
    ['HTTP/1.1 204 \r\n\r\n', true],
    ['HTTP/1.1 304 \r\n\r\n', true],
    ['HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n', false],
    ['HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n', false],
    [`${OK}Content-Length: 0\r\nConnection: close\r\n\r\n`, false],
    [`${OK}Content-Length: 0\r\nConnection: Keep-Alive\r\nconnection: x , CLOSE\t, y\r\n\r\n`, false],
    [`${OK}Content-Length: 0\r\nConnection: x-close, closed\r\n\r\n`, true],
    [`${OK}Content-Length: 0\r\nX-Connection: close\r\n\r\n`, true],
    [`${OK}Connection: close\r\n\r\n`, false, { head: true }],
  ]
  for (const [bytes, keepAlive, how] of table)
    t.equal(read(bytes, how).head?.keepAlive, keepAlive, JSON.stringify(bytes))
})

t.test('a head says for how long the upstream promises to keep the connection', async (t) => {
  const table: readonly [value: string, seconds: number | undefined][] = [
    ['timeout=5', 5],
    ['timeout=5, max=100', 5],
    ['max=100, Timeout=15', 15],
    ['max=100,timeout=0', 0],
    ['', undefined],
    ['5', undefined],
    ['max=100', undefined],
    ['timeout=', undefined],
    ['timeout=-1', undefined],
    ['timeout=5s', undefined],
    ['timeout=1000000', undefined],
    ['xtimeout=5', undefined],
  ]
  for (const [value, seconds] of table) {
    const { head } = read(`${OK}Keep-Alive: ${value}\r\n\r\n`)
    t.equal(head?.keepAliveSeconds, seconds, value)
  }
  t.equal(read(`${OK}Keep-Alive: timeout=5\r\nKeep-Alive: max=1\r\n\r\n`).head?.keepAliveSeconds, 5)
  t.equal(read(`${OK}Proxy-Connection: timeout=5\r\n\r\n`).head?.keepAliveSeconds, undefined)
})
