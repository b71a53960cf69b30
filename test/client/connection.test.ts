import { Socket } from 'node:net'
import t from 'tap'
import { ERRORS } from '../../src/base/errors.ts'
import { Peer } from '../../src/client/client-address.ts'
import { Connection } from '../../src/client/connection.ts'
import { beginRequest, SidecarRequest } from '../../src/client/request.ts'

const peer = new Peer('192.0.2.1', () => false, 'https', 443)
const timeouts = { idleMs: 60_000, headMs: 11_000 }
const events = { handle() {}, onRequestEnd() {}, onParserError: () => '', isDraining: () => false }

t.test('a client that reads nothing has at most one empty write waiting', (t) => {
  const waiting: (() => void)[] = []
  class BlockedSocket extends Socket {
    override write(_bytes: unknown, written?: unknown): boolean {
      if (typeof written === 'function') waiting.push(() => written())
      return false
    }
  }
  const connection = new Connection(new Socket(), new BlockedSocket(), peer, timeouts, events)
  for (let i = 0; i < 3; i++) connection.detectReset()
  t.equal(waiting.length, 1)
  waiting.pop()?.()
  connection.detectReset()
  t.equal(waiting.length, 1, 'another one once it is written')
  t.end()
})

t.test('an unread body and the bytes behind it are discarded for 30 s in all', (t) => {
  const socket = new Socket()
  const connection = new Connection(socket, socket, peer, timeouts, events)
  const req = new SidecarRequest(socket)
  beginRequest(req, connection)
  let [now, delays] = [0, [] as unknown[]]
  t.intercept(performance, 'now', { value: () => now })
  t.intercept(globalThis, 'setTimeout', { value: (_: unknown, ms: unknown) => delays.push(ms) })
  connection.discardBody(req, () => {})
  now = 31_000
  connection.refuse({ error: ERRORS.malformedRequest })
  t.same(delays, [30_000, 0])
  t.end()
})
