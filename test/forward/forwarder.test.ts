import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { createForwarder, type ForwarderOptions } from '../../src/forward/forwarder.ts'
import { createResponder } from '../../src/http/respond.ts'
import { eventually } from '../support/eventually.ts'
import { admitted, LIMITS, startListening } from '../support/listening.ts'
import { rawClient } from '../support/raw-client.ts'
import { OK, recordingUpstream } from '../support/recording-upstream.ts'
import { setDeadlines } from '../support/set-deadlines.ts'

/** A forwarder of its own, with what it has told so far. */
function forwarding(t: Test, upstreams: ForwarderOptions['upstreams']) {
  const told: string[] = []
  const deadlines = setDeadlines(t)
  const responder = createResponder({ isClosing: () => false, deadlines, idleMs: 60_000 })
  const forwarder = createForwarder({
    upstreams,
    deadlines,
    timeouts: { idleSeconds: 60, upstreamConnectSeconds: 3, upstreamResponseSeconds: 60 },
    limits: { ...LIMITS, upstreamConnections: 8, upstreamQueue: 8 },
    forwardAuthorization: false,
    isClosing: () => false,
    refuse: (exchange, error, outcome, close) => {
      told.push(`refused ${outcome}`)
      responder.refuse(exchange, error, { error: outcome }, close)
    },
    onOutcome: (upstream, outcome) => void told.push(`${upstream} ${outcome}`),
    onFirstByte: (upstream, ms) => void told.push(`${upstream} first byte ${ms}`),
    now: Date.now,
  })
  return { forwarder, told, deadlines }
}

/** A listener whose requests are forwarded. */
function listening(t: Test, { forwarder, deadlines }: ReturnType<typeof forwarding>) {
  return startListening(
    t,
    (exchange) => {
      admitted(exchange)
      forwarder.forward(exchange)
    },
    { deadlines },
  )
}

t.test('each request goes to the upstream of its path, and is told under its prefix', async (t) => {
  const [one, two] = [await recordingUpstream(t), await recordingUpstream(t)]
  const made = forwarding(t, [
    { prefix: '/one', url: one.url },
    { prefix: '/two/', url: two.url },
  ])
  const { port } = await listening(t, made)
  const client = await rawClient(t, port)
  const statuses = []
  for (const target of ['/one/a', '/two/b', '/three']) {
    client.send(`GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`)
    statuses.push((await client.response()).status)
  }
  t.same(statuses, [200, 200, 503])
  t.equal(one.requests[0]?.target, '/one/a')
  t.equal(two.requests[0]?.target, '/two/b')
  t.same(made.told, [
    '/one first byte 0',
    '/one ok',
    '/two/ first byte 0',
    '/two/ ok',
    'refused destination_not_found',
  ])
  t.same(made.forwarder.pools(), [
    { upstream: '/one', connections: 1, queued: 0 },
    { upstream: '/two/', connections: 1, queued: 0 },
  ])
})

t.test('closing it closes every connection, the busy ones with their responses', async (t) => {
  const upstream = await recordingUpstream(t)
  const made = forwarding(t, [{ prefix: '/', url: upstream.url }])
  const { port } = await listening(t, made)
  const [first, second] = [await rawClient(t, port), await rawClient(t, port)]
  let busy: Socket | undefined
  upstream.reply((socket, { target }) => {
    if (target === '/busy') busy = socket
    else socket.write(OK)
  })
  second.send('GET /busy HTTP/1.1\r\nHost: a\r\n\r\n')
  await upstream.received(1)
  first.send('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  await first.response()
  made.forwarder.close()
  await eventually(() => upstream.open() === 1, 'the unused one to be closed')
  busy?.write(OK)
  t.equal((await second.response()).status, 200)
  await eventually(() => made.forwarder.pools()[0]?.connections === 0, 'the other one to be closed')
  t.equal(made.deadlines.waiting.size, 2, 'both clients, who may ask again')
})

t.test('what has not been admitted is never forwarded', async (t) => {
  const { forwarder } = forwarding(t, [{ prefix: '/', url: 'http://127.0.0.1:1' }])
  for (const exchange of [undefined, { admitted: undefined }]) {
    const res = { exchange }
    t.throws(() => forwarder.forward({ req: {}, res, ...exchange } as never), /only after admission/)
  }
})

t.test('a handshake goes to the upstream of its path and becomes a tunnel there', async (t) => {
  const [one, two] = [await recordingUpstream(t), await recordingUpstream(t)]
  const made = forwarding(t, [
    { prefix: '/', url: one.url },
    { prefix: '/chat/', url: two.url },
  ])
  const { port } = await listening(t, made)
  const client = await rawClient(t, port)
  two.reply('HTTP/1.1 101 Now\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello')
  client.send('GET /chat/a HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nbehind')
  await client.until('\r\n\r\nhello')
  await two.until(() => String(two.bytes[0]).endsWith('\r\n\r\nbehind'), 'what stood behind the handshake')
  t.equal(one.sockets.length, 0)
  t.match(two.requests[0], { target: '/chat/a', headers: { upgrade: 'websocket' } })
  t.same(made.told, ['/chat/ ok'])
})

t.test('a handshake for which there is no upstream is told so', async (t) => {
  const made = forwarding(t, [{ prefix: '/one', url: 'http://127.0.0.1:1' }])
  const { port } = await listening(t, made)
  const client = await rawClient(t, port)
  client.send('GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nbehind')
  t.equal((await client.response()).status, 503)
  t.equal(await client.closed(), 'end')
  t.same(made.told, ['refused destination_not_found'])
})
