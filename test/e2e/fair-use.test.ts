import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { WebSocket } from 'ws'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { rawClient, rawRequest } from '../support/raw-client.ts'
import { bodyReply, OK } from '../support/recording-upstream.ts'
import { type SetupOptions, startSetup } from '../support/setup.ts'
import { startSidecar } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { echoServer } from '../support/websocket.ts'

const KIB = 1024
const LIMITED = 'auth_sidecar_fair_use_limited_total'
const CHECKS = 'auth_sidecar_token_checks_total'

/** A sidecar with limits, in front of an upstream. */
async function limitedSetup(t: Test, limits: string, options: SetupOptions = {}) {
  const file = join(await temporaryDirectory(t), 'fair-use.yaml')
  writeFileSync(file, limits)
  const setup = await startSetup(t, { ...options, settings: { 'fair-use-file': file, ...options.settings } })
  const { sidecar } = setup
  return {
    ...setup,
    /** Replaces the limits. */
    write: (text: string) => writeFileSync(file, text),
    /** The status of a request of the first account. */
    get: async (path = '/a') => (await setup.ask(setup.head(`GET ${path}`))).status,
    /** How many requests were limited. */
    limited: (limit: string) => sidecar.metric(`${LIMITED}{limit="${limit}"}`),
    accessLines: () => sidecar.log.filter(({ msg }) => msg === 'request'),
    reloads: (result: string) =>
      sidecar.metric(`auth_sidecar_reloads_total{subject="fair_use",result="${result}"}`),
  }
}

/** The burst is two requests, and the next one comes after 1000 seconds. */
const TWO = '{ requestsPerSecond: 0.001, burst: 2 }'

t.test(
  'a request over the rate is refused with when to come back, and does not reach the upstream',
  async (t) => {
    const { ask, head, upstream, sidecar, limited, accessLines } = await limitedSetup(t, `default: ${TWO}`)
    t.equal((await ask(head('GET /a'))).status, 200)
    t.equal((await ask(head('PUT /a', 'Content-Length: 1') + 'x')).status, 200)
    const refused = await ask(head('GET /a'))
    isOwnResponse(t, refused, {
      status: 429,
      code: 'TooManyRequests',
      error: 'http_request_denied',
      details: 'fair_use',
    })
    t.match(refused.headers, {
      'retry-after': /^(1000|99\d)$/,
      'ratelimit-policy': '"requests";q=2;w=2000',
      ratelimit: /^"requests";r=0;t=(1000|99\d)$/,
    })
    t.equal(upstream.requests.length, 2)
    t.equal(await limited('requests'), 1)
    t.equal(await sidecar.metric(`${CHECKS}{result="rejected",reason="fair_use"}`), 1)
    t.equal(await sidecar.metric(`${CHECKS}{result="accepted",reason="ok"}`), 2)
    await eventually(() => accessLines().length === 3, 'the access lines')
    t.match(accessLines()[2], { status: 429, reason: 'fair_use', account: 'acme' })
  },
)

t.test('the status of a refused request may be 503, which S3 clients retry', async (t) => {
  const { ask, head } = await limitedSetup(t, 'default: { requestsPerSecond: 0.01, burst: 1 }', {
    settings: { 'fair-use-refused-status': '503' },
  })
  await ask(head('GET /a'))
  const refused = await ask(head('GET /a'))
  isOwnResponse(t, refused, {
    status: 503,
    code: 'TooManyRequests',
    error: 'http_request_denied',
    details: 'fair_use',
  })
  t.match(refused.headers['retry-after'], /^(100|9\d)$/)
})

t.test(
  'an account over its limit takes nothing from another, and single values of the default are replaced',
  async (t) => {
    const limits = `default: ${TWO}\naccounts: { globex: { burst: 3 }, initech: { requestsPerSecond: 0 } }`
    const accounts = ['acme', 'globex', 'initech', 'umbrella']
    const { sidecar } = await limitedSetup(t, limits, {
      credentials: accounts.map((accountId) => ({ accountId })),
    })
    const passed: Record<string, number> = {}
    for (const { accountId, accessKey } of sidecar.logins) {
      const token = await sidecar.mint({ claims: { sub: accountId, client_id: accessKey } })
      const request = `GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`
      const statuses = []
      for (let sent = 0; sent < 5; sent++) {
        statuses.push((await rawRequest(t, sidecar.port, request)).status)
      }
      passed[accountId] = statuses.filter((status) => status === 200).length
    }
    t.strictSame(passed, { acme: 2, globex: 3, initech: 5, umbrella: 2 })
  },
)

t.test('only requests that would be forwarded for a proven caller count', async (t) => {
  const { sidecar, get, ask, head, limited } = await limitedSetup(
    t,
    'default: { requestsPerSecond: 0.001, burst: 1 }',
    {
      settings: { 'public-routes': '[{ method: GET, path: /healthz }]' },
    },
  )
  const client = sidecarClient(sidecar)
  const [login] = sidecar.logins
  const expired = await sidecar.mint({ now: Date.now() - 7_200_000 })
  for (let sent = 0; sent < 3; sent++) {
    t.type(login && (await client.login(login)), 'string', 'a login')
    t.equal((await ask(head('GET /v2/auth/token'))).status, 200, 'the time left')
    t.equal((await ask('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n')).status, 200, 'a public route')
    t.equal((await ask(`GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${expired}\r\n\r\n`)).status, 400)
    t.equal((await ask(head('TRACE /a'))).status, 400, 'a request that is not admitted')
  }
  t.equal(await get(), 200)
  t.equal(await get(), 429)
  t.equal(await limited('requests'), 1)
})

t.test('requests in flight are limited, and what is refused spends nothing of the rate', async (t) => {
  const limits = 'default: { requestsPerSecond: 0.001, burst: 3, inFlight: 1 }'
  const { upstream, request, ask, head, get, limited } = await limitedSetup(t, limits)
  const sockets: { write(text: string): unknown }[] = []
  upstream.reply((socket) => sockets.push(socket))
  const first = await request('GET /slow')
  await upstream.received(1)
  for (let sent = 0; sent < 5; sent++) {
    const refused = await ask(head('GET /a'))
    t.match(
      [refused.status, refused.headers['retry-after'], refused.headers['ratelimit']],
      [429, '1', '"in-flight";r=0'],
    )
    t.equal(
      refused.headers['ratelimit-policy'],
      '"requests";q=3;w=3000, "in-flight";q=1;qu="concurrent-requests"',
    )
  }
  sockets[0]?.write(OK)
  t.equal((await first.response()).status, 200)
  upstream.reply(OK)
  t.strictSame([await get(), await get(), await get()], [200, 200, 429], 'the rest of the burst')
  t.strictSame([await limited('in_flight'), await limited('requests')], [5, 1])
})

t.test('a request is in flight until its end, whoever ends it', async (t) => {
  const { upstream, request, get } = await limitedSetup(t, 'default: { inFlight: 1 }')
  const ends = async (what: string) => eventually(async () => (await get()) === 200, `${what} to be over`)
  upstream.reply((socket, { target }) => {
    if (target === '/a') {
      socket.write(OK)
    } else if (target === '/reset') {
      socket.resetAndDestroy()
    }
  })
  const left = await request('GET /held')
  await upstream.received(1)
  t.equal(await get(), 429)
  left.socket.destroy()
  await ends('a request whose client left')
  t.equal((await (await request('PUT /reset', ['Content-Length: 1'], 'x')).response()).status, 503)
  await ends('a request whose upstream failed')
  const half = await request('PUT /half', ['Content-Length: 9'], 'x')
  await upstream.until(() => upstream.bytes.some((bytes) => bytes.includes('/half')), 'a part of the upload')
  t.equal(await get(), 429)
  half.socket.resetAndDestroy()
  await ends('an upload that was reset')
})

t.test('report mode counts and logs what it would limit, and limits nothing', async (t) => {
  const { get, limited, accessLines, sidecar } = await limitedSetup(t, `default: ${TWO}`, {
    settings: { 'fair-use-enforcement': 'report', 'log-access': 'errors' },
  })
  for (let sent = 0; sent < 4; sent++) {
    t.equal(await get(), 200)
  }
  t.equal(await limited('requests'), 2)
  t.equal(await sidecar.metric(`${CHECKS}{result="accepted",reason="ok"}`), 4)
  await eventually(() => accessLines().length === 2, 'the access lines')
  for (const line of accessLines()) {
    t.match(line, { status: 200, wouldLimit: 'requests', account: 'acme' })
  }
})

t.test('report mode of the token check lets requests pass that do not count', async (t) => {
  const { sidecar, upstream, limited } = await limitedSetup(t, `default: ${TWO}`, {
    settings: { enforcement: 'report' },
  })
  const token = await sidecar.mint({ now: Date.now() - 7_200_000 })
  for (let sent = 0; sent < 4; sent++) {
    const request = `GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`
    t.equal((await rawRequest(t, sidecar.port, request)).status, 200)
  }
  t.equal(upstream.requests.length, 4)
  t.equal(await limited('requests'), 0)
})

t.test('forward auth limits requests, and its refusals vary with the token', async (t) => {
  const { ask, head, upstream } = await limitedSetup(t, 'default: { requestsPerSecond: 0.001, burst: 1 }', {
    settings: { 'forward-auth-path': '/_auth' },
  })
  t.equal((await ask(head('GET /_auth'))).status, 200)
  t.match(await ask(head('GET /_auth')), { status: 429, headers: { vary: 'Authorization' } })
  t.equal(upstream.requests.length, 0)
})

t.test('changed limits hold within a second, also for an account that is limited now', async (t) => {
  const { write, get, reloads, sidecar } = await limitedSetup(
    t,
    'default: { requestsPerSecond: 0.001, burst: 1 }',
  )
  t.strictSame([await get(), await get()], [200, 429])
  write('default: { requestsPerSecond: 1000 }')
  await eventually(async () => (await get()) === 200, 'the new limit')
  t.equal(await reloads('ok'), 1)
  write('default: { requestsPerSecond: -1, bust: 1 }')
  await eventually(async () => (await reloads('failed')) === 1, 'the bad file to be refused')
  const line = sidecar.log.find(({ msg }) => String(msg).startsWith('new version rejected'))
  t.match(line, {
    subject: 'fair_use',
    problems: [/fair-use\.yaml:1:\d+: default\.requestsPerSecond must be /, /bust/],
  })
  t.equal(await get(), 200, 'the last good file stays')
  write('accounts: { acme: { requestsPerSecond: 0.001, burst: 1 } }')
  await eventually(async () => (await get()) === 429, 'a limit of its own')
})

t.test('an account of the file that has no credentials is a warning', async (t) => {
  const limits = 'accounts: { acme: { inFlight: 9 }, acmee: { inFlight: 9 } }'
  const { sidecar } = await limitedSetup(t, limits)
  const warnings = sidecar.log.filter(({ level, msg }) => level === 40 && /fair-use/.test(String(msg)))
  t.match(warnings, [{ msg: /limits the account acmee, which has no credentials/ }])
  t.equal(warnings.length, 1)
})

t.test('a file with problems keeps the sidecar from starting', async (t) => {
  await t.rejects(limitedSetup(t, 'default: { requestsPerSecond: 0.000001 }'), {
    message: /fairUse\.file: .*fair-use\.yaml:1:31: default\.requestsPerSecond must be 0/,
  })
})

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
    const { upstream, ask, head, sidecar } = await limitedSetup(
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
    t.ok((await sidecar.metric('auth_sidecar_fair_use_paced_seconds_total{direction="out"}')) > 0.5)
  })
}

t.test('a download to an HTTP/1.0 client, and one until the close, is paced and arrives whole', async (t) => {
  const { upstream, sidecar, exchange, authorization } = await limitedSetup(
    t,
    `default: { downloadBytesPerSecond: ${BYTES_PER_SECOND} }`,
  )
  upstream.reply((socket) => socket.end(`HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n${BODY}`))
  for (const version of ['1.0', '1.1']) {
    const received = await exchange(`GET /a HTTP/${version}\r\nHost: a\r\n${authorization}\r\n`)
    t.equal(received.split('\r\n\r\n')[1]?.length, BODY.length, version)
  }
  t.ok((await sidecar.metric('auth_sidecar_fair_use_paced_seconds_total{direction="out"}')) > 1)
})

for (const [name, line, body] of [
  ['with a length', `Content-Length: ${BODY.length}`, BODY],
  ['in chunks', 'Transfer-Encoding: chunked', `${BODY.length.toString(16)}\r\n${BODY}\r\n0\r\n\r\n`],
] as const) {
  t.test(`an upload ${name} is paced, arrives whole and is not idle`, async (t) => {
    const { upstream, send, head, sidecar } = await limitedSetup(
      t,
      `default: { uploadBytesPerSecond: ${BYTES_PER_SECOND} }`,
      {
        settings: { 'timeouts-idle-seconds': '0.2' },
      },
    )
    const ms = await timed(async () => {
      const client = await send(head('PUT /a', line))
      client.send(body)
      t.equal((await client.response()).status, 200)
    })
    t.ok(upstream.requests[0]?.body.equals(BODY))
    t.ok(ms >= LEAST_MS, `${ms} ms`)
    t.ok((await sidecar.metric('auth_sidecar_fair_use_paced_seconds_total{direction="in"}')) > 0.5)
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

t.test('a tunnel is in flight until it is closed, and its bytes are paced in both directions', async (t) => {
  const rate = 200 * KIB
  const limits = `default: { inFlight: 1, uploadBytesPerSecond: ${rate}, downloadBytesPerSecond: ${rate} }`
  const { port } = await echoServer(t)
  const directory = await temporaryDirectory(t)
  const file = join(directory, 'fair-use.yaml')
  writeFileSync(file, limits)
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
