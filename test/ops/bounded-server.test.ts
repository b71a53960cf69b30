import type { ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { BoundedServer } from '../../src/ops/bounded-server.ts'
import { eventually, succeeds } from '../support/eventually.ts'
import { type RawClient, rawClient, rawRequest } from '../support/raw-client.ts'

const MAX_CONNECTIONS = 1024
const REQUEST = 'GET /served HTTP/1.1\r\nHost: a\r\n\r\n'
const AWAITED_REQUEST = 'GET /awaited HTTP/1.1\r\nHost: a\r\n\r\n'
const EXEMPTED_REQUEST = 'GET /exempted HTTP/1.1\r\nHost: a\r\n\r\n'

/** A bounded server that responds to `/served` alone, and has no timeouts. */
async function boundedServer(t: Test) {
  // A busy machine needs more than the 10 s of a timeout for so many connections.
  t.capture(Socket.prototype, 'setTimeout')
  const exempted: ServerResponse[] = []
  const server = new BoundedServer(undefined, (req, res) => {
    if (req.url === '/served') {
      res.end()
    } else if (req.url === '/exempted') {
      server.exempt(res)
      exempted.push(res)
    }
  })
  const { port } = await server.listen('127.0.0.1', 0, (error) => t.error(error))
  t.teardown(() => server.close())
  const status = async () => (await rawRequest(t, port, REQUEST)).status
  return { port, status, exempted }
}

/** The connections that are closed from now on, by index. */
function closedOf(clients: readonly RawClient[]): number[] {
  const closed: number[] = []
  for (const [at, client] of clients.entries()) {
    succeeds(client.closed()).then((isClosed) => {
      if (isClosed) {
        closed.push(at)
      }
    })
  }
  return closed
}

t.test('the oldest idle connection makes room, not one whose response is awaited', async (t) => {
  const { port, status } = await boundedServer(t)
  const busy = await rawClient(t, port)
  busy.send(AWAITED_REQUEST)
  const idle = await Promise.all(Array.from({ length: MAX_CONNECTIONS - 1 }, () => rawClient(t, port)))
  const closed = closedOf([busy, ...idle])
  t.equal(await status(), 200)
  await eventually(() => closed.length > 0, 'one to be closed')
  t.strictSame(closed, [1])
})

t.test('where all connections await responses, the oldest makes room', async (t) => {
  const { port, status } = await boundedServer(t)
  const clients: RawClient[] = []
  while (clients.length < MAX_CONNECTIONS) {
    const client = await rawClient(t, port)
    client.send(REQUEST + AWAITED_REQUEST + REQUEST)
    await client.response() // the other requests are in the same segment
    clients.push(client)
  }
  const closed = closedOf(clients)
  t.equal(await status(), 200)
  await eventually(() => closed.length > 0, 'one to be closed')
  t.strictSame(closed, [0])
})

t.test('an exempted connection does not count until its response is closed', async (t) => {
  const { port, status, exempted } = await boundedServer(t)
  const waiting = await rawClient(t, port)
  waiting.send(EXEMPTED_REQUEST)
  await eventually(() => exempted.length > 0, 'its request')
  const idle = await Promise.all(Array.from({ length: MAX_CONNECTIONS }, () => rawClient(t, port)))
  const closed = closedOf([waiting, ...idle])
  t.equal(await status(), 200)
  await eventually(() => closed.length > 0, 'one to be closed')
  exempted[0]?.end()
  await waiting.response()
  t.equal(await status(), 200)
  await eventually(() => closed.length > 1, 'another one to be closed')
  t.strictSame(closed, [1, 2])
})
