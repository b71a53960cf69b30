import { createHash } from 'node:crypto'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { WebSocket } from 'ws'
import { fileEditors } from '../../src/credentials/editor.ts'
import { eventually } from '../support/eventually.ts'
import { makeKey, writeKey } from '../support/keys.ts'
import { OK } from '../support/recording-upstream.ts'
import { startSetup } from '../support/setup.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { DECLINES_UPGRADES, echoServer, HANDSHAKE } from '../support/websocket.ts'

const ON = { 'upgrade-enabled': 'true' }
const handshake = (token: string, more = '') =>
  `GET /chat//room?x=%20 HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer ${token}\r\n${HANDSHAKE.join('\r\n')}\r\n${more}\r\n`
const SWITCHED =
  'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n'

t.test('a handshake needs a valid token and a plain request', async (t) => {
  const { upstream, sidecar, send } = await startSetup(t, { settings: ON })
  const good = handshake(sidecar.token)
  const expired = await sidecar.mint({ now: Date.now() - 7200_000 })
  const notPlain = [
    ['a POST', good.replace('GET', 'POST'), 'InvalidArgument'],
    ['a body', good.replace('Host: s', 'Host: s\r\nContent-Length: 3'), 'InvalidArgument'],
  ] as const
  for (const [name, request, code] of [
    ['no token', good.replace(/Authorization: .*\r\n/, ''), 'InvalidToken'],
    ['an expired token', handshake(expired), 'ExpiredToken'],
    ['two hosts', good.replace('Host: s', 'Host: s\r\nHost: s'), 'InvalidArgument'],
    ...(DECLINES_UPGRADES ? [] : notPlain),
  ] as const) {
    const client = await send(request)
    const response = await client.response()
    t.equal(response.status, 400, name)
    t.equal(JSON.parse(response.body.toString()).code, code, name)
    client.socket.end()
    t.equal(await client.closed(), 'end', name)
  }
  t.equal(upstream.sockets.length, 0)
})

t.test('an upgrade to another protocol is ignored, or a 400 on older versions of Node', async (t) => {
  const { upstream, sidecar, ask } = await startSetup(t, { settings: ON })
  for (const offer of ['h2c', 'websocket, h2c', 'websocket\r\nUpgrade: websocket']) {
    const { status } = await ask(handshake(sidecar.token).replace('Upgrade: websocket', `Upgrade: ${offer}`))
    t.equal(status, DECLINES_UPGRADES ? 200 : 400, offer)
  }
  const withBody = handshake(sidecar.token).replace('Host: s', 'Host: s\r\nContent-Length: 3')
  t.equal((await ask(`${withBody}abc`)).status, DECLINES_UPGRADES ? 200 : 400, 'with a body')
  t.equal(upstream.requests.length, DECLINES_UPGRADES ? 4 : 0)
})

t.test('a handshake after a pending request does not lose that response', async (t) => {
  const { upstream, head, sidecar, send } = await startSetup(t, { settings: ON })
  upstream.reply((socket) => {
    setTimeout(() => socket.write(OK), 50)
  })
  const client = await send(head('GET /before') + handshake(sidecar.token))
  t.equal((await client.response()).body.toString(), 'ok')
  t.equal((await client.response()).status, DECLINES_UPGRADES ? 200 : 400, 'it is no handshake')
})

t.test('a refusal of the upstream is framed, and bytes after the handshake are not forwarded', async (t) => {
  const smuggled = 'GET /smuggled HTTP/1.1\r\nHost: s\r\n\r\n'
  for (const [reply, expected] of [
    [
      '403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n',
      { status: 403, body: Buffer.from('no') },
    ],
    [
      '426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\nContent-Length: 0\r\n\r\n',
      { status: 426, headers: { 'sec-websocket-version': '13', connection: 'close' } },
    ],
  ] as const) {
    const { upstream, sidecar, send } = await startSetup(t, { settings: ON })
    upstream.reply(`HTTP/1.1 ${reply}`)
    const client = await send(handshake(sidecar.token).replace('Version: 13', 'Version: 9999') + smuggled)
    t.match(await client.response(), expected)
    client.send(smuggled)
    t.equal(await client.closed(), 'end')
    t.equal(upstream.requests.length, 1)
    t.notOk(upstream.bytes.some((bytes) => bytes.includes('smuggled')))
  }
})

/** The events of a WebSocket client that sends messages of every kind to a server that echoes. */
async function conversation(port: number, token: string): Promise<unknown[]> {
  const events: unknown[] = []
  const client = new WebSocket(`ws://127.0.0.1:${port}/chat//room?x=%20`, {
    headers: { authorization: `Bearer ${token}`, 'X-Authenticated-Account-Id': 'evil' },
  })
  const ended = new Promise<void>((resolve, reject) => {
    client.on('close', (code, reason) => {
      events.push(['close', code, reason.toString()])
      resolve()
    })
    client.on('error', reject)
  })
  client.on('pong', (data) => events.push(['pong', data.toString()]))
  await new Promise((resolve) => client.once('open', resolve))
  const next = (event: 'message' | 'pong') => new Promise((resolve) => client.once(event, resolve))
  client.on('message', (data: Buffer, isBinary) => {
    events.push([isBinary, data.length, createHash('sha256').update(data).digest('hex')])
  })
  for (const size of [0, 1, 125, 126, 127, 65_535, 65_536, 1_000_000]) {
    for (const binary of [true, false]) {
      const echoed = next('message')
      client.send(Buffer.alloc(size, 'e'), { binary, compress: size % 2 === 0 })
      await echoed
    }
  }
  const whole = next('message')
  for (let part = 0; part < 20; part++) {
    client.send(`part ${part}`, { fin: part === 19 })
    if (part === 10) {
      client.ping('in between') // control frames may stand between the parts of a message
    }
  }
  await whole
  const last = next('pong')
  client.ping('x'.repeat(125))
  await last
  client.close(4321, 'enough')
  await ended
  return events
}

t.test('WebSocket messages pass unchanged in both directions', async (t) => {
  const server = await echoServer(t, { perMessageDeflate: true })
  const direct = await conversation(server.port, '')
  t.equal(direct.length, 20, 'messages, pongs and the end')
  const upstreamUrl = `http://127.0.0.1:${server.port}`
  const sidecar = await startSidecar(t, { upstreamUrl, settings: ON })
  t.strictSame(await conversation(sidecar.port, sidecar.token), direct)
  const [, { url, headers } = {}] = server.requests
  t.equal(url, '/chat//room?x=%20')
  t.equal(headers?.['x-authenticated-account-id'], 'acme')
  t.equal(headers?.['authorization'], undefined)
  t.equal(await sidecar.metric('auth_sidecar_requests_total{route="proxy",method="GET",status="101"}'), 1)
})

t.test('a refused handshake framed by its close ends cleanly only if it is complete', async (t) => {
  const { upstream, sidecar, recovers, send } = await startSetup(t, {
    settings: { ...ON, 'timeouts-idle-seconds': '0.4' },
  })
  const refusal = 'HTTP/1.1 403 Forbidden\r\n\r\nno'
  for (const [name, reply, end] of [
    [
      'whole',
      (socket: Socket) => {
        socket.end(refusal)
      },
      'end',
    ],
    [
      'stalled',
      (socket: Socket) => {
        socket.write(refusal)
      },
      'reset',
    ],
    [
      'broken',
      (socket: Socket) => socket.write(refusal, () => setTimeout(() => socket.resetAndDestroy(), 50)),
      'reset',
    ],
  ] as const) {
    upstream.reply(reply)
    const client = await send(handshake(sidecar.token))
    t.equal(await client.closed(), end, name)
    const received = client.received().toString()
    t.match(received, /\r\nConnection: close\r\n(.+\r\n)*\r\nno$/, name)
    t.notMatch(received, /Transfer-Encoding/i, name)
  }
  upstream.reply(OK)
  await recovers()
})

t.test(
  'a client that half-closes in the middle of a refused handshake gets the whole response',
  async (t) => {
    const { upstream, sidecar, send, ask, head } = await startSetup(t, { settings: ON })
    let finish = () => {}
    upstream.reply((socket) => {
      finish = () => {
        socket.write('ne')
      }
      socket.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno')
    })
    const client = await send(handshake(sidecar.token))
    await client.until('no')
    client.socket.end()
    await ask(head('GET /', 'Host: twice')) // by this response, the sidecar has read the end
    finish()
    t.equal(await client.closed(), 'end')
    t.match(client.received().toString(), /\r\n\r\nnone$/)
  },
)

t.test('a 101 that does not name the protocol is an internal error', async (t) => {
  const { upstream, sidecar, ask } = await startSetup(t, { settings: ON })
  for (const lines of ['Connection: Upgrade\r\nUpgrade: h2c\r\n', '']) {
    upstream.reply(`HTTP/1.1 101 Whatever\r\n${lines}\r\n`)
    t.equal((await ask(handshake(sidecar.token))).status, 500, lines)
  }
  await upstream.until(() => upstream.open() === 0, 'the connection to be closed')
})

t.test('a handshake and a 101 that name a length open a tunnel', async (t) => {
  const { upstream, sidecar, send } = await startSetup(t, { settings: ON })
  const lines = ['Content-Length: 0', 'Content-Length: 5', 'Transfer-Encoding: chunked']
  for (const [at, line] of ['', ...lines].entries()) {
    upstream.reply(SWITCHED.replace('\r\n\r\n', `${line && '\r\n'}${line}\r\n\r\nfrom upstream`))
    const client = await send(handshake(sidecar.token, 'Content-Length: 0\r\n'))
    await client.until('from upstream')
    client.send('from client')
    await upstream.until(() => upstream.bytes[at]?.includes('from client') ?? false, 'bytes of the tunnel')
  }
})

t.test('a handshake without a free upstream connection gets 503', async (t) => {
  const { upstream, sidecar, ask, send } = await startSetup(t, {
    settings: { ...ON, 'limits-upstream-connections': '1' },
  })
  upstream.reply(SWITCHED)
  const tunnel = await send(handshake(sidecar.token))
  t.equal((await tunnel.response()).status, 101)
  t.match(await ask(handshake(sidecar.token)), { status: 503, headers: { 'retry-after': '1' } })
})

t.test('bytes of both sides that arrive with the handshake are not lost', async (t) => {
  const { upstream, sidecar, send } = await startSetup(t, { settings: ON })
  upstream.reply(`${SWITCHED}from upstream`)
  const client = await send(`${handshake(sidecar.token, 'Content-Length: 0\r\n')}from client`)
  await client.until('from upstream')
  t.match(client.received().toString(), /^HTTP\/1\.1 101 .*\r\n(.+\r\n)+\r\nfrom upstream$/)
  await upstream.until(() => upstream.bytes[0]?.includes('from client') ?? false, 'the early bytes')
})

t.test('the tunnel ends with either side, with the token, and when the sidecar stops', async (t) => {
  const { upstream, sidecar, send } = await startSetup(t, { settings: ON })
  upstream.reply(SWITCHED)
  const open = async (token = sidecar.token) => {
    const before = upstream.sockets.length
    const client = await send(handshake(token))
    await client.until('Sec-WebSocket-Accept')
    return { client, far: upstream.sockets[before] }
  }

  const left = await open()
  left.client.socket.resetAndDestroy()
  await upstream.until(() => left.far?.destroyed === true, 'the far side to close after a reset')

  const dropped = await open()
  dropped.far?.resetAndDestroy()
  await dropped.client.closed()

  const finished = await open()
  finished.client.socket.end()
  await upstream.until(() => finished.far?.readableEnded === true, 'the end to be passed on')
  t.equal(await finished.client.closed(), 'end')

  const expiring = await open(await sidecar.mint({ lifetimeSeconds: 10 }))
  await expiring.client.closed()

  const slots = () => sidecar.metric('auth_sidecar_upstream_connections{upstream="/"}')
  await eventually(async () => (await slots()) === 0, 'their slots to be free')
  const seconds = await sidecar.metric('auth_sidecar_request_duration_seconds_sum{route="proxy"}')
  t.ok(seconds < 9, 'a tunnel is no part of the response')

  const last = await open()
  await sidecar.stop()
  await last.client.closed()
  t.match(sidecar.log.at(-1), { msg: 'stopped', drained: 0, cut: 0, tunnels: 1 })
})

t.test('a tunnel ends when its token would be refused', async (t) => {
  const revocations = join(await temporaryDirectory(t), 'revocations.yaml')
  writeFileSync(revocations, 'revocations: []\n')
  let setBackMs = 0
  const expiresAt = new Date(Date.now() + 8000).toISOString()
  const { upstream, sidecar, send } = await startSetup(t, {
    settings: { ...ON, 'revocations-file': revocations },
    now: () => Date.now() - setBackMs,
    credentials: [{ accessKey: 'kept' }, { accessKey: 'disabled' }, { accessKey: 'ends', expiresAt }],
  })
  upstream.reply(SWITCHED)
  const open = async (accessKey: string, jti = accessKey) => {
    const client = await send(handshake(await sidecar.mint({ claims: { client_id: accessKey, jti } })))
    await client.until('Sec-WebSocket-Accept')
    return client
  }
  await (await open('ends')).closed() // its credential expires
  const warnings: string[] = []
  process.on('warning', (warning) => warnings.push(warning.name))
  setBackMs = 30 * 86_400_000 // more than a timer of Node can wait
  const revoked = await open('kept', 'gone')
  writeFileSync(revocations, 'revocations:\n- jti: gone\n')
  await revoked.closed()
  setBackMs = 0
  t.notOk(warnings.includes('TimeoutOverflowWarning'))
  const kept = await open('kept')
  const { credentials } = fileEditors(sidecar.credentialsFile)
  const name = { accountId: 'acme', accessKey: 'disabled' }
  const disabled = await open('disabled')
  credentials.update(name, { disabled: true })
  await disabled.closed()
  t.notOk(kept.socket.readableEnded, 'another tunnel stays open')
  const { directory, kid } = sidecar.key
  const { privateJwk } = await makeKey('ES256', 'next')
  writeKey(directory, privateJwk)
  rmSync(join(directory, `${kid}.jwk.json`)) // its key is removed
  await kept.closed()
  const reasons = () => sidecar.log.filter(({ status }) => status === 101).map(({ reason }) => String(reason))
  await eventually(
    () => reasons().join() === 'revoked,revoked,revoked,unknown_key',
    'the access log has the reasons',
  )
})

t.test('in report mode a tunnel outlives its token', async (t) => {
  const revocations = join(await temporaryDirectory(t), 'revocations.yaml')
  writeFileSync(revocations, 'revocations: []\n')
  const { upstream, sidecar, ask, head, authorization, send } = await startSetup(t, {
    settings: { ...ON, enforcement: 'report', 'revocations-file': revocations },
  })
  const expiring = await sidecar.mint({ lifetimeSeconds: 1 })
  const revoked = await sidecar.mint({ claims: { jti: 'gone' } })
  upstream.reply(SWITCHED)
  const open = async (token: string) => {
    const client = await send(handshake(token))
    await client.until('Sec-WebSocket-Accept')
    return client
  }
  const tunnels = [await open(expiring), await open(revoked), await open('not.a.token')]
  upstream.reply(OK)
  const wouldRefuse = (token: string, reason: string) =>
    eventually(async () => {
      await ask(head('GET /').replace(authorization, `Authorization: Bearer ${token}\r\n`))
      return sidecar.log.some((line) => line['wouldRefuse'] === reason)
    }, reason)
  await wouldRefuse(expiring, 'expired')
  writeFileSync(revocations, 'revocations:\n- jti: gone\n')
  await wouldRefuse(revoked, 'revoked')
  for (const [at, client] of tunnels.entries()) {
    client.send('still open')
    await upstream.until(() => upstream.bytes[at]?.includes('still open') ?? false, `tunnel ${at}`)
  }
})

/** Whether the kernel has a timer for an idle connection, by its local and its remote port. */
const hasKeepAlive = (local = 0, remote = 0) => {
  const hex = (port: number) => port.toString(16).toUpperCase().padStart(4, '0')
  const line = new RegExp(`:${hex(local)} \\w+:${hex(remote)} \\w+ \\w+:\\w+ 02:`)
  return line.test(readFileSync('/proc/net/tcp', 'latin1'))
}

t.test(
  'TCP keep-alive finds a vanished peer on both sides of a tunnel',
  { skip: process.platform !== 'linux' },
  async (t) => {
    const { upstream, sidecar, send } = await startSetup(t, { settings: ON })
    upstream.reply(SWITCHED)
    const client = await send(handshake(sidecar.token))
    await client.until('Sec-WebSocket-Accept')
    t.ok(hasKeepAlive(sidecar.port, client.socket.localPort))
    t.ok(hasKeepAlive(upstream.sockets[0]?.remotePort, upstream.port))
  },
)

t.test('trailers of a refused handshake pass', async (t) => {
  const { upstream, sidecar, send } = await startSetup(t, { settings: ON })
  upstream.reply(
    'HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nno\r\n0\r\nX-Sum: 1\r\nX-Authenticated-A: b\r\n\r\n',
  )
  const { headers, rawTrailers } = await (await send(handshake(sidecar.token))).response()
  t.equal(headers['trailer'], 'X-Sum')
  t.strictSame([...rawTrailers], ['X-Sum', '1'])
})

t.test('a client that disconnects during the handshake leaks nothing', async (t) => {
  const { ask, head, upstream, sidecar, send } = await startSetup(t, {
    settings: { ...ON, 'timeouts-upstream-response-seconds': '1' },
  })
  upstream.reply(() => {})
  for (const leave of ['end', 'resetAndDestroy'] as const) {
    const count = upstream.requests.length
    const client = await send(handshake(sidecar.token))
    await upstream.received(count + 1)
    client.socket[leave]()
    await upstream.until(() => upstream.open() === 0, `the far side to close after ${leave}`)
  }
  upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
  t.equal((await ask(head('GET /'))).status, 200)
})

t.test('a public route may be upgraded without a token, and no identity is forwarded', async (t) => {
  const settings = { ...ON, 'public-routes': '[{ method: GET, path: /chat//room }]' }
  const { upstream, send } = await startSetup(t, { settings })
  upstream.reply(SWITCHED)
  const client = await send(handshake('none'))
  await client.until('Sec-WebSocket-Accept')
  t.notMatch(upstream.requests[0]?.rawHeaders.join('\n'), /authenticated|authorization/i)
})

t.test('early WebSocket bytes wait for the 101 of the upstream and are all delivered', async (t) => {
  const { upstream, sidecar, send } = await startSetup(t, { settings: ON })
  let agree = () => {}
  upstream.reply((socket) => {
    agree = () => {
      socket.write(SWITCHED)
    }
  })
  const client = await send(handshake(sidecar.token))
  await upstream.received(1)
  const early = Buffer.alloc(300_000, 'x')
  client.send(early)
  await new Promise((resolve) => setTimeout(resolve, 50)) // the sidecar stops reading somewhere in between
  const head = upstream.bytes[0]?.length ?? 0
  t.equal(upstream.bytes[0]?.includes('xxxx'), false)
  agree()
  await upstream.until(() => (upstream.bytes[0]?.length ?? 0) === head + early.length, 'every early byte')
})

t.test('a refused handshake with a status line that Node cannot send is an upstream error', async (t) => {
  const { upstream, sidecar, ask } = await startSetup(t, { settings: ON })
  for (const status of ['000 x', '099 x', '403 a\x01b', '403 a\x7f']) {
    upstream.reply(`HTTP/1.1 ${status}\r\nContent-Length: 0\r\n\r\n`)
    t.equal((await ask(handshake(sidecar.token))).status, 500, JSON.stringify(status))
  }
})
