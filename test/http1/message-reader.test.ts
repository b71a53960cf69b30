import t from 'tap'
import { MessageFault } from '../../src/http1/message-fault.ts'
import { type Framing, type MessageLimits, MessageReader } from '../../src/http1/message-reader.ts'
import { everyCut } from '../support/request-reading.ts'

/** Reads messages whose head is `>` and whose framing is known beforehand. */
class PlainReader extends MessageReader {
  readonly calls: string[] = []
  readonly chunks: Buffer[] = []
  readonly #framing: Framing
  readonly #contentLength: number

  /** `contentLength` with `none`: it is left behind its head. */
  constructor(framing: Framing, contentLength: number, limits: MessageLimits) {
    const sink = {
      onBody: (chunk: Buffer, last: boolean) => {
        this.chunks.push(chunk)
        this.calls.push(`${chunk.toString('latin1')}${last ? '.' : ''}`)
      },
      onEnd: (rawTrailers: readonly string[]) => {
        this.calls.push(`end ${rawTrailers.join()}`.trimEnd())
      },
    }
    super(sink, limits)
    this.#framing = framing
    this.#contentLength = contentLength
  }

  protected override readHead(data: Buffer, at: number): number {
    if (data[at] !== 0x3e) throw new MessageFault('no head')
    if (this.#framing === 'none' && this.#contentLength > 0) this.leave()
    else this.beginBody(this.#framing, this.#contentLength)
    return at + 1
  }

  again(): void {
    this.restart()
  }
}

const LIMITS: MessageLimits = { headerBytes: 100, headerLines: 5 }

/** What is told of bytes behind a head. */
function read(framing: Framing, bytes: string, { length = 0, cuts = [] as readonly number[] } = {}) {
  const reader = new PlainReader(framing, length, LIMITS)
  const edges = [0, ...cuts, bytes.length]
  let taken = 0
  let fault: MessageFault | undefined
  reader.push(Buffer.from('>'))
  try {
    for (let n = 1; n < edges.length && !reader.done; n++)
      taken += reader.push(Buffer.from(bytes.slice(edges[n - 1], edges[n]), 'latin1'))
  } catch (error) {
    if (!(error instanceof MessageFault)) throw error
    fault = error
  }
  return {
    reader,
    calls: reader.calls,
    done: reader.done,
    taken,
    fault: fault?.message,
    tooLarge: fault?.tooLarge,
  }
}

/** The same, however the bytes are cut; the body as one text. */
function readAnyhow(framing: Framing, bytes: string, length = 0) {
  const outcomes = new Set<string>()
  for (const cuts of everyCut(bytes)) {
    const { calls, done, taken, fault } = read(framing, bytes, { length, cuts })
    const body = calls.filter((call) => !call.startsWith('end')).map((call) => call.replace(/\.$/, ''))
    const end = calls.find((call) => call.startsWith('end'))
    outcomes.add(
      JSON.stringify({ body: body.join(''), end, done, taken: done ? taken : 0, fault: fault !== undefined }),
    )
  }
  if (outcomes.size > 1)
    throw new Error(`depends on the cut: ${JSON.stringify(bytes)}\n${[...outcomes].join('\n')}`)
  const [outcome] = outcomes
  return JSON.parse(outcome ?? '') as {
    body: string
    end?: string
    done: boolean
    taken: number
    fault: boolean
  }
}

t.test('a message without a body is whole with its head', async (t) => {
  for (const framing of ['none', 'length'] as const) {
    const reader = new PlainReader(framing, 0, LIMITS)
    t.equal(reader.atHead, true)
    t.equal(reader.done, false)
    t.equal(reader.push(Buffer.from('>more')), 1, 'what stands behind it is left')
    t.equal(reader.done, true)
    t.equal(reader.atHead, false)
    t.same(reader.calls, ['end'])
    t.equal(reader.push(Buffer.from('>')), 0, 'and is not read until the next one is asked for')
    t.equal(reader.close(), false)
    reader.again()
    t.equal(reader.atHead, true)
    t.equal(reader.push(Buffer.from('>')), 1)
    t.same(reader.calls, ['end', 'end'])
  }
})

t.test('a message that is left tells nothing more, not even an end', async (t) => {
  const reader = new PlainReader('none', 1, LIMITS)
  t.equal(reader.push(Buffer.from('>more')), 1)
  t.equal(reader.done, true)
  t.same(reader.calls, [])
})

t.test('a body has as many bytes as its length says', async (t) => {
  t.same(read('length', 'hello>', { length: 5 }).calls, ['hello.', 'end'])
  t.same(read('length', 'hello>', { length: 5, cuts: [1, 4] }).calls, ['h', 'ell', 'o.', 'end'])
  t.same(read('length', 'hello>', { length: 5, cuts: [5] }).calls, ['hello.', 'end'])
  t.same(readAnyhow('length', 'a\r\n\0\n>', 5), {
    body: 'a\r\n\0\n',
    end: 'end',
    done: true,
    taken: 5,
    fault: false,
  })
  const { reader } = read('length', 'hell', { length: 5 })
  t.equal(reader.done, false)
  t.equal(reader.isWithin, false, 'nothing is kept of a body')
  t.equal(reader.close(), false, 'a cut body is not whole')
  t.same(reader.calls, ['hell'])
})

t.test('a body may end with its connection', async (t) => {
  const { reader } = read('close', 'a\r\n0\r\n\r\n', { cuts: [3] })
  t.equal(reader.done, false)
  t.equal(reader.close(), true)
  t.same(reader.calls, ['a\r\n', '0\r\n\r\n', 'end'])
  t.equal(reader.close(), false, 'once')
})

t.test('chunks are read in one way only', async (t) => {
  t.test('a body is what its chunks hold', async (t) => {
    for (const [bytes, body] of [
      ['0\r\n\r\n', ''],
      ['000000000000\r\n\r\n', ''],
      ['5\r\nhello\r\n0\r\n\r\n', 'hello'],
      ['1\r\na\r\n02\r\nbc\r\n0\r\n\r\n', 'abc'],
      ['A\r\n0123456789\r\n0\r\n\r\n', '0123456789'],
      ['a;x\r\n0123456789\r\n0;y\r\n\r\n', '0123456789'],
      ['7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n', '\r\n0\r\n\r\n'],
      ['2\r\n\0\n\r\n0\r\n\r\n', '\0\n'],
    ] as const) {
      const outcome = readAnyhow('chunked', `${bytes}GET`)
      t.same(
        outcome,
        { body, end: 'end', done: true, taken: bytes.length, fault: false },
        JSON.stringify(bytes),
      )
    }
    t.same(
      read('chunked', '5\r\nhello\r\n0\r\n\r\n').calls,
      ['hello', 'end'],
      'no end is said before it is known',
    )
  })

  t.test('a chunk that is cut is not whole', async (t) => {
    const bytes = '5;x\r\nhello\r\n0\r\nA: b\r\n\r\n'
    for (let length = 0; length < bytes.length; length++) {
      const { reader, fault } = read('chunked', bytes.slice(0, length))
      t.same([reader.done, reader.close(), fault], [false, false, undefined], `${length} bytes`)
    }
  })

  t.test('a size is hexadecimal digits', async (t) => {
    for (const line of [
      '',
      ' ',
      ' 5',
      '\t5',
      '5 ',
      '5\t',
      '+5',
      '-5',
      '-0',
      '5.',
      '5h',
      '0x5',
      '0X5',
      'x5',
      '5_0',
      '5,5',
      '5 5',
      '"5"',
      '\xb2',
      '5\xa0',
      '5\x85',
      '\xa05',
      '5\0',
      '\x005',
      '5\x0b',
      '5\x0c',
      '0000000000005',
      'fffffffffffff',
      '10000000000000005',
    ]) {
      const outcome = readAnyhow('chunked', `${line}\r\nhello\r\n0\r\n\r\n`)
      t.match(outcome, { done: false, fault: true, body: '' }, JSON.stringify(line))
    }
    const large = read('chunked', 'ffffffffffff\r\nhello\r\n0\r\n\r\n')
    t.same([large.done, large.fault], [false, undefined], 'a chunk as large as can be counted')
  })

  t.test('extensions are skipped, whatever text they are, and nothing else is', async (t) => {
    for (const extension of [';', ';a', ';a=b', ';a="b;c"', '; a = b \t', ';;;', ';\xff', ';0\t5', ';a=\\"'])
      t.equal(readAnyhow('chunked', `5${extension}\r\nhello\r\n0\r\n\r\n`).body, 'hello', extension)
    for (const extension of [
      ' ;a',
      '\t;a',
      ' a',
      ',a',
      '=a',
      ';\0',
      ';\x7f',
      ';\x1b',
      ';\r',
      ';\n',
      ';a\rb',
      ';a\nb',
    ])
      t.equal(
        readAnyhow('chunked', `5${extension}\r\nhello\r\n0\r\n\r\n`).fault,
        true,
        JSON.stringify(extension),
      )
    t.equal(
      readAnyhow('chunked', '5;a\n0\r\n\r\nGET /hidden HTTP/1.1\r\n').fault,
      true,
      'a line that others end at its line feed',
    )
  })

  t.test('lines of chunks end with both of their characters', async (t) => {
    for (const bytes of [
      '5\nhello\r\n0\r\n\r\n',
      '5\rhello\r\n0\r\n\r\n',
      '5\r\rhello\r\n',
      '5\r\n\nhello\r\n',
      '5\r\nhello\n0\r\n\r\n',
      '5\r\nhello\r0\r\n\r\n',
      '5\r\nhello0\r\n\r\n',
      '5\r\nhello\r\r\n0\r\n\r\n',
      '5\r\nhello\n\r\n0\r\n\r\n',
      '5\r\nhello\r\n\r\n0\r\n\r\n',
      '5\r\nhello!\r\n0\r\n\r\n',
      '0\n\r\n',
      '0\n\n',
      '0\r\n\n',
      '0\r\n\r\r\n',
      '0\r\n\rA: b\r\n\r\n',
      '0\r\n\n\r\n',
    ]) {
      t.match(readAnyhow('chunked', bytes), { done: false, fault: true }, JSON.stringify(bytes))
    }
  })

  t.test('the line of a chunk has so many bytes at most', async (t) => {
    const body = '\r\na\r\n0\r\n\r\n'
    t.equal(readAnyhow('chunked', `1;${'x'.repeat(254)}${body}`).done, true)
    t.equal(readAnyhow('chunked', `1;${'x'.repeat(255)}${body}`).fault, true)
    t.equal(read('chunked', `1;${'x'.repeat(254)}\r`).fault, undefined)
    t.equal(read('chunked', `1;${'x'.repeat(256)}`).fault, 'chunk line too long', 'told before it ends')
    t.equal(read('chunked', '0'.repeat(100_000)).fault, 'chunk line too long')
  })
})

t.test('trailers are field lines', async (t) => {
  t.test('trailers are told as they stood on the wire', async (t) => {
    const bytes = '1\r\na\r\n0\r\nA: b \r\na:\tc\r\nX:\r\n\r\n'
    t.same(readAnyhow('chunked', `${bytes}A: d\r\n\r\n`), {
      body: 'a',
      end: 'end A,b,a,c,X,',
      done: true,
      taken: bytes.length,
      fault: false,
    })
  })

  t.test('trailers are read in one way only', async (t) => {
    for (const lines of [
      'A',
      'A : b',
      ' A: b',
      ': b',
      'A: b\r\n c',
      'A: b\nB: c',
      'A: b\rB: c',
      'A: b\r',
      'A: \0',
      'A: b\n',
      '\nA: b',
      '\rA: b',
      'GET / HTTP/1.1',
    ])
      t.equal(readAnyhow('chunked', `0\r\n${lines}\r\n\r\n`).fault, true, JSON.stringify(lines))
    for (const bytes of ['0\r\nA: b\n', '0\r\nA: b\r\n\n', '0\r\nA: b\n\n', '0\r\n\n'])
      t.equal(readAnyhow('chunked', bytes).fault, true, `${JSON.stringify(bytes)}, before anything follows`)
  })

  t.test('trailers are bounded', async (t) => {
    const line = (bytes: number) => `X: ${'a'.repeat(bytes - 3)}`
    t.equal(readAnyhow('chunked', `0\r\n${line(100)}\r\n\r\n`).done, true)
    t.equal(readAnyhow('chunked', `0\r\n${line(101)}\r\n\r\n`).fault, true)
    for (const [bytes, fault] of [
      [`0\r\n${line(101)}\r\n\r\n`, 'trailers too large'],
      [`0\r\n${line(104)}`, 'trailers too large'],
      [`0\r\n${'X: y\r\n'.repeat(6)}\r\n`, 'too many field lines'],
    ] as const) {
      const outcome = read('chunked', bytes)
      t.same([outcome.fault, outcome.tooLarge], [fault, true], bytes)
    }
    t.equal(readAnyhow('chunked', `0\r\n${'X: y\r\n'.repeat(5)}\r\n`).done, true)
    t.equal(readAnyhow('chunked', `0\r\n${'X: y\r\n'.repeat(6)}\r\n`).fault, true)
  })
})

t.test('bytes of an element that is not whole are known to be there', async (t) => {
  const reader = new PlainReader('chunked', 0, LIMITS)
  const push = (text: string) => {
    t.equal(reader.push(Buffer.from(text)), text.length)
    return reader.isWithin
  }
  t.equal(reader.isWithin, false)
  t.equal(push('>'), false)
  t.equal(push(''), false)
  t.equal(push('5'), true)
  t.equal(push(''), true, 'nothing changes nothing')
  t.equal(push('\r'), true)
  t.equal(push('\n'), false)
  t.equal(push('hell'), false)
  t.equal(push('o\r'), true)
  t.equal(push('\n0\r\n'), false)
  t.equal(push('A'), true)
  t.equal(push(': b\r\n\r'), true)
  t.equal(push('\n'), false)
  t.same(reader.calls, ['hell', 'o', 'end A,b'])
})

t.test('bytes that were told stay as they are when more are kept', async (t) => {
  const reader = new PlainReader('chunked', 0, LIMITS)
  reader.push(Buffer.from('>'))
  // Chunk lines in pieces make room for more behind what is kept: bodies lie there, and must not be written over.
  for (const piece of [
    '0',
    '0',
    '000005;x\r\nhello\r\n5;',
    'yyyyyyyyyyyyyyyyyyyyyy',
    '\r\nworld\r\n5',
    '\r\nthere\r\n0',
  ])
    reader.push(Buffer.from(piece))
  reader.push(Buffer.from('\r\n\r\n'))
  t.same(reader.calls, ['hello', 'world', 'there', 'end'])
  t.same(
    reader.chunks.map((chunk) => chunk.toString('latin1')),
    ['hello', 'world', 'there'],
  )
})

t.test('the memory of a chunk may be read into again as soon as it was taken', async (t) => {
  const bytes = '5;x\r\nhello\r\n0\r\nA: b\r\n\r\n'
  for (const cuts of everyCut(bytes)) {
    const reader = new PlainReader('chunked', 0, LIMITS)
    reader.push(Buffer.from('>'))
    const edges = [0, ...cuts, bytes.length]
    for (let n = 1; n < edges.length; n++) {
      const chunk = Buffer.from(bytes.slice(edges[n - 1], edges[n]), 'latin1')
      reader.push(chunk)
      chunk.fill('~')
    }
    t.equal(reader.calls.join(''), 'helloend A,b', `${cuts}`)
  }
})
