import { once } from 'node:events'
import { createServer, get, type IncomingMessage, type ServerResponse } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { BodyWriter, ResponseTurns } from '../../src/feed/fan-out.ts'
import { eventually } from '../support/eventually.ts'
import { listen } from '../support/listen.ts'

const HOUR = 3_600_000
const PATIENT = { stalledMs: HOUR, contendedMs: HOUR, bodyMs: HOUR }
/** More than the system buffers of a connection. */
const LARGE = Buffer.alloc(48 * 1024 * 1024, 'state')

/** A server that writes this body, and a client of it whose response is paused. */
async function setUp(t: Test, writer: BodyWriter, body = LARGE) {
  const responses: ServerResponse[] = []
  const server = createServer((_req, res) => {
    responses.push(res)
    res.writeHead(200, { 'Content-Length': body.length })
    writer.write(res, body)
  })
  const port = await listen(t, server)
  async function ask(): Promise<IncomingMessage> {
    const [response]: IncomingMessage[] = await once(
      get({ port, host: '127.0.0.1', agent: false }),
      'response',
    )
    if (response === undefined) {
      throw new Error('no response')
    }
    response.on('error', () => {})
    return response
  }
  return { ask, responses }
}

t.test('a body of any size arrives whole', async (t) => {
  for (const body of [
    Buffer.from(''),
    Buffer.from('{}'),
    Buffer.alloc(65_536, 1),
    Buffer.alloc(65_537, 2),
    LARGE,
  ]) {
    const { ask } = await setUp(t, new BodyWriter(), body)
    const arrived = Buffer.concat(await (await ask()).toArray())
    t.ok(arrived.equals(body), `${body.length} bytes`)
  }
})

t.test('a follower that does not read costs a bounded buffer, and is dropped', async (t) => {
  const { ask, responses } = await setUp(t, new BodyWriter({ ...PATIENT, stalledMs: 500 }))
  const response = await ask()
  await eventually(() => Number(responses[0]?.writableLength) > 0, 'the buffers to be full')
  t.ok(Number(responses[0]?.writableLength) <= 2 * 65_536, 'of this process')
  await eventually(() => responses[0]?.destroyed, 'the end of the connection')
  response.destroy()
})

t.test('a follower that reads too slowly is dropped', async (t) => {
  const { ask, responses } = await setUp(t, new BodyWriter({ ...PATIENT, bodyMs: 500 }))
  const response = await ask()
  await eventually(() => responses[0]?.destroyed, 'the end of the connection')
  response.destroy()
})

t.test('slow followers take only so many places, and the places are free again', async (t) => {
  const { ask, responses } = await setUp(t, new BodyWriter({ ...PATIENT, stalledMs: 300, contendedMs: 300 }))
  const slow = await Promise.all(Array.from({ length: 66 }, ask)).catch(() => [])
  // The heads of those that wait for a place go out with the first bytes of their bodies.
  for (const response of slow) {
    response.destroy()
  }
  await eventually(() => responses.every(({ destroyed }) => destroyed), 'the places')
  const arrived = Buffer.concat(await (await ask()).toArray())
  t.equal(arrived.length, LARGE.length)
})

t.test('followers that do not read make room as soon as others wait', async (t) => {
  const { ask, responses } = await setUp(t, new BodyWriter({ ...PATIENT, contendedMs: 300 }))
  const stalled = await Promise.all(Array.from({ length: 64 }, ask))
  await eventually(
    () => responses.every(({ writableLength }) => writableLength > 0),
    'the buffers of all to be full',
  )
  const arrived = Buffer.concat(await (await ask()).toArray())
  t.equal(arrived.length, LARGE.length)
  for (const response of stalled) {
    response.destroy()
  }
})

t.test('a few calls are made in each turn of the event loop, in their order', async (t) => {
  const turns = new ResponseTurns()
  const calls: number[] = []
  for (let at = 0; at < 20; at++) {
    turns.add(() => calls.push(at))
  }
  const counts: number[] = []
  while (calls.length < 20) {
    await nextTurn()
    counts.push(calls.length)
  }
  t.ok(counts.length >= 3, 'not all at once')
  t.same(calls, [...Array(20).keys()])
})

t.test('calls are spread over the time that is given, and made in their order', async (t) => {
  const turns = new ResponseTurns(200)
  const calls: number[] = []
  const beganMs = performance.now()
  const lastCall = new Promise<number>((resolve) => {
    for (let at = 0; at < 20; at++) {
      turns.add(() => {
        calls.push(at)
        if (at === 19) {
          resolve(performance.now() - beganMs)
        }
      })
    }
  })
  t.ok((await lastCall) >= 150)
  t.same(calls, [...Array(20).keys()])
})
