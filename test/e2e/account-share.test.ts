/**
 * One account, however it holds connections, leaves a part of an upstream's connections and queue to others.
 */
import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse, unavailable } from '../support/own-response.ts'
import { OK } from '../support/recording-upstream.ts'
import { type Setup, startSetup } from '../support/setup.ts'
import { HANDSHAKE } from '../support/websocket.ts'

const SETTINGS = {
  'limits-upstream-connections': '4',
  'limits-upstream-queue': '4',
  'limits-account-share': '0.5',
  'links-enabled': 'true',
  'upgrade-enabled': 'true',
  'public-routes': '[{ "method": "GET", "path": "/public" }]',
}
const LIMIT = unavailable('connection_limit_reached')
const SWITCHED =
  'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n'

interface Scene extends Setup {
  /** Sends a GET with the token of the other account. */
  readonly askAsOther: () => ReturnType<Setup['ask']>
  readonly queued: () => Promise<number>
}

/** Two accounts: `acme` and `other`. The upstream responds to the other one only. */
async function scene(t: Test): Promise<Scene> {
  const setup = await startSetup(t, {
    settings: SETTINGS,
    credentials: [{ accountId: 'acme' }, { accountId: 'other', accessKey: 'AK1' }],
  })
  const { sidecar, upstream, ask } = setup
  const token = await sidecar.mint({ claims: { sub: 'other', client_id: 'AK1' } })
  upstream.reply((socket, { headers }) => {
    if (headers['x-authenticated-account-id'] === 'other') {
      socket.write(OK)
    }
  })
  return {
    ...setup,
    askAsOther: () =>
      ask(`GET /mine HTTP/1.1\r\nHost: storage.example\r\nAuthorization: Bearer ${token}\r\n\r\n`),
    queued: () => sidecar.metric('auth_sidecar_upstream_queue{upstream="/"}'),
  }
}

/** Sends six requests that hold what they get: two hold a connection, two wait, and two are refused. */
async function fillShare(
  t: Test,
  { queued, askAsOther, upstream }: Scene,
  send: () => ReturnType<Setup['send']>,
) {
  const clients = []
  for (let at = 0; at < 2; at++) {
    clients.push(await send())
    await upstream.until(() => upstream.open() === at + 1, 'a connection')
  }
  for (let at = 0; at < 2; at++) {
    clients.push(await send())
    await eventually(async () => (await queued()) === at + 1, 'a request to wait')
  }
  for (let at = 0; at < 2; at++) {
    const refused = await send()
    isOwnResponse(t, await refused.response(), LIMIT)
  }
  for (let at = 0; at < 3; at++) {
    t.equal((await askAsOther()).status, 200, 'another account is served')
  }
  t.equal(await queued(), 2)
  return clients
}

t.test('slow uploads', async (t) => {
  const all = await scene(t)
  const clients = await fillShare(t, all, () => all.request('PUT /slow', ['Content-Length: 9'], 'x'))
  all.upstream.reply(OK)
  for (const client of clients) {
    client.send('12345678')
    t.equal((await client.response()).status, 200, 'those that waited are served later')
  }
  await all.recovers()
})

t.test('slow downloads', async (t) => {
  const all = await scene(t)
  const slow: Socket[] = []
  all.upstream.reply((socket, { headers }) => {
    if (headers['x-authenticated-account-id'] === 'other') {
      socket.write(OK)
    } else {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx')
      slow.push(socket)
    }
  })
  const clients = await fillShare(t, all, () => all.request('GET /slow'))
  for (const [at, client] of clients.entries()) {
    await eventually(() => slow.length > at, 'the request')
    slow[at]?.write('12345678')
    t.equal((await client.response()).status, 200)
  }
  await all.recovers()
})

t.test('links of one account count as the account, and as its tokens', async (t) => {
  const all = await scene(t)
  const { head, ask, send } = all
  const targets: string[] = []
  for (let at = 0; at < 6; at++) {
    const body = JSON.stringify({ method: 'GET', target: `/object-${at}`, expirationSec: 60 })
    const lines = ['Content-Type: application/json', `Content-Length: ${body.length}`]
    const response = await ask(head('POST /v2/auth/links', ...lines) + body)
    const { url }: { url: string } = JSON.parse(response.body.toString())
    targets.push(url.replace(/^https?:\/\/[^/]+/, ''))
  }
  let next = 0
  await fillShare(t, all, () => {
    next++
    if (next === 2) {
      return all.request('GET /with-a-token')
    }
    return send(`GET ${targets[next - 1]} HTTP/1.1\r\nHost: storage.example\r\n\r\n`)
  })
  const isOfAcme = all.upstream.requests.filter(
    ({ headers }) => headers['x-authenticated-account-id'] === 'acme',
  )
  t.equal(isOfAcme.length, 2)
})

t.test('public routes count as one account', async (t) => {
  const all = await scene(t)
  await fillShare(t, all, () => all.send('GET /public HTTP/1.1\r\nHost: storage.example\r\n\r\n'))
})

t.test('tunnels', async (t) => {
  const all = await scene(t)
  const { upstream, askAsOther, head, send } = all
  upstream.reply((socket, { headers }) => {
    socket.write(headers['upgrade'] === undefined ? OK : SWITCHED)
  })
  const open = () => send(head('GET /chat', ...HANDSHAKE))
  const tunnels = [await open(), await open()]
  for (const tunnel of tunnels) {
    t.equal((await tunnel.response()).status, 101)
  }
  const refused = await open()
  isOwnResponse(t, await refused.response(), LIMIT)
  t.equal((await askAsOther()).status, 200, 'another account is served')
  const [first] = tunnels
  first?.socket.destroy()
  await upstream.until(() => upstream.sockets[0]?.destroyed === true, 'the end of the tunnel')
  await eventually(async () => {
    const client = await open()
    return (await client.response()).status === 101
  }, 'a tunnel in place of the closed one')
})

t.test('requests that wait do not block those behind them', async (t) => {
  const all = await scene(t)
  const { upstream, request, queued, askAsOther } = all
  const held: Socket[] = []
  upstream.reply((socket, { headers }) => {
    if (headers['x-authenticated-account-id'] === 'other') {
      socket.write(OK)
    } else {
      held.push(socket)
    }
  })
  const clients = [await request('GET /0'), await request('GET /1')]
  await upstream.received(2)
  clients.push(await request('GET /2'))
  await eventually(async () => (await queued()) === 1, 'the third to wait')
  t.equal((await askAsOther()).status, 200)
  t.equal(held.length, 2, 'a connection is free, and the account may not use it')
  held[0]?.write(OK)
  await eventually(() => held.length === 3, 'the third to be sent once the account has a connection')
  held[1]?.write(OK)
  held[2]?.write(OK)
  for (const client of clients) {
    t.equal((await client.response()).status, 200)
  }
  await all.recovers()
})
