import fc from 'fast-check'
import t from 'tap'
import { read } from '../support/response-reading.ts'

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
    if (framing === 'length') bytes += `content-LENGTH: ${shape.body.length}\r\n`
    if (framing === 'chunked') bytes += 'Transfer-Encoding: Chunked\r\n'
    bytes += '\r\n'
    if (framing === 'length' || framing === 'close') content = shape.body
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
    const headers = head?.rawHeaders.slice(0, sample.headers.length)
    return (
      reading.error === undefined &&
      reading.hasMore === (!closes && more !== '') &&
      reading.earlyHints.length === sample.informational.filter((code) => code === 103).length &&
      head?.framing === sample.framing &&
      JSON.stringify(headers) === JSON.stringify(sample.headers) &&
      reading.body === sample.content &&
      JSON.stringify(reading.trailers) === JSON.stringify(sample.trailers)
    )
  })
  fc.assert(property, { numRuns: 3000 })
})
