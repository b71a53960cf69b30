import { gzipSync } from 'node:zlib'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { type RawResponse, rawClient, rawRequest } from '../support/raw-client.ts'
import { startSetup } from '../support/setup.ts'

/** A login as bytes: a body, and header lines with another content type if one is given. */
function post(
  body: string | Uint8Array,
  lines = 'Content-Type: application/json\r\n',
  path = '/v2/auth/token',
): Buffer {
  const bytes = Buffer.from(body)
  const head = `POST ${path} HTTP/1.1\r\nHost: h\r\n${lines}Content-Length: ${bytes.length}\r\n\r\n`
  return Buffer.concat([Buffer.from(head, 'latin1'), bytes])
}

const messageOf = (response: RawResponse): unknown => JSON.parse(response.body.toString()).message

t.test('a login returns a token for the storage, with and without a trailing slash', async (t) => {
  const setup = await startSetup(t)
  const [login] = setup.sidecar.logins
  const tokens = new Set<string>()
  for (const path of ['/v2/auth/token', '/v2/auth/token/', '/v2/auth/token?x=1']) {
    const answer = await setup.ask(post(JSON.stringify(login), undefined, path))
    isOwnResponse(t, answer, { status: 200 }, path)
    const body = JSON.parse(answer.body.toString())
    t.same(Object.keys(body), ['token', 'expirationSec'])
    t.equal(body.expirationSec, 86400)
    tokens.add(body.token)
    const authorization = `Authorization: Bearer ${body.token}\r\n`
    const left = await setup.ask(`GET ${path} HTTP/1.1\r\nHost: h\r\n${authorization}\r\n`)
    t.match(left.body.toString(), /^{"expirationSec":8(6400|639\d)}$/)
    const got = await setup.ask(`GET /b/k HTTP/1.1\r\nHost: h\r\n${authorization}\r\n`)
    t.equal(got.body.toString(), 'ok')
    t.equal(setup.upstream.requests[0]?.headers['x-authenticated-account-id'], login?.accountId)
    t.equal(setup.upstream.requests[0]?.headers['x-authenticated-access-key'], login?.accessKey)
    await setup.upstreamSaw(t, 1)
  }
  t.equal(tokens.size, 3, 'a new one each time')
})

t.test('a login has exactly its lifetime, at any fraction of a second', async (t) => {
  const clock = { ms: 0 }
  const settings = { 'token-lifetime-seconds': '60', 'token-max-lifetime-seconds': '60' }
  const setup = await startSetup(t, { now: () => clock.ms, settings })
  for (const fractionMs of [0, 1, 500, 999]) {
    clock.ms = Date.UTC(2030, 0, 1) + fractionMs
    const answer = await setup.ask(post(JSON.stringify(setup.sidecar.logins[0])))
    const { token, expirationSec } = JSON.parse(answer.body.toString())
    t.equal(expirationSec, 60)
    const check = `GET /v2/auth/token HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${token}\r\n\r\n`
    const left = async () => (await setup.ask(check)).body.toString()
    t.equal(await left(), '{"expirationSec":60}')
    const endsAtMs = Math.ceil((clock.ms + 60_000) / 1000) * 1000
    clock.ms = endsAtMs - 1
    t.equal(await left(), '{"expirationSec":0}')
    clock.ms = endsAtMs
    t.match(await left(), /"ExpiredToken"/)
  }
})

t.test('GET returns the time left; HEAD gets the same head and no body', async (t) => {
  const clock = { ms: Date.UTC(2030, 0, 1) }
  const setup = await startSetup(t, { now: () => clock.ms })
  const lines = `Host: h\r\nX-Request-Id: same\r\n${setup.authorization}Accept: application/json\r\n\r\n`
  clock.ms += 1
  const client = await setup.send(
    `GET /v2/auth/token HTTP/1.1\r\n${lines}HEAD /v2/auth/token HTTP/1.1\r\n${lines}`,
  )
  const got = await client.response()
  const headed = await client.response({ head: true })
  isOwnResponse(t, got, { status: 200 }, 'GET')
  isOwnResponse(t, headed, { status: 200, head: true }, 'HEAD')
  t.equal(got.body.toString(), '{"expirationSec":3599}')
  t.same({ ...headed.headers, date: '' }, { ...got.headers, date: '' })
  t.equal(headed.headers['content-length'], '22')
  client.send(`HEAD /v2/auth/token HTTP/1.1\r\nHost: h\r\n\r\n`)
  isOwnResponse(
    t,
    await client.response({ head: true }),
    { status: 400, code: 'x', head: true },
    'refused HEAD',
  )
  client.send(`GET /v2/auth/token HTTP/1.1\r\n${lines}`)
  t.equal((await client.response()).status, 200, 'the connection is as it should be')
  await setup.upstreamSaw(t, 0)
})

t.test('other methods are a 405 that lists the allowed ones', async (t) => {
  const setup = await startSetup(t)
  for (const path of ['/v2/auth/token', '/v2/auth/token/', '/v2/auth/token?x']) {
    for (const method of ['PUT', 'DELETE', 'OPTIONS', 'PATCH', 'PROPFIND']) {
      for (const lines of ['', setup.authorization, 'Content-Length: 2\r\n']) {
        const answer = await setup.ask(
          `${method} ${path} HTTP/1.1\r\nHost: h\r\n${lines}\r\n${lines ? '{}' : ''}`,
        )
        isOwnResponse(t, answer, { status: 405, code: 'InvalidArgument' }, `${method} ${path}`)
      }
    }
    for (const method of ['TRACE', 'CONNECT']) {
      const answer = await setup.ask(`${method} ${path} HTTP/1.1\r\nHost: h\r\n\r\n`)
      isOwnResponse(t, answer, { status: 400, code: 'InvalidArgument' }, `${method} ${path}`)
    }
  }
  await setup.upstreamSaw(t, 0)
})

t.test('an invalid login body is refused with the field name and without its content', async (t) => {
  const setup = await startSetup(t)
  const marker = 'ECHOED-BY-MISTAKE'
  const good = { accountId: 'acme', accessKey: 'AK0', secret: marker }
  const json = (change: object) => JSON.stringify({ ...good, ...change })
  const text = JSON.stringify(good)
  const cases: [name: string, body: string | Uint8Array, message: RegExp | string][] = [
    ['empty', '', /JSON/],
    ['white space', ' \n', /JSON/],
    ['truncated', text.slice(0, -1), /JSON/],
    ['a trailing comma', text.replace('}', ',}'), /JSON/],
    ['a comment', `/* ${marker} */${text}`, /JSON/],
    ['single quotes', text.replaceAll('"', "'"), /JSON/],
    ['text behind it', `${text}x`, /JSON/],
    ['another object behind it', text + text, /JSON/],
    ['a NUL after it', `${text}\0`, /JSON/],
    ['NaN', text.replace('"AK0"', 'NaN'), /JSON/],
    ['Infinity', text.replace('"AK0"', '-Infinity'), /JSON/],
    ['a hexadecimal number', text.replace('"AK0"', '0x10'), /JSON/],
    ['a control character in a string', text.replace('AK0', 'A\nK'), /JSON/],
    ['a broken escape', text.replace('AK0', '\\u12'), /JSON/],
    ['a form', `accountId=acme&accessKey=AK0&secret=${marker}`, /JSON/],
    ['XML', `<secret>${marker}</secret>`, /JSON/],
    ['a number beyond every double', text.replace('}', ',"x":1e999}'), /JSON/],
    ['one inside an ignored field', text.replace('}', ',"x":[{"y":-1e400}]}'), /JSON/],
    ['a lone surrogate in an ignored field', text.replace('}', ',"x":"\\udead"}'), /JSON/],
    ['deep nesting that never ends', '['.repeat(16384), /JSON/],
    ['deep nesting and text after it', `${'['.repeat(8000)}${']'.repeat(8000)}x`, /JSON/],
    ['a byte order mark', `\ufeff${text}`, /JSON/],
    ['UTF-16', Buffer.from(text, 'utf16le'), /JSON/],
    ['UTF-16 with its mark', Buffer.from(`\ufeff${text}`, 'utf16le'), /JSON/],
    ['Latin-1', Buffer.from(json({ accountId: 'caf\xe9' }), 'latin1'), /JSON/],
    ['an overlong form', Buffer.from(text.replace('acme', 'a\xc0\xafe'), 'latin1'), /JSON/],
    ['a surrogate in UTF-8', Buffer.from(text.replace('acme', '\xed\xa0\x80'), 'latin1'), /JSON/],
    ['an array', `[${text}]`, /object/],
    ['null', 'null', /object/],
    ['a string', `"${marker}"`, /object/],
    ['a number', '1', /object/],
    ['no members', '{}', 'accountId is missing. accessKey is missing. secret is missing.'],
    ['no secret', json({ secret: undefined }), 'secret is missing.'],
    ['another case', json({ secret: undefined, Secret: marker }), 'secret is missing.'],
    ['a number for a field', json({ secret: 12345 }), 'secret must be a string.'],
    ['true', json({ accessKey: true }), 'accessKey must be a string.'],
    ['null for a field', json({ accountId: null }), 'accountId must be a string.'],
    ['an array for a field', json({ secret: [marker] }), 'secret must be a string.'],
    ['an object for a field', json({ secret: { $ne: '' } }), 'secret must be a string.'],
    ['an empty field', json({ secret: '' }), /^secret must be 1 to 1024/],
    ['1025 characters', json({ secret: 'é'.repeat(1025) }), /^secret must be 1 to 1024/],
    ['1025 characters beyond 16 bits', json({ secret: '😀'.repeat(1025) }), /^secret must be 1 to 1024/],
    ['a NUL in an account', json({ accountId: `a\0${marker}` }), /^accountId must not hold control/],
    [
      'a line end in an access key',
      json({ accessKey: `a\r\n${marker}` }),
      /^accessKey must not hold control/,
    ],
    ['__proto__', `{"__proto__":${text}}`, /accountId is missing/],
  ]
  for (const [name, body, message] of cases) {
    const answer = await setup.ask(post(body))
    isOwnResponse(t, answer, { status: 400, code: 'InvalidArgument' }, name)
    if (typeof message === 'string') {
      t.equal(messageOf(answer), message, name)
    } else {
      t.match(messageOf(answer), message, name)
    }
    if (answer.body.includes(marker)) {
      t.fail(`${name}: what was sent came back`)
    }
  }
  t.notMatch(JSON.stringify(setup.sidecar.log), marker, 'nor does it stand in the log')
  t.equal(
    await setup.sidecar.metric('auth_sidecar_token_issue_failures_total{reason="invalid"}'),
    cases.length,
  )
  await setup.upstreamSaw(t, 0)
})

t.test('a field is any text of 1 to 1024 code points, compared byte by byte', async (t) => {
  const secrets = [
    ' ',
    '  leading',
    'trailing ',
    'tab\tand\nline',
    '\0',
    'x'.repeat(73),
    `${'y'.repeat(72)}z`,
    'é',
    'e\u0301',
    '𝒳'.repeat(1024),
    'Ω≈ç√',
    '密碼',
    'пароль',
    '٣',
    "' OR 1=1 --",
    '$(id)',
    '\ufeff',
    '\u202e',
    '"\\',
  ]
  const setup = await startSetup(t, {
    credentials: secrets.map((secret, at) => ({ accountId: `acme ${at}`, accessKey: `é${at}`, secret })),
  })
  const client = await setup.connect()
  for (const [at, login] of setup.sidecar.logins.entries()) {
    client.send(post(JSON.stringify({ ...login, extra: [1e308, { secret: 'x' }], emoji: '\u{1f600}' })))
    t.equal((await client.response()).status, 200, `secret ${at}`)
    const { secret } = login
    const near = [
      secret.trim(),
      secret.slice(0, 72),
      secret.normalize('NFC'),
      secret.normalize('NFD'),
      `${secret} `,
    ]
    for (const other of near.filter((text) => text !== secret && text !== '')) {
      if ([...other].length > 1024) {
        continue
      }
      client.send(post(JSON.stringify({ ...login, secret: other })))
      t.equal((await client.response()).status, 403, `almost secret ${at}`)
    }
  }
})

t.test('the content type of a login must be JSON in UTF-8', async (t) => {
  const setup = await startSetup(t)
  const body = JSON.stringify(setup.sidecar.logins[0])
  const typed = (type: string) => `Content-Type: ${type}\r\n`
  const acceptedTypes = [
    'application/json',
    'APPLICATION/JSON; charset=utf-8',
    'application/json;charset="UTF-8"',
    'application/json \t; \t charset="utf-8" ',
    'application/json;; charset=utf-8;',
  ]
  const accepted = ['', 'Accept: text/html\r\n', 'Accept-Encoding: gzip\r\n', ...acceptedTypes.map(typed)]
  for (const lines of accepted) {
    isOwnResponse(t, await setup.ask(post(body, lines)), { status: 200 }, lines)
  }
  const refusedTypes = [
    '',
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/json; charset=utf-16',
    'application/json; charset=latin1',
    'application/json; charset=utf8',
    'application/json; charset=',
    "application/json; charset='utf-8'",
    'application/json; charset=utf-8; charset=utf-16',
    'application/json; charset = utf-8',
    'application/json; version=1',
    'application/json5',
    `application/json${'; '.repeat(7000)}x`,
    'application/json-patch+json',
    'application/json, text/plain',
  ]
  const refused = [
    ...refusedTypes.map(typed),
    typed('application/json') + typed('application/json'),
    typed('application/json') + typed('text/plain'),
    'Content-Encoding: gzip\r\n',
    'Content-Encoding: identity\r\n',
    'Content-Encoding: \r\n',
  ]
  for (const lines of refused) {
    const answer = await setup.ask(post(body, lines))
    isOwnResponse(t, answer, { status: 400, code: 'InvalidArgument' }, JSON.stringify(lines))
    t.match(messageOf(answer), /^Content-(Type|Encoding) /)
  }
  const zipped = await setup.ask(post(gzipSync(body), 'Content-Encoding: gzip\r\n'))
  isOwnResponse(t, zipped, { status: 400, code: 'InvalidArgument' }, 'really compressed')
  await setup.upstreamSaw(t, 0)
})

t.test('all failed logins get the same response byte for byte', async (t) => {
  for (const code of ['Authentication failed', 'AuthenticationFailed']) {
    const setup = await startSetup(t, {
      settings: { 'contract-authentication-failed-code': code },
      credentials: [
        { accountId: 'acme', accessKey: 'AK' },
        { accountId: 'acme', accessKey: 'disabled', disabled: true },
        { accountId: 'acme', accessKey: 'expired', expiresAt: '2020-01-01T00:00:00Z' },
      ],
    })
    const [good, disabled, expired] = setup.sidecar.logins
    const answers = new Set<string>()
    for (const [name, login] of Object.entries({
      'unknown account': { ...good, accountId: 'unknown' },
      'unknown key': { ...good, accessKey: 'nokey' },
      'wrong secret': { ...good, secret: 'wrong' },
      'a secret of another length': { ...good, secret: 'x' },
      'another case': { ...good, accountId: 'ACME' },
      'with a space': { ...good, accountId: 'acme ' },
      'a prototype': { ...good, accountId: '__proto__' },
      'a member of objects': { ...good, accountId: 'constructor', accessKey: 'constructor' },
      disabled,
      'disabled, wrong secret': { ...disabled, secret: 'wrong' },
      expired,
      'expired, wrong secret': { ...expired, secret: 'wrong' },
    })) {
      const client = await setup.send(post(JSON.stringify(login)))
      isOwnResponse(t, await client.response(), { status: 403, code }, name)
      answers.add(
        client
          .received()
          .toString('latin1')
          .replace(/^(?:X-Request-Id|Date): .*$/gm, ''),
      )
    }
    t.equal(answers.size, 1)
    await setup.upstreamSaw(t, 0)
  }
})

t.test('a login body of 16 KiB is accepted; a larger one is refused unread', async (t) => {
  const setup = await startSetup(t)
  const login = JSON.stringify(setup.sidecar.logins[0])
  const exact = login.replace('}', `,"x":"${'x'.repeat(16384 - login.length - 7)}"}`)
  t.equal(exact.length, 16384)
  isOwnResponse(t, await setup.ask(post(exact)), { status: 200 }, 'exactly')
  const chunked = `POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n`
  const inChunks = (body: string) => {
    const parts = body.match(/.{1,1000}/gs) ?? []
    const chunks = parts.map((part) => `${part.length.toString(16)}\r\n${part}\r\n`)
    return `${chunked}${chunks.join('')}0\r\n\r\n`
  }
  isOwnResponse(t, await setup.ask(inChunks(exact)), { status: 200 }, 'exactly, in chunks')
  const tooLarge = { status: 400, code: 'InvalidArgument' }
  const declared = (length: number | string, body = '') =>
    `POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: ${length}\r\n\r\n${body}`
  for (const [name, bytes] of [
    ['declared', declared(16385)],
    ['declared and sent', declared(16385, ` ${exact}`)],
    ['10 GiB declared', declared(10 * 2 ** 30, login)],
    ['in chunks', inChunks(` ${exact}`)],
    ['in one chunk', `${chunked}4001\r\n ${exact}\r\n0\r\n\r\n`],
    ['a chunk of 10 GiB', `${chunked}280000000\r\n${'x'.repeat(20000)}`],
    ['a secret of 1 MiB', declared(2 ** 20, JSON.stringify({ secret: 'x'.repeat(2 ** 18) }))],
  ] as const) {
    const client = await setup.send(bytes)
    const answer = await client.response()
    isOwnResponse(t, answer, tooLarge, name)
    t.equal(messageOf(answer), 'The body is larger than 16 KiB.', name)
    client.socket.end()
    t.equal(await client.closed(), 'end', name)
    t.equal(client.rest().length, 0)
  }
  const endless = await setup.ask(`${chunked}${`400\r\n${'x'.repeat(1024)}\r\n`.repeat(17)}`)
  isOwnResponse(t, endless, tooLarge, 'without end')
  await setup.upstreamSaw(t, 0)
})

t.test('a login that takes longer than a head may is a 408, whatever it sends meanwhile', async (t) => {
  const setup = await startSetup(t, {
    settings: { 'timeouts-headers-seconds': '0.5', 'links-enabled': 'true' },
  })
  for (const path of ['token', 'links']) {
    const client = await setup.request(`POST /v2/auth/${path}`, ['Content-Length: 1000'])
    const trickle = setInterval(() => client.send('{'), 50)
    isOwnResponse(t, await client.response(), { status: 408, code: 'InvalidArgument' }, path)
    clearInterval(trickle)
    client.socket.end()
    await client.closed()
  }
})

t.test('a stalled login gets a response and its connection is closed', async (t) => {
  const setup = await startSetup(t, { settings: { 'timeouts-idle-seconds': '0.3' } })
  for (const bytes of [
    'POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{"accountId":',
    'POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{',
  ]) {
    const client = await setup.send(bytes)
    isOwnResponse(t, await client.response(), { status: 408, code: 'InvalidArgument' }, bytes.slice(40, 70))
    await setup.sidecar.metric('auth_sidecar_ready')
    t.notOk(client.socket.readableEnded, 'the rest of its body is awaited, which a close would reset')
    client.socket.end()
    await client.closed()
  }
  const broken = await setup.ask(
    'POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"acc\r\nzz\r\n',
  )
  isOwnResponse(t, broken, { status: 400, code: 'InvalidArgument' }, 'a malformed chunk')
  await setup.upstreamSaw(t, 0)
})

t.test('guessing is throttled per account and address', async (t) => {
  const setup = await startSetup(t, { credentials: [{ accountId: 'acme' }, { accountId: 'other' }] })
  const [acme, other] = setup.sidecar.logins
  const login = (body: object | undefined, from = '127.0.0.1') =>
    rawRequest(t, setup.sidecar.port, post(JSON.stringify(body)), { from })
  for (const accountId of ['acme', 'unknown']) {
    for (let guess = 0; guess < 20; guess++) {
      isOwnResponse(
        t,
        await login({ ...acme, accountId, secret: `guess ${guess}` }),
        { status: 403, code: 'Authentication failed' },
        `${accountId}, guess ${guess}`,
      )
    }
    const slowed = await login({ ...acme, accountId, secret: 'guess' })
    isOwnResponse(t, slowed, { status: 503, code: 'ServiceNotReady' }, accountId)
    t.match(slowed.headers['retry-after'], /^(?:[1-5]?[1-9]|[1-6]0)$/, 'until the window has passed')
  }
  t.equal((await login(acme)).status, 503, 'also with the right secret, or the response would reveal it')
  t.equal((await login(other)).status, 200, 'another account is untouched')
  const elsewhere = await login(acme, '127.0.0.2')
  t.equal(elsewhere.status, 200, 'and so is the account from another address')
  const throttled = () => setup.sidecar.metric('auth_sidecar_token_issue_failures_total{reason="throttled"}')
  const counted = await throttled()
  t.ok(counted >= 3)
  const leaving = await rawClient(t, setup.sidecar.port)
  leaving.send(post(JSON.stringify(acme)))
  leaving.socket.end()
  await leaving.closed()
  await eventually(async () => (await throttled()) === counted + 1, 'also for a client that does not wait')
})

t.test('failures count for the client behind a trusted proxy, not for the proxy', async (t) => {
  const setup = await startSetup(t, {
    settings: {
      'limits-login-failures-count': '1',
      'forwarded-trust': '["127.0.0.1"]',
    },
  })
  const [login] = setup.sidecar.logins
  const from = async (address: string, secret = 'wrong') =>
    (await setup.ask(post(JSON.stringify({ ...login, secret }), `X-Forwarded-For: ${address}\r\n`))).status
  t.same([await from('203.0.113.1'), await from('203.0.113.1'), await from('203.0.113.2')], [403, 503, 403])
  t.same(
    [await from('2001:db8::1'), await from('2001:db8::2'), await from('2001:db8:0:1::1')],
    [403, 503, 403],
  )
  // Azure's gateway adds the client's port, another one with each connection.
  for (const address of ['198.51.100.1', '[2001:db8:0:2::1]']) {
    t.same([await from(`${address}:4711`), await from(`${address}:4712`)], [403, 503], address)
  }
})

t.test('a flood of unknown accounts from one address does not block logins from another', async (t) => {
  const setup = await startSetup(t, {
    settings: { 'forwarded-trust': '["127.0.0.1/32"]' },
    credentials: [{ scheme: 'scrypt', secret: 'brought by a person' }],
  })
  const from = (address: string, login: object) =>
    setup.ask(post(JSON.stringify(login), `X-Forwarded-For: ${address}\r\n`))
  let rejections = 0
  const flood = Array.from({ length: 12 }, async (_, at) => {
    const invented = { accountId: `invented ${at}`, accessKey: 'k', secret: 'guess' }
    const { status } = await from('192.0.2.66', invented)
    if (status === 403) {
      rejections++
    }
    return status
  })
  await eventually(() => rejections > 0, 'the flood to be checked')
  const [login] = setup.sidecar.logins
  t.equal((await from('198.51.100.1', login ?? {})).status, 200)
  t.same(new Set(await Promise.all(flood)), new Set([403, 503]), 'a part of it is not checked')
})

t.test('credentials in the query are ignored and not logged', async (t) => {
  const setup = await startSetup(t)
  const [login] = setup.sidecar.logins
  const query = new URLSearchParams({ ...login }).toString()
  const answer = await setup.ask(
    `POST /v2/auth/token?${query} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n`,
  )
  isOwnResponse(t, answer, { status: 400, code: 'InvalidArgument' }, 'an empty body')
  t.notMatch(JSON.stringify(setup.sidecar.log), login?.secret)
})
