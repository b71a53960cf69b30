/** OAuth 2.0: a client ends its tokens (RFC 7009), where `contract.logout` is on. */
import t, { type Test } from 'tap'
import { basic, FORM, form, isOAuthError, jsonOf, loginInHeader, post } from '../support/oauth.ts'
import { databaseSetup, requirePostgres } from '../support/postgres.ts'
import { rawRequest } from '../support/raw-client.ts'
import { startSidecar } from '../support/sidecar.ts'
import { mintToken } from '../support/tokens.ts'

const { createDatabase, kill, start } = await requirePostgres(t)
const PATH = '/v2/oauth/revoke'
const SECRET = 'a secret'

/** A sidecar over a database with the credentials `AK` and `BK` of the account `acme`. */
async function prepare(t: Test, settings: Record<string, string> = {}) {
  const credentials = ['AK', 'BK'].map((accessKey) => ({ accountId: 'acme', accessKey }))
  const { key, flags, database } = await databaseSetup(t, createDatabase, credentials, SECRET)
  const oauth = { 'contract-logout': 'true', 'oauth-enabled': 'true' }
  const sidecar = await startSidecar(t, { settings: { ...flags, ...oauth, ...settings } })
  const ask = (bytes: string | Uint8Array) => rawRequest(t, sidecar.port, bytes)
  return {
    key,
    sidecar,
    ask,
    database,
    /** The token that a client gets. */
    logIn: async (accessKey: string): Promise<string> =>
      jsonOf(await ask(loginInHeader(accessKey, SECRET))).access_token,
    revoke: (accessKey: string, token: string, more: Record<string, string> = {}) =>
      ask(post(form({ token, ...more }), FORM + basic(accessKey, SECRET), PATH)),
    async isAccepted(token: string): Promise<boolean> {
      const head = `GET /v2/auth/token HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${token}\r\n\r\n`
      return (await ask(head)).status === 200
    },
  }
}

t.test('a client ends its own token, by header or body', async (t) => {
  const { ask, logIn, revoke, isAccepted, sidecar } = await prepare(t)
  const first = await logIn('AK')
  const second = await logIn('AK')
  const other = await logIn('AK')
  t.ok(await isAccepted(first))
  const ended = await revoke('AK', first, { token_type_hint: 'access_token' })
  t.match(ended, { status: 200, headers: { 'content-length': '0', 'cache-control': 'no-store' } })
  t.notOk(await isAccepted(first), 'at once')
  const inBody = form({ token: second, client_id: 'acme~AK', client_secret: SECRET })
  t.equal((await ask(post(inBody, FORM, PATH))).status, 200)
  t.notOk(await isAccepted(second))
  t.ok(await isAccepted(other))
  t.equal((await revoke('AK', first)).status, 200, 'a token that is ended already')
  const audit = sidecar.log.filter(({ event }) => event === 'logout')
  t.match(audit, [
    { outcome: 'ok', account: 'acme', accessKey: 'AK', tokenId: /^[\w-]{36}$/ },
    { outcome: 'ok', account: 'acme', accessKey: 'AK' },
  ])
  t.equal(audit.length, 2)
  t.equal(await sidecar.metric('auth_sidecar_tokens_issued_total'), 3, 'a revocation issues no token')
  const series = 'auth_sidecar_requests_total{route="logout",method="POST",status="200"}'
  t.equal(await sidecar.metric(series), 3)
})

t.test('any other text is a 200 without effect', async (t) => {
  const { logIn, revoke, isAccepted, key, sidecar, database, ask } = await prepare(t, {
    'links-enabled': 'true',
  })
  const own = await logIn('AK')
  const other = await logIn('BK')
  const claims = { sub: 'acme', client_id: 'AK' }
  const expired = await mintToken({ key, now: Date.now() - 7_200_000, claims })
  const link = JSON.stringify({ method: 'GET', target: '/a' })
  const json = `Authorization: Bearer ${own}\r\nContent-Type: application/json\r\n`
  const { url } = jsonOf(await ask(post(link, json, '/v2/auth/links')))
  const texts = {
    'the token of another credential': other,
    'an expired token': expired,
    'a link': url.slice(url.indexOf('=') + 1),
    'a forged token': `${own.slice(0, -4)}AAAA`,
    'no token': 'x',
    'a long text': 'x'.repeat(10_000),
  }
  for (const [name, text] of Object.entries(texts)) {
    t.match(await revoke('AK', text), { status: 200, headers: { 'content-length': '0' } }, name)
  }
  t.ok(await isAccepted(other))
  t.ok(await isAccepted(own))
  t.same(await database.sql('SELECT jti FROM storage_auth.revocations'), [])
  t.notMatch(JSON.stringify(sidecar.log), /"logout".*"audit"/)
})

t.test('a client that is not authenticated ends nothing', async (t) => {
  const { ask, logIn, isAccepted, sidecar } = await prepare(t)
  const token = await logIn('AK')
  const tokenForm = form({ token })
  const invalidClient = { status: 401, error: 'invalid_client' }
  for (const lines of [
    '',
    basic('AK', 'wrong'),
    basic('nobody', SECRET),
    `Authorization: Bearer ${token}\r\n`,
  ]) {
    isOAuthError(t, await ask(post(tokenForm, FORM + lines, PATH)), invalidClient, lines)
  }
  const client = basic('AK', SECRET)
  const missing = { status: 400, error: 'invalid_request', description: /^token is missing/ }
  isOAuthError(t, await ask(post('', FORM + client, PATH)), missing, 'no token')
  isOAuthError(t, await ask(post('token=', FORM + client, PATH)), missing, 'an empty token')
  const twice = { status: 400, error: 'invalid_request', description: /^token is sent twice/ }
  isOAuthError(t, await ask(post(`${tokenForm}&${tokenForm}`, FORM + client, PATH)), twice, 'twice')
  const type = { status: 400, error: 'invalid_request', description: /^Content-Type/ }
  isOAuthError(t, await ask(post(tokenForm, client, PATH)), type, 'no content type')
  const method = { status: 405, error: 'invalid_request' }
  isOAuthError(t, await ask(post(tokenForm, FORM + client, PATH, 'PUT')), method, 'PUT')
  t.ok(await isAccepted(token))
  const failed = sidecar.log.filter(({ event }) => event === 'login_failed')
  t.match(failed, [
    { reason: 'invalid', method: 'oauth' },
    { reason: 'rejected', method: 'oauth', account: 'acme', accessKey: 'AK' },
    { reason: 'rejected', method: 'oauth' },
    { reason: 'invalid', method: 'oauth' },
  ])
})

t.test('guesses at the revocation endpoint are throttled as logins', async (t) => {
  const { ask, revoke, logIn } = await prepare(t, { 'limits-login-failures-count': '2' })
  const token = await logIn('AK')
  for (let guess = 0; guess < 2; guess++) {
    t.equal((await ask(post(form({ token }), FORM + basic('AK', 'wrong'), PATH))).status, 401)
  }
  const unavailable = { status: 503, error: 'temporarily_unavailable' }
  isOAuthError(t, await revoke('AK', token), unavailable, 'the right secret, too')
  isOAuthError(t, await ask(loginInHeader('AK', SECRET)), unavailable, 'and a login')
})

t.test('while the database is away, a client learns that nothing was ended', async (t) => {
  const { revoke, logIn, isAccepted } = await prepare(t)
  const token = await logIn('AK')
  await kill()
  t.teardown(start)
  const unavailable = { status: 503, error: 'temporarily_unavailable' }
  isOAuthError(t, await revoke('AK', token), unavailable, 'away')
  t.ok(await isAccepted(token))
  await start()
})

t.test('without contract.logout, the path is one of the storage', async (t) => {
  const { ask, revoke, logIn } = await prepare(t, { 'contract-logout': 'false' })
  t.match(await revoke('AK', await logIn('AK')), { status: 400, body: /"InvalidToken"/ })
  t.match(await ask(post('', '', PATH)), { status: 400, body: /"InvalidToken"/ })
})

t.test('the metadata names the revocation endpoint where there is one', async (t) => {
  const issuer = 'https://auth.example'
  const { ask } = await prepare(t, { 'token-issuer': issuer, 'listen-base-path': '/api' })
  const metadata = jsonOf(
    await ask('GET /.well-known/oauth-authorization-server HTTP/1.1\r\nHost: h\r\n\r\n'),
  )
  t.match(metadata, {
    issuer,
    token_endpoint: `${issuer}/api/v2/oauth/token`,
    revocation_endpoint: `${issuer}/api/v2/oauth/revoke`,
    revocation_endpoint_auth_methods_supported: ['client_secret_basic', 'client_secret_post'],
  })
})
