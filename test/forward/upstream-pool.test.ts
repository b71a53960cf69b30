import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { UpstreamPool } from '../../src/forward/upstream-pool.ts'
import { eventually } from '../support/eventually.ts'
import { OK, recordingUpstream } from '../support/recording-upstream.ts'
import { setDeadlines } from '../support/set-deadlines.ts'
import { connectTo, FakeUser } from './fake-user.ts'

/** A pool in front of an upstream that answers when it is told to. */
async function pooled(t: Test, { maxConnections = 2, maxQueue = 2 } = {}) {
  const upstream = await recordingUpstream(t)
  const deadlines = setDeadlines(t)
  const pool = new UpstreamPool({
    connect: connectTo(upstream.port),
    readyEvent: 'connect',
    deadlines,
    connectMs: 3000,
    limits: { headerBytes: 1024, headerLines: 10 },
    maxConnections,
    maxQueue,
  })
  const sockets = new Map<string, Socket>()
  upstream.reply((socket, { target }) => void sockets.set(target, socket))
  t.teardown(() => {
    for (const socket of upstream.sockets) socket.destroy()
  })
  /** Asks for a connection. */
  const ask = (target: string, how: 'request' | 'requestOwn' = 'request') => {
    const user = new FakeUser(target)
    pool[how](user)
    return user
  }
  /** Waits until a request has come, and answers it. */
  const answer = async (target: string, reply = OK) => {
    await upstream.until(() => sockets.has(target), target)
    sockets.get(target)?.write(reply)
  }
  /** Asks and is answered; then the connection is unused. */
  const use = async (target: string) => {
    const user = ask(target)
    await answer(target)
    await user.hears('end')
    await nextTurn()
    return user
  }
  return { upstream, deadlines, pool, sockets, ask, answer, use }
}

/** A turn of the event loop and what is done at its end. */
async function nextTurn(): Promise<void> {
  for (let turn = 0; turn < 2; turn++) await new Promise(setImmediate)
}

t.test('a connection whose response has ended is used again, but not in the same turn', async (t) => {
  const { upstream, pool, ask, answer, use } = await pooled(t)
  await use('/1')
  t.equal(pool.connections, 1)
  const second = ask('/2')
  t.ok(second.told.includes('connected'), 'at once')
  await answer('/2')
  await second.hears('end') // told in the turn in which it ended, or the next; then it is free again
  await nextTurn()
  await use('/3')
  t.equal(upstream.sockets.length, 1)
})

t.test('a request in the very turn of a response takes another connection', async (t) => {
  const { upstream, pool, ask, answer } = await pooled(t)
  const first = ask('/1')
  const second = new FakeUser('/2')
  first.onEnd = () => pool.request(second)
  await answer('/1')
  await answer('/2')
  await second.hears('end')
  t.same(
    upstream.requests.map(({ connection }) => connection),
    [0, 1],
  )
})

t.test(
  'what waits is given the connections in order of arrival, and no more than may wait does',
  async (t) => {
    const { upstream, pool, ask, answer } = await pooled(t, { maxConnections: 1, maxQueue: 2 })
    const users = ['/1', '/2', '/3'].map((target) => ask(target))
    t.equal(pool.queued, 2)
    t.same(ask('/4').told, ['fault connection_limit_reached'])
    for (const [at, user] of users.entries()) {
      await answer(`/${at + 1}`)
      await user.hears('end')
    }
    t.same(
      upstream.requests.map(({ target, connection }) => [target, connection]),
      [
        ['/1', 0],
        ['/2', 0],
        ['/3', 0],
      ],
    )
    t.equal(pool.queued, 0)
  },
)

t.test('what waits is given the place of a connection that has closed', async (t) => {
  const { upstream, pool, ask, answer, sockets } = await pooled(t, { maxConnections: 1 })
  const first = ask('/1')
  const second = ask('/2')
  await upstream.until(() => sockets.has('/1'), '/1')
  sockets.get('/1')?.destroy()
  await first.hears('fault connection_terminated')
  await answer('/2')
  await second.hears('end')
  t.equal(pool.connections, 1)
})

t.test('what waits is given the place of a connection that ends with its response', async (t) => {
  const { ask, answer } = await pooled(t, { maxConnections: 1 })
  const first = ask('/1')
  const second = ask('/2')
  await answer('/1', 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
  await first.hears('end')
  await answer('/2')
  await second.hears('end')
})

t.test('a connection that closes in the turn in which it became free is given to nobody', async (t) => {
  const { upstream, pool, ask, answer } = await pooled(t, { maxConnections: 1 })
  const first = ask('/1')
  const second = ask('/2')
  first.onEnd = () => {
    first.told.push('end')
    first.connection?.socket.destroy()
  }
  await answer('/1')
  await answer('/2')
  await second.hears('end')
  t.equal(upstream.sockets.length, 2)
  t.equal(pool.connections, 1)
})

t.test('an unused connection that is closing is passed over', async (t) => {
  const { upstream, ask, answer, use } = await pooled(t)
  const first = await use('/1')
  first.connection?.socket.destroy()
  const second = ask('/2') // before the pool could be told
  t.same(second.told, [])
  await answer('/2')
  await second.hears('end')
  t.equal(upstream.sockets.length, 2)
})

t.test('a request that needs no connection any more', async (t) => {
  await t.test('leaves the queue', async (t) => {
    const { upstream, pool, ask, answer } = await pooled(t, { maxConnections: 1 })
    const first = ask('/1')
    const second = ask('/2')
    const third = ask('/3')
    pool.cancel(second)
    t.equal(pool.queued, 1)
    await answer('/1')
    await first.hears('end')
    await answer('/3')
    await third.hears('end')
    t.same(second.told, [])
    t.equal(upstream.requests.length, 2)
  })

  await t.test('gives up the connection that is being made for it, and no other', async (t) => {
    const { pool, ask, answer } = await pooled(t)
    const first = ask('/1')
    const second = ask('/2')
    pool.cancel(first)
    await answer('/2')
    await second.hears('end')
    t.same(first.told, [])
    await eventually(() => pool.connections === 1, 'the first to be closed')
  })
})

t.test(
  'a fresh connection is made for a request whose used one was closed, also where the pool is full',
  async (t) => {
    const { pool, ask, answer, upstream, sockets } = await pooled(t, { maxConnections: 1 })
    ask('/1')
    await upstream.until(() => sockets.has('/1'), '/1')
    const second = new FakeUser('/2')
    pool.requestFresh(second)
    t.equal(pool.connections, 2)
    const third = ask('/3')
    await answer('/2', 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
    await second.hears('end')
    await eventually(() => pool.connections === 1, 'the second to be closed')
    t.same(third.told, [], 'no place yet')
    await answer('/1')
    await answer('/3')
    await third.hears('end')
  },
)

t.test('a connection of its own', async (t) => {
  await t.test('is a fresh one while there is room', async (t) => {
    const { upstream, pool, ask, answer, use } = await pooled(t)
    await use('/1')
    const own = ask('/own', 'requestOwn')
    await answer('/own')
    await own.hears('end')
    t.equal(upstream.sockets.length, 2)
    t.equal(pool.connections, 2)
  })

  await t.test('takes the place of an unused one', async (t) => {
    const { upstream, pool, ask, answer, use } = await pooled(t, { maxConnections: 1 })
    await use('/1')
    const own = ask('/own', 'requestOwn')
    await answer('/own')
    await own.hears('end')
    await upstream.until(() => upstream.open() === 1, 'the unused one to be closed')
    t.equal(pool.connections, 1)
  })

  await t.test('is not to be had when all are in use', async (t) => {
    const { ask, pool } = await pooled(t, { maxConnections: 1 })
    ask('/1')
    t.same(ask('/own', 'requestOwn').told, ['fault connection_limit_reached'])
    t.equal(pool.queued, 0)
  })
})

t.test(
  'a pool that is closed closes unused connections at once, the others with their responses',
  async (t) => {
    const { upstream, deadlines, pool, ask, answer, use, sockets } = await pooled(t)
    await use('/1')
    const keep = ask('/2')
    const busy = ask('/3')
    await answer('/2')
    await keep.hears('end')
    await nextTurn()
    await upstream.until(() => sockets.has('/3'), '/3')
    t.equal(pool.connections, 2)
    pool.close()
    await eventually(() => pool.connections === 1, 'the unused one to be closed')
    await answer('/3')
    await busy.hears('end')
    await eventually(() => pool.connections === 0, 'the other one to be closed')
    t.equal(deadlines.waiting.size, 0)
  },
)
