import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { limitedSetup, limitsFile } from '../support/limited-setup.ts'
import { isOwnResponse, unavailable } from '../support/own-response.ts'
import { prepareFiles, serve } from '../support/program.ts'
import { metricAt } from '../support/prometheus.ts'
import { rawClient, rawRequest } from '../support/raw-client.ts'
import { OK, recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'

const CHECKS = 'auth_sidecar_token_checks_total'
const QUEUE = 'auth_sidecar_upstream_queue{upstream="/"}'

/** The burst is two requests, and the next one comes after 1000 seconds. */
const TWO = '{ requestsPerSecond: 0.001, burst: 2 }'

t.test(
  'a request over the rate is refused with when to come back, and does not reach the upstream',
  async (t) => {
    const { ask, head, upstream, sidecar, limited, accessLines } = await limitedSetup(t, `default: ${TWO}`)
    t.equal((await ask(head('GET /a'))).status, 200)
    t.equal((await ask(`${head('PUT /a', 'Content-Length: 1')}x`)).status, 200)
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

t.test('a request to a path without an upstream spends nothing of the rate', async (t) => {
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, {
    settings: {
      upstreams: JSON.stringify([{ prefix: '/served', url: upstream.url }]),
      'fair-use-file': await limitsFile(t, 'default: { requestsPerSecond: 0.001, burst: 1, inFlight: 1 }'),
    },
  })
  const get = (path: string) =>
    rawRequest(
      t,
      sidecar.port,
      `GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`,
    )
  for (let sent = 0; sent < 3; sent++) {
    isOwnResponse(t, await get('/nowhere'), unavailable('destination_not_found'))
  }
  t.equal((await get('/served')).status, 200)
  t.equal((await get('/served')).status, 429)
  isOwnResponse(t, await get('/nowhere'), unavailable('destination_not_found'), 'of a limited account, too')
})

t.test('a request that finds the queue of its upstream full spends nothing of the rate', async (t) => {
  const { sidecar, upstream, ask, head, request, get } = await limitedSetup(
    t,
    'default: { requestsPerSecond: 0.001, burst: 4 }',
    { settings: { 'limits-upstream-connections': '1', 'limits-upstream-queue': '1' } },
  )
  const sockets: { write(text: string): unknown }[] = []
  upstream.reply((socket) => sockets.push(socket))
  const first = await request('GET /a')
  await upstream.received(1)
  const second = await request('GET /b')
  await eventually(async () => (await sidecar.metric(QUEUE)) === 1, 'a full queue')
  for (let sent = 0; sent < 5; sent++) {
    isOwnResponse(t, await ask(head('GET /c')), unavailable('connection_limit_reached'))
  }
  upstream.reply(OK)
  sockets[0]?.write(OK)
  t.equal((await first.response()).status, 200)
  t.equal((await second.response()).status, 200)
  t.strictSame([await get(), await get(), await get()], [200, 200, 429], 'the rest of the burst')
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

t.test('what a limited account owes is cut to the new burst', async (t) => {
  const { write, reloads, ask, head, get } = await limitedSetup(
    t,
    'default: { requestsPerSecond: 0.001, burst: 20 }',
  )
  for (let sent = 0; sent < 20; sent++) {
    await get()
  }
  write('default: { requestsPerSecond: 0.001, burst: 1 }')
  await eventually(async () => (await reloads('ok')) === 1, 'the new limit')
  const { status, headers } = await ask(head('GET /a'))
  t.equal(status, 429)
  t.match(headers['retry-after'], /^(1000|99\d)$/, 'the time of one request, not of twenty')
})

t.test('a link counts for the account that made it', async (t) => {
  const { ask, head, get } = await limitedSetup(t, `default: ${TWO}`, {
    settings: { 'links-enabled': 'true' },
  })
  const body = '{"method":"GET","target":"/a"}'
  const lines = ['Content-Type: application/json', `Content-Length: ${body.length}`]
  const made = await ask(head('POST /v2/auth/links', ...lines) + body)
  const { url }: { url: string } = JSON.parse(made.body.toString())
  const follow = async () => (await ask(`GET ${url} HTTP/1.1\r\nHost: storage.example\r\n\r\n`)).status
  t.strictSame([await follow(), await get(), await follow(), await get()], [200, 200, 429, 429])
})

t.test('a request with HTTP Basic counts, and its refusal is no challenge', async (t) => {
  const { sidecar, ask, get } = await limitedSetup(t, `default: ${TWO}`, {
    settings: { 'basic-enabled': 'true' },
  })
  const [login] = sidecar.logins
  const basic = Buffer.from(`${login?.accessKey}:${login?.secret}`).toString('base64')
  const request = `GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Basic ${basic}\r\n\r\n`
  t.strictSame([(await ask(request)).status, await get()], [200, 200])
  const refused = await ask(request)
  isOwnResponse(t, refused, {
    status: 429,
    code: 'TooManyRequests',
    error: 'http_request_denied',
    details: 'fair_use',
  })
  t.notOk(refused.headers['www-authenticate'])
})

t.test('a clock that steps neither ends nor prolongs a limit', async (t) => {
  let nowMs = Date.now()
  const { get, sidecar } = await limitedSetup(t, `default: ${TWO}`, { now: () => nowMs })
  t.strictSame([await get(), await get(), await get()], [200, 200, 429])
  for (const stepMs of [-3_600_000, 4_200_000]) {
    nowMs += stepMs
    const request = `GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${await sidecar.mint()}\r\n\r\n`
    const { status, headers } = await rawRequest(t, sidecar.port, request)
    t.equal(status, 429)
    t.match(headers['retry-after'], /^(1000|9\d\d)$/)
  }
})

t.test('an account with 1,000 connections has no more requests in flight than it may', async (t) => {
  const { sidecar, upstream, connect, head, limited } = await limitedSetup(t, 'default: { inFlight: 10 }', {
    credentials: [{ accountId: 'acme' }, { accountId: 'globex' }],
  })
  upstream.reply(() => {})
  const clients = await Promise.all(Array.from({ length: 1000 }, connect))
  for (const client of clients) {
    client.send(head('GET /loud'))
  }
  await eventually(async () => (await limited('in_flight')) === 990, 'all but ten to be refused')
  t.equal(upstream.requests.length, 10)
  const [, quiet] = sidecar.logins
  const token = await sidecar.mint({ claims: { sub: 'globex', client_id: quiet?.accessKey } })
  upstream.reply(OK)
  const other = `GET /quiet HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`
  t.equal((await rawRequest(t, sidecar.port, other)).status, 200)
})

for (const [enforcement, text] of [
  ['enforce', /^Accounts are over their limit of requests per second: 3 requests were refused in \d+ s$/],
  ['report', /^Accounts are over their limit of requests per second: 3 requests would be refused in \d+ s$/],
] as const) {
  t.test(`the headline of the status page names the limit, and no account (${enforcement})`, async (t) => {
    const { sidecar, get } = await limitedSetup(t, `default: ${TWO}`, {
      settings: { 'fair-use-enforcement': enforcement },
    })
    const status = async () => (await fetch(`http://127.0.0.1:${sidecar.adminPort}/status.json`)).json()
    await status()
    for (let sent = 0; sent < 5; sent++) {
      await get()
    }
    t.match(Object(await status()).problems, [{ severity: 'warning', text }])
    t.equal(Object(await status()).problems.length, 1)
  })
}

t.test('workers share each limit, and count together', async (t) => {
  const upstream = await recordingUpstream(t)
  const { files, token } = await prepareFiles(t)
  const sidecar = await serve(t, {
    ...files,
    'upstream-url': upstream.url,
    workers: '2',
    'fair-use-file': await limitsFile(t, 'default: { requestsPerSecond: 0.002, burst: 8 }'),
  })
  const get = `GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`
  // Round robin: the second connection is another worker's.
  const clients = [await rawClient(t, sidecar.port), await rawClient(t, sidecar.port)]
  for (const client of clients) {
    const statuses: number[] = []
    for (let sent = 0; sent < 5; sent++) {
      client.send(get)
      const { status, headers } = await client.response()
      statuses.push(status)
      if (status === 429) {
        t.match(headers, {
          'ratelimit-policy': '"requests";q=8;w=4000',
          'retry-after': /^(1000|99\d)$/,
        })
      }
    }
    t.strictSame(statuses, [200, 200, 200, 200, 429])
  }
  const limited = () => metricAt(sidecar.adminPort, 'auth_sidecar_fair_use_limited_total{limit="requests"}')
  await eventually(async () => (await limited()) === 2, 'the refusals of both workers')
})
