import type { Socket } from 'node:net'
import t from 'tap'
import { isOwnAnswer } from '../support/own-answer.ts'
import type { RecordedRequest } from '../support/recording-upstream.ts'
import { startScene } from '../support/scene.ts'

/** A response whose body says which request it belongs to. */
const answerTo = ({ target }: RecordedRequest) =>
  `HTTP/1.1 200 OK\r\nContent-Length: ${target.length}\r\n\r\n${target}`

t.test('never more than the allowed number of requests of a connection are with the upstream', async (t) => {
  for (const [setting, most] of [
    [undefined, 16],
    ['1', 1],
    ['5', 5],
  ] as const) {
    const scene = await startScene(t, {
      settings: setting === undefined ? {} : { 'limits-in-flight-per-connection': setting },
    })
    let peak = 0
    let waiting: [Socket, RecordedRequest][] = []
    scene.upstream.reply((socket: Socket, request) => {
      waiting.push([socket, request])
      if (waiting.length !== most) return
      // Whatever is let through beyond its share arrives meanwhile; the last is answered first.
      setTimeout(() => {
        peak = Math.max(peak, waiting.length)
        for (const [waitingSocket, waitingRequest] of waiting.reverse())
          waitingSocket.write(answerTo(waitingRequest))
        waiting = []
      }, 2)
    })
    const client = await scene.connect()
    const numbers = Array.from({ length: 20 * most }, (_, at) => at)
    client.send(numbers.map((at) => `GET /${at} HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`).join(''))
    const bodies: string[] = []
    for (const _ of numbers) bodies.push((await client.response()).body.toString())
    t.same(
      bodies,
      numbers.map((at) => `/${at}`),
      'answered in order',
    )
    t.equal(peak, most)
    scene.upstream.reply((socket, request) => socket.write(answerTo(request)))
    client.send(`GET /last HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`)
    t.equal((await client.response()).body.toString(), '/last', 'and the connection can be used on')
  }
})

t.test('bodies and heads of pipelined requests do not mix, whatever the packets', async (t) => {
  const scene = await startScene(t)
  scene.upstream.reply((socket, request) => socket.write(answerTo(request)))
  const client = await scene.connect()
  const requests = Array.from({ length: 40 }, (_, at) =>
    at % 3 === 0
      ? `GET /${at} HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`
      : at % 3 === 1
        ? `PUT /${at} HTTP/1.1\r\nHost: h\r\n${scene.authorization}Content-Length: 7\r\n\r\nbody ${at % 90}`.padEnd(
            0,
          )
        : `PUT /${at} HTTP/1.1\r\nHost: h\r\n${scene.authorization}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n`,
  ).map((request) => request.replace(/body (\d)$/, 'body 0$1'))
  const bytes = requests.join('')
  for (let at = 0; at < bytes.length; at += 997) {
    client.send(bytes.slice(at, at + 997))
    await new Promise((resolve) => setImmediate(resolve))
  }
  for (const at of requests.keys()) t.equal((await client.response()).body.toString(), `/${at}`)
  for (const { target, body } of scene.upstream.requests) {
    const at = Number(target.slice(1))
    const expected = ['', `body ${String(at).padStart(2, '0')}`, 'abcde'][at % 3]
    t.equal(body.toString(), expected, target)
  }
})

t.test(
  'what stands in front of a request that is none is answered first, then the connection ends',
  async (t) => {
    const scene = await startScene(t, {
      credentials: [{ accountId: 'a' }, { accountId: 'b', accessKey: 'AKB' }],
    })
    const other = `Authorization: Bearer ${await scene.sidecar.mint({ claims: { sub: 'b', client_id: 'AKB' } })}\r\n`
    scene.upstream.reply((socket, request) => void setTimeout(() => socket.write(answerTo(request)), 20))
    for (const bad of [
      'BAD\r\n\r\n',
      'GET /3 HTTP/1.1\r\nHost : h\r\n\r\n',
      'GET /3 HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n',
      'GET * HTTP/1.1\r\nHost: h\r\n\r\n',
      `PUT /3 HTTP/1.1\r\nHost: h\r\n${scene.authorization}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
      'CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n',
      'CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\nbytes for the tunnel',
      'TRACE / HTTP/1.1\r\nHost: h\r\n\r\n',
      'GET /3 HTTP/2.0\r\nHost: h\r\n\r\n',
      '\x16\x03\x01\x02\x00',
    ]) {
      for (const behind of ['', `GET /4 HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`]) {
        const client = await scene.connect()
        client.send(
          `GET /1 HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n` +
            `GET /2 HTTP/1.1\r\nHost: h\r\n${other}\r\n${bad}${behind}`,
        )
        t.equal((await client.response()).body.toString(), '/1')
        t.equal((await client.response()).body.toString(), '/2')
        isOwnAnswer(t, await client.response(), { status: 400, code: 'InvalidArgument' }, JSON.stringify(bad))
        t.equal(await client.closed(), 'end')
        t.equal(client.rest().length, 0)
        t.same(
          scene.upstream.requests
            .map(({ target, headers }) => [target, headers['x-authenticated-account-id']])
            .sort(),
          [
            ['/1', 'a'],
            ['/2', 'b'],
          ],
        )
        await scene.upstreamSaw(t, 2)
      }
    }
  },
)

t.test('a refused token between good ones ends nothing', async (t) => {
  const scene = await startScene(t)
  scene.upstream.reply((socket, request) => void setTimeout(() => socket.write(answerTo(request)), 20))
  const good = (target: string) => `GET ${target} HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`
  const client = await scene.connect()
  client.send(
    `${good('/1')}GET /2 HTTP/1.1\r\nHost: h\r\n\r\n${good('/3')}GET /v2/auth/token HTTP/1.1\r\nHost: h\r\n\r\n${good('/v2/auth/token')}${good('/6')}`,
  )
  t.equal((await client.response()).body.toString(), '/1')
  isOwnAnswer(t, await client.response(), { status: 400, code: 'InvalidToken', details: 'missing' }, 'second')
  t.equal((await client.response()).body.toString(), '/3')
  isOwnAnswer(t, await client.response(), { status: 400, code: 'InvalidToken' }, 'fourth')
  isOwnAnswer(t, await client.response(), { status: 200 }, 'fifth')
  t.equal((await client.response()).body.toString(), '/6')
  client.socket.destroy()
  await scene.upstreamSaw(t, 3)
})

t.test('an upload that is refused waits for the answers before it, then it is drained', async (t) => {
  const scene = await startScene(t)
  scene.upstream.reply((socket, request) => void setTimeout(() => socket.write(answerTo(request)), 1200))
  const client = await scene.connect()
  client.send(
    `GET /slow HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\nPUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf`,
  )
  t.equal((await client.response()).body.toString(), '/slow', 'longer than a drain may take')
  isOwnAnswer(t, await client.response(), { status: 400, code: 'InvalidToken' }, 'the upload')
  client.send('other')
  t.equal(await client.closed(), 'end')
  t.same(
    scene.upstream.requests.map(({ target }) => target),
    ['/slow'],
  )
})

t.test('a large answer in front of CONNECT arrives whole', async (t) => {
  const scene = await startScene(t)
  const large = Buffer.alloc(12 * 2 ** 20, 'x')
  scene.upstream.reply((socket) => {
    socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${large.length}\r\n\r\n`)
    socket.write(large)
  })
  const client = await scene.connect()
  client.socket.pause()
  client.send(
    `GET /large HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\nCONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n`,
  )
  await scene.upstream.received(1)
  await new Promise((resolve) => setTimeout(resolve, 100)) // until the sockets on the way are full
  client.socket.resume()
  t.equal((await client.response()).body.length, large.length)
  isOwnAnswer(t, await client.response(), { status: 400, code: 'InvalidArgument' }, 'CONNECT')
  t.equal(await client.closed(), 'end')
})

t.test('a reset behind CONNECT is a connection less and nothing else', async (t) => {
  const scene = await startScene(t)
  const connectRequest = 'CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n'
  const answered = await scene.connect()
  answered.send(connectRequest)
  await answered.response()
  answered.socket.resetAndDestroy()
  scene.upstream.reply(() => {})
  const waiting = await scene.connect()
  waiting.send(`GET /1 HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n${connectRequest}`)
  await scene.upstream.received(1)
  waiting.socket.resetAndDestroy()
  const atOnce = await scene.connect()
  atOnce.send(connectRequest)
  atOnce.socket.resetAndDestroy()
  scene.upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  for (const socket of scene.upstream.sockets) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
  await scene.upstreamSaw(t, 1)
})

t.test('requests that wait behind one that ends the connection are never made', async (t) => {
  const scene = await startScene(t, { settings: { 'limits-in-flight-per-connection': '2' } })
  scene.upstream.reply((socket, request) => void setTimeout(() => socket.write(answerTo(request)), 50))
  const get = (target: string) => `GET ${target} HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`
  const client = await scene.connect()
  client.send(`${get('/1')}GET * HTTP/1.1\r\nHost: h\r\n\r\n${get('/3')}${get('/4')}${get('/5')}`)
  t.equal((await client.response()).body.toString(), '/1')
  isOwnAnswer(t, await client.response(), { status: 400, code: 'InvalidArgument' }, 'second')
  t.equal(await client.closed(), 'end')
  t.equal(client.rest().length, 0)
  await scene.upstreamSaw(t, 1)
})

t.test('requests that are held are made before the connection ends with one that is none', async (t) => {
  const scene = await startScene(t, { settings: { 'limits-in-flight-per-connection': '2' } })
  scene.upstream.reply((socket, request) => void setTimeout(() => socket.write(answerTo(request)), 20))
  const get = (target: string) => `GET ${target} HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`
  const client = await scene.connect()
  client.send(`${get('/1')}${get('/2')}${get('/3')}${get('/4')}BAD\r\n\r\n`)
  for (const target of ['/1', '/2', '/3', '/4']) t.equal((await client.response()).body.toString(), target)
  isOwnAnswer(t, await client.response(), { status: 400, code: 'InvalidArgument' }, 'the last')
  t.equal(await client.closed(), 'end')
  await scene.upstreamSaw(t, 4)
})

t.test('an upload that is held is read when it is its turn, good or broken', async (t) => {
  const scene = await startScene(t, { settings: { 'limits-in-flight-per-connection': '1' } })
  scene.upstream.reply((socket, request) => void setTimeout(() => socket.write(answerTo(request)), 50))
  const slow = `GET /slow HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`
  const put = `PUT /up HTTP/1.1\r\nHost: h\r\n${scene.authorization}Transfer-Encoding: chunked\r\n\r\n`
  const good = await scene.connect()
  good.send(`${slow}${put}3\r\nabc\r\n`)
  await scene.upstream.received(1)
  const more = 'd'.repeat(300_000)
  good.send(`${more.length.toString(16)}\r\n${more}\r\n0\r\n\r\n`)
  t.equal((await good.response()).body.toString(), '/slow')
  t.equal((await good.response()).body.toString(), '/up')
  t.equal(scene.upstream.requests[1]?.body.length, 300_003)
  good.socket.destroy()
  await scene.upstreamSaw(t, 2)
  const broken = await scene.connect()
  broken.send(`${slow}${put}3\r\nabc\r\nzz\r\n`)
  t.equal((await broken.response()).body.toString(), '/slow')
  isOwnAnswer(t, await broken.response(), { status: 400, code: 'InvalidArgument' }, 'broken')
  t.equal(await broken.closed(), 'end')
  await scene.upstreamSaw(t, 1)
  const refused = await scene.connect()
  refused.send(`${slow}PUT /up HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\nabc`)
  t.equal((await refused.response()).body.toString(), '/slow')
  isOwnAnswer(t, await refused.response(), { status: 400, code: 'InvalidToken' }, 'without a token')
  refused.send(Buffer.alloc(200_000 - 3))
  t.equal(await refused.closed(), 'end')
  await scene.upstreamSaw(t, 1)
})

t.test('a client that takes none of its answers is closed on', async (t) => {
  // Long enough to be seen by whoever looks at the metrics, however busy the machine is.
  const scene = await startScene(t, { settings: { 'timeouts-idle-seconds': '1' } })
  const client = await scene.connect()
  client.socket.pause()
  const open = 'auth_sidecar_requests_in_flight'
  client.send('GET /b/k HTTP/1.1\r\nHost: h\r\n\r\n'.repeat(60_000))
  const [start] = [performance.now()]
  while ((await scene.sidecar.metric(open)) < 16 && performance.now() - start < 10_000) {
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  t.equal(await scene.sidecar.metric(open), 16, 'no more answers than the sockets hold')
  while ((await scene.sidecar.metric(open)) > 0 && performance.now() - start < 10_000) {
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  t.equal(await scene.sidecar.metric(open), 0)
  client.socket.resume()
  await client.closed()
  await scene.upstreamSaw(t, 0)
})

t.test('a connection is kept or closed as its client wishes', async (t) => {
  const scene = await startScene(t)
  const get = (version: string, lines: string) =>
    `GET /b/k HTTP/${version}\r\nHost: h\r\n${scene.authorization}${lines}\r\n`
  for (const [version, lines, closes] of [
    ['1.1', '', false],
    ['1.1', 'Connection: keep-alive\r\n', false],
    ['1.1', 'Connection: close\r\n', true],
    ['1.1', 'Connection: Close\r\n', true],
    ['1.1', 'Connection: x-a, close\r\n', true],
    ['1.1', 'Connection: keep-alive\r\nConnection: close\r\n', true],
    ['1.0', '', true],
    ['1.0', 'Connection: close\r\n', true],
    ['1.0', 'Connection: keep-alive\r\n', false],
    ['1.0', 'Connection: Keep-Alive\r\n', false],
  ] as const) {
    const name = `${version} ${lines.trim()}`
    for (const request of [get(version, lines), get(version, lines).replace(scene.authorization, '')]) {
      const client = await scene.connect()
      client.send(request)
      const response = await client.response()
      t.equal(response.headers['connection'], closes ? 'close' : 'keep-alive', name)
      t.equal(response.headers['transfer-encoding'], undefined)
      if (closes) {
        t.equal(await client.closed(), 'end', name)
      } else {
        t.equal(response.headers['keep-alive'], 'timeout=75')
        client.send(request)
        t.equal((await client.response()).status, response.status, `${name}: again`)
      }
      client.socket.destroy()
    }
  }
  scene.upstream.requests.length = 0
  const client = await scene.connect()
  client.send(get('1.1', 'Connection: close\r\n') + get('1.1', ''))
  t.equal((await client.response()).status, 200)
  await client.closed()
  t.equal(client.rest().length, 0)
  await scene.upstreamSaw(t, 1)
})

t.test('an idle connection is closed after its time, not before', async (t) => {
  const scene = await startScene(t, { settings: { 'timeouts-keep-alive-seconds': '1' } })
  const client = await scene.connect()
  client.send(`GET /b/k HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`)
  t.equal((await client.response()).headers['keep-alive'], 'timeout=1')
  t.equal(await client.closed(), 'end')
  t.equal(client.rest().length, 0)
})

t.test(
  'a client that says it closes is answered the last time, whatever else it says of keeping',
  async (t) => {
    const scene = await startScene(t)
    for (const [version, ...lines] of [
      ['1.0', 'Connection: close', 'Proxy-Connection: keep-alive'],
      ['1.0', 'Connection: keep-alive', 'Connection: close'],
      ['1.1', 'Proxy-Connection: keep-alive', 'Connection: Close'],
      ['1.1', 'Connection: keep-alive, close'],
    ]) {
      for (const authorization of [`${scene.authorization}\r\n`, '']) {
        const client = await scene.connect()
        client.send(`GET / HTTP/${version}\r\nHost: h\r\n${lines.join('\r\n')}\r\n${authorization}\r\n`)
        client.send(`GET /behind HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`)
        const { headers } = await client.response()
        t.match(headers, { connection: 'close', 'keep-alive': undefined }, lines.join(', '))
        t.equal(await client.closed(), 'end')
      }
    }
  },
)
