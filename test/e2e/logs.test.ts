import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { rawRequest as ask, type RawResponse, rawClient } from '../support/raw-client.ts'
import { OK, type Reply, recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'

/** A request, its header given as a list of lines. */
const request = (line: string, ...header: string[]) =>
  `${line} HTTP/1.1\r\n${['Host: a', ...header].join('\r\n')}\r\n\r\n`

/** A login, as its JSON. */
const login = (fields: object, target = '/v2/auth/token', ...header: string[]) => {
  const body = JSON.stringify(fields)
  return `${request(`POST ${target}`, `Content-Length: ${Buffer.byteLength(body)}`, ...header)}${body}`
}

const bearer = (token: string) => `Authorization: Bearer ${token}`

/** The lines of the access log. */
const accessLines = ({ log }: TestSidecar) => log.filter(({ msg }) => msg === 'request')

t.test('every refused login and token is logged, with the account if known', async (t) => {
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, {
    upstreamUrl: upstream.url,
    settings: { 'log-access': 'errors', 'limits-login-failures-count': '2' },
    credentials: [{ accountId: 'acme' }, { accountId: 'gone', disabled: true }],
  })
  const [good = { accountId: '', accessKey: '', secret: '' }, disabled] = sidecar.logins
  const { token } = sidecar
  const cases: readonly (readonly [
    request: string,
    status: number,
    reason: string,
    account?: string,
    proven?: 'proven',
  ])[] = [
    [request('GET /o'), 400, 'missing'],
    [request('GET /o', 'Authorization: Basic Zm9v'), 400, 'malformed'],
    [request('GET /o', bearer(token), bearer(token)), 400, 'malformed'],
    [
      request('GET /o', bearer(await sidecar.mint({ now: Date.now() - 7_200_000 }))),
      400,
      'expired',
      'acme',
      'proven',
    ],
    [request('GET /o', bearer(await sidecar.mint({ signature: 'A'.repeat(86) }))), 400, 'signature'],
    [request('GET /o', bearer(await sidecar.mint({ header: { kid: 'nobody' } }))), 400, 'unknown_key'],
    [request('GET /o', bearer(await sidecar.mint({ header: { alg: 'HS256' } }))), 400, 'algorithm'],
    [request('GET /o', bearer(await sidecar.mint({ claims: { iss: 'other' } }))), 400, 'claims'],
    [
      request('GET /o', bearer(await sidecar.mint({ claims: { client_id: 'other' } }))),
      400,
      'revoked',
      'acme',
      'proven',
    ],
    [request('GET /v2/auth/token', bearer(`${token}x`)), 400, 'malformed'],
    [request('HEAD /v2/auth/token'), 400, 'missing'],
    [request('PUT /v2/auth/token'), 405, 'method'],
    [login({ ...good, secret: 7 }), 400, 'invalid'],
    [login({ ...good, accountId: 'nobody' }), 403, 'rejected'],
    [login(disabled ?? {}), 403, 'rejected', 'gone'],
    [login({ ...good, secret: 'wrong' }), 403, 'rejected', 'acme'],
    [login({ ...good, secret: 'wrong' }), 403, 'rejected', 'acme'],
    [login(good), 503, 'throttled', 'acme'],
    [request('TRACE /o'), 400, 'admission'],
    ['rubbish\r\n\r\n', 400, 'parser'],
  ]
  for (const [text, status, reason, account, proven] of cases) {
    const response = await ask(t, sidecar.port, text, { head: text.startsWith('HEAD') })
    t.equal(response.status, status, reason)
    await eventually(
      () => accessLines(sidecar).some(({ requestId }) => requestId === response.headers['x-request-id']),
      `the line of ${reason}`,
    )
    const { time, ...line } = accessLines(sidecar).at(-1) ?? {}
    t.match(line, { status, reason, client: '127.0.0.1', requestId: /^[\w-]{36}$/ }, reason)
    t.ok(Math.abs(Date.parse(String(time)) - Date.now()) < 60_000, 'with its time')
    t.equal(line['account'], account, `${reason}: only an account that exists is named`)
    t.equal('tokenId' in line, proven !== undefined, `${reason}: only a token that was good names its id`)
  }
  t.match(accessLines(sidecar).slice(-2), [{ cause: 'method' }, { cause: /^HPE_/ }])
  const before = sidecar.log.length
  for (const status of [200, 404, 502]) {
    upstream.reply(`HTTP/1.1 ${status} \r\nContent-Length: 0\r\n\r\n`)
    t.equal((await ask(t, sidecar.port, request('GET /o', bearer(token)))).status, status)
  }
  await eventually(() => sidecar.log.length > before, 'the line of the 502')
  t.match(sidecar.log.slice(before), [{ status: 502 }], 'what succeeds or is not found has no line')
})

t.test('with log.access: all a successful request is logged with its account', async (t) => {
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url })
  const [good = {}] = sidecar.logins
  for (const text of [
    login(good, '/v2/auth/token', 'X-Request-Id: mine-1'),
    request('GET /v2/auth/token', bearer(sidecar.token)),
    request('GET /bucket/object', bearer(sidecar.token)),
  ]) {
    t.equal((await ask(t, sidecar.port, text)).status, 200)
  }
  await eventually(() => accessLines(sidecar).length === 3, 'three lines')
  const common = { status: 200, account: 'acme', tokenId: /^[\w-]{36}$/, client: '127.0.0.1', ms: Number }
  t.match(accessLines(sidecar), [
    { ...common, route: 'token_issue', method: 'POST', path: '/v2/auth/token', requestId: 'mine-1' },
    { ...common, route: 'token_check', method: 'GET' },
    { ...common, route: 'proxy', path: '/bucket/object', bytesIn: 0, bytesOut: 2 },
  ])
  t.notOk(accessLines(sidecar).some((line) => 'reason' in line))
})

t.test('with log.access: off no request is logged, not even a malformed one', async (t) => {
  const sidecar = await startSidecar(t, {
    upstreamUrl: 'http://127.0.0.1:9',
    settings: { 'log-access': 'off' },
  })
  await ask(t, sidecar.port, request('GET /o'))
  await ask(t, sidecar.port, 'rubbish\r\n\r\n')
  t.strictSame(accessLines(sidecar), [])
  t.equal(
    await sidecar.metric('auth_sidecar_requests_total{route="proxy",method="other",status="400"}'),
    1,
    'it is counted all the same',
  )
})

t.test('behind trusted proxies the log has the client, otherwise the peer', async (t) => {
  const header = ['X-Forwarded-For: 198.51.100.1, 192.0.2.7', 'X-Forwarded-For: 127.0.0.1']
  for (const [trust, client] of [
    ['127.0.0.0/8', '192.0.2.7'],
    ['10.0.0.0/8', '127.0.0.1'],
  ] as const) {
    const sidecar = await startSidecar(t, {
      upstreamUrl: 'http://127.0.0.1:9',
      settings: { 'forwarded-trust': trust },
    })
    await ask(t, sidecar.port, request('GET /o', ...header))
    await ask(t, sidecar.port, request('GET /o'))
    t.match(accessLines(sidecar), [{ client }, { client: '127.0.0.1' }], trust)
  }
})

t.test('client input can neither forge a log line nor make a long one', async (t) => {
  const upstream = await recordingUpstream(t)
  const accountId = 'acme\u2028{"level":60}\u202e'
  const sidecar = await startSidecar(t, {
    upstreamUrl: upstream.url,
    credentials: [{ accountId, accessKey: 'A'.repeat(1024) }],
  })
  const hostile = [
    request(`GET /${'p'.repeat(10_240)}`, bearer(sidecar.token)),
    request('GET /\xe2\x80\xa8\xc2\x85\x9b31m', bearer(sidecar.token)),
    request('GET /x', bearer(sidecar.token), `User-Agent: ${'\x1b[31m'.repeat(2000)}`),
    request('GET /x', bearer(sidecar.token), 'X-Request-Id: a\tb"}{"level":60'),
    request('GET /x', bearer(sidecar.token), `X-Request-Id: ${'x'.repeat(129)}`),
    request('GET /\x1b[2J', bearer(sidecar.token)),
    'GET /a\r{"level":60}\n HTTP/1.1\r\nHost: a\r\n\r\n',
    request('GET /x', bearer(await sidecar.mint({ header: { kid: '\r\n{"level":60}' } }))),
  ]
  for (const text of hostile) {
    const { headers } = await ask(t, sidecar.port, text)
    await eventually(
      () => accessLines(sidecar).some(({ requestId }) => requestId === headers['x-request-id']),
      'its line',
    )
  }
  t.equal(accessLines(sidecar).length, hostile.length, 'one line each')
  for (const line of sidecar.log) {
    const text = JSON.stringify(line)
    t.ok(text.length < 1000, 'short')
    // biome-ignore lint/complexity/useRegexLiterals: nothing of this kind is to stand in a source file either
    t.notMatch(text, new RegExp('[\\u0000-\\u001f\\u007f-\\u009f\\u2028-\\u202e]'))
    t.not(line['level'], 60)
  }
})

/** Not a response of the upstream, and none with a token. */
const isOwnRefusal = ({ status, headers }: Pick<RawResponse, 'status' | 'headers'>) =>
  status !== 200 && headers['content-type'] === 'application/json'

t.test('no secret appears in log, metrics or responses, for any invalid request', async (t) => {
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, {
    settings: {
      upstreams: JSON.stringify([
        { prefix: '/', url: upstream.url },
        { prefix: '/dead', url: 'http://127.0.0.1:1' },
        { prefix: '/unknown', url: 'http://does-not-exist.invalid' },
      ]),
      'timeouts-headers-seconds': '0.2',
      'timeouts-idle-seconds': '0.3',
      'public-routes': '[{ "method": "GET", "path": "/public" }]',
    },
  })
  const { token, logins } = sidecar
  const [good = { accountId: '', accessKey: '', secret: '' }] = logins
  const keyFile = readFileSync(join(sidecar.key.directory, `${sidecar.key.kid}.jwk.json`), 'utf8')
  const canaries = [
    ...token.split('.'),
    good.secret,
    String(JSON.parse(keyFile).d),
    'canary', // stands for whatever else should stay with the client
  ]
  const answers: string[] = []
  const forged = await sidecar.mint({ signature: 'canary' })
  const auth = bearer(token)
  const faults: Record<string, Reply> = {
    ok: OK,
    rubbish: 'SSH-2.0-canary\r\n\r\n',
    twice: 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\ncanary',
    close: (socket) => {
      socket.destroy()
    },
  }
  for (const reply of Object.values(faults)) {
    upstream.reply(reply)
    for (const text of [
      login(good, '/v2/auth/token?secret=canary'),
      login({ ...good, secret: 'canary' }),
      login({ ...good, accountId: 'canary' }),
      login({ ...good, accessKey: 'canary\n' }),
      `${request('POST /v2/auth/token', 'Content-Length: 30')}{"secret":"canary","secret":1}`,
      `${request('POST /v2/auth/token', 'Content-Length: 20')}canary canary canary`,
      request('GET /v2/auth/token?token=canary', auth),
      request('GET /v2/auth/token?token=canary', bearer(forged)),
      request('DELETE /v2/auth/token?canary', auth),
      request('GET /o?token=canary', auth, 'Cookie: token=canary'),
      request('GET /o', 'Authorization: Basic canary'),
      request('GET /o', 'Authorization: canary'),
      request('GET /o', bearer(forged)),
      request('GET /o', auth, auth),
      request('GET /o', auth, 'Authorization_: canary'),
      request('GET /dead/o?canary', auth),
      request('GET /unknown/o?canary', auth),
      request('GET /public?canary', auth),
      request('GET http://canary:canary@a/o', auth),
      request('GET /o#canary', auth),
      request('TRACE /o?canary', auth),
      request('CONNECT canary:443', auth),
      request('GET /o', auth, 'Upgrade: canary', 'Connection: Upgrade'),
      request('GET /o', auth, 'Transfer-Encoding: canary'),
      request('GET /o', auth, `Canary: ${'canary'.repeat(4000)}`),
      request('GET /o', auth, 'bad header canary'),
      `GET /o?canary HTTP/1.1\r\nHost: a\r\n${auth}\r\nX: canary`,
      `${request('PUT /o', auth, 'Content-Length: 100')}canary`,
      'canary\r\n\r\n',
    ]) {
      const client = await rawClient(t, sidecar.port)
      client.send(text)
      const response = await client.response().catch(() => undefined)
      client.socket.destroy()
      if (response !== undefined && isOwnRefusal(response)) {
        answers.push(`${response.rawHeaders.join('\n')}\n${response.body}`)
      }
    }
  }
  for (const page of ['/metrics', '/readyz', '/livez', '/.well-known/jwks.json', '/canary?']) {
    const { rawHeaders, body } = await ask(t, sidecar.adminPort, request(`GET ${page}`, auth))
    answers.push(`${rawHeaders.join('\n')}\n${body}`)
  }
  t.ok(answers.length > 80)
  t.ok(sidecar.log.length > 80, 'and logged')
  const everything = answers.join('\n') + JSON.stringify(sidecar.log)
  for (const canary of canaries) {
    t.notOk(everything.includes(canary), 'a secret stays a secret')
  }
  for (const text of answers) {
    t.notMatch(text, /^ +at |\.ts:\d|^(?:server|via|x-powered-by)$|127\.0\.0\.1|node_modules/im)
  }
})
