import t from 'tap'
import { ERRORS } from '../../src/errors.ts'
import { createDecide, type Undecided } from '../../src/gate/decide.ts'
import { createRoutes } from '../../src/gate/routes.ts'
import { REJECT_REASONS, type Verdict, type Verify } from '../../src/token/verdict.ts'

const identity = { accountId: 'acme', accessKey: 'AK', tokenId: 'id', expiresAt: 2_000_000_000 }
const passed: Verdict = { ok: true, identity }

/** A request by its request line and header lines; `unanswered`: how many there are on its connection, with it. */
function request(
  line: string,
  lines: readonly string[] = [],
  { unanswered = 1, httpVersion = '1.1' as '1.0' | '1.1' } = {},
): Undecided {
  const [method = '', url = ''] = line.split(' ')
  const rawHeaders = ['Host: h', ...lines].flatMap((text) => text.split(': '))
  return {
    req: { method, url, httpVersion, rawHeaders, isRemembered: false },
    connection: {
      lastAdmitted: { rawHeaders: [], fields: undefined },
      unanswered,
    },
  }
}

/** A gate for which every token is good, or what `verify` says. */
function gate(verify: Verify = () => passed, { upgrade = true } = {}) {
  const counted: string[] = []
  const decide = createDecide({
    limits: { headerLines: 20, headerBytes: 1000 },
    upgrade,
    routeOf: createRoutes({
      basePath: '',
      publicRoutes: [{ method: 'GET', path: '/healthz' }],
      corsPreflight: 'deny',
    }),
    verify,
    onCheck: (reason) => counted.push(reason),
  })
  return { decide, counted }
}

const BEARER = 'Authorization: Bearer t'
const HANDSHAKE = ['Connection: Upgrade', 'Upgrade: WebSocket']

t.test('what is forwarded stands on a public route, as nobody, or has proven its token', async (t) => {
  const { decide, counted } = gate()
  t.match(decide(request('PUT /b/k', [BEARER])), { act: 'forward', route: 'proxy', identity })
  t.match(decide(request('GET /healthz', [BEARER])), {
    act: 'forward',
    route: 'public',
    identity: undefined,
  })
  t.same(counted, ['ok'], 'whatever token comes on a public route, nobody looks at it')
})

t.test('the token endpoint answers on its own paths', async (t) => {
  const { decide, counted } = gate()
  t.match(decide(request('POST /v2/auth/token')), { act: 'issue', route: 'token_issue' })
  t.match(decide(request('PUT /v2/auth/token')), { act: 'refuse_method', route: 'token_check' })
  t.same(counted, [], 'without a look at any token')
  t.match(decide(request('GET /v2/auth/token/', [BEARER])), {
    act: 'tell',
    route: 'token_check',
    identity,
  })
})

t.test('no token is passed but a good one, and only an expired one is called so', async (t) => {
  for (const reason of REJECT_REASONS) {
    const { decide, counted } = gate(() => ({ ok: false, reason }))
    const error = reason === 'expired' ? ERRORS.expiredToken : ERRORS.invalidToken
    t.match(decide(request('GET /b', [BEARER])), { act: 'refuse', reason, error, route: 'proxy' })
    t.match(decide(request('GET /v2/auth/token', [BEARER])), { act: 'refuse', reason, route: 'token_check' })
    t.same(counted, [reason, reason])
  }
})

t.test('what is ambiguous is refused before it is routed', async (t) => {
  const { decide, counted } = gate()
  for (const line of ['GET /b', 'GET /healthz', 'POST /v2/auth/token']) {
    t.match(decide(request(line, ['Host: other', BEARER])), {
      act: 'refuse',
      reason: 'admission',
      error: ERRORS.malformedRequest,
      admitted: undefined,
    })
  }
  t.same(counted, [])
  t.match(decide(request('GET /healthz', [BEARER, BEARER])), {
    act: 'refuse',
    reason: 'malformed',
    error: ERRORS.invalidToken,
    admitted: undefined,
  })
  t.same(counted, ['malformed'], 'a second token is a token check that failed')
})

t.test('only a plain WebSocket handshake leaves HTTP, and only to the storage', async (t) => {
  const { decide, counted } = gate()
  const handshake = (line: string, lines: readonly string[] = HANDSHAKE, how = {}) =>
    decide(request(line, [BEARER, ...lines], how))
  t.match(handshake('GET /b'), { act: 'forward', route: 'proxy', identity })
  t.match(handshake('GET /b', ['Upgrade: websocket', 'Connection: keep-alive, upgrade']), { act: 'forward' })
  t.match(handshake('GET /b', [...HANDSHAKE, 'Content-Length: 0']), { act: 'forward' })
  t.match(handshake('GET /healthz'), { act: 'forward', route: 'public' })
  counted.length = 0
  for (const [what, refused] of [
    ['behind another request', handshake('GET /b', HANDSHAKE, { unanswered: 2 })],
    ['where nothing is said of it', handshake('GET /b', ['Upgrade: websocket'])],
    ['where something else is', handshake('GET /b', ['Upgrade: websocket', 'Connection: keep-alive'])],
    ['in HTTP/1.0', handshake('GET /b', HANDSHAKE, { httpVersion: '1.0' })],
    ['to the token endpoint', handshake('GET /v2/auth/token')],
    ['to the token endpoint, for a token', handshake('POST /v2/auth/token')],
    ['to the token endpoint, otherwise', handshake('PUT /v2/auth/token')],
    ['with another method', handshake('PUT /b')],
    ['to another protocol', handshake('GET /b', ['Connection: Upgrade', 'Upgrade: h2c'])],
    ['to no protocol', handshake('GET /b', ['Connection: Upgrade', 'Upgrade: '])],
    ['to a list of protocols', handshake('GET /b', ['Connection: Upgrade', 'Upgrade: websocket, h2c'])],
    ['to two protocols', handshake('GET /b', [...HANDSHAKE, 'Upgrade: h2c'])],
    ['to the same twice', handshake('GET /b', [...HANDSHAKE, 'Upgrade: websocket'])],
    ['with a body', handshake('GET /b', [...HANDSHAKE, 'Content-Length: 5'])],
    ['with chunks', handshake('GET /b', [...HANDSHAKE, 'Transfer-Encoding: chunked'])],
  ] as const) {
    t.match(refused, { act: 'refuse', reason: 'upgrade', error: ERRORS.upgradeRefused, route: 'proxy' }, what)
  }
  t.same(counted, [], 'before its token is looked at')
})

t.test('nothing leaves HTTP where that is switched off', async (t) => {
  const { decide, counted } = gate(undefined, { upgrade: false })
  for (const line of ['GET /b', 'GET /healthz'])
    t.match(decide(request(line, [BEARER, ...HANDSHAKE])), { act: 'refuse', reason: 'upgrade' })
  t.match(
    decide(request('GET /b', [BEARER, 'Connection: Upgrade'])),
    { act: 'forward' },
    'this is no handshake',
  )
  t.same(counted, ['ok'])
})

t.test('a connection remembers of a request only what may be remembered of it', async (t) => {
  const { decide } = gate(() => passed)
  for (const isRemembered of [true, false]) {
    const { req, connection } = request('GET /b', [BEARER])
    decide({ req: { ...req, isRemembered }, connection })
    t.equal(connection.lastAdmitted.fields?.authorization, isRemembered ? 'Bearer t' : undefined)
    t.equal(connection.lastAdmitted.rawHeaders === req.rawHeaders, isRemembered)
  }
})

t.test('a token that is not remembered is waited for, and decided the same way', async (t) => {
  const late = gate(async () => passed).decide(request('GET /b', [BEARER]))
  if (late.act !== 'wait') throw new Error('nothing was waited for')
  t.match(late, { route: 'proxy', admitted: { path: '/b' } }, 'whose request it is is known meanwhile')
  t.match(await late.decision, { act: 'forward', route: 'proxy', identity })
  const failing = gate(() => {
    throw new Error('no entropy')
  }).decide(request('GET /v2/auth/token', [BEARER]))
  if (failing.act !== 'wait') throw new Error('a fault was taken for a decision')
  await t.rejects(failing.decision, { message: 'no entropy' })
})
