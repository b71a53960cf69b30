import { Socket } from 'node:net'
import t from 'tap'
import { Peer } from '../../src/client/client-address.ts'
import { Connection } from '../../src/client/connection.ts'

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
