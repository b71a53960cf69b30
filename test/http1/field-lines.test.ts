import t from 'tap'
import {
  fieldLines,
  isFieldValue,
  NO_LINES,
  parseFieldLines,
  rejectBareLineFeed,
} from '../../src/http1/field-lines.ts'
import { MessageFault } from '../../src/http1/message-fault.ts'

/** Why lines are refused; undefined when they are not. */
function refusal(text: string, maxLines = 200, start = 0): string | undefined {
  try {
    parseFieldLines(text, start, maxLines)
    return undefined
  } catch (error) {
    if (!(error instanceof MessageFault)) throw error
    return `${error.message}${error.tooLarge ? ' (too large)' : ''}`
  }
}

/** Every character that is one byte. */
const BYTES = Array.from({ length: 256 }, (_, code) => String.fromCharCode(code))
const CONTROLS = BYTES.filter((byte) => (byte < ' ' && byte !== '\t') || byte === '\x7f')
const shown = (text: string) => JSON.stringify(text)

t.test(
  'names and values are told as they stood on the wire, without white space around values',
  async (t) => {
    for (const [text, ...expected] of [
      [''],
      ['A: b', 'A', 'b'],
      ['A: b\r\n', 'A', 'b'],
      ['a:b\r\nA:  b\t \r\nB:\r\nC: \t', 'a', 'b', 'A', 'b', 'B', '', 'C', ''],
      ['A: b: c::', 'A', 'b: c::'],
      ['A: b  c\td', 'A', 'b  c\td'],
      ['A: caf\xe9\xa0\x85', 'A', 'caf\xe9\xa0\x85'],
      ['A: \x85\xa0', 'A', '\x85\xa0'],
    ] as const) {
      t.same(parseFieldLines(text, 0, 200), expected, shown(text))
    }
    t.same(NO_LINES, [])
  },
)

t.test('lines are read from where they begin', async (t) => {
  const text = 'GET / HTTP/1.1\r\nA: b'
  t.same(parseFieldLines(text, 16, 200), ['A', 'b'])
  t.same(parseFieldLines(text, text.length, 200), [])
  t.equal(refusal(text), 'field line without a name')
})

t.test('a name is a token, from its first character to the colon', async (t) => {
  const tokens = /[!#$%&'*+.^_`|~0-9A-Za-z-]/
  for (const byte of BYTES) {
    if (byte === ':') continue
    for (const name of [byte, `a${byte}`, `${byte}a`, `a${byte}b`])
      t.equal(refusal(`${name}: x`) === undefined, tokens.test(byte), shown(name))
  }
  for (const line of [
    ':',
    ': x',
    ':: x',
    'x',
    ' ',
    '\t',
    '',
    'A : x',
    'A\t: x',
    ' A: x',
    '\tA: x',
    '\rA: x',
    '\nA: x',
  ])
    t.ok(refusal(`B: y\r\n${line}\r\nC: z`), shown(line))
})

t.test('a value holds no controls but the tab', async (t) => {
  for (const byte of CONTROLS) {
    for (const value of [byte, `a${byte}`, `${byte}a`, `a${byte}b`, ` ${byte} `])
      t.equal(refusal(`A: ${value}\r\nB: c`), 'bad field line', shown(value))
  }
  for (const byte of BYTES.filter((each) => !CONTROLS.includes(each)))
    t.equal(refusal(`A: x${byte}y\r\nB: c`), undefined, shown(byte))
})

t.test('isFieldValue knows what a reason phrase may hold, too', async (t) => {
  for (const byte of BYTES) t.equal(isFieldValue(`a${byte}b`), !CONTROLS.includes(byte), shown(byte))
  t.equal(isFieldValue(''), true)
})

t.test('folded lines are refused', async (t) => {
  for (const text of [
    'A: b\r\n c',
    'A: b\r\n\tc',
    'A: b\r\n c: d',
    'A: b\r\n ',
    'A:\r\n b',
    'A\r\n : b',
    ' A: b',
    'A: b\r\n\r\n c',
    'A: b\n c',
    'A: b\r c',
  ])
    t.ok(refusal(text), shown(text))
})

t.test('a line ends with both of its characters, and an empty one is none', async (t) => {
  for (const text of [
    'A: b\nB: c',
    'A: b\rB: c',
    'A: b\n\rB: c',
    'A: b\r\r\nB: c',
    'A: b\n\r\nB: c',
    'A: b\r',
    'A: b\n',
    'A: \r',
    '\r\nA: b',
    'A: b\r\n\r\nB: c',
    'A\r\nB: c',
    'A\nB: c',
  ])
    t.ok(refusal(text), shown(text))
})

t.test('a colon on a later line names nothing on this one', async (t) => {
  t.equal(refusal('GET / HTTP/1.1\r\nA: b'), 'field line without a name')
  t.equal(refusal('A\r\nB: c'), 'field line without a name')
  t.equal(refusal('A: b\r\nC\r\nD: e'), 'field line without a name')
})

t.test('there are so many lines at most', async (t) => {
  t.equal(refusal('A: b\r\nC: d', 2), undefined)
  t.equal(refusal('A: b\r\nC: d\r\nE: f', 2), 'too many field lines (too large)')
  t.equal(refusal('A: b', 0), 'too many field lines (too large)')
  t.equal(refusal('', 0), undefined)
  t.equal(parseFieldLines('A: b\r\n'.repeat(5000), 0, Number.POSITIVE_INFINITY).length, 10_000)
})

t.test('a line feed alone is found from a place on', async (t) => {
  const isFault = (text: string, from = 0) => {
    try {
      rejectBareLineFeed(Buffer.from(text), from)
      return false
    } catch (error) {
      t.ok(error instanceof MessageFault)
      return true
    }
  }
  for (const text of ['\n', 'a\n', '\r\n\n', 'a\r\nb\n', '\n\r\n', 'a\r\n\nb', 'a\rb\n'])
    t.equal(isFault(text), true, shown(text))
  for (const text of ['', 'a', '\r', '\r\n', 'a\r\nb\r\n', '\r\r\n', 'a\rb'])
    t.equal(isFault(text), false, shown(text))
  t.equal(isFault('\na\r\n', 1), false, 'what stands before is not looked at')
  t.equal(isFault('\r\n', 1), false, 'but the one character that makes it a line end')
  t.equal(isFault('a\n', 1), true)
})

t.test('lines are rendered as they are read', async (t) => {
  const lines = ['A', 'b', 'a', '', 'X-Latin', 'caf\xe9']
  t.equal(fieldLines(lines), 'A: b\r\na: \r\nX-Latin: caf\xe9\r\n')
  t.same(parseFieldLines(fieldLines(lines), 0, 3), lines)
  t.equal(fieldLines(NO_LINES), '')
})
