import t, { type Test } from 'tap'
import { type ConnectionOwner, UpstreamConnection } from '../../src/forward/upstream-connection.ts'
import { ReadMemory } from '../../src/read-memory.ts'
import { eventually } from '../support/eventually.ts'
import { OK, type RecordingUpstream, recordingUpstream } from '../support/recording-upstream.ts'
import { setDeadlines } from '../support/set-deadlines.ts'
import { connectTo, FakeUser } from './fake-user.ts'

/** An owner that notes what it is told, and lets turns pass when the test says so. */
class FakeOwner implements ConnectionOwner {
  turn = 0
  readonly memory = new ReadMemory()
  writes = 0
  freed = 0
  closed = 0
  onWrite(): void {
    this.writes++
  }
  onFree(): void {
    this.freed++
  }
  onClosed(): void {
    this.closed++
  }
}

/** Makes a connection to an upstream for a first user. */
function connecting(t: Test, upstream: RecordingUpstream, user = new FakeUser()) {
  const deadlines = setDeadlines(t)
  const owner = new FakeOwner()
  const connection = new UpstreamConnection(
    {
      connect: connectTo(upstream.port),
      readyEvent: 'connect',
      owner,
      deadlines,
      connectMs: 3000,
      limits: { headerBytes: 1024, headerLines: 10 },
    },
    user,
  )
  t.teardown(() => connection.abandon())
  return { connection, owner, deadlines, user }
}

t.test('a request is written when the connection is there, and its response is told', async (t) => {
  const upstream = await recordingUpstream(t)
  const { connection, owner, deadlines, user } = connecting(t, upstream)
  t.ok(connection.isFor(user))
  t.equal(connection.deadline, deadlines.monotonicNow() + 3000, 'connecting has its time')
  user.onHead = ({ status }) => {
    user.told.push(`head ${status}`)
    t.equal(connection.deadline, Number.POSITIVE_INFINITY, 'the response is waited for by its user')
  }
  await user.hears('end')
  t.same(user.told, ['connected', 'head 200', 'body ok', 'end'])
  t.equal(upstream.requests.length, 1)
  t.equal(owner.writes, 1)
  t.equal(owner.freed, 1)
  t.notOk(connection.isFor(user))
})

t.test('a part of a response is told as such', async (t) => {
  const upstream = await recordingUpstream(t)
  upstream.reply('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npa')
  const { user } = connecting(t, upstream)
  await user.hears('read')
  t.same(user.told, ['connected', 'informational 100', 'head 200', 'body pa', 'read'])
  upstream.sockets[0]?.write('rt')
  await user.hears('end')
})

t.test('a connection whose request has not been taken whole is not used again', async (t) => {
  const upstream = await recordingUpstream(t, { read: false, onConnection: (socket) => void socket.pause() })
  const { connection, owner, user } = connecting(t, upstream)
  await user.hears('connected')
  connection.socket.write(Buffer.alloc(32 * 1024 * 1024)) // more than sockets hold
  upstream.sockets[0]?.write(OK)
  await user.hears('end')
  t.ok(connection.socket.destroyed)
  t.equal(owner.freed, 0)
})

t.test('an unused connection', async (t) => {
  for (const [what, line, ms] of [
    ['is kept for 4 s when nothing is promised', '', 4000],
    ['is kept a second less than promised', 'Keep-Alive: timeout=10\r\n', 9000],
    ['is kept for a minute at most', 'Keep-Alive: max=5, timeout=86400\r\n', 60_000],
  ] as const) {
    await t.test(what, async (t) => {
      const upstream = await recordingUpstream(t)
      upstream.reply(`HTTP/1.1 200 OK\r\n${line}Content-Length: 2\r\n\r\nok`)
      const { connection, owner, deadlines, user } = connecting(t, upstream)
      await user.hears('end')
      t.equal(connection.deadline, deadlines.monotonicNow() + ms)
      deadlines.advance(ms - 1)
      t.ok(connection.isOpen)
      deadlines.advance(1)
      t.notOk(connection.isOpen)
      await eventually(() => owner.closed === 1, 'the connection to be closed')
      t.equal(deadlines.waiting.size, 0)
      t.notOk(
        user.told.some((word) => word.startsWith('fault')),
        'which is no business of its last user',
      )
    })
  }

  for (const [what, reply] of [
    ['promised for a second', 'HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok'],
    ['said to be closed', 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok'],
    ['followed by a byte that nobody asked for', `${OK}x`],
  ] as const) {
    await t.test(`is none when it is ${what}`, async (t) => {
      const upstream = await recordingUpstream(t)
      upstream.reply(reply)
      const { owner, deadlines, user } = connecting(t, upstream)
      await user.hears('end')
      await eventually(() => owner.closed === 1, 'the connection to be closed')
      t.equal(owner.freed, 0)
      t.equal(deadlines.waiting.size, 0)
    })
  }

  await t.test('is closed by a byte that nobody asked for', async (t) => {
    const upstream = await recordingUpstream(t)
    const { connection, owner, user } = connecting(t, upstream)
    await user.hears('end')
    upstream.sockets[0]?.write('x')
    await eventually(() => owner.closed === 1, 'the connection to be closed')
    t.notOk(connection.isOpen)
    t.equal(user.told.at(-1), 'end')
  })

  await t.test('is closed when the upstream closes it', async (t) => {
    const upstream = await recordingUpstream(t)
    const { owner, user } = connecting(t, upstream)
    await user.hears('end')
    upstream.sockets[0]?.end()
    await eventually(() => owner.closed === 1, 'the connection to be closed')
    t.equal(user.told.at(-1), 'end')
  })

  await t.test('whose last user had paused it is read again, so that its close is seen', async (t) => {
    const upstream = await recordingUpstream(t)
    upstream.reply('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n')
    const { connection, owner, user } = connecting(t, upstream, new FakeUser('/', { pauses: true }))
    await user.hears('end')
    t.notOk(connection.socket.isPaused())
    upstream.sockets[0]?.end()
    await eventually(() => owner.closed === 1, 'the connection to be closed')
  })
})

t.test('a connection that is used again', async (t) => {
  const again = async (t: Test) => {
    const upstream = await recordingUpstream(t)
    const { connection, owner, user } = connecting(t, upstream)
    await user.hears('end')
    owner.turn++
    return { upstream, connection, owner, first: user, second: new FakeUser('/second') }
  }

  await t.test('carries the next request to the next user alone', async (t) => {
    const { upstream, connection, owner, first, second } = await again(t)
    connection.use(second)
    owner.turn++
    await second.hears('end')
    t.same(second.told, ['connected', 'head 200', 'body ok', 'end'])
    t.equal(first.told.length, 4)
    t.same(
      upstream.requests.map(({ target, connection }) => [target, connection]),
      [
        ['/', 0],
        ['/second', 0],
      ],
    )
  })

  await t.test('takes nothing for an answer in the turn in which the request is written', async (t) => {
    const { upstream, connection, owner, second } = await again(t)
    upstream.reply(() => {})
    connection.use(second)
    upstream.sockets[0]?.write(OK) // read before the turn passes
    await second.hears('fault connection_terminated stale')
    t.same(second.told, ['connected', 'fault connection_terminated stale'])
    await eventually(() => owner.closed === 1, 'the connection to be closed')
  })

  await t.test('is stale when it ends before a byte of the response', async (t) => {
    const { upstream, connection, owner, second } = await again(t)
    upstream.reply((socket) => socket.end())
    connection.use(second)
    owner.turn++
    await second.hears('fault connection_terminated stale')
  })

  await t.test('is not stale when it ends after a byte of the response', async (t) => {
    const { upstream, connection, owner, second } = await again(t)
    upstream.reply((socket) => socket.end('H'))
    connection.use(second)
    owner.turn++
    await second.hears('fault http_response_incomplete')
  })
})

t.test('a connection that fails tells its user once, and is not stale when it is fresh', async (t) => {
  for (const [reply, fault] of [
    ['', 'connection_terminated'],
    ['HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npa', 'http_response_incomplete'],
    ['no response\r\n', 'http_protocol_error'],
  ] as const) {
    const upstream = await recordingUpstream(t)
    upstream.reply((socket) => socket.end(reply))
    const { owner, deadlines, user } = connecting(t, upstream)
    await user.hears(`fault ${fault}`)
    await eventually(() => owner.closed === 1, 'the connection to be closed')
    t.equal(user.told.filter((word) => word.startsWith('fault')).length, 1)
    t.equal(deadlines.waiting.size, 0)
  }
})

t.test('a connection that is not there in time fails', async (t) => {
  const upstream = await recordingUpstream(t)
  const { connection, owner, deadlines, user } = connecting(t, upstream)
  deadlines.advance(2999)
  t.same(user.told, [])
  deadlines.advance(1)
  t.same(user.told, ['fault connection_timeout'])
  t.notOk(connection.isFor(user))
  await eventually(() => owner.closed === 1, 'the connection to be closed')
  t.equal(user.told.length, 1)
  t.equal(deadlines.waiting.size, 0)
})

t.test('a connection that is given up tells its user nothing more', async (t) => {
  const upstream = await recordingUpstream(t)
  upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npa')
  const { connection, owner, deadlines, user } = connecting(t, upstream)
  await user.hears('read')
  const told = user.told.length
  connection.abandon()
  await eventually(() => owner.closed === 1, 'the connection to be closed')
  t.equal(user.told.length, told)
  t.equal(deadlines.waiting.size, 0)
})

t.test('an end that is a reset does not end a body', async (t) => {
  const upstream = await recordingUpstream(t)
  upstream.reply((socket) => {
    socket.write('HTTP/1.1 200 OK\r\n\r\npart')
    socket.resetAndDestroy()
  })
  const { user } = connecting(t, upstream)
  await user.hears('fault http_response_incomplete')
  t.notOk(user.told.includes('end'))
})

t.test('what was read is read over, unless it is held', async (t) => {
  const holding = (hold: boolean) => async (t: Test) => {
    const kept: Buffer[] = []
    const upstream = await recordingUpstream(t)
    upstream.reply(async (socket) => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc')
      await eventually(() => kept.length === 1, 'the first half')
      socket.write('def')
    })
    const user = new FakeUser()
    const { connection } = connecting(t, upstream, user)
    user.onBody = (chunk) => {
      if (hold) connection.hold()
      kept.push(chunk)
    }
    await user.hears('end')
    t.equal(kept.length, 2)
    t.equal(kept[0]?.buffer === kept[1]?.buffer, !hold, 'in one block only if nobody holds it')
    if (hold) t.equal(String(kept[0]), 'abc')
  }
  await t.test('parts that nobody holds come in one block', holding(false))
  await t.test('parts that are held keep blocks of their own', holding(true))
})
