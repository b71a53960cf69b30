/** The bytes of an account with limits: transfers and tunnels are paced, never refused. */
import { once } from 'node:events'
import t from 'tap'
import { WebSocket } from 'ws'
import { eventually } from '../support/eventually.ts'
import { limitedSetup, limitsFile } from '../support/limited-setup.ts'
import { rawClient, rawRequest } from '../support/raw-client.ts'
import { bodyReply } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'
import { echoServer } from '../support/websocket.ts'

const KIB = 1024

/** Bytes in the memory of Node and of the system may pass at once. Only a transfer beyond them is paced. */
const BODY = Buffer.alloc(600 * KIB, 'x')
const BYTES_PER_SECOND = 300 * KIB
/** Half a second of bytes, and the last read, are free. */
const LEAST_MS = 1000 * ((BODY.length - 64 * KIB) / BYTES_PER_SECOND - 0.5)

/** The milliseconds that it takes. */
async function timed(work: () => Promise<unknown>): Promise<number> {
  const before = performance.now()
  await work()
  return performance.now() - before
}

for (const [name, lines, reply] of [
  ['with a length', [], bodyReply(BODY)],
  [
    'in chunks',
    [],
    `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${BODY.length.toString(16)}\r\n${BODY}\r\n0\r\n\r\n`,
  ],
  [
    'of a range',
    ['Range: bytes=0-'],
    `HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-${BODY.length - 1}/${BODY.length}\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`,
  ],
] as const) {
  t.test(`a download ${name} is paced, arrives whole and is not idle`, async (t) => {
    const { upstream, ask, head, pacedSeconds } = await limitedSetup(
      t,
      `default: { downloadBytesPerSecond: ${BYTES_PER_SECOND} }`,
      {
        settings: { 'timeouts-idle-seconds': '0.2', 'timeouts-upstream-response-seconds': '0.2' },
      },
    )
    upstream.reply(reply)
    const ms = await timed(async () => {
      const { body } = await ask(head('GET /a', ...lines))
      t.ok(body.equals(BODY))
    })
    t.ok(ms >= LEAST_MS, `${ms} ms`)
    t.ok((await pacedSeconds('out')) > 0.5)
  })
}

t.test('a download to an HTTP/1.0 client, and one until the close, is paced and arrives whole', async (t) => {
  const { upstream, pacedSeconds, exchange, authorization } = await limitedSetup(
    t,
    `default: { downloadBytesPerSecond: ${BYTES_PER_SECOND} }`,
  )
  upstream.reply((socket) => socket.end(`HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n${BODY}`))
  for (const version of ['1.0', '1.1']) {
    const received = await exchange(`GET /a HTTP/${version}\r\nHost: a\r\n${authorization}\r\n`)
    t.equal(received.split('\r\n\r\n')[1]?.length, BODY.length, version)
  }
  t.ok((await pacedSeconds('out')) > 1)
})

for (const [name, line, body] of [
  ['with a length', `Content-Length: ${BODY.length}`, BODY],
  ['in chunks', 'Transfer-Encoding: chunked', `${BODY.length.toString(16)}\r\n${BODY}\r\n0\r\n\r\n`],
] as const) {
  t.test(`an upload ${name} is paced, arrives whole and is not idle`, async (t) => {
    const { upstream, send, head, pacedSeconds } = await limitedSetup(
      t,
      `default: { uploadBytesPerSecond: ${BYTES_PER_SECOND} }`,
      {
        settings: { 'timeouts-idle-seconds': '0.2', 'limits-upload-bytes-per-second': '1000000' },
      },
    )
    const ms = await timed(async () => {
      const client = await send(head('PUT /a', line))
      client.send(body)
      t.equal((await client.response()).status, 200)
    })
    t.ok(upstream.requests[0]?.body.equals(BODY))
    t.ok(ms >= LEAST_MS, `${ms} ms`)
    t.ok((await pacedSeconds('in')) > 0.5)
  })
}

t.test('transfers of an account share its bytes, and those of another account do not wait', async (t) => {
  const limits = `default: { downloadBytesPerSecond: ${BYTES_PER_SECOND} }\naccounts: { globex: { downloadBytesPerSecond: 0 } }`
  const { upstream, ask, head, sidecar } = await limitedSetup(t, limits, {
    credentials: [{ accountId: 'acme' }, { accountId: 'globex' }],
  })
  upstream.reply(bodyReply(BODY))
  const [, globex] = sidecar.logins
  const token = await sidecar.mint({ claims: { sub: 'globex', client_id: globex?.accessKey } })
  let isOtherDone = false
  const ms = await timed(async () => {
    const paced = Promise.all([ask(head('GET /a')), ask(head('GET /b'))])
    await rawRequest(t, sidecar.port, `GET /c HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`)
    isOtherDone = true
    for (const { body } of await paced) {
      t.ok(body.equals(BODY))
    }
  })
  t.ok(isOtherDone)
  t.ok(ms >= 1000 * ((2 * BODY.length - 2 * 64 * KIB) / BYTES_PER_SECOND - 0.5), `${ms} ms`)
})

t.test('many short downloads of one account are paced, too', async (t) => {
  const { upstream, head, sidecar } = await limitedSetup(t, 'default: { downloadBytesPerSecond: 102400 }')
  upstream.reply(bodyReply(Buffer.alloc(16 * KIB)))
  const client = await rawClient(t, sidecar.port)
  const ms = await timed(async () => {
    for (let sent = 0; sent < 12; sent++) {
      client.send(head('GET /a'))
      await client.response()
    }
  })
  t.ok(ms >= 1000 * ((11 * 16 * KIB) / 102400 - 0.5), `${ms} ms`)
})

t.test('a client that leaves while it is paced frees the connection of the upstream', async (t) => {
  const { upstream, request, sidecar } = await limitedSetup(
    t,
    'default: { downloadBytesPerSecond: 1000, inFlight: 1 }',
  )
  upstream.reply(bodyReply(BODY))
  const client = await request('GET /a')
  await client.until('200 OK')
  client.socket.resetAndDestroy()
  await upstream.until(() => upstream.open() === 0, 'the connection to be closed')
  await eventually(async () => (await sidecar.metric('auth_sidecar_requests_in_flight')) === 0, 'the end')
})

t.test('a client that leaves while its upload is paced frees the connection of the upstream', async (t) => {
  const { upstream, request, sidecar } = await limitedSetup(
    t,
    'default: { uploadBytesPerSecond: 1000, inFlight: 1 }',
  )
  const client = await request('PUT /a', [`Content-Length: ${BODY.length}`])
  client.send(BODY)
  await upstream.until(() => (upstream.bytes[0]?.length ?? 0) > 1000, 'the first bytes')
  client.socket.resetAndDestroy()
  await upstream.until(() => upstream.open() === 0, 'the connection to be closed')
  await eventually(async () => (await sidecar.metric('auth_sidecar_requests_in_flight')) === 0, 'the end')
})

for (const [change, limits] of [
  ['raised', 'default: { downloadBytesPerSecond: 100000000 }'],
  ['removed', '{}'],
] as const) {
  t.test(`a paced transfer goes on at once when its limit is ${change}`, async (t) => {
    const { upstream, request, write, reloads } = await limitedSetup(
      t,
      'default: { downloadBytesPerSecond: 1000 }',
    )
    upstream.reply(bodyReply(BODY))
    const client = await request('GET /a')
    await client.until('200 OK')
    write(limits)
    t.ok((await client.response()).body.equals(BODY))
    t.equal(await reloads('ok'), 1)
  })
}

t.test('a limit that is set during a download holds for what is left of it', async (t) => {
  const { upstream, request, write, reloads, pacedSeconds } = await limitedSetup(
    t,
    'default: { inFlight: 9, downloadBytesPerSecond: 100000000 }',
  )
  const sockets: { write(bytes: Uint8Array): unknown }[] = []
  upstream.reply((socket) => {
    sockets.push(socket)
    socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${BODY.length}\r\n\r\n`)
  })
  const client = await request('GET /a')
  await client.until('200 OK')
  write(`default: { inFlight: 9, downloadBytesPerSecond: ${BYTES_PER_SECOND} }`)
  await eventually(async () => (await reloads('ok')) === 1, 'the new limit')
  sockets[0]?.write(BODY)
  t.ok((await client.response()).body.equals(BODY))
  t.ok((await pacedSeconds('out')) > 0.5)
})

t.test('an early response reaches a client whose upload is paced', async (t) => {
  const { upstream, send, head } = await limitedSetup(t, 'default: { uploadBytesPerSecond: 1000 }', {
    hooks: {
      read: false,
      onConnection: (socket) => {
        socket.once('data', () =>
          socket.write('HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n'),
        )
      },
    },
  })
  const client = await send(head('PUT /a', `Content-Length: ${BODY.length}`))
  client.send(BODY)
  t.equal((await client.response()).status, 507)
  t.equal(upstream.sockets.length, 1)
})

t.test('a drain lets a paced transfer finish', async (t) => {
  const { upstream, request, sidecar } = await limitedSetup(
    t,
    `default: { downloadBytesPerSecond: ${BYTES_PER_SECOND} }`,
    {
      settings: { 'shutdown-deadline-seconds': '60' },
    },
  )
  upstream.reply(bodyReply(BODY))
  const client = await request('GET /a')
  await client.until('200 OK')
  const stopped = sidecar.stop()
  t.ok((await client.response()).body.equals(BODY))
  await stopped
})

t.test('the deadline of a drain ends a transfer that is paced too slowly', async (t) => {
  const { upstream, request, sidecar } = await limitedSetup(t, 'default: { downloadBytesPerSecond: 1000 }')
  upstream.reply(bodyReply(BODY))
  const client = await request('GET /a')
  await client.until('200 OK')
  await sidecar.stop()
  await client.closed()
  t.ok(client.received().length < BODY.length)
})

t.test('a tunnel is in flight until it is closed, and its bytes are paced in both directions', async (t) => {
  const rate = 200 * KIB
  const limits = `default: { inFlight: 1, uploadBytesPerSecond: ${rate}, downloadBytesPerSecond: ${rate} }`
  const { port } = await echoServer(t)
  const file = await limitsFile(t, limits)
  const sidecar = await startSidecar(t, {
    upstreamUrl: `http://127.0.0.1:${port}`,
    settings: { 'upgrade-enabled': 'true', 'fair-use-file': file },
  })
  const headers = { Authorization: `Bearer ${sidecar.token}` }
  const socket = new WebSocket(`ws://127.0.0.1:${sidecar.port}/`, { headers, perMessageDeflate: false })
  await once(socket, 'open')
  const message = Buffer.alloc(400 * KIB, 'x')
  const ms = await timed(async () => {
    socket.send(message)
    const [echoed]: Buffer[] = await once(socket, 'message')
    t.ok(echoed?.equals(message))
  })
  t.ok(ms >= 1000 * ((400 - 64) / 200 - 0.5), `${ms} ms`)
  for (const direction of ['in', 'out']) {
    const paced = await sidecar.metric(`auth_sidecar_fair_use_paced_seconds_total{direction="${direction}"}`)
    t.ok(paced > 0, direction)
  }
  const status = async () => (await fetch(`http://127.0.0.1:${sidecar.port}/`, { headers })).status
  t.equal(await status(), 429)
  socket.terminate()
  await eventually(async () => (await status()) !== 429, 'the tunnel to be over')
})

t.test('report mode paces nothing', async (t) => {
  const { upstream, ask, request, head, pacedSeconds } = await limitedSetup(
    t,
    'default: { inFlight: 9, uploadBytesPerSecond: 1, downloadBytesPerSecond: 1 }',
    { settings: { 'fair-use-enforcement': 'report' } },
  )
  upstream.reply(bodyReply(BODY))
  t.ok((await ask(head('GET /a'))).body.equals(BODY))
  const upload = await request('PUT /a', [`Content-Length: ${BODY.length}`])
  upload.send(BODY)
  t.ok((await upload.response()).body.equals(BODY))
  t.strictSame([await pacedSeconds('in'), await pacedSeconds('out')], [0, 0])
})
