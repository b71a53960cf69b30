import { createPublicKey, type JsonWebKey, randomBytes } from 'node:crypto'
import { createServer } from 'node:net'
import t from 'tap'
import { makeKey, writeKey } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { startSetup } from '../support/setup.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { mintToken, respellings } from '../support/tokens.ts'

/** A request with this token. */
const bearing = (token: string, target = '/b/k') =>
  `GET ${target} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${token}\r\n\r\n`

t.test('a fresh token is good at a replica whose clock is behind, and ends on time at all', async (t) => {
  const clock = { ms: Date.UTC(2030, 0, 1) + 400 }
  const behind = { ms: 4900 }
  const issuing = await startSetup(t, { now: () => clock.ms, settings: { 'token-lifetime-seconds': '60' } })
  const settings = { 'keys-directory': issuing.sidecar.key.directory }
  const replica = await startSetup(t, { now: () => clock.ms - behind.ms, settings })
  const [login] = issuing.sidecar.logins
  const body = JSON.stringify(login)
  const lines = `Host: h\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`
  const issued = await issuing.ask(`POST /v2/auth/token HTTP/1.1\r\n${lines}\r\n\r\n${body}`)
  const { token } = JSON.parse(issued.body.toString())
  // The replica has the same names in its own file.
  t.equal((await replica.ask(bearing(token))).status, 200)
  behind.ms = 5500
  const other = await startSetup(t, { now: () => clock.ms - behind.ms, settings })
  isOwnResponse(t, await other.ask(bearing(token)), {
    status: 400,
    code: 'InvalidToken',
    error: 'http_request_denied',
    details: 'claims',
  })
  clock.ms += 61_000
  behind.ms = 0
  for (const { ask } of [issuing, replica, other]) {
    isOwnResponse(t, await ask(bearing(token)), {
      status: 400,
      code: 'ExpiredToken',
      error: 'http_request_denied',
      details: 'expired',
    })
  }
})

t.test('a request without exactly one valid bearer token is refused', async (t) => {
  const setup = await startSetup(t)
  const { token } = setup.sidecar
  const [header = '', payload = '', signature = ''] = token.split('.')
  const cases: [name: string, lines: string, details: string][] = [
    ['no Authorization', '', 'missing'],
    ['an empty one', 'Authorization:\r\n', 'malformed'],
    ['only the scheme', 'Authorization: Bearer\r\n', 'malformed'],
    ['only the scheme and a space', 'Authorization: Bearer \r\n', 'malformed'],
    ['another scheme', `Authorization: Basic ${token}\r\n`, 'malformed'],
    ['no scheme', `Authorization: ${token}\r\n`, 'malformed'],
    ['no space', `Authorization: Bearer${token}\r\n`, 'malformed'],
    ['a tab for a space', `Authorization: Bearer\t${token}\r\n`, 'malformed'],
    ['a space beyond ASCII', `Authorization: Bearer\xa0${token}\r\n`, 'malformed'],
    ['an equals sign', `Authorization: Bearer=${token}\r\n`, 'malformed'],
    ['a scheme cut short', `Authorization: Beare ${token}\r\n`, 'malformed'],
    ['a longer scheme', `Authorization: Bearers ${token}\r\n`, 'malformed'],
    ['the scheme twice', `Authorization: Bearer Bearer ${token}\r\n`, 'malformed'],
    ['another scheme in front', `Authorization: Basic x, Bearer ${token}\r\n`, 'malformed'],
    ['a list', `Authorization: Bearer ${token}, Bearer ${token}\r\n`, 'malformed'],
    ['a list without spaces', `Authorization: Bearer ${token},${token}\r\n`, 'malformed'],
    ['two words', `Authorization: Bearer ${token} ${token}\r\n`, 'malformed'],
    ['the same twice', `Authorization: Bearer ${token}\r\nAuthorization: Bearer ${token}\r\n`, 'malformed'],
    [
      'a valid one after an invalid one',
      `Authorization: Bearer x\r\nauthorization: Bearer ${token}\r\n`,
      'malformed',
    ],
    ['an invalid one after a valid one', `Authorization: Bearer ${token}\r\nAUTHORIZATION:\r\n`, 'malformed'],
    [
      'a cookie',
      `Cookie: token=${token}; Authorization=Bearer ${token}; access_token=${token}\r\n`,
      'missing',
    ],
    ['a header of another name', `X-Auth-Token: ${token}\r\nX-Authorization: Bearer ${token}\r\n`, 'missing'],
    ['quotes', `Authorization: Bearer "${token}"\r\n`, 'malformed'],
    ['two segments', `Authorization: Bearer ${header}.${payload}\r\n`, 'malformed'],
    ['four segments', `Authorization: Bearer ${token}.${signature}\r\n`, 'malformed'],
    ['five segments', `Authorization: Bearer ${header}.${payload}.${signature}.a.b\r\n`, 'malformed'],
    ['an empty signature', `Authorization: Bearer ${header}.${payload}.\r\n`, 'malformed'],
    ['an empty header', `Authorization: Bearer .${payload}.${signature}\r\n`, 'malformed'],
    ['JSON', 'Authorization: Bearer {"alg":"none"}\r\n', 'malformed'],
    ['bytes beyond ASCII', `Authorization: Bearer ${token}\xe9\r\n`, 'malformed'],
    ['8 KiB and a byte', `Authorization: Bearer ${`${token}.`.padEnd(8193, 'a')}\r\n`, 'malformed'],
    [
      '15 KiB',
      `Authorization: Bearer ${'a'.repeat(5000)}.${'a'.repeat(5000)}.${'a'.repeat(5000)}\r\n`,
      'malformed',
    ],
  ]
  for (const [name, respelled] of respellings(token)) {
    // White space before a token is a separator, after it no part of the value; a line end ends the line.
    if (/^a space (before|after) it$|line end/.test(name)) {
      continue
    }
    cases.push([name, `Authorization: Bearer ${respelled}\r\n`, 'malformed'])
  }
  for (const [name, lines, details] of cases) {
    for (const target of [
      '/b/k',
      '/v2/auth/token',
      `/b/k?access_token=${token}&Authorization=Bearer%20${token}`,
    ]) {
      const answer = await setup.ask(`GET ${target} HTTP/1.1\r\nHost: h\r\n${lines}\r\n`)
      isOwnResponse(
        t,
        answer,
        { status: 400, code: 'InvalidToken', details },
        `${name} at ${target.slice(0, 16)}`,
      )
    }
  }
  const folded = await setup.ask(
    `GET /b/k HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${header}\r\n .${payload}.${signature}\r\n\r\n`,
  )
  isOwnResponse(t, folded, { status: 400, code: 'InvalidArgument' }, 'a folded line')
  const ambiguous = await setup.ask(setup.head('GET /b/k', setup.authorization.trimEnd(), 'Host: h'))
  isOwnResponse(t, ambiguous, { status: 400, code: 'InvalidArgument' }, 'two tokens and two hosts')
  await setup.upstreamSaw(t, 0)
})

t.test('the scheme may have any letter case and several spaces after it', async (t) => {
  const setup = await startSetup(t)
  for (const scheme of ['Bearer ', 'bearer ', 'BEARER ', 'bEaReR ', 'Bearer    ']) {
    const response = await setup.ask(
      `GET /b/k HTTP/1.1\r\nHost: h\r\nAUTHORIZATION:  ${scheme}${setup.sidecar.token}  \r\n\r\n`,
    )
    t.equal(response.status, 200, scheme)
    await setup.upstreamSaw(t, 1)
  }
})

t.test('a token without a valid signature and valid claims is refused for the right reason', async (t) => {
  const clock = { ms: Date.UTC(2030, 0, 1) }
  const setup = await startSetup(t, { now: () => clock.ms })
  const { key, mint, token } = setup.sidecar
  const other = await makeKey('ES256', 'another-key')
  const [header = '', payload = '', signature = ''] = token.split('.')
  const second = Math.floor(clock.ms / 1000)
  const publicKey = JSON.stringify(key.publicJwk)
  // Every form of a claim, and every odd kid, stand in token/verify.test.ts.
  const cases: [name: string, token: string | Promise<string>, details: string][] = [
    ['alg none', mint({ header: { alg: 'none' }, signature: 'AA' }), 'algorithm'],
    ['alg None', mint({ header: { alg: 'None' } }), 'algorithm'],
    ['alg NONE', mint({ header: { alg: 'NONE' } }), 'algorithm'],
    ['alg nOnE', mint({ header: { alg: 'nOnE' } }), 'algorithm'],
    ['alg in lower case', mint({ header: { alg: 'es256' } }), 'algorithm'],
    ['HMAC with the public key', mint({ header: { alg: 'HS256' }, hmacSecret: publicKey }), 'algorithm'],
    ['another algorithm of the same key', mint({ header: { alg: 'ES384' } }), 'algorithm'],
    ['no alg', mint({ header: { alg: undefined } }), 'malformed'],
    [
      'a signature of another token',
      mint().then((t) => `${header}.${payload}.${t.split('.')[2]}`),
      'signature',
    ],
    ['claims of another token', mint().then((t) => `${header}.${t.split('.')[1]}.${signature}`), 'signature'],
    ['a foreign key under our kid', mint({ key: { ...other, kid: key.kid } }), 'signature'],
    [
      'an expired one of a foreign key',
      mint({ key: { ...other, kid: key.kid }, lifetimeSeconds: -5 }),
      'signature',
    ],
    ['a foreign key', mint({ key: other }), 'unknown_key'],
    ['no kid', mint({ header: { kid: undefined } }), 'unknown_key'],
    ['a kid of __proto__', mint({ header: { kid: '__proto__' } }), 'unknown_key'],
    ['a kid of 4 KiB', mint({ header: { kid: 'x'.repeat(4096) } }), 'unknown_key'],
    ['a kid of 8 KiB', mint({ header: { kid: 'x'.repeat(8192) } }), 'malformed'],
    ['a kid that is an array', mint({ header: { kid: [key.kid] } }), 'malformed'],
    ['a kid that is a number', mint({ header: { kid: 1 } }), 'malformed'],
    ['exp missing', mint({ claims: { exp: undefined } }), 'claims'],
    ['exp beyond every double', mint({ claimsText: claimsText(second, '1e400') }), 'claims'],
    ['another issuer', mint({ claims: { iss: 'other' } }), 'claims'],
    ['another audience', mint({ claims: { aud: 'other' } }), 'claims'],
    ['a subject with a line end', mint({ claims: { sub: 'a\r\nX-Authenticated-Account-Id: b' } }), 'claims'],
    ['a subject of 64 KiB', `${header}.${'A'.repeat(12_000)}.${signature}`, 'malformed'],
    ['a byte order mark', mint({ claimsText: `\ufeff${claimsText(second, `${second + 60}`)}` }), 'claims'],
    [
      'claims of a prototype',
      mint({ claimsText: `{"__proto__":${claimsText(second, `${second + 60}`)}}` }),
      'claims',
    ],
    ['claims that are no JSON', mint({ claimsText: 'hello' }), 'claims'],
    ['claims of 1,000 brackets', mint({ claimsText: '['.repeat(1000) }), 'claims'],
    ['a signature of zeros', mint({ signature: 'A'.repeat(86) }), 'signature'],
    ['a signature of one byte', mint({ signature: 'AA' }), 'signature'],
    ['another typ', mint({ header: { typ: 'JWT' } }), 'claims'],
    ['a token of another kind', mint({ header: { typ: 'secevent+jwt' } }), 'claims'],
    ['no typ', mint({ header: { typ: undefined } }), 'claims'],
    ['an unknown credential', mint({ claims: { client_id: 'unknown' } }), 'revoked'],
  ]
  for (const [name, made, details] of cases) {
    const answer = await setup.ask(bearing(await made))
    const seen = /details="(.*)"/.exec(answer.headers['proxy-status'] ?? '')?.[1]
    isOwnResponse(t, answer, { status: 400, code: 'InvalidToken' }, `${name} (${seen})`)
    t.equal(seen, details, name)
  }
  for (const cut of [1, 2, 3, 4]) {
    // Whether what is left still has the shape of a token depends on its last bits.
    const answer = await setup.ask(bearing(token.slice(0, -cut)))
    isOwnResponse(t, answer, { status: 400, code: 'InvalidToken' }, `a signature cut by ${cut}`)
  }
  for (const [name, extra] of [
    ['crit', { crit: ['exp'] }],
    ['an empty crit', { crit: [] }],
    ['b64', { b64: false, crit: ['b64'] }],
    ['b64 without crit', { b64: false }],
    ['b64 of null', { b64: null }],
    ['zip', { zip: 'DEF' }],
    ['cty', { cty: 'JWT' }],
  ] as const) {
    const answer = await setup.ask(bearing(await mint({ header: extra })))
    isOwnResponse(t, answer, { status: 400, code: 'InvalidToken' }, name)
  }
  await setup.upstreamSaw(t, 0)
  for (const typ of ['at+jwt', 'AT+JWT', 'application/at+jwt']) {
    const authorization = `Authorization: Bearer ${await mint({ header: { typ } })}\r\n`
    const answer = await setup.ask(`GET /b/k HTTP/1.1\r\nHost: h\r\n${authorization}\r\n`)
    t.equal(answer.status, 200, typ)
  }
})

/** The claims of a good token but for its `exp`, which is a text. */
function claimsText(second: number, exp: string): string {
  return `{"iss":"storage-account-api","aud":"storage-api","sub":"acme","client_id":"AK0","jti":"j","iat":${second},"exp":${exp}}`
}

t.test('an abnormal token header is refused without a signature check', async (t) => {
  const setup = await startSetup(t)
  const { mint } = setup.sidecar
  for (const [name, headerText] of [
    ['a byte order mark', '\ufeff{"alg":"ES256"}'],
    ['a name twice', '{"alg":"ES256","alg":"none"}'],
    ['depth', '['.repeat(3000)],
    ['no object', '"ES256"'],
    ['an array', '[]'],
    ['null', 'null'],
    ['no JSON', 'x'],
    ['__proto__', '{"__proto__":{"alg":"ES256"}}'],
  ] as const) {
    const token = await mint({ headerText })
    const answer = await setup.ask(bearing(token))
    isOwnResponse(t, answer, { status: 400, code: 'InvalidToken' }, name)
  }
  await setup.upstreamSaw(t, 0)
})

t.test('keys in a token header, or linked from it, are ignored', async (t) => {
  const setup = await startSetup(t)
  let visits = 0
  const attacker = createServer(() => visits++)
  const url = `http://127.0.0.1:${await listen(t, attacker)}/jwks.json`
  const foreign = await makeKey('ES256', 'attacker')
  for (const [name, header] of [
    ['jwk', { jwk: foreign.publicJwk }],
    ['jku', { jku: url }],
    ['x5u', { x5u: url }],
    ['x5c', { x5c: ['MIIB'] }],
  ] as const) {
    for (const kid of [setup.sidecar.key.kid, foreign.kid]) {
      const token = await mintToken({ key: { ...foreign, kid }, header })
      const answer = await setup.ask(bearing(token))
      isOwnResponse(t, answer, { status: 400, code: 'InvalidToken' }, `${name} under ${kid}`)
    }
  }
  t.equal(visits, 0)
  await setup.upstreamSaw(t, 0)
})

t.test('a token expires at its exp to the millisecond, cached or not', async (t) => {
  const clock = { ms: Date.UTC(2030, 0, 1) }
  const setup = await startSetup(t, { now: () => clock.ms })
  const authorization = `Authorization: Bearer ${await setup.sidecar.mint({ lifetimeSeconds: 60 })}\r\n`
  const late = `Authorization: Bearer ${await setup.sidecar.mint({ lifetimeSeconds: 60 })}\r\n`
  const get = (target: string, line = authorization) =>
    setup.ask(`GET ${target} HTTP/1.1\r\nHost: h\r\n${line}\r\n`)
  t.equal((await get('/b/k')).status, 200)
  t.same(JSON.parse((await get('/v2/auth/token')).body.toString()), { expirationSec: 60 })
  for (const left of [57, 55]) {
    clock.ms += 2500
    t.same(JSON.parse((await get('/v2/auth/token')).body.toString()), { expirationSec: left }, 'rounded down')
  }
  clock.ms += 54_999
  t.equal((await get('/b/k')).status, 200, 'a millisecond before')
  t.same(JSON.parse((await get('/v2/auth/token')).body.toString()), { expirationSec: 0 })
  clock.ms += 1
  for (const line of [authorization, late]) {
    for (const target of ['/b/k', '/v2/auth/token']) {
      const answer = await get(target, line)
      isOwnResponse(t, answer, { status: 400, code: 'ExpiredToken', details: 'expired' }, target)
      t.equal(answer.body.toString(), '{"code":"ExpiredToken","message":"Token expired."}')
    }
  }
  t.equal(setup.upstream.requests.length, 2)
})

t.test('an RSA public key is not accepted as an HMAC secret', async (t) => {
  const rsa = await makeKey('RS256')
  const directory = await temporaryDirectory(t)
  writeKey(directory, rsa.privateJwk)
  const setup = await startSetup(t, { settings: { 'keys-directory': directory } })
  const ask = (token: string, target = '/b/k') => setup.ask(bearing(token, target))
  const [login] = setup.sidecar.logins
  const claims = { sub: login?.accountId, client_id: login?.accessKey }
  const good = await mintToken({ key: rsa, claims })
  t.equal((await ask(good)).status, 200, 'a good one')
  setup.upstream.requests.length = 0
  const publicKey = createPublicKey({ key: rsa.publicJwk as JsonWebKey, format: 'jwk' })
  const pem = publicKey.export({ type: 'spki', format: 'pem' }).toString()
  for (const [name, hmacSecret] of [
    ['PEM', pem],
    ['PEM without its last line end', pem.trimEnd()],
    ['PKCS #1', publicKey.export({ type: 'pkcs1', format: 'pem' }).toString()],
    ['DER', publicKey.export({ type: 'spki', format: 'der' })],
    ['JWK', JSON.stringify(rsa.publicJwk)],
    ['nothing', ''],
  ] as const) {
    const token = await mintToken({ key: rsa, claims, header: { alg: 'HS256' }, hmacSecret })
    for (const target of ['/b/k', '/v2/auth/token']) {
      isOwnResponse(
        t,
        await ask(token, target),
        { status: 400, code: 'InvalidToken', details: 'algorithm' },
        `${name} at ${target}`,
      )
    }
  }
  t.equal((await ask(good)).status, 200, 'the good one still is')
  t.equal(setup.upstream.requests.length, 1)
})

t.test('a flood of forged tokens evicts no cached token', async (t) => {
  const setup = await startSetup(t, { settings: { 'cache-max-tokens': '10', 'log-access': 'off' } })
  const good = setup.head('GET /good')
  t.equal((await setup.ask(good)).status, 200)
  const [header, payload] = setup.sidecar.token.split('.')
  const before = process.memoryUsage().heapUsed
  const client = await setup.connect()
  const FORGED = 800
  const PIPELINED = 16
  for (let at = 0; at < FORGED; at += PIPELINED) {
    const forged = Array.from({ length: PIPELINED }, () => randomBytes(64).toString('base64url'))
    client.send(
      forged
        .map(
          (sig) => `GET /b HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${header}.${payload}.${sig}\r\n\r\n`,
        )
        .join(''),
    )
    for (const _ of forged) {
      if ((await client.response()).status !== 400) {
        t.fail('a forged token was taken for a good one')
      }
    }
  }
  const grown = (process.memoryUsage().heapUsed - before) / 2 ** 20
  t.ok(grown < 64, `${Math.round(grown)} MiB, this test's own among them`)
  const checks = 'auth_sidecar_token_checks_total{result="rejected",reason="signature"}'
  t.equal(await setup.sidecar.metric(checks), FORGED)
  t.equal(await setup.sidecar.metric('auth_sidecar_token_cache_entries'), 1)
  t.equal(await setup.sidecar.metric('auth_sidecar_token_cache_evictions_total'), 0)
  const misses = await setup.sidecar.metric('auth_sidecar_token_cache_misses_total')
  t.equal((await setup.ask(good)).status, 200)
  t.equal(await setup.sidecar.metric('auth_sidecar_token_cache_misses_total'), misses, 'cached all the time')
  setup.upstream.requests.length = 0
  await setup.upstreamSaw(t, 0)
})

t.test('concurrent requests are forwarded with the identity of their own token', async (t) => {
  const accounts = Array.from({ length: 20 }, (_, at) => ({
    accountId: `account-${at}`,
    accessKey: `AK${at}`,
  }))
  const setup = await startSetup(t, { credentials: accounts, settings: { 'cache-max-tokens': '10' } })
  const requests = await Promise.all(
    accounts.map(async ({ accountId, accessKey }, at) => {
      const token = await setup.sidecar.mint({ claims: { sub: accountId, client_id: accessKey } })
      return bearing(token, `/of/${at}`)
    }),
  )
  const clients = await Promise.all(Array.from({ length: 10 }, () => setup.connect()))
  await Promise.all(
    clients.map(async (client, lane) => {
      for (let round = 0; round < 20; round++) {
        const chosen = [0, 1, 2, 3].map((step) => requests[(lane * 7 + round * 3 + step * 5) % 20] ?? '')
        client.send(chosen.join(''))
        for (const _ of chosen) {
          await client.response()
        }
      }
    }),
  )
  const { requests: seen } = setup.upstream
  t.equal(seen.length, 800)
  for (const { target, headers } of seen) {
    if (headers['x-authenticated-account-id'] !== `account-${target.slice(4)}`) {
      t.fail(`a mix-up at ${target}`)
    }
  }
  for (const count of ['hits', 'evictions']) {
    t.ok((await setup.sidecar.metric(`auth_sidecar_token_cache_${count}_total`)) > 0, count)
  }
})

t.test('no token is logged, accepted or refused', async (t) => {
  const setup = await startSetup(t)
  const bad = await setup.sidecar.mint({ claims: { iss: 'other' } })
  await setup.ask(setup.head('GET /b/k'))
  await setup.ask(`GET /b/k?token=${bad} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${bad}\r\n\r\n`)
  await setup.ask(`GET * HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${bad}\r\n\r\n`)
  const text = JSON.stringify(setup.sidecar.log)
  for (const secret of [...setup.sidecar.token.split('.'), ...bad.split('.')]) {
    t.notMatch(text, secret)
  }
  const reasons = setup.sidecar.log.filter(({ msg }) => msg === 'request').map(({ reason }) => reason)
  t.same(reasons, [undefined, 'claims', 'admission'])
})
