/** Forward auth, and X-Authenticated-Assertion from a login to the upstream that verifies it. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createRemoteJWKSet, decodeJwt, decodeProtectedHeader, jwtVerify } from 'jose'
import t from 'tap'
import { activateKey, addKey } from '../../src/keys/key-changes.ts'
import { eventually, SOON_MS } from '../support/eventually.ts'
import { makeKey, writeKey } from '../support/keys.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { rawRequest } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSetup } from '../support/setup.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const PATH = { 'forward-auth-path': '/_auth' }

t.test('a valid token is a 200 without a body, with the identity in response headers', async (t) => {
  const { ask, head, sidecar, upstream } = await startSetup(t, {
    settings: PATH,
    credentials: [{ accountId: 'acmé corp' }],
  })
  for (const method of ['GET', 'HEAD', 'POST', 'DELETE', 'OPTIONS']) {
    for (const target of ['/_auth', '/_auth?x=1', '/_auth/v2/auth/token', '/_auth/bucket/object']) {
      const response = await ask(head(`${method} ${target}`), { head: method === 'HEAD' })
      t.equal(response.status, 200, `${method} ${target}`)
      t.match(response.headers, {
        'content-length': '0',
        'content-type': undefined,
        'cache-control': 'no-store',
        vary: 'Authorization',
        'x-authenticated-account-id': 'acm%C3%A9%20corp',
        'x-authenticated-access-key': sidecar.logins[0]?.accessKey,
        'x-authenticated-token-id': decodeJwt(sidecar.token).jti,
        'x-authenticated-token-expires': String(decodeJwt(sidecar.token).exp),
        'x-request-id': /^[\w-]{36}$/,
      })
    }
  }
  t.equal(upstream.sockets.length, 0, 'nothing is forwarded')
  t.equal(
    await sidecar.metric('auth_sidecar_requests_total{route="forward_auth",method="GET",status="200"}'),
    4,
  )
})

t.test('a refused token gets its documented error, with status 401 if configured', async (t) => {
  for (const status of [400, 401]) {
    const { ask, authorization, head, sidecar, upstream } = await startSetup(t, {
      settings: { ...PATH, 'contract-refused-token-status': String(status) },
    })
    const expired = await sidecar.mint({ now: Date.now() - 7_200_000 })
    for (const [line, code, details] of [
      ['', 'InvalidToken', 'missing'],
      ['Authorization: Basic Zm9v\r\n', 'InvalidToken', 'malformed'],
      [`Authorization: Bearer ${expired}\r\n`, 'ExpiredToken', 'expired'],
    ] as const) {
      const response = await ask(head('GET /_auth/b').replace(authorization, line))
      isOwnResponse(t, response, { status, code, details })
      t.equal(response.headers['vary'], 'Authorization')
      t.equal(response.headers['x-authenticated-account-id'], undefined)
    }
    const spoofed = head('GET /_auth', 'X-Authenticated-Account-Id: victim').replace(authorization, '')
    t.notMatch((await ask(spoofed)).rawHeaders.join(), 'victim')
    const admission = await ask(head('GET /_auth', 'Host: other'))
    isOwnResponse(t, admission, { status: 400, code: 'InvalidArgument' }, 'admission comes first')
    t.equal(upstream.sockets.length, 0)
  }
})

t.test('a path that only resembles the forward-auth path is forwarded', async (t) => {
  const { ask, head, upstream } = await startSetup(t, { settings: PATH })
  const targets = '/_authx /_Auth //_auth /%5fauth /_auth%2f /_auth;x /b/_auth /b?/_auth'.split(' ')
  for (const target of targets) {
    t.equal((await ask(head(`GET ${target}`))).body.toString(), 'ok', target)
  }
  t.same(
    upstream.requests.map(({ target }) => target),
    targets,
  )
})

t.test('forward auth reads no body', async (t) => {
  const { request, recovers } = await startSetup(t, { settings: PATH })
  const client = await request('POST /_auth', ['Content-Length: 1000000'])
  t.match(await client.response(), { status: 200, headers: { connection: 'close' } })
  client.socket.end()
  t.equal(await client.closed(), 'end')
  const waiting = await request('POST /_auth', ['Content-Length: 1000000', 'Expect: 100-continue'])
  t.equal((await waiting.response()).status, 200, 'without 100 Continue')
  await recovers()
})

t.test("a decision may be cached for maxAgeSeconds, but not beyond the token's expiry", async (t) => {
  let now = Date.now()
  const { ask, authorization, head, sidecar } = await startSetup(t, {
    settings: { ...PATH, 'forward-auth-max-age-seconds': '60' },
    now: () => now,
  })
  const age = async (token: string) => {
    const asked = head('GET /_auth').replace(authorization, `Authorization: Bearer ${token}\r\n`)
    const { headers, rawHeaders } = await ask(asked)
    const seconds = /^private, max-age=(.+)$/.exec(headers['cache-control'] ?? '')?.[1]
    t.equal(headers['x-accel-expires'], seconds)
    if (seconds !== undefined) {
      t.ok(
        rawHeaders.indexOf('X-Accel-Expires') < rawHeaders.indexOf('Cache-Control'),
        'nginx obeys the first',
      )
    }
    return headers['cache-control']
  }
  t.equal(await age(sidecar.token), 'private, max-age=60')
  const short = await sidecar.mint({ lifetimeSeconds: 30 })
  t.match(await age(short), /^private, max-age=(29|30)$/)
  now += 28_000
  t.match(await age(short), /^private, max-age=[12]$/)
  t.equal(await age('none'), 'no-store', 'a refusal is never cached')
})

t.test('a decision may not be cached beyond the end of the credential', async (t) => {
  const now = Date.now()
  const { ask, head } = await startSetup(t, {
    settings: { ...PATH, 'forward-auth-max-age-seconds': '60' },
    credentials: [{ accountId: 'acme', expiresAt: new Date(now + 20_000).toISOString() }],
    now: () => now,
  })
  const { headers } = await ask(head('GET /_auth'))
  t.match(headers['cache-control'], /^private, max-age=(19|20)$/)
})

t.test('a decision with an assertion may be cached until the assertion is renewed', async (t) => {
  let now = Date.now()
  const { ask, head } = await startSetup(t, {
    settings: {
      ...PATH,
      'forward-auth-max-age-seconds': '60',
      'forwarded-trust': '[127.0.0.1]',
      'identity-assertion-enabled': 'true',
      'identity-assertion-lifetime-seconds': '60',
    },
    now: () => now,
  })
  for (const expected of [/^private, max-age=(29|30)$/, /^private, max-age=(9|10)$/]) {
    t.match((await ask(head('GET /_auth'))).headers['cache-control'], expected)
    now += 20_000
  }
})

t.test('the assertion is among the headers if it is enabled and the peer is trusted', async (t) => {
  const settings = { ...PATH, 'identity-assertion-enabled': 'true' }
  const trusting = await startSetup(t, { settings: { ...settings, 'forwarded-trust': '[127.0.0.1]' } })
  const { headers } = await trusting.ask(trusting.head('GET /_auth'))
  t.equal(decodeJwt(headers['x-authenticated-assertion'] ?? '').sub, 'acme')
  const credentials = [{ accountId: 'Cache-Control' }]
  for (const trust of ['[]', '[192.0.2.0/24]']) {
    const options = { settings: { ...settings, 'forwarded-trust': trust }, credentials }
    const { ask, head } = await startSetup(t, options)
    const answer = await ask(head('GET /_auth', 'X-Forwarded-For: 192.0.2.1'))
    const headers = { 'x-authenticated-account-id': 'Cache-Control', 'cache-control': 'no-store' }
    t.match(answer, { status: 200, headers })
    t.equal(answer.headers['x-authenticated-assertion'], undefined, 'a client must not collect it')
  }
})

t.test('report mode answers 200 without an identity', async (t) => {
  const { ask, authorization, head, sidecar } = await startSetup(t, {
    settings: { ...PATH, enforcement: 'report', 'forward-auth-max-age-seconds': '60' },
  })
  const response = await ask(head('GET /_auth').replace(authorization, ''))
  t.match(response, { status: 200, headers: { 'cache-control': 'no-store' } })
  t.notMatch(response.rawHeaders.join(), /authenticated/i)
  t.match(sidecar.log.at(-1), { route: 'forward_auth', status: 200, wouldRefuse: 'missing' })
  t.equal((await ask(head('GET /_auth'))).headers['x-authenticated-account-id'], 'acme')
})

t.test('the log names the request that a trusted proxy asks for', async (t) => {
  for (const trust of ['', '127.0.0.1']) {
    const settings = { ...PATH, 'log-access': 'all', 'forwarded-trust': trust }
    const { ask, head, sidecar } = await startSetup(t, { settings })
    await ask(head('GET /_auth', 'X-Original-Method: PUT', 'X-Original-URI: /bucket/object?secret=1'))
    await eventually(() => sidecar.log.at(-1)?.['route'] === 'forward_auth', 'the access line')
    const [method, path] = trust === '' ? ['GET', '/_auth'] : ['PUT', '/bucket/object']
    t.match(sidecar.log.at(-1), { method, path, status: 200 })
  }
})

const ENABLED = { 'identity-assertion-enabled': 'true' }
const NAME = 'x-authenticated-assertion'

/**
 * A sidecar that signs assertions; `receive` sends a request and returns the assertion that the upstream got.
 */
async function start(t: Parameters<typeof startSetup>[0]) {
  const setup = await startSetup(t, { settings: ENABLED })
  const { upstream, sidecar } = setup
  const jwks = new URL(`http://127.0.0.1:${sidecar.adminPort}/.well-known/jwks.json`)
  return {
    ...setup,
    keys: createRemoteJWKSet(jwks, { cooldownDuration: 0 }),
    async receive(...lines: readonly string[]) {
      const response = await setup.ask(setup.head('GET /b/k', ...lines))
      t.equal(response.status, 200)
      const { rawHeaders = [] } = upstream.requests.splice(0)[0] ?? {}
      const values = rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === NAME)
      t.equal(values.length, 1)
      return String(values[0])
    },
  }
}

t.test('an upstream verifies the assertion with the keys of the admin listener', async (t) => {
  const { sidecar, keys, receive, ask } = await start(t)
  const assertion = await receive('X-Authenticated-Assertion: forged', 'X_Authenticated_Assertion: forged')
  const { payload } = await jwtVerify(assertion, keys, {
    issuer: 'storage-account-api',
    audience: 'storage-upstream',
    typ: 'upstream-assertion+jwt',
  })
  t.match(payload, { sub: 'acme', client_id: sidecar.logins[0]?.accessKey })
  t.equal(Number(payload.exp) - Number(payload.iat), 300)
  t.equal(await receive(), assertion, 'it is signed once')
  const response = await ask(`GET /b/k HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${assertion}\r\n\r\n`)
  t.equal(response.status, 400, 'it is no access token')
})

t.test('the assertion is signed by the new key after a rotation', async (t) => {
  const { sidecar, keys, receive } = await start(t)
  await receive()
  const { directory } = sidecar.key
  t.match(await addKey({ directory, now: Date.now, alg: 'ES256', kid: 'next' }), { ok: true })
  t.match(await activateKey({ directory, now: Date.now, kid: 'next' }), { ok: true })
  let assertion = ''
  const isNew = async () => {
    assertion = await receive()
    return decodeProtectedHeader(assertion).kid === 'next'
  }
  await eventually(isNew, 'an assertion by the new key', SOON_MS)
  await t.resolves(jwtVerify(assertion, keys))
})

t.test('assertions without a key that upstreams can verify are a configuration error', async (t) => {
  for (const jwk of [(await makeKey()).publicJwk, (await makeKey('HS256')).privateJwk]) {
    const directory = await temporaryDirectory(t)
    writeKey(directory, jwk)
    const settings = { ...ENABLED, 'keys-directory': directory, 'upstream-url': 'http://127.0.0.1:9' }
    await t.rejects(startSidecar(t, { settings }), {
      message: /identity\.assertion\.enabled needs a private key/,
    })
  }
})

t.test('keys that cannot sign assertions are a bad version of the directory', async (t) => {
  const { sidecar, receive } = await start(t)
  const { directory, kid } = sidecar.key
  writeFileSync(join(directory, 'active'), 'secret')
  writeKey(directory, (await makeKey('HS256', 'secret')).privateJwk)
  const isFailing = () => sidecar.metric('auth_sidecar_reload_failing{subject="keys"}')
  await eventually(async () => (await isFailing()) === 1, 'the reload')
  t.equal(decodeProtectedHeader(await receive()).kid, kid)
})

t.test('each upstream gets an assertion with its own audience', async (t) => {
  const archive = await recordingUpstream(t)
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, {
    settings: {
      ...ENABLED,
      'forward-auth-path': '/_auth',
      'forwarded-trust': '["127.0.0.1"]',
      upstreams: JSON.stringify([
        { prefix: '/', url: upstream.url },
        { prefix: '/archive', url: archive.url, assertionAudience: 'archive' },
      ]),
    },
  })
  const get = (path: string) =>
    rawRequest(
      t,
      sidecar.port,
      `GET ${path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`,
    )
  for (const path of ['/o', '/archive/o', '/o']) {
    t.equal((await get(path)).status, 200)
  }
  const asserted = (headers: Readonly<Record<string, string>> | undefined) => headers?.[NAME] ?? ''
  const [first, second] = upstream.requests.map(({ headers }) => asserted(headers))
  t.equal(decodeJwt(first ?? '').aud, 'storage-upstream')
  t.equal(second, first, 'signed once')
  t.equal(decodeJwt(asserted(archive.requests[0]?.headers)).aud, 'archive')
  t.equal(asserted((await get('/_auth')).headers), first)
})
