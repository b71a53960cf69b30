import { METHODS } from 'node:http'
import fc from 'fast-check'
import t from 'tap'
import { admit } from '../../src/gate/admission.ts'
import type { RawRequestHead, RequestBody } from '../../src/http1/request-reader.ts'
import { essence, type How, readRequests, type Told } from '../support/request-reading.ts'

const LIMITS = { headerBytes: 600, headerLines: 20 }

/** What the gate says of a head: where its body ends, if that leaves no doubt. */
function asAdmitted(head: Omit<RawRequestHead, 'isRemembered'>): RequestBody | undefined {
  const admission = admit(head, LIMITS)
  return admission.ok && admission.request.upgrade === undefined ? admission.request : undefined
}

const HOW: How = { limits: LIMITS, follows: asAdmitted }

const latin1 = fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code))
const visible = latin1.filter((character) => !/[\0-\x20\x7f]/.test(character))
const tokens = fc.string({
  unit: fc.constantFrom(..."abcXYZ019!#$%&'*+-.^_`|~"),
  minLength: 1,
  maxLength: 12,
})
const texts = fc
  .string({
    unit: fc.oneof({ weight: 5, arbitrary: visible }, { weight: 1, arbitrary: fc.constantFrom(' ', '\t') }),
    maxLength: 20,
  })
  .map((value) => value.replace(/^[ \t]+|[ \t]+$/g, ''))
const blanks = fc.constantFrom('', ' ', '\t', ' \t ')
const lines = fc.array(
  fc.tuple(
    tokens.map((name) => `X${name}`),
    texts,
    blanks,
    blanks,
  ),
  { maxLength: 4 },
)
const bodies = fc.string({
  unit: fc.oneof(latin1, fc.constantFrom('\r\n', '0\r\n\r\n', 'GET / ')),
  maxLength: 40,
})

type Lines = readonly (readonly [name: string, value: string, before: string, behind: string])[]
const written = (list: Lines) =>
  list.map(([name, value, before, behind]) => `${name}:${before}${value}${behind}\r\n`).join('')
const told = (list: Lines) => list.flatMap((line) => line.slice(0, 2))

/** Bytes of a request, and what is to be told of them. */
interface Sample {
  readonly bytes: string
  readonly expected: Omit<Told, 'last'>
}

const samples: fc.Arbitrary<Sample> = fc
  .record({
    empty: fc.nat({ max: 2 }),
    method: fc.constantFrom(...METHODS.filter((method) => method !== 'CONNECT' && method !== 'TRACE')),
    url: fc
      .string({ unit: visible.filter((character) => character < '\x7f' && character !== '#'), maxLength: 20 })
      .map((rest) => `/${rest}`),
    httpVersion: fc.constantFrom('1.1', '1.1', '1.0'),
    framing: fc.constantFrom('none', 'length', 'chunked'),
    before: lines,
    behind: lines,
    blank: blanks,
    body: bodies,
    chunks: fc.array(
      fc.tuple(
        bodies.filter((body) => body !== ''),
        fc.constantFrom('', ';a', ';a="b c"', ';'),
        fc.constantFrom('', '0', '00'),
      ),
      { maxLength: 3 },
    ),
    trailers: lines,
  })
  .map(({ empty, method, url, httpVersion, framing: wanted, before, behind, blank, ...rest }) => {
    const framing = httpVersion === '1.0' && wanted === 'chunked' ? 'none' : wanted
    const frame: Lines =
      framing === 'length'
        ? [['content-Length', String(rest.body.length), blank, blank]]
        : framing === 'chunked'
          ? [['Transfer-encoding', 'chunked', blank, blank]]
          : []
    const all: Lines = [...before, ...frame, ['Host', 'a', ' ', ''], ...behind]
    let body = framing === 'length' ? rest.body : ''
    let bytes = `${'\r\n'.repeat(empty)}${method} ${url} HTTP/${httpVersion}\r\n${written(all)}\r\n${body}`
    if (framing === 'chunked') {
      for (const [data, extension, zeros] of rest.chunks) {
        bytes += `${zeros}${data.length.toString(16)}${extension}\r\n${data}\r\n`
        body += data
      }
      bytes += `0\r\n${written(rest.trailers)}\r\n`
    }
    const trailers = framing === 'chunked' ? told(rest.trailers) : []
    return { bytes, expected: { method, url, httpVersion, rawHeaders: told(all), body, trailers } }
  })
const sequences = fc.array(samples, { minLength: 1, maxLength: 4 }).map((list) => ({
  bytes: list.map(({ bytes }) => bytes).join(''),
  expected: list.map(({ expected }) => expected),
}))

const cutsOf = fc.array(fc.nat(), { maxLength: 6 })
/** Cuts at any place of some bytes. */
const within = (cuts: readonly number[], bytes: string) => cuts.map((cut) => cut % (bytes.length + 1))
const everywhere = (bytes: string) => Array.from(bytes, (_, at) => at)

t.test('every sequence of requests is told as it was written, however it was cut', async (t) => {
  const property = fc.property(sequences, cutsOf, ({ bytes, expected }, cuts) => {
    for (const places of [[], within(cuts, bytes), everywhere(bytes)]) {
      const { requests, fault, atHead, isWithin } = readRequests(bytes, { ...HOW, cuts: places })
      if (fault !== undefined || !atHead || isWithin) return false
      const got = requests.map(({ last: _, ...rest }) => rest)
      if (JSON.stringify(got) !== JSON.stringify(expected)) return false
      if (
        requests.some(
          ({ last, rawHeaders, body }) => last !== (body !== '' && !/,chunked,/.test(`${rawHeaders}`)),
        )
      )
        return false
    }
    return true
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 2000 }))
})

/** Whatever changes bytes: some removed at a place, others put there. */
const changes = fc.array(
  fc.tuple(
    fc.nat(),
    fc.nat({ max: 2 }),
    fc.oneof(
      latin1,
      fc.constantFrom('', '\r', '\n', '\0', ' ', '\t', ':', ';', '0', '1'),
      fc.constantFrom('\r\n', '\r\n\r\n', '\n\n', 'GET ', 'Host: a\r\n', 'Content-Length: 5\r\n'),
    ),
  ),
  { minLength: 1, maxLength: 3 },
)
type Changes = readonly (readonly [where: number, removed: number, added: string])[]

function changed(bytes: string, list: Changes): string {
  let result = bytes
  for (const [where, removed, added] of list) {
    const at = where % (result.length + 1)
    result = result.slice(0, at) + added + result.slice(at + removed)
  }
  return result
}

/** Walks over bytes as they are expected to be. */
class Walk {
  readonly bytes: string
  at = 0
  failed = false

  constructor(bytes: string) {
    this.bytes = bytes
  }

  /** Goes over a text that must stand here. */
  text(text: string): void {
    if (this.bytes.startsWith(text, this.at)) this.at += text.length
    else this.failed = true
  }

  /** Goes over what a sticky pattern finds here; it must find something, if only nothing. */
  pattern(pattern: RegExp): string {
    pattern.lastIndex = this.at
    const found = pattern.exec(this.bytes)
    if (found === null) this.failed = true
    else this.at += found[0].length
    return found?.[1] ?? ''
  }

  fieldLines(rawHeaders: readonly string[]): void {
    for (let at = 0; at < rawHeaders.length; at += 2) {
      const name = rawHeaders[at] ?? ''
      if (!/^[\w!#$%&'*+.^`|~-]+$/.test(name)) this.failed = true
      this.text(`${name}:`)
      this.pattern(/[ \t]*/y)
      const value = rawHeaders[at + 1] ?? ''
      if (!/^(?:[^\0-\x20\x7f](?:[^\0-\x08\x0a-\x1f\x7f]*[^\0-\x20\x7f])?)?$/.test(value)) this.failed = true
      this.text(value)
      this.pattern(/[ \t]*\r\n/y)
    }
    this.text('\r\n')
  }

  chunks(body: string): void {
    let left = body
    for (;;) {
      const digits = this.pattern(/([0-9A-Fa-f]{1,12})(?:;[^\0-\x08\x0a-\x1f\x7f]*)?\r\n/y)
      const size = Number.parseInt(digits, 16)
      if (this.failed || size === 0 || size > left.length) {
        if (size !== 0 || left !== '') this.failed = true
        return
      }
      this.text(left.slice(0, size))
      this.text('\r\n')
      left = left.slice(size)
    }
  }
}

/**
 * Whether requests, rendered anew, are the bytes that were sent: there is no byte that another parser could have read
 * as anything else. What is told of a request must be all of it; of the last one the end may be missing.
 */
function isRendered(bytes: string, requests: readonly Told[]): boolean {
  const walk = new Walk(bytes)
  for (const { method, url, httpVersion, rawHeaders, body, trailers } of requests) {
    walk.pattern(/(?:\r\n)*/y)
    if (!/^[A-Z-]+$/.test(method) || !/^[\x21-\x7e]+$/.test(url)) return false
    walk.text(`${method} ${url} HTTP/${httpVersion}\r\n`)
    walk.fieldLines(rawHeaders)
    if (trailers === undefined) return !walk.failed
    const follows = asAdmitted({ method, url, httpVersion, rawHeaders })
    if (follows === undefined) return false
    if (follows.chunked) {
      walk.chunks(body)
      walk.fieldLines(trailers)
    } else {
      if (body.length !== follows.contentLength || trailers.length > 0) return false
      walk.text(body)
    }
  }
  return !walk.failed
}

t.test('requests with any change are faults, or the requests that their bytes are', async (t) => {
  let faults = 0
  let read = 0
  const property = fc.property(sequences, changes, ({ bytes }, list) => {
    const sent = changed(bytes, list)
    const { requests, fault } = readRequests(sent, HOW)
    if (fault !== undefined) faults++
    else read++
    return isRendered(sent, requests)
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 6000 }))
  t.ok(faults > 500 && read > 500, `${faults} were refused, ${read} were read`)
})

t.test('requests with any change are told, or refused, the same however they were cut', async (t) => {
  const property = fc.property(
    sequences,
    changes,
    fc.array(cutsOf, { minLength: 1, maxLength: 2 }),
    fc.constantFrom(LIMITS, { headerBytes: 60, headerLines: 3 }),
    ({ bytes }, list, cuts, limits) => {
      const sent = changed(bytes, list)
      const whole = essence(sent, { ...HOW, limits })
      return [...cuts.map((places) => within(places, sent)), everywhere(sent)].every(
        (places) => essence(sent, { ...HOW, limits, cuts: places }) === whole,
      )
    },
  )
  t.doesNotThrow(() => fc.assert(property, { numRuns: 4000 }))
})

t.test('each byte of a request, replaced by each other, leaves one reading or none', async (t) => {
  const bytes =
    'PUT /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nab\r\n0\r\nX: y\r\n\r\nGET /c HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz'
  const wrong: string[] = []
  for (let at = 0; at < bytes.length; at++) {
    for (let code = 0; code < 256; code++) {
      const sent = bytes.slice(0, at) + String.fromCharCode(code) + bytes.slice(at + 1)
      if (!isRendered(sent, readRequests(sent, HOW).requests)) wrong.push(`${at}: ${code}`)
    }
    const without = bytes.slice(0, at) + bytes.slice(at + 1)
    if (!isRendered(without, readRequests(without, HOW).requests)) wrong.push(`${at} removed`)
  }
  t.same(wrong, [])
})

t.test('garbage is told of, refused or unfinished, and nothing worse', async (t) => {
  const pieces = fc.oneof(
    fc.string({ unit: latin1, maxLength: 20 }),
    fc.constantFrom('GET / HTTP/1.1\r\n', 'PUT /b HTTP/1.1\r\n', 'Host: a\r\n', 'Content-Length: 3\r\n'),
    fc.constantFrom(
      'Transfer-Encoding: chunked\r\n',
      '\r\n',
      '\n',
      '\r',
      '0\r\n',
      '5\r\nhello\r\n',
      'X: y\r\n',
    ),
  )
  const property = fc.property(fc.array(pieces, { maxLength: 12 }), cutsOf, (list, cuts) => {
    const sent = list.join('')
    const whole = essence(sent, HOW) // throws on anything but a fault
    return (
      isRendered(sent, readRequests(sent, HOW).requests) &&
      essence(sent, { ...HOW, cuts: within(cuts, sent) }) === whole
    )
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 4000 }))
})
