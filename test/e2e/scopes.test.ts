/** Scopes over sockets. What each method, path and header needs: test/token/scopes.test.ts. */
import { decodeJwt } from 'jose'
import t, { type Test } from 'tap'
import { fileEditors } from '../../src/credentials/editor.ts'
import { eventually, SOON_MS } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { type Setup, startSetup } from '../support/setup.ts'
import { sidecarClient } from '../support/sidecar-client.ts'
import { HANDSHAKE } from '../support/websocket.ts'

const SCOPE = 'storage.read:/a storage.create:/a/in'
const RESTRICTED = { credentials: [{ accountId: 'acme', scope: SCOPE }] }
const DENIED = { status: 403, code: 'AccessDenied', error: 'http_request_denied', details: 'scope' }
const NAME = { accountId: 'acme', accessKey: 'AK0' }

/** Posts a login with more members; the status and the members of the body. */
async function logIn({ sidecar }: Pick<Setup, 'sidecar'>, more: object): Promise<Record<string, unknown>> {
  const response = await fetch(`http://127.0.0.1:${sidecar.port}/v2/auth/token`, {
    method: 'POST',
    body: JSON.stringify({ ...sidecar.logins[0], ...more }),
    headers: { 'content-type': 'application/json' },
  })
  const body: unknown = await response.json()
  return { status: response.status, ...(body instanceof Object && body) }
}

t.test(
  'a request outside the scope is refused, and one inside reaches the upstream with its scope',
  async (t) => {
    const setup = await startSetup(t, RESTRICTED)
    const { ask, head, sidecar, upstream } = setup
    for (const [line, lines] of [
      ['GET /b', []],
      ['GET /a/../b', []],
      ['DELETE /a/x', []],
      ['PUT /a/in/x', ['If-None-Match: *', 'Connection: if-none-match']],
      ['COPY /a/x', ['Destination: http://storage.example/b/y', 'Overwrite: F']],
      ['GET /a/x', ['X_HTTP_Method_Override: DELETE']],
    ] as const) {
      isOwnResponse(t, await ask(head(line, ...lines)), DENIED, line)
    }
    t.same(upstream.requests, [])
    await eventually(() => sidecar.log.at(-1)?.['msg'] === 'request', 'its line')
    t.match(sidecar.log.at(-1), { status: 403, reason: 'scope', account: 'acme', tokenId: /^[\w-]{36}$/ })
    t.equal(await sidecar.metric('auth_sidecar_token_checks_total{result="rejected",reason="scope"}'), 6)
    t.equal((await ask(head('HEAD /a/in/x'), { head: true })).status, 200)
    for (const [line, lines] of [
      ['GET /a/x?prefix=/b', []],
      ['PUT /a/in/x', ['If-None-Match: *']],
      ['COPY /a/x', ['Destination: http://storage.example/a/in/y', 'Overwrite: F']],
    ] as const) {
      t.equal((await ask(head(line, ...lines, 'X-Authenticated-Scope: storage.modify:/'))).status, 200, line)
      t.same(upstream.requests.at(-1)?.headers['x-authenticated-scope'], SCOPE)
    }
    const chunked = await setup.request(
      'PUT /a/in/x',
      ['If-None-Match: *', 'Transfer-Encoding: chunked'],
      '0\r\nX-Sum: 1\r\nOverwrite: T\r\nX-HTTP-Method: DELETE\r\n\r\n',
    )
    t.equal((await chunked.response()).status, 200)
    t.same(
      upstream.requests.at(-1)?.rawTrailers,
      ['X-Sum', '1'],
      'no trailer that the head would be judged by',
    )
    t.equal((await ask(head('GET /v2/auth/token'))).status, 200, 'the time left needs no scope')
  },
)

t.test('an unrestricted caller has no scope header, and uses what restricted ones may not', async (t) => {
  const { ask, head, upstream } = await startSetup(t)
  for (const line of ['GET /a/../b', 'GET /%zz', 'COPY /a', 'GET /a//b']) {
    t.equal((await ask(head(line, 'X-HTTP-Method-Override: DELETE', 'X_Copy_From: /b'))).status, 200, line)
  }
  t.notMatch(upstream.requests.at(-1)?.rawHeaders.join(), /scope/i)
  t.match(upstream.requests.at(-1)?.headers, { 'x-http-method-override': 'DELETE', x_copy_from: '/b' })
})

t.test('a login asks for what its credential covers, and its token carries it', async (t) => {
  const setup = await startSetup(t, RESTRICTED)
  const claim = ({ token }: Record<string, unknown>) => decodeJwt(String(token))['scope']
  t.equal(claim(await logIn(setup, {})), SCOPE, 'without a wish: that of the credential')
  for (const scope of ['storage.read:/a/b', 'storage.read:/a storage.read:/a', SCOPE]) {
    t.equal(claim(await logIn(setup, { scope })), scope)
  }
  for (const scope of [
    'storage.read:/',
    'storage.modify:/a/in',
    'storage.read:/a/b storage.read:/ab',
    '',
    'read:/a',
    `storage.read:/a/${'x'.repeat(1024)}`,
    'storage.read:/a/%2e%2e/b',
    null,
    5,
    [],
  ]) {
    const name = JSON.stringify(scope).slice(0, 40)
    const answer = await logIn(setup, { scope })
    t.match(answer, { status: 400, code: 'InvalidArgument', message: /^scope / }, name)
    if (typeof scope === 'string') {
      t.match(
        await logIn(setup, { scope, secret: 'x' }),
        { status: 403, message: 'Authentication failed.' },
        name,
      )
    }
  }
  const long = await startSetup(t, {
    credentials: [{ accountId: '密'.repeat(1024), accessKey: '密'.repeat(680) }],
  })
  t.match(await logIn(long, {}), { status: 200 })
  t.match(await logIn(long, { scope: `storage.read:/${'x'.repeat(900)}` }), {
    status: 400,
    message: /^scope is too long/,
  })
  const free = await startSetup(t)
  t.equal(claim(await logIn(free, {})), undefined)
  t.equal(claim(await logIn(free, { scope: 'storage.read:/b' })), 'storage.read:/b')
  for (const scope of ['', 'read:/', 7, null, 'storage.read:/..']) {
    const token = await free.sidecar.mint({ claims: { scope } })
    const refused = await free.ask(free.head('GET /b').replace(/Bearer .*/, `Bearer ${token}`))
    t.match(refused, { status: 400, headers: { 'proxy-status': /"claims"/ } }, 'a claim that cannot be read')
  }
})

/** Sends requests from several clients until stopped; counts statuses by target. */
function load({ sidecar, ask, head }: Setup, token: string, targets: readonly string[]) {
  const seen = new Map(targets.map((target) => [target, { status: 0, rounds: 0 }]))
  let going = true
  const clients = [...seen].map(async ([target, latest]) => {
    const text = head(`GET ${target}`).replace(/Bearer .*/, `Bearer ${token}`)
    while (going) {
      latest.status = (await ask(text)).status
      latest.rounds++
    }
  })
  /** Waits until each client has sent another request and received its response. */
  const goOn = async () => {
    for (const latest of seen.values()) {
      latest.rounds = 0
    }
    await eventually(() => [...seen.values()].every(({ rounds }) => rounds > 1), 'requests')
  }
  const latest = () => [...seen.values()].map(({ status }) => status).join()
  const shows = (...statuses: number[]) =>
    eventually(
      () => latest() === statuses.join(),
      () => `${statuses}, not ${latest()}`,
      SOON_MS,
    )
  const stop = async () => {
    going = false
    await Promise.all(clients)
  }
  return { shows, goOn, stop, records: fileEditors(sidecar.credentialsFile).credentials }
}

t.test('a change of the scope holds for cached tokens within a second, under load', async (t) => {
  const setup = await startSetup(t)
  const { sidecar, upstream } = setup
  const { shows, goOn, stop, records } = load(setup, sidecar.token, ['/a', '/b'])
  const stored = await records.list()
  const [credential] = stored.ok ? stored.value : []
  for (const [change, ...statuses] of [
    [() => records.update(NAME, { scope: 'storage.read:/a' }), 200, 403],
    [() => records.update(NAME, { scope: 'storage.read:/b' }), 403, 200],
    [() => records.update(NAME, { scope: 'storage.read:/a storage.read:/b' }), 200, 200],
    [() => records.update(NAME, { disabled: true }), 400, 400],
    [() => records.update(NAME, { disabled: false }), 200, 200],
    [() => records.remove(NAME), 400, 400],
    [
      () => records.add({ ...NAME, secretHash: String(credential?.secretHash), scope: 'storage.read:/b' }),
      403,
      200,
    ],
    [() => records.update(NAME, { scope: null }), 200, 200],
  ] as const) {
    t.match(await change(), { ok: true })
    await shows(...statuses)
    upstream.requests.length = 0
    await goOn()
    const targets = new Set(upstream.requests.map(({ target }) => target))
    t.same(
      [...targets].sort(),
      ['/a', '/b'].filter((_, at) => statuses[at] === 200),
    )
  }
  await stop()
})

t.test('a token of a wider time is as narrow as token and credential are together', async (t) => {
  const setup = await startSetup(t, { ...RESTRICTED, settings: { 'identity-assertion-enabled': 'true' } })
  const { ask, head, sidecar, upstream } = setup
  const { token } = await logIn(setup, { scope: 'storage.read:/a/b' })
  const get = async (path: string) =>
    (await ask(head(`GET ${path}`).replace(/Bearer .*/, `Bearer ${token}`))).status
  t.same([await get('/a/b'), await get('/a/c')], [200, 403])
  t.match(await fileEditors(sidecar.credentialsFile).credentials.update(NAME, { scope: 'storage.read:/' }), {
    ok: true,
  })
  await eventually(async () => (await ask(head('GET /c'))).status === 200, 'the wider scope')
  t.same([await get('/a/b'), await get('/a/c')], [200, 403], 'a narrow token stays narrow')
  const { headers } = upstream.requests.at(-1) ?? {}
  t.equal(headers?.['x-authenticated-scope'], 'storage.read:/a/b')
  t.equal(decodeJwt(String(headers?.['x-authenticated-assertion']))['scope'], 'storage.read:/a/b')
})

t.test('report mode forwards what a scope does not allow, with identity', async (t) => {
  const { ask, head, sidecar, upstream } = await startSetup(t, {
    ...RESTRICTED,
    settings: { enforcement: 'report', 'forward-auth-path': '/_auth' },
  })
  t.equal((await ask(head('DELETE /b'))).status, 200)
  const { headers } = upstream.requests[0] ?? {}
  t.match(headers, {
    'x-authenticated-scope': SCOPE,
    'x-authenticated-account-id': 'acme',
    authorization: undefined,
  })
  await eventually(() => sidecar.log.at(-1)?.['msg'] === 'request', 'its line')
  t.match(sidecar.log.at(-1), { status: 200, wouldRefuse: 'scope', account: 'acme' })
  t.match(await ask(head('GET /_auth')), { status: 200, headers: { 'x-authenticated-scope': SCOPE } })
  const nothing = `Authorization: Bearer ${await sidecar.mint({ claims: { scope: 'storage.read:/z' } })}\r\n`
  t.equal((await ask(head('GET /z').replace(/Authorization.*\r\n/, nothing))).status, 200)
  t.notMatch(upstream.requests.at(-1)?.rawHeaders.join(), /x-authenticated/i, 'a scope that is empty')
})

t.test('forward auth judges the request that a trusted proxy names, once and in one form', async (t) => {
  const settings = { 'forward-auth-path': '/_auth', 'forward-auth-max-age-seconds': '60' }
  const { ask, head } = await startSetup(t, {
    ...RESTRICTED,
    settings: { ...settings, 'forwarded-trust': '127.0.0.1' },
  })
  const forwarded = (method: string, uri: string) => [
    `X-Forwarded-Method: ${method}`,
    `X-Forwarded-Uri: ${uri}`,
  ]
  const original = (method: string, uri: string) => [`X-Original-Method: ${method}`, `X-Original-URI: ${uri}`]
  const copy = ['Destination: http://storage.example/a/in/x', 'Overwrite: F']
  for (const [allowed, ...lines] of [
    [true, ...forwarded('GET', '/a?x=1')],
    [true, ...original('PUT', '/a/in/x'), 'If-None-Match: *'],
    [true, ...forwarded('GET', '/a'), ...original('GET', '/a')],
    [true, ...forwarded('COPY', '/a'), ...copy],
    [true, ...forwarded('COPY', '/a'), 'X-Forwarded-Host: h', 'Destination: http://h/a/in/x', 'Overwrite: F'],
    [false, ...forwarded('COPY', '/a'), 'X-Forwarded-Host: h', ...copy],
    [false, ...forwarded('MOVE', '/a/in/y'), ...copy],
    [false, ...forwarded('GET', '/a'), 'X-Amz-Copy-Source: b/x'],
    [false, ...forwarded('GET', '/b')],
    [false, ...forwarded('GET', '/a/%2e%2e/b')],
    [false, ...forwarded('get', '/a')],
    [false, ...forwarded('GET', '/a'), 'X-Amz-Copy-Source: b/x', 'Connection: x-amz-copy-source'],
    [false, ...forwarded('GET', '/a'), ...original('GET', '/a/b')],
    [false, ...forwarded('GET', '/a'), 'X-Original-URI: /a'],
    [false, ...forwarded('GET', '/a'), 'X-Original-Method: DELETE'],
    [false, ...forwarded('GET', '/a'), ...forwarded('GET', '/a')],
    [false, ...forwarded('GET', 'http://storage.example/a')],
    [false, ...forwarded('GET', '/a#b')],
    [false, 'X-Forwarded-Method: GET'],
    [false, 'X-Forwarded-Uri: /a'],
    [false],
  ] as const) {
    const response = await ask(head('GET /_auth/a', ...lines))
    if (!allowed) {
      isOwnResponse(t, response, DENIED, lines.join())
    } else {
      t.match(response, { status: 200, headers: { 'x-authenticated-scope': SCOPE } }, lines.join())
    }
    t.match(response.headers, { 'cache-control': 'no-store', 'x-accel-expires': undefined })
  }
  const credentials = [{ accountId: 'acme', scope: 'storage.modify:/a' }]
  const writer = await startSetup(t, {
    credentials,
    settings: { ...settings, 'forwarded-trust': '127.0.0.1' },
  })
  for (const method of ['', 'get', 'GET, GET']) {
    isOwnResponse(t, await writer.ask(writer.head('GET /_auth', ...forwarded(method, '/a'))), DENIED, method)
  }
  const untrusted = await startSetup(t, { ...RESTRICTED, settings })
  isOwnResponse(t, await untrusted.ask(untrusted.head('GET /_auth', ...forwarded('GET', '/a'))), DENIED)
})

t.test('a WebSocket handshake is a GET, and its tunnel ends with the scope', async (t: Test) => {
  const { ask, head, sidecar, upstream, send } = await startSetup(t, {
    ...RESTRICTED,
    settings: { 'upgrade-enabled': 'true' },
  })
  isOwnResponse(t, await ask(head('GET /b', ...HANDSHAKE)), DENIED)
  upstream.reply('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
  const client = await send(head('GET /a', ...HANDSHAKE))
  t.equal((await client.response()).status, 101)
  const { credentials } = fileEditors(sidecar.credentialsFile)
  t.match(await credentials.update(NAME, { scope: 'storage.read:/a/b' }), { ok: true })
  t.ok(await client.closed())
})

t.test('a sidecar that only verifies applies the claim', async (t) => {
  const { sidecar: issuer } = await startSetup(t, RESTRICTED)
  const jwksUrl = `http://127.0.0.1:${issuer.adminPort}/.well-known/jwks.json`
  const { sidecar } = await startSetup(t, { jwksUrl })
  const { forward } = sidecarClient(sidecar)
  t.equal(await forward(issuer.token), 200, 'a token without the claim')
  t.equal(await forward(String((await logIn({ sidecar: issuer }, {}))['token'])), 403)
})
