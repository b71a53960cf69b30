/** HTTP Basic: logins that the sidecar makes for clients that cannot send a token, and remembers. */
import { readFileSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { basicLine, lineOf, startBasicSetup } from '../support/basic.ts'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import type { RawResponse } from '../support/raw-client.ts'
import { startSetup } from '../support/setup.ts'

const CHALLENGE = 'Basic realm="storage", charset="UTF-8"'
const REFUSED = {
  status: 401,
  code: 'Authentication failed',
  error: 'http_request_denied',
  details: 'credentials',
}
const UUID = /^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/

/** Checks that a response is the refusal of a login, with exactly one challenge. */
function isRefused(t: Test, response: RawResponse, name: string): void {
  isOwnResponse(t, response, REFUSED, name)
  t.same(challengesOf(response), [CHALLENGE], `${name}: one challenge`)
}

/** The values of all lines `WWW-Authenticate`. */
function challengesOf({ rawHeaders }: RawResponse): string[] {
  const isName = (text: string, at: number) => at % 2 === 0 && text.toLowerCase() === 'www-authenticate'
  return rawHeaders.filter((_, at) => at > 0 && isName(String(rawHeaders[at - 1]), at - 1))
}

t.test('a name and a secret are a login that is remembered, and give the identity of a token', async (t) => {
  const clock = { ms: Date.UTC(2030, 0, 1) + 400 }
  const { identity, line, login, audit, access, checks, sidecar } = await startBasicSetup(t, {
    now: () => clock.ms,
  })
  const first = await identity(line)
  t.match(first, {
    status: 200,
    account: login.accountId,
    accessKey: login.accessKey,
    tokenId: UUID,
    expires: Date.UTC(2030, 0, 1) / 1000 + 301,
    scope: undefined,
    authorization: undefined,
  })
  clock.ms += 299_999
  t.same(await identity(line), first, 'remembered for 300 s')
  clock.ms += 1
  const second = await identity(line)
  t.match(second, { status: 200, tokenId: UUID, expires: Date.UTC(2030, 0, 1) / 1000 + 601 })
  t.not(second.tokenId, first.tokenId, 'then another login')
  t.match(audit(), [
    {
      event: 'login',
      outcome: 'ok',
      method: 'basic',
      account: 'acme',
      accessKey: 'AK0',
      tokenId: first.tokenId,
      client: '127.0.0.1',
    },
    { event: 'login', method: 'basic', tokenId: second.tokenId },
  ])
  t.match(access()[1], { route: 'proxy', account: 'acme', accessKey: 'AK0', tokenId: first.tokenId })
  t.equal(await checks('ok'), 3)
  t.equal(await sidecar.metric('auth_sidecar_tokens_issued_total'), 0, 'it is no token')
})

t.test(
  'the user name is an access key that one credential has, or an account and an access key',
  async (t) => {
    const credentials = [
      { accountId: 'acme', accessKey: 'own' },
      { accountId: 'acme', accessKey: 'shared' },
      { accountId: 'other', accessKey: 'shared' },
      { accountId: 'with~tilde', accessKey: 'key' },
      { accountId: 'acme', accessKey: 'a~b' },
      { accountId: 'märz', accessKey: 'schlüssel', secret: 'пароль: 🔑' },
    ]
    const { get, identity, sidecar } = await startBasicSetup(t, { credentials })
    const secretOf = (at: number) => String(sidecar.logins[at]?.secret)
    for (const [name, at, account, accessKey] of [
      ['own', 0, 'acme', 'own'],
      ['acme~own', 0, 'acme', 'own'],
      ['acme~shared', 1, 'acme', 'shared'],
      ['other~shared', 2, 'other', 'shared'],
      ['with~tilde~key', 3, 'with~tilde', 'key'],
      ['a~b', 4, 'acme', 'a~b'],
      ['schlüssel', 5, 'm%C3%A4rz', 'schl%C3%BCssel'],
      ['märz~schlüssel', 5, 'm%C3%A4rz', 'schl%C3%BCssel'],
    ] as const) {
      const { status, ...caller } = await identity(basicLine(name, secretOf(at)))
      t.match(
        { status, ...caller },
        { status: 200, account, accessKey: encodeURIComponent(decodeURIComponent(accessKey)) },
        name,
      )
    }
    for (const [name, at] of [
      ['shared', 1],
      ['acme~a~b', 4],
      ['~own', 0],
      ['acme~', 0],
      ['OWN', 0],
      [' own', 0],
      ['', 0],
    ] as const) {
      isRefused(t, await get(basicLine(name, secretOf(at))), `the name "${name}"`)
    }
  },
)

t.test('every refused login has the same bytes, and no form of them is forwarded', async (t) => {
  const expiresAt = new Date(Date.now() - 1000).toISOString()
  const { get, login, sidecar, upstream, revoke, audit } = await startBasicSetup(t, {
    credentials: [
      {},
      { accessKey: 'disabled', disabled: true },
      { accessKey: 'expired', expiresAt },
      { accountId: 'revoked', accessKey: 'revoked' },
      { accessKey: 'scrypt', scheme: 'scrypt' },
    ],
  })
  revoke('[{ accountId: revoked }]')
  await eventually(async () => (await sidecar.metric('auth_sidecar_revocations')) === 1, 'the revocation')
  const [, disabled, expired, revoked] = sidecar.logins.map(lineOf)
  const encoded = Buffer.from(`${login.accessKey}:${login.secret}`).toString('base64')
  const raw = (value: string) => `Authorization: ${value}\r\n`
  const bytes = (...list: number[]) => raw(`Basic ${Buffer.from(list).toString('base64')}`)
  const before = audit().length
  const checked = {
    'a wrong secret': basicLine(login.accessKey, 'wrong'),
    'an unknown name': basicLine('unknown', login.secret),
    'an unknown account': basicLine(`unknown~${login.accessKey}`, login.secret),
    'an unknown key': basicLine('acme~unknown', login.secret),
    'an empty name': basicLine('', login.secret),
    'an empty secret': basicLine(login.accessKey, ''),
    'a disabled credential': String(disabled),
    'an expired credential': String(expired),
    'a revoked account': String(revoked),
    'a wrong secret of a scrypt credential': basicLine('scrypt', 'wrong'),
  }
  const malformed = {
    'no value': raw(''),
    'the scheme alone': raw('Basic'),
    'no colon': raw(`Basic ${Buffer.from('acme').toString('base64')}`),
    'no padding': raw(`Basic ${encoded.replace(/=*$/, '')}`).replace(/([^=])=*\r/, '$1\r'),
    'too much padding': raw(`Basic ${encoded}=`),
    'the URL-safe alphabet': raw('Basic YTo_Pz8_'),
    'a tab': raw(`Basic\t${encoded}`),
    'two schemes': raw(`Basic ${encoded}, Bearer x`),
    'another scheme': raw('Digest username="acme"'),
    'a scheme that begins like Bearer': raw(`Bearers ${encoded}`),
    'invalid UTF-8': bytes(0x61, 0x3a, 0xff),
    'a NUL': bytes(0x61, 0x3a, 0x00),
    '8 KiB': raw(`Basic ${'A'.repeat(8192)}`),
  }
  const bodies = new Set<string>()
  for (const [name, line] of Object.entries({ ...checked, ...malformed })) {
    const response = await get(`${line}X-Request-Id: same\r\n`)
    isRefused(t, response, name)
    const { status, reason, body } = response
    const lines = response.rawHeaders.join('\n').replace(/^Date\n.*$/m, '')
    bodies.add(JSON.stringify([status, reason, lines, body.toString()]))
  }
  t.equal(bodies.size, 1, 'the same bytes but for the date')
  t.equal(upstream.requests.length, 0)
  const failures = audit().slice(before)
  t.equal(failures.length, Object.keys(checked).length, 'a malformed value is no login')
  for (const failure of failures) {
    t.match(failure, { event: 'login_failed', method: 'basic', reason: 'rejected' })
  }
  t.equal(await sidecar.metric('auth_sidecar_token_issue_failures_total{reason="rejected"}'), 0)
  t.notMatch(JSON.stringify(sidecar.log), login.secret, 'no secret is logged')
})

t.test('contract.authenticationFailedCode and basic.realm change the refusal', async (t) => {
  const settings = {
    'contract-authentication-failed-code': 'AuthenticationFailed',
    'basic-realm': 'The storage',
  }
  const { get } = await startBasicSetup(t, { settings })
  const response = await get(basicLine('AK0', 'wrong'))
  isOwnResponse(t, response, { ...REFUSED, code: 'AuthenticationFailed' })
  t.same(challengesOf(response), ['Basic realm="The storage", charset="UTF-8"'])
})

t.test(
  'a request without Authorization is asked for a name; tokens and links stay as they are',
  async (t) => {
    for (const status of [400, 401]) {
      const { ask, get, request, line, authorization, sidecar } = await startBasicSetup(t, {
        settings: {
          'links-enabled': 'true',
          'contract-refused-token-status': String(status),
          'public-routes': '[{ method: GET, path: /healthz }]',
        },
      })
      const missing = await get('')
      isOwnResponse(t, missing, { status: 401, code: 'InvalidToken', details: 'missing' })
      t.same(challengesOf(missing), [CHALLENGE])

      const bearer = (error: string) => (status === 401 ? [`Bearer realm="storage"${error}`] : [])
      const forged = await get('Authorization: Bearer a.b.c\r\n')
      isOwnResponse(t, forged, { status, code: 'InvalidToken' }, 'a forged token')
      t.same(challengesOf(forged), bearer(', error="invalid_token"'))
      for (const value of ['Bearer', 'bearer ', 'Bearer\ta.b.c']) {
        const response = await get(`Authorization: ${value}\r\n`)
        isOwnResponse(t, response, { status, code: 'InvalidToken', details: 'malformed' }, value)
        t.same(challengesOf(response), bearer(''))
      }
      const expired = await sidecar.mint({ now: Date.now() - 7_200_000 })
      const ended = await get(`Authorization: Bearer ${expired}\r\n`)
      isOwnResponse(t, ended, { status, code: 'ExpiredToken' })

      for (const [what, lines, target] of [
        ['a broken link', '', '/o?link_token=x'],
        ['Basic beside a link', line, '/o?link_token=x'],
        ['a token beside a link', authorization, '/o?link_token=x'],
        ['two Authorization lines', line + line, '/o'],
        ['Basic beside a token', line + authorization, '/o'],
        ['Basic at the token endpoint', line, '/v2/auth/token'],
        ['nothing at the token endpoint', '', '/v2/auth/token'],
        ['Basic at the link endpoint', line, 'POST /v2/auth/links'],
      ] as const) {
        const methodAndTarget = target.startsWith('/') ? `GET ${target}` : target
        const response = await ask(request(methodAndTarget, lines))
        isOwnResponse(t, response, { status, code: 'InvalidToken' }, what)
        t.notMatch(challengesOf(response).join(), /Basic/, what)
      }
      t.equal((await get('', '/healthz')).status, 200, 'a public route is asked for nothing')
      t.equal((await get(basicLine('AK0', 'wrong'), '/healthz')).status, 200)
    }
  },
)

t.test('while HTTP Basic is off, it is an invalid token', async (t) => {
  const { ask, head, authorization } = await startSetup(t)
  for (const line of [basicLine('AK0', 'secret'), '']) {
    const response = await ask(head('GET /o').replace(authorization, line))
    isOwnResponse(t, response, { status: 400, code: 'InvalidToken' })
    t.same(challengesOf(response), [])
  }
})

t.test('the secret is never forwarded; identity.forwardAuthorization forwards tokens alone', async (t) => {
  const { identity, line, authorization, get, upstream, login } = await startBasicSetup(t, {
    settings: { 'identity-forward-authorization': 'true' },
  })
  t.match(await identity(authorization), { status: 200, authorization: /^Bearer / })
  t.match(await identity(line), { status: 200, accessKey: 'AK0', authorization: undefined })
  t.match(await identity(line), { status: 200, accessKey: 'AK0', authorization: undefined })
  t.equal((await get(line, '/other')).status, 200)
  const encoded = Buffer.from(`:${login.secret}`).toString('base64').slice(4, 40)
  for (const bytes of upstream.bytes) {
    t.notOk(bytes.includes(login.secret) || bytes.includes(encoded))
  }
})

t.test('requests side by side are one login, right or wrong', async (t) => {
  const { get, line, audit, checks, access } = await startBasicSetup(t)
  const five = <T>(ask: () => Promise<T>) => Promise.all(Array.from({ length: 5 }, ask))
  for (const response of await five(() => get(basicLine('AK0', 'wrong')))) {
    isRefused(t, response, 'wrong')
  }
  t.match(audit(), [{ event: 'login_failed', reason: 'rejected', account: 'acme', accessKey: 'AK0' }])
  t.equal(await checks('credentials'), 5, 'each is a refused request')
  t.same(
    (await five(() => get(line))).map(({ status }) => status),
    [200, 200, 200, 200, 200],
  )
  t.match(audit(), [{ event: 'login_failed' }, { event: 'login' }])
  const ids = new Set(
    access()
      .slice(5)
      .map(({ tokenId }) => tokenId),
  )
  t.equal(ids.size, 1)
  t.match([...ids], [UUID])
})

t.test('failed logins are throttled as at the token endpoint, and what is remembered goes on', async (t) => {
  const { get, ask, line, audit, sidecar, login, identity } = await startBasicSetup(t, {
    credentials: [{}, { accessKey: 'second' }, { accountId: 'other', accessKey: 'third' }],
    settings: { 'limits-login-failures-count': '3' },
  })
  const [, second, third] = sidecar.logins.map(lineOf)
  t.equal((await get(line)).status, 200)
  const post = (secret: string) => {
    const body = JSON.stringify({ accountId: 'acme', accessKey: 'AK0', secret })
    return ask(`POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  }
  isRefused(t, await get(basicLine('AK0', 'wrong')), 'the first')
  isOwnResponse(t, await post('wrong'), { status: 403, code: 'Authentication failed' })
  isRefused(t, await get(basicLine('acme~none', 'wrong')), 'the third')
  for (const refused of [await get(basicLine('AK0', 'wrong')), await get(String(second))]) {
    isOwnResponse(t, refused, { status: 503, code: 'ServiceNotReady', details: 'unavailable' })
    t.same(challengesOf(refused), [])
  }
  isOwnResponse(t, await post(login.secret), { status: 503, code: 'ServiceNotReady' })
  t.match(audit().at(-2), { event: 'login_failed', method: 'basic', reason: 'throttled', account: 'acme' })
  t.equal((await identity(line)).status, 200, 'a login that is remembered goes on')
  t.equal((await get(String(third))).status, 200, 'another account is untouched')
  for (let at = 0; at < 5; at++) {
    isRefused(t, await get('Authorization: Basic x\r\n'), 'a malformed value is no failed login')
  }
  const unknown = Array.from({ length: 4 }, () => get(basicLine('nobody', `${Math.random()}`)))
  t.equal((await Promise.all(unknown)).filter(({ status }) => status === 503).length, 1, 'by its own name')
})

t.test('a change of credentials ends what is remembered', async (t) => {
  const { get, identity, line, sidecar, audit } = await startBasicSetup(t)
  const first = await identity(line)
  const file = sidecar.credentialsFile
  const text = readFileSync(file, 'utf8')
  const reloads = () => sidecar.metric('auth_sidecar_reloads_total{subject="credentials",result="ok"}')
  writeFileSync(file, `${text}# changed\n`)
  await eventually(async () => (await reloads()) > 0, 'the file to be read again')
  const second = await identity(line)
  t.equal(second.status, 200)
  t.not(second.tokenId, first.tokenId, 'another login')
  writeFileSync(file, text.replace(/( +)secretHash/, '$1disabled: true\n$&'))
  await eventually(async () => (await get(line)).status === 401, 'the disabled credential')
  t.match(audit().at(-1), { event: 'login_failed', method: 'basic', reason: 'rejected' })
  writeFileSync(file, text)
  await eventually(async () => (await get(line)).status === 200, 'the enabled credential')
})

t.test('a credential that expires ends its remembered login at that moment', async (t) => {
  const clock = { ms: Date.UTC(2030, 0, 1) }
  const { get, identity, line } = await startBasicSetup(t, {
    now: () => clock.ms,
    credentials: [{ expiresAt: new Date(clock.ms + 60_500).toISOString() }],
  })
  t.match(await identity(line), { status: 200, expires: clock.ms / 1000 + 61 })
  clock.ms += 60_499
  t.equal((await get(line)).status, 200)
  clock.ms += 1
  isRefused(t, await get(line), 'expired')
})
