/**
 * The memory that bodies are read into, on their way through a transfer: nothing is read over before it has been
 * written, every block is let go, and what waits to be written costs about as much as it is long.
 */
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { READ_BYTES, type ReadBlock, ReadMemory } from '../../src/read-memory.ts'
import { eventually } from '../support/eventually.ts'
import type { RawClient } from '../support/raw-client.ts'
import { OK } from '../support/recording-upstream.ts'
import { Stuck, transferring } from './transferring.ts'

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

/** Follows the holds of every block that is given out from now on. */
function followBlocks(t: Test) {
  const holders = new Map<ReadBlock, number>()
  let most = 0
  const { take } = ReadMemory.prototype
  t.intercept(ReadMemory.prototype, 'take', {
    value(this: ReadMemory) {
      const block = take.call(this)
      if (!holders.has(block)) follow(block)
      holders.set(block, 1)
      most = Math.max(most, held())
      return block
    },
  })
  function follow(block: ReadBlock) {
    const { hold, release } = block
    Object.assign(block, {
      hold: () => {
        holders.set(block, (holders.get(block) ?? 0) + 1)
        hold.call(block)
        return block.release
      },
      release: () => {
        holders.set(block, (holders.get(block) ?? 0) - 1)
        release()
      },
    })
  }
  const held = () => [...holders.values()].filter((count) => count > 0).length
  return {
    /** Blocks that somebody holds. */
    held,
    /** As many as there were at once. */
    most: () => most,
    /** Whether no block has been let go more often than it was held. */
    isEven: () => [...holders.values()].every((count) => count >= 0),
  }
}

/** Sends bytes in pieces of odd sizes, which chunks may frame. */
async function sendInPieces({ socket }: RawClient, body: Buffer, chunked: boolean): Promise<void> {
  for (let at = 0, size = 1; at < body.length; at += size, size = ((size * 7) % 200_003) + 1) {
    const piece = body.subarray(at, at + size)
    if (chunked) socket.write(`${piece.length.toString(16)}\r\n`)
    const room = socket.write(piece)
    if (chunked) socket.write('\r\n')
    if (!room) await once(socket, 'drain')
  }
  if (chunked) socket.write('0\r\nX-Sum: 1\r\n\r\n')
}

for (const chunked of [false, true]) {
  t.test(
    `an upload ${chunked ? 'in chunks' : 'with a length'} arrives whole, however its upstream pauses`,
    async (t) => {
      const blocks = followBlocks(t)
      const { upstream, client, outcomes, listener, pool } = await transferring(t, {
        hooks: {
          onConnection: (socket) => {
            socket.pause()
            let read = 0
            socket.on('data', ({ length }) => {
              read += length
              if (read < 1_000_000) return
              read = 0
              socket.pause()
              setTimeout(() => socket.resume(), 5)
            })
            setTimeout(() => socket.resume(), 50)
          },
        },
      })
      const body = randomBytes(20 * 1024 * 1024)
      const one = await client()
      const framing = chunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${body.length}`
      one.send(`PUT /a HTTP/1.1\r\nHost: a\r\n${framing}\r\n\r\n`)
      await sendInPieces(one, body, chunked)
      t.equal((await one.response()).status, 200)
      const [request] = upstream.requests
      t.equal(sha256(request?.body ?? Buffer.alloc(0)), sha256(body))
      t.same(request?.rawTrailers, chunked ? ['X-Sum', '1'] : [])
      t.same(outcomes, ['ok'])
      // And the connection serves on, both ways.
      one.send('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
      t.equal((await one.response()).body.toString(), 'ok')
      one.socket.end()
      pool.close()
      await eventually(() => listener.connections + pool.connections === 0, 'all connections to be closed')
      t.equal(blocks.held(), 1, 'that which all connections read into')
      t.ok(blocks.isEven())
    },
  )
}

t.test('blocks of a transfer that ends in between are let go', async (t) => {
  const size = 8_000_000
  for (const [what, request, reply, leave] of [
    ['a client that leaves an upload', 'PUT', '', 'client'],
    ['an upstream that leaves an upload', 'PUT', '', 'upstream'],
    ['an upload that is answered in between', 'PUT', OK, 'nobody'],
    [
      'a client that leaves a response',
      'GET',
      `HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n${'x'.repeat(size)}`,
      'client',
    ],
    [
      'an upstream that leaves a response',
      'GET',
      `HTTP/1.1 200 OK\r\nContent-Length: ${2 * size}\r\n\r\n${'x'.repeat(size)}`,
      'upstream',
    ],
  ] as const) {
    await t.test(what, async (t) => {
      const blocks = followBlocks(t)
      const { upstream, deadlines, client, exchanges, listener, pool, outcomes } = await transferring(t, {
        hooks: { read: false, onConnection: (socket) => void socket.pause() },
      })
      const one = await client()
      one.socket.pause()
      one.send(`${request} /a HTTP/1.1\r\nHost: a\r\nContent-Length: ${request === 'PUT' ? size : 0}\r\n\r\n`)
      if (request === 'PUT') one.send(Buffer.alloc(size))
      await upstream.until(() => upstream.sockets.length > 0, 'a connection')
      const held = () => {
        const [exchange] = exchanges
        return request === 'PUT'
          ? exchange !== undefined && exchange.bytesIn > 0 && !exchange.req.wantsBytes
          : exchange?.connection.socket.writableNeedDrain
      }
      if (request === 'PUT') await eventually(held, 'the upload to be held back')
      upstream.sockets[0]?.write(reply)
      if (request === 'GET') await eventually(held, 'the response to be held back')
      if (leave === 'client') {
        one.socket.resetAndDestroy()
        upstream.sockets[0]?.resume() // nobody sees the client leave while it is held back
      }
      if (leave === 'upstream') {
        upstream.sockets[0]?.resetAndDestroy()
        one.socket.resume() // nor the upstream
      }
      await eventually(() => outcomes.length === 1, 'the outcome')
      one.socket.destroy()
      pool.close()
      await eventually(() => {
        deadlines.advance(1000) // for a connection that is closed after its last answer
        return listener.connections + pool.connections === 0
      }, 'all connections to be closed')
      await eventually(
        () => blocks.held() === 1,
        () => `${blocks.held()} blocks to be let go`,
      )
      t.ok(blocks.isEven())
    })
  }
})

t.test('what comes in small pieces and waits', async (t) => {
  const PIECES = 100

  await t.test('for its upstream costs no block for each piece', async (t) => {
    const blocks = followBlocks(t)
    const stuck = new Stuck()
    const { client, exchanges } = await transferring(t, { connect: stuck.connect })
    const one = await client()
    one.send(`PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: ${PIECES}\r\n\r\n`)
    for (let piece = 1; piece < PIECES; piece++) {
      one.send('x')
      await eventually(() => exchanges[0]?.bytesIn === piece, 'each piece')
    }
    t.ok(blocks.most() <= 4, `${blocks.most()} blocks of ${READ_BYTES} bytes for ${PIECES} bytes`)
    one.send('y')
    await eventually(() => {
      stuck.release()
      return stuck.taken.endsWith(`\r\n\r\n${'x'.repeat(PIECES - 1)}y`)
    }, 'the pieces, in order')
  })

  await t.test('for its client costs no block for each piece', async (t) => {
    const blocks = followBlocks(t)
    const { upstream, client, exchanges } = await transferring(t)
    upstream.reply(async (socket) => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${PIECES}\r\n\r\n`)
      await eventually(() => exchanges[0]?.res.headersSent === true, 'the head')
      exchanges[0]?.connection.socket.cork() // as if the client took nothing for a while
      for (let piece = 1; piece <= PIECES; piece++) {
        socket.write(String(piece % 10))
        await eventually(() => exchanges[0]?.bytesOut === piece, 'each piece')
      }
      exchanges[0]?.connection.socket.uncork()
    })
    const one = await client()
    one.send('GET /a HTTP/1.1\r\nHost: a\r\n\r\n')
    t.equal((await one.response()).body.toString(), '1234567890'.repeat(PIECES / 10))
    t.ok(blocks.most() <= 4, `${blocks.most()} blocks of ${READ_BYTES} bytes for ${PIECES} bytes`)
  })
})
