import { createServer } from 'node:http'
import { connect, Socket } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import { ERRORS } from '../../src/base/errors.ts'
import { Peer } from '../../src/client/client-address.ts'
import { Connection } from '../../src/client/connection.ts'
import { SidecarRequest } from '../../src/client/request.ts'
import { SidecarResponse } from '../../src/client/response.ts'
import { TransferTurns } from '../../src/client/transfer-turns.ts'
import { Turns } from '../../src/client/turns.ts'
import { listen } from '../support/listen.ts'

const peer = new Peer('192.0.2.1', () => false, 'https', 443)
const headMs = 11_000
const events = {
  ...{
    handle() {},
    onRequestEnd() {},
    onUnparsed: () => '',
    isDraining: () => false,
    inFlight: () => 0,
    turns: new Turns(),
    transferTurns: new TransferTurns(),
  },
}

t.test('a client that reads nothing has at most one empty write waiting', (t) => {
  const waiting: (() => void)[] = []
  class BlockedSocket extends Socket {
    override write(_bytes: unknown, written?: unknown): boolean {
      if (typeof written === 'function') {
        waiting.push(() => written())
      }
      return false
    }
  }
  const connection = new Connection(new Socket().pause(), new BlockedSocket(), peer, headMs, events)
  for (let i = 0; i < 3; i++) {
    connection.detectReset()
  }
  t.equal(waiting.length, 1)
  waiting.pop()?.()
  connection.detectReset()
  t.equal(waiting.length, 1, 'another one once it is written')
  t.end()
})

t.test('an unread body and the bytes behind it are discarded for 30 s in all', (t) => {
  const socket = new Socket()
  const connection = new Connection(socket, socket, peer, headMs, events)
  const req = new SidecarRequest(socket)
  req.createContext(connection)
  let now = 0
  const delays: unknown[] = []
  t.intercept(performance, 'now', { value: () => now })
  t.intercept(globalThis, 'setTimeout', { value: (_: unknown, ms: unknown) => delays.push(ms) })
  connection.end.discardBody(req, false, () => {})
  now = 31_000
  connection.refuseUnparsed({ error: ERRORS.malformedRequest })
  t.same(delays, [30_000, 0])
  t.end()
})

t.test('an aborted response counts as sent only if the system has all of it', async (t) => {
  const server = createServer({ IncomingMessage: SidecarRequest, ServerResponse: SidecarResponse })
  const ended = new Promise<boolean>((resolve) =>
    server.prependListener('connection', (socket: Socket) => {
      const onRequestEnd = (res: SidecarResponse) => resolve(res.countsAsSent)
      const handle = async (res: SidecarResponse) => {
        await setImmediate() // the request is complete
        res.begin(200, 'OK', ['Content-Length', '9000000'], 'keepAlive')
        res.writeEnd('x'.repeat(9_000_000))
        await setImmediate()
        connection.abort()
      }
      const connection = new Connection(socket, socket, peer, headMs, { ...events, handle, onRequestEnd })
      server.on('request', (_req, res) => connection.receive(res))
    }),
  )
  const client = connect(await listen(t, server)).pause()
  client.on('error', () => {}).write('GET / HTTP/1.1\r\nHost: h\r\n\r\n')
  t.notOk(await ended)
})
