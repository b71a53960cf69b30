import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { startSetup } from '../support/setup.ts'

/** The four identity headers of the sidecar, in lower case. */
const OURS = ['account-id', 'access-key', 'token-id', 'token-expires'].map(
  (name) => `x-authenticated-${name}`,
)

/** Spellings that a lenient upstream takes for an identity header. */
function spellings(name: string): string[] {
  const titled = name.replace(/(^|-)[a-z]/g, (start) => start.toUpperCase())
  return [
    ...[name, titled, name.toUpperCase(), titled.replaceAll('-', '_'), name.replaceAll('-', '.')],
    ...[titled.replace('-', '_'), titled.replace(/-([^-]*)$/, '_$1'), titled.replace(/-([^-]*)$/, '.$1')],
    `${titled}-`,
    `${titled}_`,
    `_${titled}`,
    `-${titled}`,
    `${titled}-Extra`,
  ]
}

/** A header list's names as an upstream that folds them would read them. */
const folded = (rawHeaders: readonly string[]) =>
  rawHeaders
    .filter((_, at) => at % 2 === 0)
    .map((name) =>
      name
        .toLowerCase()
        .replaceAll(/[_.]/g, '-')
        .replaceAll(/^-+|-+$/g, ''),
    )

t.test('identity headers of a client are replaced by one of each of the sidecar', async (t) => {
  const setup = await startSetup(t)
  const names = [...OURS, 'x-authenticated-anything', 'x-authenticated-account-id-2'].flatMap(spellings)
  for (const spelling of [...names, 'X-Authenticated-', 'x_authenticated_', 'X-Authenticated_']) {
    for (const lines of [
      `${spelling}: victim\r\n`,
      `${spelling}: victim \t\r\n${spelling}: \r\n`,
      `X-Authenticated-Account-Id: victim\r\n${spelling}: victim\r\n`,
    ]) {
      // Before and after the token.
      const response = await setup.ask(
        `GET /o HTTP/1.1\r\n${lines}Host: h\r\n${setup.authorization}${lines}\r\n`,
      )
      t.equal(response.status, 200, spelling)
    }
  }
  const counts = new Set<string>()
  for (const { rawHeaders, headers } of setup.upstream.requests) {
    const seen = folded(rawHeaders).filter((name) => name.startsWith('x-authenticated'))
    counts.add(seen.join(' '))
    if (headers['x-authenticated-account-id'] !== 'acme') {
      t.fail('an identity that the sidecar did not send')
    }
    if (rawHeaders.some((value) => value.includes('victim'))) {
      t.fail('a claim that passed')
    }
  }
  t.same([...counts], [OURS.join(' ')])
})

t.test('harmless names with an underscore or a dot pass unchanged', async (t) => {
  const setup = await startSetup(t)
  const lines = [
    'x-amz-meta-my_key',
    'X_Custom',
    'x.custom',
    '_',
    'my_host',
    'content_type',
    'X-Authenticate-Me',
    'Authorized',
    'Keep_Alive',
    'Te_',
    'Expect_',
    'Proxy_Connection',
  ]
  await setup.ask(
    `GET /o HTTP/1.1\r\nHost: h\r\n${setup.authorization}${lines.map((name) => `${name}: v\r\n`).join('')}\r\n`,
  )
  const names = setup.upstream.requests[0]?.rawHeaders.filter((_, at) => at % 2 === 0)
  t.same(names?.slice(1, lines.length + 1), lines)
  await setup.upstreamSaw(t, 1)
})

t.test('headers that override path, method or origin do not bypass the token check', async (t) => {
  const setup = await startSetup(t, {
    settings: { 'public-routes': JSON.stringify([{ method: 'GET', path: '/healthz' }]) },
  })
  for (const line of [
    'X-Original-URL: /healthz',
    'X-Original-URI: /healthz',
    'X-Rewrite-URL: /healthz',
    'X-Forwarded-Uri: /healthz',
    'X-Forwarded-Path: /healthz',
    'X-Forwarded-Prefix: /healthz',
    'X-Forwarded-Method: GET',
    'X-HTTP-Method-Override: GET',
    'X-HTTP-Method: GET',
    'X-Method-Override: GET',
    'X-Forwarded-For: 127.0.0.1',
    'X-Real-Ip: 127.0.0.1',
    'Forwarded: for=127.0.0.1',
    'X-Forwarded-Host: localhost',
    'X-Authenticated-Account-Id: acme',
    'User-Agent: kube-probe/1.30',
    'User-Agent: GoogleHC/1.0',
    'User-Agent: ELB-HealthChecker/2.0',
    'Cookie: token=x; Authorization=Bearer x',
    'Proxy-Authorization: Bearer x',
    'Origin: https://evil',
    'Access-Control-Request-Method: GET',
    'Connection: x-real-ip',
  ]) {
    for (const request of ['GET /b/k', 'POST /b/k', 'OPTIONS /b/k']) {
      const response = await setup.ask(`${request} HTTP/1.1\r\nHost: h\r\n${line}\r\n\r\n`)
      isOwnResponse(
        t,
        response,
        { status: 400, code: 'InvalidToken', details: 'missing' },
        `${request} ${line}`,
      )
    }
  }
  await setup.upstreamSaw(t, 0)
})

t.test('forwarding headers are replaced unless the peer is trusted', async (t) => {
  const claims =
    'X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 1\r\n' +
    'Forwarded: for=9.9.9.9\r\nX_Forwarded_For: 9.9.9.9\r\nx.forwarded.host: evil\r\nX-Authenticated-Account-Id: victim\r\n'
  const untrusting = await startSetup(t)
  await untrusting.ask(`GET /o HTTP/1.1\r\nHost: h:1\r\n${claims}${untrusting.authorization}\r\n`)
  const seen = untrusting.upstream.requests[0]
  t.notMatch(seen?.rawHeaders.join('\n'), /9\.9\.9\.9|evil|victim/)
  t.match(seen?.headers, {
    'x-forwarded-for': '127.0.0.1',
    'x-forwarded-host': 'h:1',
    'x-forwarded-proto': 'http',
    'x-forwarded-port': String(untrusting.sidecar.port),
    forwarded: 'for=127.0.0.1;proto=http;host="h:1"',
  })
  const trusting = await startSetup(t, { settings: { 'forwarded-trust': '["127.0.0.0/8"]' } })
  await trusting.ask(`GET /o HTTP/1.1\r\nHost: h:1\r\n${claims}${trusting.authorization}\r\n`)
  t.match(trusting.upstream.requests[0]?.headers, {
    'x-forwarded-for': '9.9.9.9',
    'x-forwarded-host': 'evil',
    'x-forwarded-proto': 'https',
    'x-forwarded-port': '1',
    forwarded: 'for=9.9.9.9',
  })
  t.notMatch(trusting.upstream.requests[0]?.rawHeaders.join('\n'), /X_Forwarded|x\.forwarded|victim/)
  await trusting.ask(trusting.head('GET /o', 'X-Forwarded-For: 9.9.9.9'))
  await trusting.ask(trusting.head('GET /o'))
  t.match(
    trusting.upstream.requests.slice(1).map(({ headers }) => headers),
    [
      { 'x-forwarded-for': '9.9.9.9', 'x-forwarded-proto': undefined, forwarded: undefined },
      { 'x-forwarded-for': '127.0.0.1', 'x-forwarded-proto': 'http', forwarded: /^for=127\.0\.0\.1;/ },
    ],
    'all of a trusted peer, or all of the sidecar',
  )
})

t.test('the log names the client that a trusted proxy names, in either header', async (t) => {
  const { ask, head, sidecar } = await startSetup(t, { settings: { 'forwarded-trust': '127.0.0.0/8' } })
  for (const [line, client] of [
    ['X-Forwarded-For: 203.0.113.9, 198.51.100.1, ', '198.51.100.1'],
    ['X-Forwarded-For: [2001:db8::1]', '2001:db8::1'],
    ['Forwarded: for=203.0.113.9, for="[2001:db8::1]:4711";proto=https', '2001:db8::1'],
    ['Forwarded: for=198.51.100.1;by=127.0.0.1, for=127.0.0.2', '198.51.100.1'],
  ] as const) {
    const { headers } = await ask(head('GET /o', line))
    const logged = () => sidecar.log.find(({ requestId }) => requestId === headers['x-request-id'])
    await eventually(logged, 'the line of the request')
    t.match(logged(), { client }, line)
  }
})

/** A name or an address, and at most one port. */
const GOOD_HOSTS = [
  'h',
  'STORAGE.example:8080',
  'a.',
  'a:',
  'a:0',
  'a:65535',
  'my_bucket.h',
  '%41',
  'b~1',
  '192.0.2.1:80',
  '[::1]',
  '[2001:DB8::1]:65535',
  '[::ffff:192.0.2.1]',
  "a!$&'()*+;=b",
]
const BAD_HOSTS = [
  'a, b',
  'a,b',
  'a b',
  'a\tb',
  'user@a',
  'u:p@h',
  'a/p',
  'a?q',
  'a#f',
  'a\\b',
  'a"b',
  'a<b',
  'a|b',
  'a^b',
  'a`b',
  'a{b}',
  'h\xe9',
  'a\xa0',
  'a\0',
  'a:b',
  'a:80:80',
  'a:-1',
  'a:+80',
  'a: 80',
  'a:8a',
  'a:65536',
  'a:000080',
  ':80',
  ':',
  '::1',
  '[',
  ']',
  '[]',
  '[]:80',
  '[::1',
  '[::1]a',
  '[::1]:80:80',
  '[::1]@a',
  '[:::1]',
  '[1]',
  '[.]',
  '[::g]',
  '[1:2:3:4:5:6:7:8:9]',
  '[127.0.0.1]',
  '[[::1]]',
  '[fe80::1%eth0]',
  '[fe80::1%25eth0]',
  '[v1.a]',
  'a[::1]',
]

t.test('a Host is one plain authority, or the request is refused', async (t) => {
  const setup = await startSetup(t)
  for (const lines of [
    '',
    'Host:\r\n',
    'Host: \r\n',
    'Host: a\r\nHost: a\r\n',
    'Host: a\r\nhost: b\r\n',
    'Host: a\r\nHost:\r\n',
    'Host: a\r\nHost_: b\r\n',
    ...BAD_HOSTS.map((host) => `Host: ${host}\r\n`),
  ]) {
    const response = await setup.ask(`GET /o HTTP/1.1\r\n${lines}${setup.authorization}\r\n`)
    isOwnResponse(t, response, { status: 400, code: 'InvalidArgument' }, JSON.stringify(lines))
  }
  for (const lines of ['Host:\r\n', 'Host: a\r\nHost: a\r\n']) {
    const old = await setup.ask(`GET /o HTTP/1.0\r\n${lines}${setup.authorization}\r\n`)
    isOwnResponse(t, old, { status: 400, code: 'InvalidArgument' }, `HTTP/1.0: ${JSON.stringify(lines)}`)
  }
  await setup.upstreamSaw(t, 0)
  for (const host of GOOD_HOSTS) {
    t.equal(
      (await setup.ask(`GET /o HTTP/1.1\r\nHost: ${host}\r\n${setup.authorization}\r\n`)).status,
      200,
      host,
    )
    t.equal(setup.upstream.requests[0]?.headers['host'], host)
    await setup.upstreamSaw(t, 1)
  }
})

t.test('an HTTP/1.0 request without Host gets the host of the upstream', async (t) => {
  const setup = await startSetup(t)
  const text = await setup.exchange(`GET /o HTTP/1.0\r\n${setup.authorization}\r\n`)
  t.match(text, /^HTTP\/1\.1 200 OK\r\n/)
  t.equal(setup.upstream.requests[0]?.headers['host'], `127.0.0.1:${setup.upstream.port}`)
  await setup.upstreamSaw(t, 1)
})

t.test('a valid request id is kept, any other is replaced', async (t) => {
  const setup = await startSetup(t)
  const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/
  for (const [lines, kept] of [
    ['X-Request-Id: a', 'a'],
    ['x-request-id: A.b_c-9', 'A.b_c-9'],
    [`X-Request-Id: ${'a'.repeat(128)}`, 'a'.repeat(128)],
    ...[
      `X-Request-Id: ${'a'.repeat(129)}`,
      'X-Request-Id:',
      'X-Request-Id: a b',
      'X-Request-Id: a"b',
      'X-Request-Id: a,b',
      'X-Request-Id: a/b',
      'X-Request-Id: $(id)',
      'X-Request-Id: \xe9',
      'X-Request-Id: {{x}}',
      'X-Request-Id: a\r\nX-Request-Id: a',
      'X_Request_Id: a',
      'Y: 1',
    ].map((lines) => [lines, undefined] as const),
  ] as const) {
    // Forwarded, served by the sidecar, refused by the gate and refused by admission.
    for (const request of [
      `GET /o HTTP/1.1\r\nHost: h\r\n${setup.authorization}`,
      `GET /v2/auth/token HTTP/1.1\r\nHost: h\r\n${setup.authorization}`,
      'GET /o HTTP/1.1\r\nHost: h\r\n',
      'GET * HTTP/1.1\r\nHost: h\r\n',
    ]) {
      const { headers } = await setup.ask(`${request}${lines}\r\n\r\n`)
      const id = headers['x-request-id'] ?? ''
      if (kept === undefined) {
        t.match(id, uuid, lines.slice(0, 40))
      } else {
        t.equal(id, kept)
      }
    }
    const [request] = setup.upstream.requests
    const ids = folded(request?.rawHeaders ?? []).filter((name) => name === 'x-request-id')
    t.equal(ids.length, 1, 'one of them goes upstream')
    if (kept !== undefined) {
      t.equal(request?.headers['x-request-id'], kept)
    }
    await setup.upstreamSaw(t, 1)
  }
  t.ok(
    setup.sidecar.log.some(({ requestId }) => requestId === 'A.b_c-9'),
    'and stands in the log',
  )
})
