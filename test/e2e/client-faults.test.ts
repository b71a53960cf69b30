import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import { eventually, SOON_MS, standsStill } from '../support/eventually.ts'
import type { RawClient } from '../support/raw-client.ts'
import { OK } from '../support/recording-upstream.ts'
import { startSecured } from '../support/secured.ts'
import { type Setup, startSetup } from '../support/setup.ts'

/** The ways in which a client goes away. */
const DEPARTURES: Readonly<Record<string, (client: RawClient) => void>> = {
  reset: ({ socket }) => {
    socket.resetAndDestroy()
  },
  'close of both ways': ({ socket }) => {
    socket.destroy()
  },
  'half-close': ({ socket }) => {
    socket.end()
  },
}

/** Waits until nothing of the requests before is left, neither here nor at the upstream. */
async function nothingIsLeft(setup: Setup, name: string): Promise<void> {
  const inFlight = () => setup.sidecar.metric('auth_sidecar_requests_in_flight')
  await eventually(async () => (await inFlight()) === 0, `${name}: nothing in flight`)
  await eventually(() => setup.upstream.open() === 0, `${name}: the upstream left`)
}

t.test('a client that disconnects aborts its request at the upstream', async (t) => {
  const setup = await startSetup(t)
  const inResponse = (bytes: string) => async (client: RawClient) => {
    setup.upstream.reply(`HTTP/1.1 200 OK\r\n${bytes}`)
    client.send(setup.head('GET /down'))
    await client.until('first')
  }
  const inWait =
    (behind = '') =>
    async (client: RawClient) => {
      setup.upstream.reply(() => {})
      const seen = setup.upstream.requests.length
      client.send(setup.head('GET /wait') + behind)
      await setup.upstream.received(seen + 1)
    }
  const inUpload = (line: string, body: string) => async (client: RawClient) => {
    setup.upstream.reply(() => {})
    client.send(`PUT /up HTTP/1.1\r\nHost: h\r\n${setup.authorization}${line}\r\n\r\n${body}`)
    await setup.upstream.until(() => setup.upstream.bytes.at(-1)?.includes('first') === true, 'the upload')
  }
  const stages: Record<string, (client: RawClient) => Promise<void>> = {
    'before the response': inWait(),
    'in the middle of a response of known length': inResponse('Content-Length: 100\r\n\r\nfirst'),
    'in the middle of a response in chunks': inResponse('Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n'),
    'in the middle of its upload': inUpload('Content-Length: 100', 'first'),
    'in the middle of its upload in chunks': inUpload('Transfer-Encoding: chunked', '5\r\nfirst\r\n'),
    'waiting for 100 Continue': async (client) => {
      setup.upstream.reply(() => {})
      client.send(setup.head('PUT /up', 'Expect: 100-continue', 'Content-Length: 5'))
      await client.until('100 Continue')
    },
    'with more requests after the first': inWait(setup.head('GET /wait').repeat(9)),
    'with more requests than are read': inWait(setup.head('GET /wait').repeat(17)),
    'with a CONNECT after the first': inWait('CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n'),
  }
  // The sidecar does not see an end behind requests that it does not read.
  const isSeen = (stage: string, departure: string) =>
    stage !== 'with more requests than are read' || departure === 'reset'
  for (const [stage, reach] of Object.entries(stages)) {
    const departures = Object.entries(DEPARTURES).filter(([name]) => isSeen(stage, name))
    for (const [departure, depart] of departures) {
      for (const socket of setup.upstream.sockets) {
        socket.destroy()
      }
      const client = await setup.connect()
      await reach(client)
      depart(client)
      await nothingIsLeft(setup, `${stage}, ${departure}`)
      if (departure === 'half-close' && stage.startsWith('in the middle of a response')) {
        t.equal(await client.closed(), 'reset', `${stage}: what is missing shows in every client`)
      }
      client.socket.destroy()
    }
  }
  setup.upstream.requests.length = 0
  setup.upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  await setup.upstreamSaw(t, 0)
  const left = setup.sidecar.log.filter(({ msg, status }) => msg === 'request' && status === 499)
  t.ok(left.length > 12, 'counted as aborted, not as served')
  t.ok(
    (await setup.sidecar.metric('auth_sidecar_requests_total{route="proxy",method="GET",status="499"}')) > 0,
  )
})

t.test('a reset in the middle of an upload that the upstream does not read ends its request', async (t) => {
  for (const start of [startSetup, startSecured]) {
    // On a busy machine, it takes long until the client can write no more.
    const settings = { 'timeouts-idle-seconds': '600' }
    const { sidecar, head } = await start(t, { hooks: { read: false }, settings })
    const tcp = connect(sidecar.port, '127.0.0.1')
    const client = start === startSetup ? tcp : connectTls({ socket: tcp, rejectUnauthorized: false })
    for (const socket of [tcp, client]) {
      socket.on('error', () => {})
    }
    client.write(head('PUT /up', 'Content-Length: 100000000'))
    for (let sent = 0; sent < 100_000_000; sent += 100_000) {
      client.write(Buffer.alloc(100_000))
    }
    await standsStill(() => client.writableLength)
    tcp.resetAndDestroy()
    for (const metric of ['requests_in_flight', 'upstream_connections{upstream="/"}']) {
      await eventually(async () => (await sidecar.metric(`auth_sidecar_${metric}`)) === 0, metric, SOON_MS)
    }
    const aborted = 'auth_sidecar_requests_total{route="proxy",method="PUT",status="499"}'
    t.equal(await sidecar.metric(aborted), 1, 'counted as aborted')
  }
})

t.test('a client that resets while its upload waits for the upstream is not waited for', async (t) => {
  const { upstream, sidecar, head, connect } = await startSetup(t, {
    settings: { 'limits-upstream-connections': '1' },
  })
  upstream.reply(() => {})
  const first = await connect()
  first.send(head('GET /first'))
  await upstream.received(1)
  const { socket, send } = await connect()
  send(head('PUT /queued', 'Content-Length: 20000000') + 'x'.repeat(20_000_000))
  await standsStill(() => socket.writableLength)
  socket.resetAndDestroy()
  const inFlight = () => sidecar.metric('auth_sidecar_requests_in_flight')
  await eventually(async () => (await inFlight()) === 1, 'its request to end', SOON_MS)
})

t.test('a client that disconnects before its request or during a login leaks nothing', async (t) => {
  const setup = await startSetup(t, { credentials: [{ scheme: 'scrypt' }] })
  const login = JSON.stringify(setup.sidecar.logins[0])
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
      const client = await setup.connect()
      if (bytes.length > 0) {
        await new Promise<void>((resolve) => client.socket.write(bytes, () => resolve()))
      }
      depart(client)
      await nothingIsLeft(setup, `${stage}, ${departure}`)
      if (departure === 'half-close' && stage.startsWith('in the middle of a response')) {
        t.equal(await client.closed(), 'reset', `${stage}: what is missing shows in every client`)
      }
      client.socket.destroy()
    }
  }
  await eventually(
    () => setup.sidecar.log.some(({ route, status }) => route === 'token_issue' && status === 499),
    'the line of the log',
  )
  await setup.upstreamSaw(t, 0)
})

type Departure = (tcp: Socket, tls: Socket) => void

/** 40 TLS clients, which leave one after the other within as many milliseconds. */
async function tlsClientsLeave(t: Test, setup: Setup, requests: string, depart: Departure): Promise<void> {
  const clients = Array.from({ length: 40 }, async (_, at) => {
    const tcp = connect(setup.sidecar.port, '127.0.0.1')
    const tls = connectTls({ socket: tcp, rejectUnauthorized: false })
    for (const socket of [tcp, tls]) {
      socket.on('error', () => {})
    }
    t.teardown(() => tcp.destroy())
    await new Promise((resolve) => tls.once('secureConnect', resolve))
    tls.resume().write(requests)
    await new Promise((resolve) => setTimeout(resolve, at))
    depart(tcp, tls)
  })
  await Promise.all(clients)
  await nothingIsLeft(setup, String(depart))
}

t.test('a TLS client that disconnects amid pipelined requests leaves none in flight', async (t) => {
  const setup = await startSecured(t)
  setup.upstream.reply((socket) => {
    setTimeout(() => socket.write(OK), 3)
  })
  for (const depart of [
    (tcp: Socket) => tcp.resetAndDestroy(),
    (tcp: Socket) => tcp.destroy(),
    (_: Socket, tls: Socket) => tls.destroy(),
    (_: Socket, tls: Socket) => tls.end(),
  ]) {
    await tlsClientsLeave(t, setup, setup.head('GET /a').repeat(8), depart)
  }
})

t.test('a client that half-closes right after its response has arrived receives it', async (t) => {
  const { upstream, connect, head } = await startSetup(t)
  upstream.reply(() => {})
  const clients = await Promise.all(Array.from({ length: 20 }, () => connect()))
  const uploads = clients.slice(10)
  for (const client of clients) {
    client.send(uploads.includes(client) ? `${head('PUT /', 'Content-Length: 9')}first` : head('GET /'))
  }
  await upstream.until(() => upstream.bytes.filter(({ length }) => length > 0).length === 20, 'the requests')
  for (const socket of upstream.sockets) {
    socket.write(OK)
  }
  for (const { socket } of clients) {
    socket.end() // the sidecar reads both in one turn
  }
  for (const client of clients) {
    t.equal((await client.response()).status, 200)
    t.equal(await client.closed(), 'end')
  }
})

t.test('a response that fails while its TLS client half-closes leaves nothing in flight', async (t) => {
  const setup = await startSecured(t)
  const broken = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n'
  for (let round = 0; round < 8; round++) {
    // Both happen within the same millisecond for some of the clients.
    setup.upstream.reply((socket) => {
      setTimeout(() => socket.write(broken), 18 + round / 4)
    })
    await tlsClientsLeave(t, setup, setup.head('GET /a'), (_, tls) => tls.end())
  }
  t.equal(await setup.sidecar.metric('auth_sidecar_client_connections'), 0)
})
