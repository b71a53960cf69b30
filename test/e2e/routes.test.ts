import t, { type Test } from 'tap'
import { isOwnResponse } from '../support/own-response.ts'
import { rawClient } from '../support/raw-client.ts'
import type { RecordedRequest } from '../support/recording-upstream.ts'
import { type SetupOptions, startSetup } from '../support/setup.ts'

/**
 * Targets that look like the token endpoint, the admin listener or nothing at all:
 * objects, every one of them.
 */
const STORAGE_TARGETS = [
  '/v2/auth/toke',
  '/v2/auth/tokenx',
  '/v2/auth/token.',
  '/v2/auth/token/x',
  '/v2/auth/token//',
  '/v2/auth/token/.',
  '/v2/auth/token/..;/x',
  '/v2/auth/token/../../b/k',
  '/v2/auth/token/..',
  '/v2/auth/token/%2e%2e/%2e%2e/b/k',
  '/v2/auth/token;x=1',
  '/v2/auth/token;',
  '/v2/auth/token%00',
  '/v2/auth/token%20',
  '/v2/auth/token%2f',
  '/v2/auth/token%252f',
  '/v2/auth/token%3f',
  '/v2/auth/token%3fx=1',
  '/v2/auth/token%0d%0a',
  '/v2/auth/token\\',
  '/v2/auth\\token',
  '/v2/auth/%74oken',
  '/v2/auth/toke%6e',
  '/v2%2fauth%2ftoken',
  '/v2%252fauth/token',
  '/v2//auth/token',
  '//v2/auth/token',
  '///v2/auth/token',
  '/v2/./auth/token',
  '/./v2/auth/token',
  '/x/../v2/auth/token',
  '/x/%2e%2e/v2/auth/token',
  '/x/..%2fv2/auth/token',
  '/V2/auth/token',
  '/v2/Auth/Token',
  '/v2/auth/TOKEN',
  '/v2/auth',
  '/v2/auth/',
  '/v2',
  '/auth/token',
  '/api/v2/auth/token',
  '/http://evil.example/',
  '/v3/auth/token',
  '/b/k?/v2/auth/token',
  '/b/k?x=/healthz',
  '/b/k?x=1?/v2/auth/token',
  '/?/v2/auth/token',
  '/b/k?',
  '/',
  '//',
  '//evil.example/v2/auth/token',
  '/metrics',
  '/metrics/',
  '/%6detrics',
  '/debug',
  '/admin',
  '/healthz',
  '/livez',
  '/readyz',
  '/status.json',
  '/.well-known/jwks.json',
  '/b//c///d',
  '/b/c/../d/./e',
  '/b/%2e%2e%2f%2E%2E/%c0%ae%c0%ae/x',
  '/b/a+b',
  '/b/100%',
  '/b/%zz%',
  '/b/{}|^`"<>',
  "/b/!$&'()*+,;=:@~-._",
  '/b/[::1]',
  '/b/k?a=1&a=2&b&=&;x',
  '/b/k?%20+%2B',
  `/b/${'x'.repeat(8000)}`,
]

t.test('every path except the exact token path is a storage path and needs a token', async (t) => {
  const setup = await startSetup(t)
  for (const target of STORAGE_TARGETS) {
    const name = target.slice(0, 60)
    for (const method of ['GET', 'POST']) {
      const denied = await setup.ask(`${method} ${target} HTTP/1.1\r\nHost: h\r\n\r\n`)
      isOwnResponse(t, denied, { status: 400, code: 'InvalidToken', details: 'missing' }, `${method} ${name}`)
    }
  }
  await setup.upstreamSaw(t, 0)
})

t.test('storage targets reach the upstream byte for byte', async (t) => {
  const setup = await startSetup(t)
  const client = await setup.connect()
  for (const target of STORAGE_TARGETS) {
    client.send(setup.head(`GET ${target}`))
    t.equal((await client.response()).status, 200)
    t.equal(setup.upstream.requests.at(-1)?.target, target, target.slice(0, 60))
  }
  await setup.upstreamSaw(t, STORAGE_TARGETS.length)
})

t.test('the token endpoint is matched by its raw path, with any query', async (t) => {
  const setup = await startSetup(t)
  for (const path of ['/v2/auth/token', '/v2/auth/token/']) {
    for (const query of ['', '?', '?x=1', '?/b/k', '?../..', '?a?b', '?%00', '?accountId=acme&secret=x']) {
      const left = await setup.ask(`GET ${path}${query} HTTP/1.1\r\nHost: h\r\n${setup.authorization}\r\n`)
      isOwnResponse(t, left, { status: 200 }, path + query)
      t.match(left.body.toString(), /^{"expirationSec":\d+}$/)
    }
  }
  await setup.upstreamSaw(t, 0)
})

t.test('a base path moves the token endpoint; forwarded targets keep it', async (t) => {
  const setup = await startSetup(t, { settings: { 'listen-base-path': '/storage/api' } })
  const get = (target: string) => setup.ask(setup.head(`GET ${target}`))
  t.match((await get('/storage/api/v2/auth/token')).body.toString(), 'expirationSec')
  t.match((await get('/storage/api/v2/auth/token/?x')).body.toString(), 'expirationSec')
  await setup.upstreamSaw(t, 0)
  const others = [
    '/v2/auth/token',
    '/storage/v2/auth/token',
    '/Storage/api/v2/auth/token',
    '/storage/api//v2/auth/token',
    '/storage/api/b/k',
  ]
  for (const target of others) {
    t.equal((await get(target)).body.toString(), 'ok', target)
  }
  t.same(
    setup.upstream.requests.map(({ target }) => target),
    others,
  )
  await setup.upstreamSaw(t, others.length)
})

t.test('a target that is not a plain path is refused, with or without a token', async (t) => {
  const setup = await startSetup(t)
  for (const request of [
    'GET /b/k#/v2/auth/token',
    'GET /v2/auth/token#',
    'GET /b/k?x#y',
    'GET #',
    'GET *',
    'OPTIONS *',
    'GET ?x',
    'GET b/k',
    'GET \\b',
    'GET %2fb',
    'GET h/',
    'GET http//h/x',
    'GET http:h/x',
    'GET http:/b/k',
    'GET http://',
    'GET http:///b/k',
    'GET http://evil/x',
    'GET http://h@evil/x',
    'GET http://u@h/x',
    'GET http://u:p@h/x',
    'GET http://h:80/x',
    'GET http://h:/x',
    'GET http://h;x',
    'GET http://h%2f',
    'GET http://h#x',
    'GET http://h.evil/x',
    'GET http://hevil/x',
    'GET http://[::1/x',
    'GET http://[::1]/x',
    'GET http://h:99999/x',
    'GET http://h\\@evil/x',
    'GET //h#x',
    'GET ftp://h/x',
    'GET ws://h/x',
    'GET file:///etc/passwd',
    'GET javascript:alert(1)',
    'GET h:80',
    'CONNECT h:80',
    'CONNECT /b/k',
    'CONNECT /v2/auth/token',
    'TRACE /b/k',
    'TRACE /v2/auth/token',
    'GET /b/\x00k',
    'GET /b/\x01k',
    'GET /b/\tk',
    'GET /b/\x1fk',
    'GET /b/\x7fk',
    'GET /b/k HTTP/1.1 x',
    'GET /b/ k',
    ' GET /b/k',
    'GET',
    'get /b/k',
    'Get /b/k',
    'TRACK /b/k',
    'FOO /b/k',
    'GET\t/b/k',
    `${'G'.repeat(1024)} /b/k`,
    'G\xcaT /b/k',
    'GET@ /b/k',
  ]) {
    for (const authorization of ['', setup.authorization]) {
      const answer = await setup.ask(`${request} HTTP/1.1\r\nHost: h\r\n${authorization}\r\n`)
      isOwnResponse(t, answer, { status: 400, code: 'InvalidArgument' }, JSON.stringify(request.slice(0, 60)))
    }
  }
  await setup.upstreamSaw(t, 0)
})

t.test('an absolute target with the same host is forwarded in origin form', async (t) => {
  const setup = await startSetup(t)
  for (const [target, host, arrives] of [
    ['http://h/b//k?x', 'h', '/b//k?x'],
    ['HTTP://h/b', 'h', '/b'],
    ['https://h/b', 'h', '/b'],
    ['http://H/b', 'h', '/b'],
    ['http://h', 'h', '/'],
    ['http://h?x', 'h', '/?x'],
    ['http://h:8080/b', 'h:8080', '/b'],
    ['http://[2001:DB8::1]:80/b', '[2001:db8::1]:80', '/b'],
    ['http://h/http://evil.example/', 'h', '/http://evil.example/'],
    ['http://h//v2/auth/token', 'h', '//v2/auth/token'],
  ] as const) {
    const response = await setup.ask(`GET ${target} HTTP/1.1\r\nHost: ${host}\r\n${setup.authorization}\r\n`)
    t.equal(response.status, 200, target)
    t.equal(setup.upstream.requests[0]?.target, arrives)
    t.equal(setup.upstream.requests[0]?.headers['host'], host)
    await setup.upstreamSaw(t, 1)
  }
  const left = await setup.ask(`GET http://h/v2/auth/token HTTP/1.1\r\nHost: h\r\n${setup.authorization}\r\n`)
  isOwnResponse(t, left, { status: 200 }, 'the token endpoint, too')
  const nameless = await setup.ask(`GET http://h/b HTTP/1.0\r\n${setup.authorization}\r\n`)
  isOwnResponse(t, nameless, { status: 400, code: 'InvalidArgument' }, 'without a Host to equal')
  await setup.upstreamSaw(t, 0)
})

t.test('every HTTP method is forwarded with a token and refused without one', async (t) => {
  const setup = await startSetup(t)
  const methods = 'PROPFIND MKCOL COPY MOVE REPORT PATCH OPTIONS LINK SEARCH PURGE'.split(' ')
  for (const method of methods) {
    const denied = await setup.ask(`${method} /b/k HTTP/1.1\r\nHost: h\r\n\r\n`)
    isOwnResponse(t, denied, { status: 400, code: 'InvalidToken' }, method)
    const response = await setup.ask(setup.head(`${method} /b/k`))
    t.equal(response.status, 200, method)
    t.equal(setup.upstream.requests[0]?.method, method)
    await setup.upstreamSaw(t, 1)
  }
  t.equal(
    (await setup.sidecar.metric('auth_sidecar_requests_total{route="proxy",method="other",status="200"}')) >
      0,
    true,
    'their names are no label',
  )
})

t.test('a non-ASCII byte in a target is forwarded unchanged or refused', async (t) => {
  const setup = await startSetup(t)
  for (const bytes of ['\xc3\xa9', '\xe9', '\xff', '\x80']) {
    const response = await setup.ask(setup.head(`GET /b/${bytes}`))
    const forwarded = response.status === 200
    if (forwarded) {
      t.equal(setup.upstream.requests[0]?.target, `/b/${bytes}`)
    } else {
      isOwnResponse(t, response, { status: 400, code: 'InvalidArgument' }, JSON.stringify(bytes))
    }
    await setup.upstreamSaw(t, forwarded ? 1 : 0)
  }
})

/**
 * A sidecar,
 * and a function that sends it a request, lines unchanged, and returns response and forwarded request.
 */
async function asking(t: Test, settings: SetupOptions['settings'] = {}) {
  const { upstream, sidecar, recovers } = await startSetup(t, { settings })
  const client = await rawClient(t, sidecar.port)
  const ask = async (methodAndTarget: string, ...lines: readonly string[]) => {
    const before = upstream.requests.length
    client.send([`${methodAndTarget} HTTP/1.1`, 'Host: storage.example', ...lines, '', ''].join('\r\n'))
    const response = await client.response({ head: methodAndTarget.startsWith('HEAD') })
    return { response, forwarded: upstream.requests[before] }
  }
  return { sidecar, ask, recovers, bearer: `Authorization: Bearer ${sidecar.token}` }
}

/** Names of headers that carry an identity. */
function speaksFor(request: RecordedRequest | undefined): string[] {
  return Object.keys(request?.headers ?? {}).filter(
    (name) => name === 'authorization' || /^x[-_.]authenticated/.test(name),
  )
}

const IDENTITY = ['account-id', 'access-key', 'token-id', 'token-expires'].map(
  (name) => `x-authenticated-${name}`,
)

t.test('a public route is forwarded with any token and without an identity', async (t) => {
  const { sidecar, ask, recovers, bearer } = await asking(t, {
    'public-routes': JSON.stringify([
      { method: 'GET', path: '/healthz' },
      { method: 'OPTIONS', path: '/b' },
    ]),
  })
  for (const [what, lines] of [
    ['no token', []],
    ['a good token', [bearer]],
    ['an expired token', [`Authorization: Bearer ${await sidecar.mint({ lifetimeSeconds: -10 })}`]],
    ['a forged token', ['Authorization: Bearer a.b.c']],
    ['another scheme', ['Authorization: Basic YTpi']],
    ['identity headers', ['X-Authenticated-Account-Id: root', 'x_authenticated.token_id: 1']],
  ] as const) {
    await t.test(`with ${what}`, async (t) => {
      const { response, forwarded } = await ask('GET /healthz?full=1', ...lines)
      t.equal(response.status, 200)
      t.equal(forwarded?.target, '/healthz?full=1')
      t.same(speaksFor(forwarded), [])
    })
  }
  t.equal(await sidecar.metric('auth_sidecar_requests_total{route="public",method="GET",status="200"}'), 6)
  t.equal(await sidecar.metric('auth_sidecar_token_checks_total{result="accepted",reason="ok"}'), 0)

  await t.test('similar paths are not public', async (t) => {
    // The last one ends the connection: the parser does not know it.
    const requests =
      'HEAD /healthz, POST /healthz, OPTIONS /healthz, GET /b, GET /healthz/, GET //healthz, GET /Healthz, GET /healthz/x, ' +
      'GET /health%7a, GET /x/../healthz, GET /healthz/.., GET /healthz;a=b, GET /x?/healthz, get /healthz'
    for (const request of requests.split(', ')) {
      const { response, forwarded } = await ask(request, 'User-Agent: kube-probe/1.30')
      t.equal(response.status, 400, request)
      t.equal(forwarded, undefined, request)
    }
  })
  await recovers()
})

t.test('a public route never forwards Authorization, whatever else would', async (t) => {
  const publicRoutes = '[{ method: GET, path: /healthz }]'
  for (const enforcement of ['enforce', 'report']) {
    const settings = { 'public-routes': publicRoutes, 'identity-forward-authorization': 'true', enforcement }
    const { ask, bearer } = await asking(t, settings)
    t.same(speaksFor((await ask('GET /healthz', bearer)).forwarded), [])
    const ofOther = speaksFor((await ask('GET /other', bearer)).forwarded)
    t.same(ofOther.sort(), ['authorization', ...IDENTITY].sort())
  }
})

t.test('a public route or a preflight that names another method or path needs a token', async (t) => {
  const { ask, bearer, recovers } = await asking(t, {
    'public-routes': '[{ method: GET, path: /healthz }]',
    'cors-preflight': 'pass',
  })
  const preflight = ['Origin: https://app.example', 'Access-Control-Request-Method: PUT']
  const names = ['X-HTTP-Method-Override: DELETE', 'x_method.override: DELETE', 'Destination: /b']
  for (const line of [...names, 'X-Amz-Copy-Source: /b']) {
    for (const [request, ...lines] of [['GET /healthz'], ['OPTIONS /object', ...preflight]] as const) {
      const { response, forwarded } = await ask(request, ...lines, line)
      t.same([response.status, forwarded], [400, undefined], `${request} ${line}`)
      const { forwarded: proven } = await ask(request, ...lines, line, bearer)
      t.same(speaksFor(proven).sort(), [...IDENTITY].sort(), `${request} ${line} with a token`)
    }
  }
  await recovers()
})

t.test('no trailer of a public route names another method or path', async (t) => {
  const setup = await startSetup(t, { settings: { 'public-routes': '[{ method: POST, path: /hook }]' } })
  const trailers = 'X-Sum: 1\r\nX-HTTP-Method-Override: DELETE\r\nDestination: /b\r\n'
  for (const path of ['/hook', '/object']) {
    const head = setup.head(`POST ${path}`, 'Transfer-Encoding: chunked')
    t.equal((await setup.ask(`${head}0\r\n${trailers}\r\n`)).status, 200)
  }
  const [hook, object] = setup.upstream.requests
  t.same(hook?.rawTrailers, ['X-Sum', '1'])
  t.equal(object?.rawTrailers.length, 6, 'with a token')
})

t.test('a CORS preflight', async (t) => {
  const preflight = ['Origin: https://app.example', 'Access-Control-Request-Method: PUT']

  await t.test('needs a token by default', async (t) => {
    const { ask, bearer } = await asking(t)
    t.equal((await ask('OPTIONS /object', ...preflight)).response.status, 400)
    t.equal((await ask('OPTIONS /object', ...preflight, bearer)).response.status, 200)
  })

  await t.test('is forwarded without a token and identity with corsPreflight: pass', async (t) => {
    const { ask, bearer, recovers } = await asking(t, { 'cors-preflight': 'pass' })
    for (const lines of [[], [bearer], ['X-Authenticated-Account-Id: root']]) {
      const { response, forwarded } = await ask('OPTIONS /object', ...preflight, ...lines)
      t.equal(response.status, 200)
      t.same(speaksFor(forwarded), [])
      t.equal(forwarded?.headers['origin'], 'https://app.example')
    }
    for (const [request, ...lines] of [
      ['OPTIONS /object', 'Origin: https://app.example'],
      ['OPTIONS /object', 'Access-Control-Request-Method: PUT'],
      ['PUT /object', ...preflight, 'Content-Length: 0'],
      ['GET /object', ...preflight],
    ] as const) {
      t.equal((await ask(request, ...lines)).response.status, 400, [request, ...lines].join(', '))
    }
    await recovers()
  })

  await t.test('needs a token if it has a body', async (t) => {
    const setup = await startSetup(t, { settings: { 'cors-preflight': 'pass' } })
    const head = setup.head('OPTIONS /object', ...preflight, 'X-HTTP-Method-Override: DELETE')
    for (const framing of ['Content-Length: 1\r\n\r\n1', 'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n']) {
      const withBody = head.replace(setup.authorization, '').replace(/\r\n$/, framing)
      t.equal((await setup.ask(withBody)).status, 400, framing)
    }
    await setup.upstreamSaw(t, 0)
  })

  await t.test('of the token endpoint is served by the token endpoint', async (t) => {
    const { ask } = await asking(t, { 'cors-preflight': 'pass' })
    const { response, forwarded } = await ask('OPTIONS /v2/auth/token', ...preflight)
    t.equal(response.status, 405)
    t.equal(forwarded, undefined)
  })
})
