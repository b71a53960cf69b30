import dns from 'node:dns/promises'
import { Socket } from 'node:net'
import { mock } from 'node:test'
import t, { type Test } from 'tap'
import { Connector } from '../../src/upstream/connector.ts'

const ONREAD = { buffer: Buffer.alloc(0), callback: () => true }

/** A connector whose sockets connect and fail as the test says. */
async function start(t: Test, ips: readonly string[]) {
  mock.method(dns, 'lookup', async () =>
    ips.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
  )
  mock.timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => {
    mock.restoreAll()
    mock.timers.reset()
  })
  const attempts: { readonly ip: string | undefined; readonly socket: Socket }[] = []
  const events: unknown[] = []
  const address = {
    tls: false,
    host: 'storage.example',
    name: 'storage.example',
    open(ip: string | undefined) {
      const socket = new Socket()
      attempts.push({ ip, socket })
      return socket
    },
  }
  const connector = new Connector(address, ONREAD, {
    onAddresses: () => events.push('addresses'),
    onConnected: (socket) => events.push(attempts.find((attempt) => attempt.socket === socket)?.ip),
    onFailure: (error) => events.push(error.message),
  })
  connector.start()
  await new Promise(setImmediate)
  return {
    connector,
    events,
    tried: () => attempts.map(({ ip }) => ip),
    open: () => attempts.filter(({ socket }) => !socket.destroyed).map(({ ip }) => ip),
    connect: (at: number) => attempts[at]?.socket.emit('connect'),
    fail: (at: number, message: string) => attempts[at]?.socket.emit('error', new Error(message)),
  }
}

t.test('a slow good address is not given up for one that never connects', async (t) => {
  const { events, tried, open, connect } = await start(t, ['192.0.2.1', '192.0.2.2'])
  t.same(tried(), ['192.0.2.1'])
  mock.timers.tick(250)
  t.same(tried(), ['192.0.2.1', '192.0.2.2'], 'the second is tried beside the first')
  mock.timers.tick(2000)
  t.same(open(), ['192.0.2.1', '192.0.2.2'], 'and the first goes on')
  connect(0)
  t.same(events, ['addresses', '192.0.2.1'])
  t.same(open(), ['192.0.2.1'], 'the other attempt ends')
  connect(1)
  t.equal(events.length, 2, 'an attempt that connects too late is not reported')
})

t.test('a dead first address delays the good one by no more than the attempt delay', async (t) => {
  const { events, connect, open } = await start(t, ['192.0.2.1', '192.0.2.2'])
  mock.timers.tick(250)
  connect(1)
  t.same(events, ['addresses', '192.0.2.2'])
  t.same(open(), ['192.0.2.2'])
})

t.test('a failed attempt leads to the next at once, and the last failure is reported', async (t) => {
  const { events, fail, tried } = await start(t, ['192.0.2.1', '192.0.2.2'])
  fail(0, 'first')
  t.same(tried(), ['192.0.2.1', '192.0.2.2'])
  t.same(events, ['addresses'])
  fail(1, 'second')
  t.same(events, ['addresses', 'second'])
})

t.test('a failure waits for the attempts that still go on', async (t) => {
  const { events, fail, connect } = await start(t, ['192.0.2.1', '192.0.2.2'])
  mock.timers.tick(250)
  fail(1, 'second')
  t.same(events, ['addresses'])
  connect(0)
  t.same(events, ['addresses', '192.0.2.1'])
})

t.test('both families are tried in turn, the first of the resolver first', async (t) => {
  const { tried } = await start(t, ['2001:db8::1', '2001:db8::2', '2001:db8::3', '192.0.2.1', '192.0.2.2'])
  mock.timers.tick(250)
  mock.timers.tick(250)
  mock.timers.tick(250)
  mock.timers.tick(250)
  mock.timers.tick(250)
  t.same(tried(), ['2001:db8::1', '192.0.2.1', '2001:db8::2', '192.0.2.2', '2001:db8::3'])
})

t.test('after a close, nothing is tried, and nothing is reported', async (t) => {
  const { connector, events, tried, open, fail } = await start(t, ['192.0.2.1', '192.0.2.2'])
  connector.close()
  mock.timers.tick(1000)
  fail(0, 'late')
  t.same(tried(), ['192.0.2.1'])
  t.same(open(), [])
  t.same(events, ['addresses'])
})
