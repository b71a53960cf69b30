/** OAuth 2.0: `POST` on `oauth.tokenPaths`. Revocation and metadata: `oauth-revocation.test.ts`. */
import { createHook } from 'node:async_hooks'
import { decodeJwt } from 'jose'
import t, { type Test } from 'tap'
import {
  basic,
  FORM,
  form,
  GRANT,
  isOAuthError,
  jsonOf,
  loginInBody,
  loginInHeader,
  post,
  TOKEN_PATH,
} from '../support/oauth.ts'
import { rawRequest } from '../support/raw-client.ts'
import { type SetupOptions, startSetup } from '../support/setup.ts'

const oauthSetup = (t: Test, { settings, ...options }: SetupOptions = {}) =>
  startSetup(t, { ...options, settings: { 'oauth-enabled': 'true', ...settings } })

t.test('a client logs in by header or body, and its token is one of the Account API', async (t) => {
  const setup = await oauthSetup(t)
  const [login = { accountId: '', accessKey: '', secret: '' }] = setup.sidecar.logins
  const { accountId, accessKey, secret } = login
  const tokens = new Set<string>()
  const requests = {
    'client_secret_basic with the access key': loginInHeader(accessKey, secret),
    'client_secret_basic with account and access key': loginInHeader(`${accountId}~${accessKey}`, secret),
    'client_secret_post with the access key': loginInBody(accessKey, secret),
    'client_secret_post with account and access key': loginInBody(`${accountId}~${accessKey}`, secret),
    'a query, which is ignored': post(
      GRANT,
      FORM + basic(accessKey, secret),
      `${TOKEN_PATH}?grant_type=x&scope=y`,
    ),
  }
  for (const [name, bytes] of Object.entries(requests)) {
    const response = await setup.ask(bytes)
    const body = jsonOf(response)
    t.same(Object.keys(body), ['access_token', 'token_type', 'expires_in'], name)
    t.match(body, { token_type: 'Bearer', expires_in: 86400 }, name)
    t.match(
      response,
      {
        status: 200,
        headers: {
          'content-type': 'application/json',
          'cache-control': 'no-store',
          pragma: 'no-cache',
          'content-length': String(response.body.length),
          'proxy-status': undefined,
        },
      },
      name,
    )
    const claims = decodeJwt(body.access_token)
    t.match(claims, { sub: accountId, client_id: accessKey, scope: undefined }, name)
    tokens.add(body.access_token)
    const authorization = `Authorization: Bearer ${body.access_token}\r\n`
    const got = await setup.ask(`GET /b/k HTTP/1.1\r\nHost: h\r\n${authorization}\r\n`)
    t.equal(got.status, 200)
    t.equal(setup.upstream.requests[0]?.headers['x-authenticated-account-id'], accountId)
    await setup.upstreamSaw(t, 1)
  }
  t.equal(tokens.size, 5, 'a new token each time')
})

t.test('expires_in is a number whatever the contract says of expirationSec', async (t) => {
  const setup = await oauthSetup(t, {
    settings: { 'contract-expiration-sec': 'string', 'token-lifetime-seconds': '600' },
  })
  const [{ accessKey, secret } = { accessKey: '', secret: '' }] = setup.sidecar.logins
  t.equal(jsonOf(await setup.ask(loginInHeader(accessKey, secret))).expires_in, 600)
})

t.test('without oauth.enabled, the path is one of the storage', async (t) => {
  const setup = await startSetup(t)
  const [{ accessKey, secret } = { accessKey: '', secret: '' }] = setup.sidecar.logins
  const refused = await setup.ask(loginInHeader(accessKey, secret))
  t.match(refused, { status: 400, body: /"InvalidToken"/ })
  await setup.upstreamSaw(t, 0)
  const got = await setup.ask(`GET ${TOKEN_PATH} HTTP/1.1\r\nHost: h\r\n${setup.authorization}\r\n`)
  t.equal(got.status, 200)
  t.equal(setup.upstream.requests[0]?.target, TOKEN_PATH)
})

t.test('the endpoint is at each of oauth.tokenPaths, exactly, and nowhere else', async (t) => {
  const setup = await oauthSetup(t, {
    settings: { 'oauth-token-paths': '["/v1/oauth/tokens", "/%6Fauth/"]' },
  })
  const [{ accessKey, secret } = { accessKey: '', secret: '' }] = setup.sidecar.logins
  const statusAt = async (path: string) =>
    (await setup.ask(post(GRANT, FORM + basic(accessKey, secret), path))).status
  for (const path of ['/v1/oauth/tokens', '/v1/oauth/tokens?x', '/%6Fauth/']) {
    t.equal(await statusAt(path), 200, path)
  }
  const others = [
    TOKEN_PATH,
    '/v1/oauth/tokens/',
    '/v1//oauth/tokens',
    '/V1/oauth/tokens',
    '/v1/oauth/token%73',
  ]
  for (const path of [...others, '/oauth/', '/%6fauth/', '/v1/oauth/tokens/x', '/v2/oauth/revoke']) {
    t.equal(await statusAt(path), 400, path)
  }
  await setup.upstreamSaw(t, 0)
})

t.test('by default the path follows listen.basePath', async (t) => {
  const setup = await oauthSetup(t, { settings: { 'listen-base-path': '/api' } })
  const [{ accessKey, secret } = { accessKey: '', secret: '' }] = setup.sidecar.logins
  const statusAt = async (path: string) =>
    (await setup.ask(post(GRANT, FORM + basic(accessKey, secret), path))).status
  t.equal(await statusAt(`/api${TOKEN_PATH}`), 200)
  t.equal(await statusAt(TOKEN_PATH), 400)
})

t.test('a malformed form is a 400 that says what is wrong and quotes nothing', async (t) => {
  const setup = await oauthSetup(t)
  const [{ accessKey, secret } = { accessKey: '', secret: '' }] = setup.sidecar.logins
  const marker = 'ECHOED-BY-MISTAKE'
  const good = form({ grant_type: 'client_credentials', client_id: accessKey, client_secret: secret })
  const cases: [name: string, body: string | Uint8Array, description: RegExp][] = [
    ['empty', '', /grant_type is missing/],
    ['nothing but separators', '&&=&', /grant_type is missing/],
    ['no grant_type', `client_id=${accessKey}&client_secret=${marker}`, /grant_type is missing/],
    ['an empty grant_type', `${good.replace(GRANT, 'grant_type=')}`, /grant_type is missing/],
    ['a grant_type without =', `${good.replace(GRANT, 'grant_type')}`, /grant_type is missing/],
    ['another case', good.replace('grant_type', 'Grant_Type'), /grant_type is missing/],
    ['a question mark before it', `?${good}`, /grant_type is missing/],
    ['a byte order mark before it', `\ufeff${good}`, /grant_type is missing/],
    ['grant_type twice', `${good}&${GRANT}`, /^grant_type is sent twice/],
    ['grant_type twice, once empty', `${good}&grant_type=`, /^grant_type is sent twice/],
    ['grant_type twice, once escaped', `${good}&grant%5Ftype=x`, /^grant_type is sent twice/],
    ['client_id twice', `${good}&client_id=${accessKey}`, /^client_id is sent twice/],
    ['client_secret twice', `${good}&client_secret=${marker}`, /^client_secret is sent twice/],
    ['scope twice', `${good}&scope=a&scope=${marker}`, /^scope is sent twice/],
    ['an unknown parameter twice', `${good}&${marker}=1&${marker}=2`, /^A parameter is sent twice/],
    ['an empty name twice', `${good}&=${marker}&=2`, /^A parameter is sent twice/],
    ['a broken escape', `${good}&x=${marker}%2`, /percent escape/],
    ['an escape that is not hexadecimal', `${good}&x=%zz`, /percent escape/],
    ['an escaped byte that is not UTF-8', `${good}&x=%ff`, /percent escape/],
    ['an escaped sequence that is cut', `${good}&x=%c3&y=%a4`, /percent escape/],
    ['an escaped surrogate', `${good}&x=%ed%a0%80`, /percent escape/],
    ['an overlong escape', `${good}&x=%c0%af`, /percent escape/],
    ['%u', `${good}&x=%u0041`, /percent escape/],
    ['a NUL', `${good}&x=a\0${marker}`, /NUL/],
    ['an escaped NUL', `${good}&x=%00`, /NUL/],
    ['an escaped NUL in a name', `${good}&%00=x`, /NUL/],
    ['Latin-1', Buffer.from(`${good}&x=\xe4`, 'latin1'), /UTF-8/],
    ['UTF-16', Buffer.from(good, 'utf16le'), /NUL/],
    ['JSON', JSON.stringify({ grant_type: 'client_credentials' }), /grant_type is missing/],
  ]
  for (const [name, body, description] of cases) {
    const response = await setup.ask(post(body, FORM))
    isOAuthError(t, response, { status: 400, error: 'invalid_request', description }, name)
    t.notOk(response.body.includes(marker), `${name}: nothing is quoted`)
  }
  t.equal((await setup.ask(post(good, FORM))).status, 200, 'the good one')
  t.notMatch(JSON.stringify(setup.sidecar.log), marker, 'nor does it stand in the log')
  t.equal(
    await setup.sidecar.metric('auth_sidecar_token_issue_failures_total{reason="invalid"}'),
    cases.length,
  )
  await setup.upstreamSaw(t, 0)
})

t.test('the content type must be a form in UTF-8', async (t) => {
  const setup = await oauthSetup(t)
  const [{ accessKey, secret } = { accessKey: '', secret: '' }] = setup.sidecar.logins
  const typed = (type: string) => `Content-Type: ${type}\r\n`
  const ask = (lines: string) => setup.ask(post(GRANT, lines + basic(accessKey, secret)))
  const accepted = [
    'application/x-www-form-urlencoded',
    'APPLICATION/X-WWW-Form-Urlencoded; charset=UTF-8',
    'application/x-www-form-urlencoded;charset="utf-8";',
  ]
  for (const type of accepted) {
    t.equal((await ask(typed(type))).status, 200, type)
  }
  const refused = [
    '',
    typed('application/json'),
    typed('text/plain'),
    typed(''),
    typed('multipart/form-data; boundary=x'),
    typed('application/x-www-form-urlencoded; charset=utf-16'),
    typed('application/x-www-form-urlencoded; charset=iso-8859-1'),
    typed('application/x-www-form-urlencoded; version=1'),
    typed('application/x-www-form-urlencoded, application/json'),
    typed('application/x-www-form-urlencoded') + typed('application/x-www-form-urlencoded'),
  ]
  for (const lines of refused) {
    const expected = { status: 400, error: 'invalid_request', description: /^Content-Type must be/ }
    isOAuthError(t, await ask(lines), expected, JSON.stringify(lines))
  }
  for (const coding of ['gzip', 'identity', '']) {
    const expected = { status: 400, error: 'invalid_request', description: /^Content-Encoding/ }
    isOAuthError(t, await ask(`${FORM}Content-Encoding: ${coding}\r\n`), expected, coding)
  }
})

t.test('a body of 16 KiB is accepted, whole or in chunks, and a larger one refused', async (t) => {
  const setup = await oauthSetup(t)
  const [{ accessKey, secret } = { accessKey: '', secret: '' }] = setup.sidecar.logins
  const good = form({ grant_type: 'client_credentials', client_id: accessKey, client_secret: secret })
  const exact = `${good}&x=${'x'.repeat(16384 - good.length - 3)}`
  t.equal(exact.length, 16384)
  const inChunks = (body: string) => {
    const parts = body.match(/.{1,1000}/gs) ?? []
    const chunks = parts.map((part) => `${part.length.toString(16)}\r\n${part}\r\n`)
    return `POST ${TOKEN_PATH} HTTP/1.1\r\nHost: h\r\n${FORM}Transfer-Encoding: chunked\r\n\r\n${chunks.join('')}0\r\n\r\n`
  }
  const tooLarge = { status: 400, error: 'invalid_request', description: /larger than 16 KiB/ }
  t.equal((await setup.ask(post(exact, FORM))).status, 200)
  t.equal((await setup.ask(inChunks(exact))).status, 200)
  isOAuthError(t, await setup.ask(post(`${exact}x`, FORM)), tooLarge, 'one byte more')
  isOAuthError(t, await setup.ask(inChunks(`${exact}x`)), tooLarge, 'one byte more, in chunks')
})

t.test('a body that does not arrive is a 408', async (t) => {
  const setup = await oauthSetup(t, { settings: { 'timeouts-idle-seconds': '0.05' } })
  const late = await setup.ask(
    `POST ${TOKEN_PATH} HTTP/1.1\r\nHost: h\r\n${FORM}Content-Length: 100\r\n\r\ngrant`,
  )
  isOAuthError(t, late, { status: 408, error: 'invalid_request' }, 'late')
})

t.test('another grant is unsupported', async (t) => {
  const setup = await oauthSetup(t)
  const [{ accessKey, secret } = { accessKey: '', secret: '' }] = setup.sidecar.logins
  const grants = [
    'password',
    'authorization_code',
    'refresh_token',
    'CLIENT_CREDENTIALS',
    'client_credentials ',
  ]
  for (const grant of grants) {
    const response = await setup.ask(loginInHeader(accessKey, secret, form({ grant_type: grant })))
    isOAuthError(t, response, { status: 400, error: 'unsupported_grant_type' }, grant)
  }
})

t.test('unknown parameters and empty ones are ignored', async (t) => {
  const setup = await oauthSetup(t)
  const [{ accessKey, secret } = { accessKey: '', secret: '' }] = setup.sidecar.logins
  const bodies = [
    `${GRANT}&audience=x&resource=https%3A%2F%2Fa&client_assertion=y`,
    `${GRANT}&scope=`,
    `${GRANT}&scope`,
    `${GRANT}&client_secret=&client_id=`,
    `&&${GRANT}&&`,
    `${GRANT}&x=%E2%82%AC+%20&y=ä`,
    'grant%5Ftype=client%5Fcredentials',
  ]
  for (const body of bodies) {
    const response = await setup.ask(loginInHeader(accessKey, secret, body))
    t.match(response, { status: 200 }, body)
    t.notOk('scope' in jsonOf(response), body)
  }
})

t.test('a client authenticates in exactly one way', async (t) => {
  const setup = await oauthSetup(t, { credentials: [{ accountId: 'acme', accessKey: 'AK' }] })
  const [{ secret } = { secret: '' }] = setup.sidecar.logins
  const header = basic('AK', secret)
  const ask = (body: string, lines: string) => setup.ask(post(`${GRANT}&${body}`, FORM + lines))
  t.equal((await ask('client_id=AK', header)).status, 200, 'the same client_id beside the header')
  const both = { status: 400, error: 'invalid_request', description: /two ways/ }
  isOAuthError(t, await ask(`client_secret=${secret}`, header), both, 'a secret beside the header')
  isOAuthError(t, await ask(form({ client_id: 'AK', client_secret: secret }), header), both, 'both')
  const other = { status: 400, error: 'invalid_request', description: /^client_id is not/ }
  for (const clientId of ['acme~AK', 'AK ', 'ak']) {
    isOAuthError(t, await ask(form({ client_id: clientId }), header), other, clientId)
  }
  const invalidClient = { status: 401, error: 'invalid_client' }
  const encoded = Buffer.from(`AK:${secret}`).toString('base64')
  const headers = {
    none: '',
    'another scheme': `Authorization: Bearer ${setup.sidecar.token}\r\n`,
    Digest: 'Authorization: Digest username="AK"\r\n',
    'an empty value': 'Authorization:\r\n',
    'no padding': `Authorization: Basic ${encoded.replace(/=+$/, '')}x\r\n`,
    'a list': `Authorization: Basic ${encoded}, Basic ${encoded}\r\n`,
    'two lines': header + header,
    'no colon': `Authorization: Basic ${Buffer.from('AK').toString('base64')}\r\n`,
    'an empty secret': basic('AK', ''),
    'a long secret': basic('AK', 'x'.repeat(1025)),
  }
  const answers = new Set<string>()
  for (const [name, lines] of Object.entries(headers)) {
    const response = await ask('client_id=AK', lines)
    isOAuthError(t, response, invalidClient, name)
    answers.add(response.body.toString())
  }
  isOAuthError(t, await ask('x=y', basic('', secret)), invalidClient, 'an empty name')
  isOAuthError(t, await ask(`client_secret=${secret}`, ''), invalidClient, 'a secret without a client_id')
  t.equal(answers.size, 1, 'one body for all')
  const guesses = await setup.sidecar.metric('auth_sidecar_token_issue_failures_total{reason="rejected"}')
  t.equal(guesses, 0, 'a malformed authentication is no failed login')
})

t.test('a name is an access key of one credential, or account and access key', async (t) => {
  const setup = await oauthSetup(t, {
    credentials: [
      { accountId: 'acme', accessKey: 'AK', secret: 'one' },
      { accountId: 'acme', accessKey: 'shared', secret: 'two' },
      { accountId: 'globex', accessKey: 'shared', secret: 'three' },
      { accountId: 'a~b', accessKey: 'K', secret: 'four' },
      { accountId: 'märz & co', accessKey: 'schlüssel+1:2%20', secret: 'pä+ß %20:w=&' },
    ],
  })
  const accountFor = async (name: string, secret: string) => {
    const accounts = new Set<unknown>()
    const encode = (text: string) => form({ '': text }).slice(1)
    for (const bytes of [loginInBody(name, secret), loginInHeader(encode(name), encode(secret))]) {
      const response = await setup.ask(bytes)
      accounts.add(response.status === 200 ? decodeJwt(jsonOf(response).access_token).sub : response.status)
    }
    return [...accounts]
  }
  t.same(await accountFor('AK', 'one'), ['acme'])
  t.same(await accountFor('acme~AK', 'one'), ['acme'])
  t.same(await accountFor('shared', 'two'), [401], 'two accounts have it')
  t.same(await accountFor('acme~shared', 'two'), ['acme'])
  t.same(await accountFor('globex~shared', 'three'), ['globex'])
  t.same(await accountFor('globex~shared', 'two'), [401])
  t.same(await accountFor('a~b~K', 'four'), ['a~b'], 'split at the last tilde')
  t.same(await accountFor('schlüssel+1:2%20', 'pä+ß %20:w=&'), ['märz & co'])
  t.same(await accountFor('märz & co~schlüssel+1:2%20', 'pä+ß %20:w=&'), ['märz & co'])
  for (const name of ['~AK', 'acme~', '~', 'AK~', 'acme', 'nobody']) {
    t.same(await accountFor(name, 'one'), [401], name)
  }
})

t.test('what is sent in the header may be encoded or raw, and is one failed login', async (t) => {
  const setup = await oauthSetup(t, {
    settings: { 'limits-login-failures-count': '3' },
    credentials: [
      { accountId: 'acme', accessKey: 'raw', secret: 'a+b%20c%' },
      { accountId: 'globex', accessKey: 'encoded', secret: 'a b c' },
      { accountId: 'initech', accessKey: 'k+1', secret: 'x%41' },
    ],
  })
  const status = async (name: string, secret: string) => (await setup.ask(loginInHeader(name, secret))).status
  t.equal(await status('raw', 'a+b%20c%'), 200, 'an invalid escape leaves the raw reading')
  t.equal(await status('encoded', 'a+b%20c'), 200, 'the standard')
  t.equal(await status('encoded', 'a b c'), 200, 'raw, and the same in both readings')
  t.equal(await status('initech~k+1', 'x%41'), 200, 'raw: as the standard, it would be xA')
  t.equal(await status('k%2B1', 'x%2541'), 200)
  t.same(
    [await status('encoded', 'x%20'), await status('encoded', 'x%20'), await status('encoded', 'x%20')],
    [401, 401, 401],
  )
  t.equal(await status('encoded', 'a b c'), 503)
  t.equal(await setup.sidecar.metric('auth_sidecar_token_issue_failures_total{reason="rejected"}'), 3)
})

t.test('client_id beside the header says which reading of the name counts', async (t) => {
  const { ask, sidecar } = await oauthSetup(t, {
    credentials: [
      { accountId: 'acme', accessKey: 'a b' },
      { accountId: 'globex', accessKey: 'a+b' },
    ],
  })
  const [decoded, raw] = sidecar.logins
  const status = async (clientId: string, secret = '') =>
    (await ask(loginInHeader('a+b', secret, form({ grant_type: 'client_credentials', client_id: clientId }))))
      .status
  t.equal(await status('a b', decoded?.secret), 200)
  t.equal(await status('a+b', raw?.secret), 200)
  t.equal(await status('a+b', decoded?.secret), 401)
  t.equal(await status('a b', raw?.secret), 401)
})

t.test('all failed logins get the same response byte for byte', async (t) => {
  const setup = await oauthSetup(t, {
    credentials: [
      { accountId: 'acme', accessKey: 'AK' },
      { accountId: 'acme', accessKey: 'disabled', disabled: true },
      { accountId: 'acme', accessKey: 'expired', expiresAt: '2020-01-01T00:00:00Z' },
    ],
  })
  const [good, disabled, expired] = setup.sidecar.logins.map(({ secret }) => secret)
  const attempts: [name: string, userName: string, secret: string | undefined][] = [
    ['a wrong secret', 'AK', 'wrong'],
    ['a secret of another length', 'AK', 'x'],
    ['an unknown key', 'nokey', good],
    ['an unknown account', 'nobody~AK', good],
    ['a prototype', '__proto__', good],
    ['a disabled credential', 'disabled', disabled],
    ['a disabled credential, wrong secret', 'disabled', 'wrong'],
    ['an expired credential', 'acme~expired', expired],
    ['an expired credential, wrong secret', 'acme~expired', 'wrong'],
  ]
  const answers = new Set<string>()
  for (const [name, userName, secret = ''] of attempts) {
    for (const bytes of [loginInHeader(userName, secret), loginInBody(userName, secret)]) {
      const client = await setup.send(bytes)
      isOAuthError(t, await client.response(), { status: 401, error: 'invalid_client' }, name)
      answers.add(
        client
          .received()
          .toString('latin1')
          .replace(/^(?:X-Request-Id|Date): .*$/gm, ''),
      )
    }
  }
  t.equal(answers.size, 1)
  const [answer = ''] = answers
  t.equal(answer.match(/^WWW-Authenticate:/gim)?.length, 1)
  t.match(answer, /^Proxy-Status: storage-auth-sidecar; error=http_request_denied\r$/m)
})

t.test('all failed logins compute the same hashes', async (t) => {
  let scryptRuns = 0
  const hook = createHook({
    init(_id, type) {
      if (type === 'SCRYPTREQUEST') {
        scryptRuns++
      }
    },
  }).enable()
  t.teardown(() => hook.disable())
  const setup = await oauthSetup(t, {
    credentials: [
      { accountId: 'acme', accessKey: 'chosen', secret: 'right', scheme: 'scrypt' },
      { accountId: 'acme', accessKey: 'generated', secret: 'right' },
      { accountId: 'acme', accessKey: 'off', secret: 'right', scheme: 'scrypt', disabled: true },
      { accountId: 'acme', accessKey: 'old', secret: 'right', expiresAt: '2020-01-01T00:00:00Z' },
    ],
  })
  const runsOf = async (bytes: Buffer) => {
    scryptRuns = 0
    const { status } = await setup.ask(bytes)
    return [status, scryptRuns]
  }
  t.same(await runsOf(loginInHeader('chosen', 'right')), [200, 1])
  t.same(await runsOf(loginInBody('generated', 'right')), [200, 0])
  const attempts = [
    ['chosen', 'wrong'],
    ['acme~chosen', 'wrong'],
    ['generated', 'wrong'],
    ['off', 'right'],
    ['acme~old', 'right'],
    ['nobody', 'right'],
    ['nobody~chosen', 'right'],
    ['acme~nobody', 'right'],
  ] as const
  for (const [name, secret] of attempts) {
    t.same(await runsOf(loginInBody(name, secret)), [401, 1], name)
  }
  for (const name of ['chosen', 'nobody']) {
    t.same(await runsOf(loginInHeader(name, 'wr%6Fng')), [401, 2], `${name}, in two readings`)
  }
})

t.test('the challenge names basic.realm', async (t) => {
  const setup = await oauthSetup(t, { settings: { 'basic-realm': "the company's files" } })
  const refused = await setup.ask(loginInHeader('a', 'b'))
  t.match(refused, {
    status: 401,
    headers: { 'www-authenticate': 'Basic realm="the company\'s files"' },
  })
})

t.test('a client gets the scope that it asks for, or that of its credential, and never less', async (t) => {
  const own = 'storage.read:/a storage.modify:/b'
  const setup = await oauthSetup(t, {
    settings: { 'oauth-ignored-scopes': '["catalog", "all-apis"]' },
    credentials: [
      { accountId: 'acme', accessKey: 'free' },
      { accountId: 'acme', accessKey: 'bound', scope: own },
    ],
  })
  const [free, bound] = setup.sidecar.logins.map(({ secret }) => secret)
  const scopeFor = async (accessKey: string, secret: string | undefined, scope?: string) => {
    const more: Record<string, string> = scope === undefined ? {} : { scope }
    const response = await setup.ask(loginInBody(accessKey, secret ?? '', more))
    const body = jsonOf(response)
    if (response.status !== 200) {
      isOAuthError(t, response, { status: 400, error: 'invalid_scope', description: /^scope / }, `${scope}`)
      return 'invalid_scope'
    }
    t.equal(decodeJwt(body.access_token)['scope'], body.scope, 'as the token says')
    return body.scope
  }
  t.equal(await scopeFor('free', free), undefined)
  t.equal(await scopeFor('free', free, 'storage.read:/x'), 'storage.read:/x')
  t.equal(await scopeFor('bound', bound), own)
  t.equal(await scopeFor('bound', bound, ''), own)
  t.equal(await scopeFor('bound', bound, 'storage.read:/a/1'), 'storage.read:/a/1')
  t.equal(
    await scopeFor('bound', bound, 'storage.read:/a storage.read:/a'),
    'storage.read:/a storage.read:/a',
  )
  t.equal(await scopeFor('bound', bound, 'catalog'), own)
  t.equal(await scopeFor('free', free, 'catalog all-apis catalog'), undefined)
  t.equal(await scopeFor('bound', bound, 'catalog storage.read:/a all-apis'), 'storage.read:/a')
  const refused = [
    'storage.read:/',
    'storage.read:/a storage.read:/c',
    'Catalog',
    'unknown',
    'openid storage.read:/a',
    'storage.read:/a  storage.read:/a',
    ' ',
    'catalog ',
    'storage.read:/a,storage.read:/a',
    'storage.read:/../a',
    `storage.read:/a/${'x'.repeat(1024)}`,
    'storage.read:/ä',
  ]
  for (const scope of refused) {
    t.equal(await scopeFor('bound', bound, scope), 'invalid_scope', scope)
  }
  const wrong = await setup.ask(loginInBody('bound', 'wrong', { scope: 'unknown' }))
  isOAuthError(t, wrong, { status: 401, error: 'invalid_client' }, 'a wrong secret is told first')
})

t.test('other methods are a 405 in the form of the standard', async (t) => {
  const setup = await oauthSetup(t)
  for (const method of ['GET', 'PUT', 'DELETE', 'OPTIONS', 'PATCH']) {
    for (const lines of ['', setup.authorization, setup.authorization + setup.authorization]) {
      const response = await setup.ask(post('', lines, TOKEN_PATH, method))
      isOAuthError(t, response, { status: 405, error: 'invalid_request' }, method)
      t.equal(response.headers['allow'], 'POST')
    }
  }
  const head = await setup.ask(`HEAD ${TOKEN_PATH} HTTP/1.1\r\nHost: h\r\n\r\n`, { head: true })
  t.match(head, { status: 405, headers: { allow: 'POST' } })
  await setup.upstreamSaw(t, 0)
})

t.test('scripts of allowed origins may log in', async (t) => {
  const setup = await oauthSetup(t, { settings: { 'cors-allowed-origins': '["https://app.example"]' } })
  const [{ accessKey, secret } = { accessKey: '', secret: '' }] = setup.sidecar.logins
  const preflight = (origin: string) =>
    setup.ask(post('', `Origin: ${origin}\r\nAccess-Control-Request-Method: POST\r\n`, TOKEN_PATH, 'OPTIONS'))
  t.match(await preflight('https://app.example'), {
    status: 204,
    headers: {
      'access-control-allow-origin': 'https://app.example',
      'access-control-allow-methods': 'POST',
      'access-control-allow-headers': 'authorization, content-type',
      'access-control-max-age': '600',
      vary: 'Origin',
    },
  })
  const other = await preflight('https://other.example')
  isOAuthError(t, other, { status: 405, error: 'invalid_request' }, 'another origin')
  const fromApp = `Origin: https://app.example\r\n${FORM}`
  for (const password of [secret, 'wrong']) {
    const response = await setup.ask(post(GRANT, fromApp + basic(accessKey, password)))
    t.equal(response.headers['access-control-allow-origin'], 'https://app.example')
    t.equal(response.headers['access-control-expose-headers'], 'X-Request-Id, Proxy-Status, Retry-After')
  }
})

t.test('failed logins of all kinds share one throttle', async (t) => {
  const setup = await oauthSetup(t, {
    settings: { 'limits-login-failures-count': '3' },
    credentials: [
      { accountId: 'acme', accessKey: 'AK' },
      { accountId: 'other', accessKey: 'OK' },
    ],
  })
  const [acme, other] = setup.sidecar.logins
  const ask = (bytes: Buffer, from = '127.0.0.1') => rawRequest(t, setup.sidecar.port, bytes, { from })
  const login = async (body: object) => {
    const lines = 'Content-Type: application/json\r\n'
    return (await ask(post(JSON.stringify(body), lines, '/v2/auth/token'))).status
  }
  const statuses = [
    (await ask(loginInHeader('AK', 'wrong'))).status,
    (await ask(loginInBody('acme~AK', 'wrong'))).status,
    await login({ ...acme, secret: 'wrong' }),
  ]
  t.same(statuses, [401, 401, 403])
  const throttled = await ask(loginInHeader('AK', acme?.secret ?? ''))
  isOAuthError(t, throttled, { status: 503, error: 'temporarily_unavailable' }, 'also with the right secret')
  t.match(throttled.headers['retry-after'], /^[1-6]?\d$/)
  t.equal(await login({ ...acme }), 503, 'and for the other way')
  t.equal((await ask(loginInHeader('OK', other?.secret ?? ''))).status, 200, 'another account is untouched')
  const elsewhere = await ask(loginInHeader('AK', acme?.secret ?? ''), '127.0.0.2')
  t.equal(elsewhere.status, 200, 'and so is the account from another address')
})

t.test('a login of another name than its first reading takes back no failures of that name', async (t) => {
  const { ask, sidecar } = await oauthSetup(t, {
    settings: { 'limits-login-failures-count': '3' },
    credentials: [
      { accountId: 'acme', accessKey: 'AK' },
      { accountId: 'acm%65', accessKey: 'AK' },
    ],
  })
  const [victim, other] = sidecar.logins
  const status = async (name: string, secret = '') => (await ask(loginInHeader(name, secret))).status
  t.same([await status('acme~AK', 'guess 1'), await status('acme~AK', 'guess 2')], [401, 401])
  t.equal(await status('acm%65~AK', other?.secret), 200)
  t.match(
    sidecar.log.findLast(({ msg }) => msg === 'audit'),
    { event: 'login', account: 'acm%65', accessKey: 'AK' },
  )
  t.equal(await status('acme~AK', 'guess 3'), 401)
  t.equal(await status('acme~AK', victim?.secret), 503)
})

t.test('a bare name that no credential has is throttled under itself', async (t) => {
  const setup = await oauthSetup(t, { settings: { 'limits-login-failures-count': '2' } })
  const status = async (name: string) => (await setup.ask(loginInHeader(name, 'guess'))).status
  t.same([await status('nobody'), await status('nobody'), await status('nobody')], [401, 401, 503])
  t.equal(await status('somebody'), 401)
  t.equal(await status('nobody~nobody'), 401)
})

t.test('a login is counted and has its audit line, without a secret', async (t) => {
  const setup = await oauthSetup(t, { credentials: [{ accountId: 'acme', accessKey: 'AK' }] })
  const [{ secret } = { secret: '' }] = setup.sidecar.logins
  const token = jsonOf(await setup.ask(loginInHeader('AK', secret))).access_token
  await setup.ask(loginInHeader('acme~AK', 'wr0ng-secret'))
  await setup.ask(loginInHeader('stranger', 'wr0ng-secret'))
  await setup.ask(post(GRANT, `${FORM}Authorization: Basic wr0ng-secret\r\n`))
  const audit = setup.sidecar.log.filter(({ msg }) => msg === 'audit')
  t.match(audit, [
    {
      event: 'login',
      outcome: 'ok',
      method: 'oauth',
      account: 'acme',
      accessKey: 'AK',
      tokenId: decodeJwt(token).jti,
      client: '127.0.0.1',
    },
    { event: 'login_failed', reason: 'rejected', method: 'oauth', account: 'acme', accessKey: 'AK' },
    { event: 'login_failed', reason: 'rejected', method: 'oauth', account: undefined },
    { event: 'login_failed', reason: 'invalid', method: 'oauth', account: undefined },
  ])
  t.equal(await setup.sidecar.metric('auth_sidecar_tokens_issued_total'), 1)
  for (const [status, count] of [
    ['200', 1],
    ['401', 3],
  ]) {
    const series = `auth_sidecar_requests_total{route="token_issue",method="POST",status="${status}"}`
    t.equal(await setup.sidecar.metric(series), count)
  }
  const log = JSON.stringify(setup.sidecar.log)
  for (const hidden of [secret, token, 'wr0ng-secret', Buffer.from(`AK:${secret}`).toString('base64')]) {
    t.notOk(log.includes(hidden))
  }
})

t.test('report mode changes nothing', async (t) => {
  const setup = await oauthSetup(t, { settings: { enforcement: 'report' } })
  const refused = await setup.ask(loginInHeader('a', 'b'))
  isOAuthError(t, refused, { status: 401, error: 'invalid_client' }, 'a wrong secret')
  await setup.upstreamSaw(t, 0)
})

const METADATA = '/.well-known/oauth-authorization-server'
const JWKS = '/.well-known/jwks.json'

t.test('an issuer that is an https URL has metadata and keys, which may be cached', async (t) => {
  const issuer = 'https://auth.example:8443'
  const setup = await oauthSetup(t, {
    settings: {
      'token-issuer': issuer,
      'listen-base-path': '/api',
      'oauth-token-paths': '["/v1/oauth/tokens", "/api/v2/oauth/token"]',
      enforcement: 'report',
    },
  })
  const ask = (path: string, method = 'GET', lines = '') =>
    setup.ask(`${method} ${path} HTTP/1.1\r\nHost: h\r\n${lines}\r\n`, { head: method === 'HEAD' })
  const cached = {
    'content-type': 'application/json',
    'cache-control': 'public, max-age=300',
    'proxy-status': undefined,
  }
  for (const lines of ['', setup.authorization, basic('a', 'b'), basic('a', 'b') + basic('a', 'b')]) {
    const metadata = await ask(METADATA, 'GET', lines)
    t.match(metadata, { status: 200, headers: cached })
    t.same(jsonOf(metadata), {
      issuer,
      token_endpoint: `${issuer}/v1/oauth/tokens`,
      jwks_uri: `${issuer}${JWKS}`,
      grant_types_supported: ['client_credentials'],
      token_endpoint_auth_methods_supported: ['client_secret_basic', 'client_secret_post'],
      scopes_supported: ['storage.read:/', 'storage.create:/', 'storage.modify:/'],
      response_types_supported: ['none'],
    })
  }
  const keys = await ask(JWKS)
  t.match(keys, { status: 200, headers: cached })
  const onAdmin = await fetch(`http://127.0.0.1:${setup.sidecar.adminPort}${JWKS}`)
  t.same(jsonOf(keys), await onAdmin.json(), 'the same as on the admin listener')
  t.notMatch(keys.body.toString(), /"d":/)
  for (const path of [METADATA, JWKS]) {
    const head = await ask(path, 'HEAD')
    t.match(head, { status: 200, headers: cached })
    t.equal(head.headers['content-length'], String((await ask(path)).body.length))
    const refused = await ask(path, 'POST')
    isOAuthError(t, refused, { status: 405, error: 'invalid_request' }, path)
    t.equal(refused.headers['allow'], 'GET, HEAD')
    t.equal((await ask(`${path}?x`)).status, 200)
  }
  t.equal(
    await setup.sidecar.metric('auth_sidecar_requests_total{route="public",method="GET",status="200"}'),
    9,
  )
  await setup.upstreamSaw(t, 0)
  await ask(`${METADATA}/`)
  await setup.upstreamSaw(t, 1)
})

t.test('caches keep what browsers of allowed origins may read apart', async (t) => {
  const setup = await oauthSetup(t, {
    settings: {
      'token-issuer': 'https://auth.example',
      'cors-allowed-origins': '["https://app.example"]',
    },
  })
  const corsOf = async (lines: string) => {
    const { headers } = await setup.ask(`GET ${METADATA} HTTP/1.1\r\nHost: h\r\n${lines}\r\n`)
    return [headers['access-control-allow-origin'], headers['vary']]
  }
  t.same(await corsOf('Origin: https://app.example\r\n'), ['https://app.example', 'Origin'])
  t.same(await corsOf('Origin: https://other.example\r\n'), [undefined, 'Origin'])
  t.same(await corsOf(''), [undefined, 'Origin'])
  const lines = 'Origin: https://app.example\r\nAccess-Control-Request-Method: GET\r\n'
  const preflight = await setup.ask(`OPTIONS ${JWKS} HTTP/1.1\r\nHost: h\r\n${lines}\r\n`)
  t.match(preflight, { status: 204, headers: { 'access-control-allow-methods': 'GET, HEAD' } })
})

t.test('with another issuer, the paths of metadata and keys are those of the storage', async (t) => {
  const issuers = [
    'storage-account-api',
    'http://auth.example',
    'https://auth.example/',
    'https://auth.example/tenant',
    'https://auth.example?x',
    'https://auth.example#x',
    'https://user@auth.example',
    'https://auth.example:99999',
    'https://',
  ]
  for (const issuer of issuers) {
    const setup = await oauthSetup(t, { settings: { 'token-issuer': issuer } })
    for (const path of [METADATA, JWKS]) {
      const refused = await setup.ask(`GET ${path} HTTP/1.1\r\nHost: h\r\n\r\n`)
      t.match(refused, { status: 400, body: /"InvalidToken"/ }, `${issuer} ${path}`)
    }
  }
})
