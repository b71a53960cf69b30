import t from 'tap'
import { headerKind } from '../../src/http/headers.ts'
import { admitted, type HeadParts, type Line } from '../support/request-heads.ts'

/** Lines of one name. */
const lines = (name: string, ...values: string[]): Line[] => values.map((value): Line => [name, value])

t.test('a WebSocket handshake is a GET with one Upgrade header that Connection lists', async (t) => {
  const handshake: Line[] = [
    ['Connection', 'keep-alive, Upgrade'],
    ['Upgrade', 'WebSocket'],
  ]
  t.equal(admitted({ more: handshake }).isWebSocket, true)
  t.equal(admitted({ more: [...handshake, ['Content-Length', '0']] }).isWebSocket, true)
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
  for (const [what, parts] of others) {
    t.equal(admitted(parts).isWebSocket, false, what)
  }
})

t.test('many options of many Connection lines are read in linear time', async (t) => {
  const values = Array.from({ length: 180 }, (_, line) =>
    Array.from({ length: 90 }, (_, at) => (90 * line + at).toString(36)).join(),
  )
  const before = process.cpuUsage()
  t.equal(admitted({ more: lines('Connection', ...values) }).lines.connectionOptions?.size, 180 * 90)
  const { user } = process.cpuUsage(before)
  t.ok(user < 500_000, `${user / 1000} ms`)
})

t.test('a name is classified in time linear in its length', async (t) => {
  for (const filler of ['-', '_', '-a', 'a', '-_']) {
    const name = `x${filler.repeat(30_000 / filler.length)}y`
    const before = process.cpuUsage()
    t.equal(headerKind(name), 'other')
    const { user } = process.cpuUsage(before)
    t.ok(user < 500_000, `${user / 1000} ms for 30,000 characters of ${filler}`)
  }
})
