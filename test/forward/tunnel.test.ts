import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import type { Identity } from '../../src/token/verdict.ts'
import { eventually } from '../support/eventually.ts'
import { isOwnAnswer } from '../support/own-answer.ts'
import { RESPONSE_MS, transferring, type Wanted } from './transferring.ts'

const HANDSHAKE = 'GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n'
const SWITCHED = 'HTTP/1.1 101 Now\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'

/** An upstream that has ended its way may still be sent to: the test says when it ends it. */
const HALF_OPEN = {
  onConnection: (socket: Socket) => {
    socket.allowHalfOpen = true
  },
}

/** A handshake that has reached an upstream which does not answer until it is told to. */
async function handshaking(t: Test, wanted: Wanted = {}) {
  const scene = await transferring(t, wanted)
  scene.upstream.reply(() => {})
  const client = await scene.client()
  client.send(HANDSHAKE)
  await scene.upstream.received(1)
  const [far] = scene.upstream.sockets
  if (far === undefined) throw new Error('there is no connection to the upstream')
  const heads = scene.upstream.bytes[0]?.length ?? 0
  return {
    ...scene,
    client,
    far,
    /** What has come out at the upstream's end of the tunnel. */
    came: () => scene.upstream.bytes[0]?.subarray(heads) ?? Buffer.alloc(0),
    /** What has come out at the client's. */
    went: () => client.received().subarray(client.received().indexOf('\r\n\r\n') + 4),
  }
}

/** A tunnel that is open. */
async function tunnelling(t: Test, wanted: Wanted = {}) {
  const scene = await handshaking(t, wanted)
  scene.far.write(SWITCHED)
  await scene.client.until('\r\n\r\n')
  return scene
}

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

/** Writes bytes as fast as they are taken. */
async function writeAll(socket: Socket, bytes: Buffer): Promise<void> {
  for (let at = 0; at < bytes.length; at += 70_000) {
    if (!socket.write(bytes.subarray(at, at + 70_000))) await once(socket, 'drain')
  }
}

/** Reads with a break after every so many bytes. */
function readSlowly(socket: Socket): void {
  let read = 0
  socket.on('data', ({ length }: Buffer) => {
    read += length
    if (read < 500_000) return
    read = 0
    socket.pause()
    setTimeout(() => socket.resume(), 3)
  })
}

t.test('what goes through a tunnel', async (t) => {
  await t.test('comes out whole on both sides at once, however slowly it is taken', async (t) => {
    const { client, far, came, went, exchanges, outcomes, over, isQuiet } = await tunnelling(t)
    readSlowly(client.socket)
    readSlowly(far)
    const [up, down] = [randomBytes(8_000_001), randomBytes(9_000_003)]
    await Promise.all([writeAll(client.socket, up), writeAll(far, down)])
    await eventually(() => came().length === up.length && went().length === down.length, 'all bytes')
    t.equal(sha256(came()), sha256(up))
    t.equal(sha256(went()), sha256(down))
    t.same(outcomes, ['ok'], 'it is counted when it opens')
    client.socket.destroy()
    await isQuiet(0)
    t.same(outcomes, ['ok'], 'and not again when it closes')
    t.same(over(), [false])
    t.match(exchanges[0], { switched: true, bytesIn: up.length, bytesOut: down.length })
  })

  await t.test('is not read on while the upstream takes nothing', async (t) => {
    const { client, far, came, exchanges } = await tunnelling(t)
    far.pause()
    const size = 30_000_000
    client.socket.write(Buffer.alloc(size, 'x'))
    await eventually(() => exchanges[0]?.connection.socket.isPaused(), 'the client to be held back')
    t.ok((exchanges[0]?.bytesIn ?? size) < size)
    far.resume()
    await eventually(() => came().length === size, 'all bytes')
  })

  await t.test('is not read on while the client takes nothing', async (t) => {
    const { client, far, went, exchanges } = await tunnelling(t)
    client.socket.pause()
    const size = 30_000_000
    far.write(Buffer.alloc(size, 'x'))
    await eventually(() => exchanges[0]?.connection.socket.writableNeedDrain, 'the upstream to be held back')
    t.ok((exchanges[0]?.connection.socket.writableLength ?? size) < 1_000_000)
    client.socket.resume()
    await eventually(() => went().length === size, 'all bytes')
  })
})

t.test('a client that speaks before the upstream has agreed', async (t) => {
  for (const [how, size] of [
    ['a little', 100],
    ['more than is kept', 1_000_000],
  ] as const) {
    await t.test(`says ${how} and loses nothing`, async (t) => {
      const { client, far, came, exchanges, isQuiet } = await handshaking(t)
      const early = randomBytes(size)
      client.socket.write(early)
      const [exchange] = exchanges
      await eventually(
        () =>
          size < 65_536
            ? (exchange?.connection.socket.bytesRead ?? 0) > size
            : exchange?.connection.socket.isPaused(),
        'the early bytes',
      )
      t.equal(came().length, 0, 'the upstream has nothing of it')
      far.write(`${SWITCHED}first`)
      await client.until('first')
      client.socket.write('later')
      await eventually(() => came().length === size + 5, 'all bytes')
      t.equal(sha256(came()), sha256(Buffer.concat([early, Buffer.from('later')])))
      client.socket.destroy()
      await isQuiet(0)
      t.equal(exchange?.bytesIn, size + 5, 'and all of it is counted')
      t.equal(exchange?.bytesOut, 5)
    })
  }

  await t.test('byte by byte is not kept in thousands of pieces', async (t) => {
    const { client, far, came, exchanges } = await handshaking(t)
    const socket = exchanges[0]?.connection.socket
    let sent = 0
    while (socket?.isPaused() === false && sent < 1000) {
      client.socket.write(String(sent % 10))
      sent++
      await eventually(() => (socket.bytesRead ?? 0) >= HANDSHAKE.length + sent, 'each byte')
    }
    t.ok(sent < 1000, `${sent} pieces are kept`)
    client.socket.write('!')
    far.write(SWITCHED)
    await eventually(() => came().at(-1) === 0x21, 'the last byte')
    t.equal(came().length, sent + 1)
  })

  await t.test('and ends before that is gone', async (t) => {
    const { client, outcomes, over, isQuiet } = await handshaking(t)
    client.socket.end('early')
    t.equal(await client.closed(), 'end')
    await isQuiet(0)
    t.same(outcomes, ['client_aborted'])
    t.same(over(), [false])
  })
})

t.test('a side that ends', async (t) => {
  await t.test('can be the client, who still hears what the upstream has to say', async (t) => {
    const { client, far, came, went, outcomes, isQuiet } = await tunnelling(t, { hooks: HALF_OPEN })
    const question = randomBytes(3_000_000)
    far.pause()
    client.socket.end(question)
    far.resume()
    await once(far, 'end')
    t.equal(sha256(came()), sha256(question), 'the end comes behind every byte')
    const answer = randomBytes(3_000_000)
    far.end(answer)
    t.equal(await client.closed(), 'end')
    t.equal(sha256(went()), sha256(answer))
    await isQuiet(0)
    t.same(outcomes, ['ok'])
  })

  await t.test('can be the upstream, whose last bytes arrive whole at a slow client', async (t) => {
    const { client, far, went, isQuiet } = await tunnelling(t)
    client.socket.pause()
    const last = randomBytes(8_000_000)
    far.end(last)
    readSlowly(client.socket)
    client.socket.resume()
    t.equal(await client.closed(), 'end')
    t.equal(sha256(went()), sha256(last))
    client.socket.end()
    await isQuiet(0)
  })

  await t.test('can be the upstream while the client goes on sending', async (t) => {
    const { client, far, isQuiet, exchanges } = await tunnelling(t)
    far.end('bye')
    client.socket.on('error', () => {}) // what nobody takes is answered with a reset
    while (exchanges[0]?.over === false) {
      client.socket.write(Buffer.alloc(10_000))
      await new Promise(setImmediate)
    }
    await isQuiet(0)
    t.match(client.received().toString(), /bye$/)
  })

  await t.test('can be the client by a reset', async (t) => {
    const { client, far, isQuiet } = await tunnelling(t)
    client.socket.resetAndDestroy()
    await eventually(() => far.destroyed, 'the far side to be closed')
    await isQuiet(0)
  })

  await t.test('can be the upstream by a reset', async (t) => {
    const { client, far, isQuiet } = await tunnelling(t)
    far.resetAndDestroy()
    await client.closed()
    client.socket.destroy()
    await isQuiet(0)
  })
})

t.test('a tunnel', async (t) => {
  const identity = { accountId: 'acme', clientId: 'key', expiresAt: 100 } as unknown as Identity

  await t.test('closes when the token of its client expires', async (t) => {
    const { client, far, deadlines, isQuiet } = await tunnelling(t, { identity, now: () => 98_500 })
    deadlines.advance(1499)
    t.notOk(far.destroyed)
    client.socket.write('x')
    await eventually(() => far.bytesRead > 0, 'a last byte')
    deadlines.advance(1)
    await client.closed()
    await isQuiet(0)
    await eventually(() => far.destroyed, 'the far side to be closed')
  })

  await t.test('of a client who is nobody does not expire, nor does an idle one', async (t) => {
    const { client, far, came, deadlines, isQuiet } = await tunnelling(t)
    deadlines.advance(10 * RESPONSE_MS)
    client.socket.write('x')
    await eventually(() => came().length === 1, 'a byte')
    client.socket.end()
    far.end()
    await isQuiet(0)
  })

  await t.test('that has closed waits for the expiry of no token', async (t) => {
    const { client, far, isQuiet } = await tunnelling(t, { identity, now: () => 0 })
    client.socket.end()
    far.end()
    await isQuiet(0)
  })
})

t.test('an answer that is not the one to a handshake', async (t) => {
  const smuggled = 'GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n'

  for (const [what, answer, status] of [
    ['a refusal', 'HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno', 403],
    [
      'a response with a body',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n',
      200,
    ],
    ['another protocol', 'HTTP/1.1 101 Now\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n', 500],
    ['no response', 'SSH-2.0-x\r\n', 500],
  ] as const) {
    await t.test(`such as ${what} ends the connection, and what is behind reaches nobody`, async (t) => {
      const { client, far, came, outcomes, exchanges, upstream, over, isQuiet } = await handshaking(t)
      client.send(smuggled)
      await eventually(
        () => (exchanges[0]?.connection.socket.bytesRead ?? 0) === HANDSHAKE.length + smuggled.length,
        'what is behind to be read',
      )
      far.write(answer)
      const response = await client.response()
      t.equal(response.status, status)
      t.equal(response.headers['connection'], 'close')
      client.send(smuggled)
      t.equal(await client.closed(), 'end')
      client.socket.end()
      await isQuiet(0)
      t.equal(came().length, 0)
      t.equal(upstream.sockets.length, 1)
      t.equal(exchanges.length, 1)
      t.equal(exchanges[0]?.bytesIn, 0)
      t.same(outcomes, [status === 500 ? 'http_protocol_error' : 'ok'])
      t.same(over(), [true])
    })
  }

  await t.test('reaches a client that was not read on any more', async (t) => {
    const { client, far, deadlines, exchanges, came, isQuiet } = await handshaking(t)
    client.socket.write(Buffer.alloc(3_000_000))
    await eventually(() => exchanges[0]?.connection.socket.isPaused(), 'the client to be held back')
    far.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno')
    t.equal((await client.response()).status, 403)
    await eventually(() => {
      deadlines.advance(0)
      return exchanges[0]?.connection.socket.destroyed
    }, 'the connection to be closed')
    t.equal(came().length, 0)
    client.socket.destroy()
    await isQuiet(0)
  })

  await t.test('may be a large one', async (t) => {
    const { client, far, isQuiet } = await handshaking(t)
    const body = randomBytes(1_000_000)
    far.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n`)
    far.write(body)
    t.equal(sha256((await client.response()).body), sha256(body))
    client.socket.end()
    await isQuiet(0)
  })

  await t.test('is none in time', async (t) => {
    const { client, deadlines, outcomes, isQuiet } = await handshaking(t)
    deadlines.advance(RESPONSE_MS - 1)
    t.same(outcomes, [])
    deadlines.advance(1)
    isOwnAnswer(t, await client.response(), {
      status: 503,
      code: 'ServiceNotReady',
      error: 'http_response_timeout',
    })
    client.socket.end()
    await isQuiet(0)
    t.same(outcomes, ['http_response_timeout'])
  })
})
