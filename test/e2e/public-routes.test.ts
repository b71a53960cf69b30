import t, { type Test } from 'tap'
import { rawClient } from '../support/raw-client.ts'
import type { RecordedRequest } from '../support/recording-upstream.ts'
import { type SetupOptions, startSetup } from '../support/setup.ts'

/** A sidecar, and a function that sends it a request, lines unchanged, and returns response and forwarded request. */
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

const IDENTITY = [
  'x-authenticated-account-id',
  'x-authenticated-access-key',
  'x-authenticated-token-id',
  'x-authenticated-token-expires',
]

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

t.test('a public route never forwards Authorization, even with identity.forwardAuthorization', async (t) => {
  const { ask, bearer } = await asking(t, {
    'public-routes': '[{ method: GET, path: /healthz }]',
    'identity-forward-authorization': 'true',
  })
  t.same(speaksFor((await ask('GET /healthz', bearer)).forwarded), [])
  t.same(speaksFor((await ask('GET /other', bearer)).forwarded).sort(), ['authorization', ...IDENTITY].sort())
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
