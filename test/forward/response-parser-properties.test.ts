import fc from 'fast-check'
import t from 'tap'
import type { Framing } from '../../src/http1/message-reader.ts'
import { type How, read } from '../support/response-reading.ts'

const OK = 'HTTP/1.1 200 OK\r\n'
const CHUNKED = `${OK}Transfer-Encoding: chunked\r\n\r\n`

const tokens = fc.string({
  unit: fc.constantFrom(..."abcXYZ019!#$%&'*+-.^_`|~"),
  minLength: 1,
  maxLength: 12,
})
const latin1 = fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code))
const visible = latin1.filter((character) => !/[\0-\x20\x7f]/.test(character))
const texts = fc
  .string({
    unit: fc.oneof({ weight: 5, arbitrary: visible }, { weight: 1, arbitrary: fc.constantFrom(' ', '\t') }),
    maxLength: 20,
  })
  .map((value) => value.replace(/^[ \t]+|[ \t]+$/g, ''))
/** Names that decide nothing. */
const names = tokens.map((name) => `X${name}`)
const lines = fc.array(
  fc.tuple(names, texts, fc.constantFrom('', ' ', '\t', ' \t '), fc.constantFrom('', ' ', '\t')),
  {
    maxLength: 5,
  },
)
const bodies = fc.string({ unit: latin1, maxLength: 60 })

/** Bytes of a response, and what is to be read from them. */
interface Sample {
  readonly bytes: string
  readonly head: boolean
  readonly informational: number
  readonly status: number
  readonly reason: string
  readonly rawHeaders: readonly string[]
  readonly framing: Framing
  readonly body: string
  readonly trailers: readonly string[]
}

type Lines = readonly (readonly [name: string, value: string, before: string, behind: string])[]
const written = (list: Lines) =>
  list.map(([name, value, before, behind]) => `${name}:${before}${value}${behind}\r\n`).join('')
const told = (list: Lines) => list.flatMap((line) => line.slice(0, 2))

const samples: fc.Arbitrary<Sample> = fc
  .record({
    framing: fc.constantFrom('length', 'chunked', 'close', 'none'),
    /** Why there is no body. */
    none: fc.constantFrom('HEAD', '204', '304'),
    /** What a response without a body says of one. */
    says: fc.constantFrom('', 'Content-Length: 7\r\n', 'Transfer-Encoding: chunked\r\n'),
    status: fc.integer({ min: 200, max: 999 }).filter((status) => status !== 204 && status !== 304),
    informational: fc.array(fc.constantFrom(100, 102, 103, 199), { maxLength: 2 }),
    reason: texts,
    lines,
    behind: lines,
    spelling: fc.constantFrom('Content-Length', 'content-length', 'CONTENT-Length'),
    coding: fc.constantFrom(
      'Transfer-Encoding: chunked',
      'transfer-encoding:CHUNKED',
      'TRANSFER-encoding: \tChunked ',
    ),
    chunks: fc.array(
      fc.tuple(
        fc.string({ unit: latin1, minLength: 1, maxLength: 30 }),
        fc.constantFrom('', ';a', ';a="b c"'),
        fc.boolean(),
      ),
      { maxLength: 4 },
    ),
    body: bodies,
    trailers: lines,
  })
  .map((wanted) => {
    const { framing } = wanted
    const head = framing === 'none' && wanted.none === 'HEAD'
    const status = framing === 'none' && !head ? Number(wanted.none) : wanted.status
    let frame: string = framing === 'none' ? wanted.says : ''
    let bytes = ''
    let body = ''
    if (framing === 'length') frame = `${wanted.spelling}: ${wanted.body.length}\r\n`
    if (framing === 'length' || framing === 'close') body = bytes = wanted.body
    if (framing === 'chunked') {
      frame = `${wanted.coding}\r\n`
      for (const [data, extension, upper] of wanted.chunks) {
        const size = data.length.toString(16)
        bytes += `${upper ? size.toUpperCase() : size}${extension}\r\n${data}\r\n`
        body += data
      }
      bytes += `0\r\n${written(wanted.trailers)}\r\n`
    }
    const frameLines = frame === '' ? [] : frame.trim().split(/:\s*/)
    return {
      bytes: [
        ...wanted.informational.map((code) => `HTTP/1.1 ${code} \r\nX: y\r\n\r\n`),
        `HTTP/1.1 ${status} ${wanted.reason}\r\n${written(wanted.lines)}${frame}${written(wanted.behind)}\r\n${bytes}`,
      ].join(''),
      head,
      informational: wanted.informational.length,
      status,
      reason: wanted.reason,
      rawHeaders: [...told(wanted.lines), ...frameLines, ...told(wanted.behind)],
      framing,
      body,
      trailers: framing === 'chunked' ? told(wanted.trailers) : [],
    }
  })
const cutsOf = fc.array(fc.nat(), { maxLength: 6 })
/** Cuts at any place of some bytes. */
const within = (cuts: readonly number[], bytes: string) => cuts.map((cut) => cut % (bytes.length + 1))

t.test('every valid response is read as it was written, however it was cut', async (t) => {
  const property = fc.property(samples, cutsOf, bodies, (sample, cuts, more) => {
    const closes = sample.framing === 'close'
    const bytes = closes ? sample.bytes : sample.bytes + more
    const reading = read(bytes, { cuts: within(cuts, bytes), head: sample.head, closes })
    return (
      reading.fault === undefined &&
      reading.done &&
      reading.taken === sample.bytes.length &&
      reading.informational.length === sample.informational &&
      reading.head?.status === sample.status &&
      reading.head.reason === sample.reason &&
      reading.head.framing === sample.framing &&
      JSON.stringify(reading.head.rawHeaders) === JSON.stringify(sample.rawHeaders) &&
      reading.body === sample.body &&
      JSON.stringify(reading.trailers) === JSON.stringify(sample.trailers) &&
      reading.lasts.every(
        (last, at) => last === (sample.framing === 'length' && at === reading.lasts.length - 1),
      )
    )
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 3000 }))
})

/** What must not depend on how bytes were cut. */
function essence(bytes: string, how: How): string {
  const { lasts: _, fault, taken, ...rest } = read(bytes, how)
  return JSON.stringify({ ...rest, fault: fault !== undefined, taken: fault === undefined && taken })
}

t.test('a response with any mistake in it is read, or refused, the same however it was cut', async (t) => {
  const mistakes = fc.array(
    fc.tuple(
      fc.nat(),
      fc.nat({ max: 2 }),
      fc.oneof(
        fc.constantFrom('\r', '\n', '\r\n', ' ', '\t', ':', ';', '0', '5', '\0', '\r\n\r\n', 'HTTP/1.1 '),
        fc.constant(''),
      ),
    ),
    { minLength: 1, maxLength: 3 },
  )
  const limits = { headerBytes: 120, headerLines: 6 }
  let faults = 0
  const property = fc.property(
    samples,
    mistakes,
    fc.array(cutsOf, { minLength: 1, maxLength: 3 }),
    (sample, changes, cuts) => {
      let { bytes } = sample
      for (const [where, removed, added] of changes) {
        const at = where % (bytes.length + 1)
        bytes = bytes.slice(0, at) + added + bytes.slice(at + removed)
      }
      const how = { head: sample.head, closes: true, limits }
      const whole = essence(bytes, how)
      if (whole.includes('"fault":true')) faults++
      return cuts.every((places) => essence(bytes, { ...how, cuts: within(places, bytes) }) === whole)
    },
  )
  t.doesNotThrow(() => fc.assert(property, { numRuns: 5000 }))
  t.ok(faults > 500, `${faults} of them were refused`)
})

t.test('garbage is a fault or unfinished, and nothing worse', async (t) => {
  const pieces = fc.oneof(
    fc.string({ unit: latin1, maxLength: 20 }),
    fc.constantFrom(
      OK,
      CHUNKED,
      '\r\n',
      '\n',
      '0\r\n',
      '5\r\n',
      'Content-Length: 3\r\n',
      'X: y\r\n',
      'HTTP/1.1 100 \r\n\r\n',
    ),
  )
  const garbage = fc.array(pieces, { maxLength: 10 }).map((list) => list.join(''))
  const property = fc.property(
    garbage,
    cutsOf,
    fc.boolean(),
    fc.boolean(),
    (bytes, cuts, head, mayUpgrade) => {
      const { taken } = read(bytes, { cuts: within(cuts, bytes), head, mayUpgrade, closes: true }) // throws on anything else
      return taken <= bytes.length
    },
  )
  t.doesNotThrow(() => fc.assert(property, { numRuns: 5000 }))
})
