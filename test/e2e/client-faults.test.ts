import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { isOwnAnswer } from '../support/own-answer.ts'
import type { RawClient } from '../support/raw-client.ts'
import { type Scene, startScene } from '../support/scene.ts'

const MIB = 2 ** 20

/** The ways in which a client goes away. */
const DEPARTURES: Readonly<Record<string, (client: RawClient) => void>> = {
  reset: ({ socket }) => void socket.resetAndDestroy(),
  'close of both ways': ({ socket }) => void socket.destroy(),
  'end of its way': ({ socket }) => void socket.end(),
}

/** Waits until nothing of the requests before is left, neither here nor at the upstream. */
async function nothingIsLeft(scene: Scene, name: string): Promise<void> {
  const inFlight = () => scene.sidecar.metric('auth_sidecar_requests_in_flight')
  await eventually(async () => (await inFlight()) === 0, `${name}: nothing in flight`)
  await eventually(() => scene.upstream.open() === 0, `${name}: the upstream left`)
}

t.test('a client that leaves while its request is with the upstream takes it with it', async (t) => {
  const scene = await startScene(t)
  const stages: Record<string, (client: RawClient) => Promise<void>> = {
    'before the response': async (client) => {
      scene.upstream.reply(() => {})
      const seen = scene.upstream.requests.length
      client.send(`GET /wait HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`)
      await scene.upstream.received(seen + 1)
    },
    'in the middle of a response of known length': async (client) => {
      scene.upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfirst')
      client.send(`GET /down HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`)
      await client.until('first')
    },
    'in the middle of a response in chunks': async (client) => {
      scene.upstream.reply('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n')
      client.send(`GET /down HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`)
      await client.until('first')
    },
    'in the middle of its upload': async (client) => {
      scene.upstream.reply(() => {})
      client.send(`PUT /up HTTP/1.1\r\nHost: h\r\n${scene.authorization}Content-Length: 100\r\n\r\nfirst`)
      await scene.upstream.until(() => scene.upstream.bytes.at(-1)?.includes('first') === true, 'the upload')
    },
    'in the middle of its upload in chunks': async (client) => {
      scene.upstream.reply(() => {})
      client.send(
        `PUT /up HTTP/1.1\r\nHost: h\r\n${scene.authorization}Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n`,
      )
      await scene.upstream.until(() => scene.upstream.bytes.at(-1)?.includes('first') === true, 'the upload')
    },
    'waiting to be told to go on': async (client) => {
      scene.upstream.reply(() => {})
      client.send(
        `PUT /up HTTP/1.1\r\nHost: h\r\n${scene.authorization}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n`,
      )
      await client.until('100 Continue')
    },
    'with more requests behind the first': async (client) => {
      scene.upstream.reply(() => {})
      const seen = scene.upstream.requests.length
      client.send(`GET /wait HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`.repeat(10))
      await scene.upstream.received(seen + 10)
    },
  }
  for (const [stage, reach] of Object.entries(stages)) {
    for (const [departure, depart] of Object.entries(DEPARTURES)) {
      for (const socket of scene.upstream.sockets) socket.destroy()
      const client = await scene.connect()
      await reach(client)
      const left = performance.now()
      depart(client)
      await nothingIsLeft(scene, `${stage}, ${departure}`)
      t.ok(performance.now() - left < 1000, `${stage}, ${departure}: soon`)
      client.socket.destroy()
    }
  }
  scene.upstream.requests.length = 0
  scene.upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  await scene.upstreamSaw(t, 0)
  const left = scene.sidecar.log.filter(({ msg, status }) => msg === 'request' && status === 499)
  t.ok(left.length > 20, 'counted as left, not as answered')
  t.ok(
    (await scene.sidecar.metric('auth_sidecar_requests_total{route="proxy",method="GET",status="499"}')) > 0,
  )
})

t.test(
  'a client that leaves before there is a request, or while it logs in, leaves nothing behind',
  async (t) => {
    const scene = await startScene(t, { credentials: [{ scheme: 'scrypt' }] })
    const login = JSON.stringify(scene.sidecar.logins[0])
    const head = `POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: ${login.length}\r\n\r\n`
    for (const [stage, bytes] of [
      ['nothing sent', ''],
      ['half a line', 'GET /b'],
      ['half a head', 'GET /b/k HTTP/1.1\r\nHost: h\r\n'],
      ['half a refused upload', 'PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf'],
      ['half a login', head + login.slice(0, 5)],
      ['a login that is being checked', head + login],
      ['something that is no request', 'BAD\r\n\r\n'],
      ['CONNECT', 'CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n'],
    ] as const) {
      for (const [departure, depart] of Object.entries(DEPARTURES)) {
        const client = await scene.connect()
        if (bytes.length > 0)
          await new Promise<void>((resolve) => client.socket.write(bytes, () => resolve()))
        depart(client)
        await nothingIsLeft(scene, `${stage}, ${departure}`)
        client.socket.destroy()
      }
    }
    await eventually(
      () => scene.sidecar.log.some(({ route, status }) => route === 'token_issue' && status === 499),
      'the line of the log',
    )
    await scene.upstreamSaw(t, 0)
  },
)

t.test('a client that leaves while its token is verified is not forwarded', async (t) => {
  const scene = await startScene(t)
  for (let at = 0; at < 20; at++) {
    const token = await scene.sidecar.mint()
    const client = await scene.connect()
    client.socket.write(`GET /gone HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${token}\r\n\r\n`, () =>
      client.socket.resetAndDestroy(),
    )
  }
  await nothingIsLeft(scene, 'resets')
})

t.test('the answer to a refused upload can be read by a client that is still sending', async (t) => {
  const scene = await startScene(t)
  const size = 10 * MIB
  const refused: [name: string, head: string][] = [
    ['no token', `PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: ${size}\r\n\r\n`],
    ['another method', `PUT /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: ${size}\r\n\r\n`],
    ['too large a login', `POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: ${size}\r\n\r\n`],
    ['a bad host', `PUT /b/k HTTP/1.1\r\nHost: a,b\r\nContent-Length: ${size}\r\n\r\n`],
    ['no HTTP', 'BAD\r\n\r\n'],
    ['CONNECT', 'CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n'],
  ]
  const tryOne = async ([name, head]: (typeof refused)[number]) => {
    const client = await scene.connect()
    client.send(head)
    client.send(Buffer.alloc(size))
    const answer = await client.response()
    t.ok(answer.status === 400 || answer.status === 405, name)
    t.equal(answer.headers['connection'], 'close', name)
    t.match(answer.body.toString(), /^{"code":"[A-Za-z]+","message":"[^"]+"}$/, name)
    await client.closed()
    await eventually(
      () => client.socket.destroyed,
      `${name}: the end of the connection, though the client goes on sending`,
    )
  }
  await Promise.all(refused.map(tryOne))
  await scene.upstreamSaw(t, 0)
})

t.test('of a refused upload no more than a little is read', async (t) => {
  const scene = await startScene(t)
  for (const head of ['PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 10737418240\r\n\r\n', 'BAD\r\n\r\n']) {
    const client = await scene.connect()
    let accepted = 0
    const block = Buffer.alloc(64 * 1024)
    const more = () => {
      if (!client.socket.writable) return
      client.socket.write(block, (error) => {
        if (error) return
        accepted += block.length
        more()
      })
    }
    client.send(head)
    more()
    await client.closed()
    await eventually(() => client.socket.destroyed, 'the end of the connection')
    // What the sockets on the way hold comes on top.
    t.ok(accepted < 32 * MIB, `${accepted} bytes`)
  }
})

t.test('a refused upload of which the rest still comes is closed without a reset', async (t) => {
  const scene = await startScene(t)
  const client = await scene.connect()
  client.send('PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n')
  isOwnAnswer(t, await client.response(), { status: 400, code: 'InvalidToken' }, 'no token')
  client.send(Buffer.alloc(50_000))
  t.equal(await client.closed(), 'end')
  client.send(Buffer.alloc(50_000))
  client.socket.end()
  await new Promise((resolve) => client.socket.once('close', resolve))
  t.equal(client.socket.errored, null)
})

t.test('an upload answered early is broken off, and nothing behind it is a request', async (t) => {
  const scene = await startScene(t)
  await scene.ask(`GET /warm HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`) // a connection to use again
  const client = await scene.connect()
  client.send(`PUT /up HTTP/1.1\r\nHost: h\r\n${scene.authorization}Content-Length: 10\r\n\r\nabc`)
  await scene.upstream.until(() => scene.upstream.bytes.some((bytes) => bytes.includes('/up')), 'the upload')
  await scene.ask(`GET /warm HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`)
  const at = scene.upstream.bytes.findIndex((bytes) => bytes.includes('/up'))
  scene.upstream.sockets[at]?.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno')
  const answer = await client.response()
  t.same([answer.status, answer.headers['connection']], [403, 'close'])
  client.send(`1234567GET /behind HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`)
  t.equal(await client.closed(), 'end')
  t.equal(client.rest().length, 0)
  await scene.upstreamSaw(t, 2)
})

t.test('nor is there a request behind an upload whose early answer is still coming', async (t) => {
  const scene = await startScene(t)
  const client = await scene.connect()
  client.send(`PUT /up HTTP/1.1\r\nHost: h\r\n${scene.authorization}Content-Length: 10\r\n\r\nabc`)
  await scene.upstream.until(() => scene.upstream.bytes.some((bytes) => bytes.includes('/up')), 'the upload')
  const [socket] = scene.upstream.sockets
  scene.upstream.reply(() => {})
  socket?.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 10\r\n\r\nfirst')
  await client.until('first')
  client.send(`1234567GET /behind HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`)
  await scene.upstream.received(1)
  await scene.ask('GET /refused HTTP/1.1\r\nHost: h\r\n\r\n') // by now it would have been forwarded
  socket?.write('other')
  const answer = await client.response()
  t.same([answer.status, answer.headers['connection'], answer.body.toString()], [403, 'close', 'firstother'])
  t.equal(await client.closed(), 'end')
  scene.upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  await scene.upstreamSaw(t, 1)
})

t.test('a large upload answered early gets its answer while it is still being sent', async (t) => {
  const scene = await startScene(t)
  scene.upstream.sockets.length = 0
  const client = await scene.connect()
  client.send(`PUT /up HTTP/1.1\r\nHost: h\r\n${scene.authorization}Content-Length: ${64 * MIB}\r\n\r\n`)
  client.send(Buffer.alloc(64 * MIB))
  await scene.upstream.until(() => (scene.upstream.bytes[0]?.length ?? 0) > 1000, 'some of it')
  scene.upstream.sockets[0]?.write('HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno')
  const answer = await client.response()
  t.same([answer.status, answer.body.toString()], [413, 'no'])
  await eventually(() => scene.upstream.sockets[0]?.destroyed === true, 'the end of the upload')
  await eventually(() => client.socket.destroyed, 'the end of the connection')
})

t.test('a client that stalls is told, or cut off; one that moves is not', async (t) => {
  const scene = await startScene(t, { settings: { 'timeouts-idle-seconds': '0.6' } })
  const stalled = await scene.connect()
  stalled.send(`PUT /up HTTP/1.1\r\nHost: h\r\n${scene.authorization}Content-Length: 10\r\n\r\nabc`)
  isOwnAnswer(t, await stalled.response(), { status: 408, code: 'InvalidArgument' }, 'a stalled upload')
  await stalled.closed()
  await nothingIsLeft(scene, 'a stalled upload')
  const steady = await scene.connect()
  steady.send(`PUT /up HTTP/1.1\r\nHost: h\r\n${scene.authorization}Content-Length: 12\r\n\r\n`)
  for (let at = 0; at < 12; at++) {
    await new Promise((resolve) => setTimeout(resolve, 100))
    steady.send('x')
  }
  t.equal((await steady.response()).status, 200, 'slow and steady')
  steady.socket.destroy()
  const large = Buffer.alloc(32 * MIB)
  scene.upstream.reply((socket) => {
    socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${large.length}\r\n\r\n`)
    socket.write(large)
  })
  const deaf = await scene.connect()
  deaf.socket.pause()
  deaf.send(`GET /down HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`)
  for (const socket of scene.upstream.sockets) socket.on('error', () => {})
  await eventually(
    () => scene.sidecar.log.some(({ reason, status }) => reason === 'client_idle' && status === 499),
    'the line of the log of a client that takes nothing',
  )
  deaf.socket.resume()
  await deaf.closed()
  t.ok(deaf.received().length < large.length)
  scene.upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  scene.upstream.requests.length = 0
  await scene.upstreamSaw(t, 0)
})
