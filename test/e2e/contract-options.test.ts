/**
 * Settings that change the sidecar's own responses:
 * `contract.refusedTokenStatus`, `cors.allowedOrigins`, `enforcement`.
 */
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { startSetup } from '../support/setup.ts'

t.test('a refused token is a 401 with a challenge if configured', async (t) => {
  const { ask, authorization, head, sidecar, upstream } = await startSetup(t, {
    settings: { 'contract-refused-token-status': '401' },
  })
  const expired = await sidecar.mint({ now: Date.now() - 7_200_000 })
  for (const [line, code, challenge] of [
    ['', 'InvalidToken', 'Bearer realm="storage"'],
    ['Authorization: Basic Zm9vOmJhcg==\r\n', 'InvalidToken', 'Bearer realm="storage"'],
    ['Authorization: Bearer\r\n', 'InvalidToken', 'Bearer realm="storage"'],
    ['Authorization: Bearer x.y.z\r\n', 'InvalidToken', 'Bearer realm="storage", error="invalid_token"'],
    [`${authorization}${authorization}`, 'InvalidToken', 'Bearer realm="storage", error="invalid_token"'],
    [`Authorization: Bearer ${expired}\r\n`, 'ExpiredToken', 'Bearer realm="storage", error="invalid_token"'],
  ] as const) {
    for (const target of ['GET /o', 'GET /v2/auth/token']) {
      const response = await ask(head(target).replace(authorization, line))
      isOwnResponse(t, response, { status: 401, code }, `${target} ${code}`)
      t.equal(response.headers['www-authenticate'], challenge)
    }
  }
  const ambiguous = await ask(head('GET /o', 'Host: x'))
  isOwnResponse(t, ambiguous, { status: 400, code: 'InvalidArgument' }, 'admission')
  t.equal(upstream.requests.length, 0)
})

const PREFLIGHT = [
  'Access-Control-Request-Method: POST',
  'Access-Control-Request-Headers: authorization, content-type',
]

t.test("scripts of an allowed origin may read the sidecar's own responses", async (t) => {
  const { ask, authorization, head, upstream } = await startSetup(t, {
    settings: { 'cors-allowed-origins': '["https://app.example", "http://localhost:3000"]' },
  })
  const EXPOSED = {
    'access-control-expose-headers': 'X-Request-Id, Proxy-Status, Retry-After',
    vary: 'Origin',
  }
  for (const origin of ['https://app.example', 'http://localhost:3000']) {
    for (const [text, status] of [
      [head('GET /v2/auth/token', `Origin: ${origin}`), 200],
      [head('GET /o', `Origin: ${origin}`).replace(authorization, ''), 400],
      [`${head('POST /v2/auth/token', `Origin: ${origin}`, 'Content-Length: 2')}{}`, 400],
      [head('PUT /v2/auth/token', `Origin: ${origin}`), 405],
      [head('GET /o', `Origin: ${origin}`, `X: ${'x'.repeat(30_000)}`), 431],
      [head('GET /o', `origin:${origin}`, 'bad header : x'), 400],
    ] as const) {
      const { headers, ...response } = await ask(text)
      t.equal(response.status, status)
      t.match(headers, { ...EXPOSED, 'access-control-allow-origin': origin })
    }
  }
  for (const origin of [
    'https://evil.example',
    'https://app.example.evil.example',
    'null',
    'HTTPS://APP.EXAMPLE',
  ]) {
    const { headers } = await ask(head('GET /v2/auth/token', `Origin: ${origin}`))
    t.equal(headers['access-control-allow-origin'], undefined, origin)
  }
  upstream.reply(
    'HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: https://other.example\r\nContent-Length: 0\r\n\r\n',
  )
  const { headers } = await ask(head('GET /o', 'Origin: https://app.example'))
  t.equal(headers['access-control-allow-origin'], 'https://other.example', 'responses of the upstream pass')
})

t.test('preflights of the token endpoint are allowed for configured origins only', async (t) => {
  for (const [setting, allowed] of [
    ['["https://app.example"]', 'https://app.example'],
    ['["*"]', '*'],
  ] as const) {
    const { ask, authorization, head, upstream } = await startSetup(t, {
      settings: { 'cors-allowed-origins': setting },
    })
    const preflight = (target: string, origin: string) =>
      ask(head(`OPTIONS ${target}`, `Origin: ${origin}`, ...PREFLIGHT).replace(authorization, ''))
    for (const target of ['/v2/auth/token', '/v2/auth/token/']) {
      const { status, headers, body } = await preflight(target, 'https://app.example')
      t.equal(status, 204)
      t.equal(body.length, 0)
      t.match(headers, {
        'access-control-allow-origin': allowed,
        'access-control-allow-methods': 'GET, HEAD, POST',
        'access-control-allow-headers': 'authorization, content-type',
        'access-control-max-age': '600',
        'content-length': undefined,
      })
    }
    const other = await preflight('/v2/auth/token', 'https://evil.example')
    t.equal(other.status, allowed === '*' ? 204 : 405)
    isOwnResponse(t, await preflight('/o', 'https://app.example'), { status: 400, code: 'InvalidToken' })
    t.equal(upstream.requests.length, 0, 'preflights of storage paths follow corsPreflight')
  }
})

const REPORT = { enforcement: 'report' }

t.test('report mode forwards a refused token unchanged and without identity', async (t) => {
  const { ask, authorization, head, sidecar, upstream } = await startSetup(t, { settings: REPORT })
  const expired = await sidecar.mint({ now: Date.now() - 7_200_000 })
  const [header, payload] = sidecar.token.split('.')
  for (const [line, reason] of [
    ['', 'missing'],
    ['Authorization: Basic Zm9vOmJhcg==', 'malformed'],
    ['Authorization: Bearer not.a.token', 'malformed'],
    [`Authorization: Bearer ${expired}`, 'expired'],
    [`Authorization: Bearer ${header}.${payload}.${'A'.repeat(86)}`, 'signature'],
  ] as const) {
    const spoofed = ['X-Authenticated-Account-Id: victim', 'x_authenticated_token_id: victim']
    const text = head('PUT /o', 'Content-Length: 4', ...spoofed).replace(
      authorization,
      line === '' ? '' : `${line}\r\n`,
    )
    const before = sidecar.log.length
    const response = await ask(`${text}body`)
    t.equal(response.status, 200, reason)
    const [request] = upstream.requests.splice(0)
    t.equal(request?.body.toString(), 'body')
    t.equal(request?.headers['authorization'], line === '' ? undefined : line.slice(15), reason)
    t.notMatch(request?.rawHeaders.join(), /authenticated|victim/i, reason)
    await eventually(() => sidecar.log.length > before, 'its line')
    t.match(sidecar.log.at(-1), { msg: 'request', status: 200, wouldRefuse: reason })
    const provesAccount = reason === 'expired'
    t.equal('account' in (sidecar.log.at(-1) ?? {}), provesAccount, reason)
    const counted = `auth_sidecar_token_checks_total{result="rejected",reason="${reason}"}`
    t.ok((await sidecar.metric(counted)) >= 1, reason)
  }
  t.equal(await sidecar.metric('auth_sidecar_enforcing'), 0)
  t.ok(
    sidecar.log.some(({ level, msg }) => level === 40 && /report/i.test(String(msg))),
    'a warning at the start',
  )
})

t.test('report mode forwards a valid request with its identity and without its token', async (t) => {
  const { ask, head, upstream, sidecar } = await startSetup(t, { settings: REPORT })
  t.equal((await ask(head('GET /o'))).status, 200)
  t.match(upstream.requests[0]?.headers, {
    'x-authenticated-account-id': 'acme',
    authorization: undefined,
  })
  await eventually(() => sidecar.log.some(({ msg }) => msg === 'request'), 'its line')
  t.notOk('wouldRefuse' in (sidecar.log.at(-1) ?? {}))
})

t.test('report mode changes neither admission nor the token endpoint', async (t) => {
  const { ask, authorization, head, sidecar, upstream } = await startSetup(t, { settings: REPORT })
  const invalid = { status: 400, code: 'InvalidArgument' }
  isOwnResponse(t, await ask(head('GET /o', 'Host: other')), invalid, 'two hosts')
  isOwnResponse(t, await ask(head('GET /o', 'Transfer_Encoding: chunked')), invalid, 'a look-alike')
  const two = await ask(head('GET /o', authorization.trimEnd()))
  isOwnResponse(t, two, { status: 400, code: 'InvalidToken' }, 'two Authorization headers have two readings')
  const noToken = head('GET /v2/auth/token').replace(authorization, '')
  isOwnResponse(t, await ask(noToken), { status: 400, code: 'InvalidToken', details: 'missing' })
  const login = (secret: string) => {
    const body = JSON.stringify({ ...sidecar.logins[0], secret })
    return ask(`POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  }
  isOwnResponse(t, await login('wrong'), { status: 403, code: 'Authentication failed' })
  isOwnResponse(t, await login(sidecar.logins[0]?.secret ?? ''), { status: 200 })
  t.equal(upstream.requests.length, 0)
})
