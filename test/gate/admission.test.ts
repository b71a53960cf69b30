import fc from 'fast-check'
import t from 'tap'
import { admission, admitted, type HeadParts, type Line } from '../support/request-heads.ts'

/** Lines of one name. */
const lines = (name: string, ...values: string[]): Line[] => values.map((value): Line => [name, value])

t.test('a WebSocket handshake is a GET with one Upgrade header that Connection lists', async (t) => {
  const handshake: Line[] = [
    ['Connection', 'keep-alive, Upgrade'],
    ['Upgrade', 'WebSocket'],
  ]
  t.equal(admitted({ more: handshake }).webSocket, true)
  t.equal(admitted({ more: [...handshake, ['Content-Length', '0']] }).webSocket, true)
  const others: readonly [string, HeadParts][] = [
    ['not listed in Connection', { more: lines('Upgrade', 'websocket') }],
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

t.test('many options of many Connection lines are read in linear time', async (t) => {
  const values = Array.from({ length: 180 }, (_, line) =>
    Array.from({ length: 90 }, (_, at) => (90 * line + at).toString(36)).join(),
  )
  const before = process.cpuUsage()
  t.equal(admitted({ more: lines('Connection', ...values) }).connectionOptions?.size, 180 * 90)
  const { user } = process.cpuUsage(before)
  t.ok(user < 60_000, `${user / 1000} ms`)
})

t.test('admission never throws, and an admitted head has one host, one framing and one token', async (t) => {
  const character = fc.oneof(
    fc.constantFrom(...' \t\r\n\0:,;/?#@[]%\\"*-_.\x7f\xa0aA09'),
    fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)),
  )
  const text = fc.string({ unit: character, maxLength: 20 })
  const name = fc.oneof(
    fc.constantFrom('Host', 'Content-Length', 'Transfer-Encoding', 'Connection', 'Authorization', 'Upgrade'),
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
    const values = (expected: string) =>
      parts.lines.flatMap(([found, value]) => (found.toLowerCase() === expected ? [value] : []))
    const count = (expected: string) => values(expected).length
    return (
      /^\/[^\0-\x20#\x7f]*$/.test(request.target) &&
      request.path === request.target.split('?')[0] &&
      count('host') === (request.host === undefined ? 0 : 1) &&
      (request.host !== undefined || parts.version === '1.0') &&
      count('content-length') + count('transfer-encoding') <= 1 &&
      request.chunked === (count('transfer-encoding') === 1) &&
      request.hasBody === (request.chunked || Number(values('content-length')[0] ?? 0) > 0) &&
      count('authorization') === (request.authorization === undefined ? 0 : 1)
    )
  })
  fc.assert(property, { numRuns: 10_000, seed: 42 })
  t.ok(admissions > 100, `${admissions} heads were admitted`)
})
