import { once } from 'node:events'
import * as conventions from '@opentelemetry/semantic-conventions'
import t, { type Test } from 'tap'
import { WebSocket } from 'ws'
import { SPAN_ATTRIBUTES, SPAN_EVENTS } from '../../src/tracing/spans.ts'
import { type CollectedSpan, startCollector } from '../support/collector.ts'
import { eventually } from '../support/eventually.ts'
import { codeIn, tableUnder } from '../support/markdown.ts'
import { OK } from '../support/recording-upstream.ts'
import { type SetupOptions, startSetup } from '../support/setup.ts'
import { echoServer } from '../support/websocket.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const PARENT = '00f067aa0ba902b7'
const SAMPLED = `traceparent: 00-${TRACE}-${PARENT}-01`
const UNSAMPLED = `traceparent: 00-${TRACE}-${PARENT}-00`
const STATE = 'tracestate: vendor=1,other=2'
const DROPPED = 'auth_sidecar_spans_dropped_total'
const ALL = { 'tracing-sample-ratio': '1' }
const NONE = { 'tracing-sample-ratio': '0' }

/** A sidecar that sends its spans to a collector. */
async function tracedSetup(t: Test, { settings, ...options }: SetupOptions = {}) {
  const collector = await startCollector(t)
  const setup = await startSetup(t, {
    ...options,
    settings: { 'tracing-endpoint': collector.url, ...settings },
  })
  return {
    ...setup,
    collector,
    /** Sends a request of these lines with a good token. What the upstream received of the trace. */
    async traceAtUpstream(...lines: string[]) {
      await setup.ask(setup.head('GET /a', ...lines))
      const request = setup.upstream.requests.at(-1)
      return { traceparent: request?.headers['traceparent'], tracestate: request?.headers['tracestate'] }
    },
    accessLines: () => setup.sidecar.log.filter(({ msg }) => msg === 'request'),
  }
}

const ms = (ns: bigint) => Number(ns) / 1e6

t.test('a sampled request has a span of its own, and one below it for the service', async (t) => {
  const { collector, traceAtUpstream, sidecar, upstream, accessLines } = await tracedSetup(t)
  const before = Date.now()
  const { traceparent } = await traceAtUpstream(SAMPLED)
  const { server, client } = await collector.pair(TRACE)
  t.match(server, {
    parentId: PARENT,
    name: 'GET',
    hasFailed: false,
    links: [],
    scope: 'storage-auth-sidecar',
  })
  t.match(client, { parentId: server.spanId, name: 'GET', hasFailed: false, links: [] })
  t.equal(traceparent, `00-${TRACE}-${client.spanId}-01`)
  t.strictSame(server.attributes, {
    'http.request.method': 'GET',
    'http.response.status_code': 200,
    'url.scheme': 'http',
    'url.path': '/a',
    'server.address': 'storage.example',
    'server.port': 80,
    'client.address': '127.0.0.1',
    'auth_sidecar.cache': 'miss',
    'auth_sidecar.route': 'proxy',
  })
  t.strictSame(client.attributes, {
    'http.request.method': 'GET',
    'http.response.status_code': 200,
    'url.scheme': 'http',
    'url.path': '/a',
    'server.address': '127.0.0.1',
    'server.port': upstream.port,
  })
  const times = [before, ms(server.startNs), ms(client.startNs), ...client.events.map(({ atNs }) => ms(atNs))]
  times.push(ms(client.endNs), ms(server.endNs), Date.now() + 1)
  t.strictSame(
    client.events.map(({ name }) => name),
    ['connected', 'first_byte'],
  )
  t.strictSame(
    times.toSorted((a, b) => a - b),
    times,
    'one after the other',
  )
  await eventually(() => accessLines().length === 1, 'the access line')
  t.match(accessLines(), [{ traceId: TRACE, spanId: server.spanId }])
  t.match(server.resource, {
    'service.name': 'storage-auth-sidecar',
    'service.version': /^\d/,
    'service.instance.id': /^[0-9a-f-]{36}$/,
    'telemetry.sdk.language': 'nodejs',
  })
  await traceAtUpstream(SAMPLED)
  const [hit] = (await collector.received(4, TRACE)).filter(
    ({ spanId, kind }) => kind === 'server' && spanId !== server.spanId,
  )
  t.equal(hit?.attributes['auth_sidecar.cache'], 'hit')
  t.equal(await sidecar.metric(DROPPED), 0)
})

t.test('what the upstream receives of a trace', async (t) => {
  const anew = /^00-(?!4bf92f35)[0-9a-f]{32}-[0-9a-f]{16}-01$/
  const continued = new RegExp(`^00-${TRACE}-(?!${PARENT})[0-9a-f]{16}-01$`)
  const same = (line: string) => line.split(': ')[1]
  const all = await tracedSetup(t, { settings: ALL })
  const none = await tracedSetup(t, { settings: NONE })
  const edge = await tracedSetup(t, { settings: { ...ALL, 'tracing-trust-incoming': 'false' } })
  const edgeNone = await tracedSetup(t, { settings: { ...NONE, 'tracing-trust-incoming': 'false' } })
  const nothing = { traceparent: undefined, tracestate: undefined }
  const state = 'vendor=1,other=2'
  const long = `tracestate: ${Array.from({ length: 33 }, (_, at) => `k${at}=${'v'.repeat(26)}`).join(',')}`
  for (const [what, { traceAtUpstream }, lines, expected] of [
    ['sampled by its caller', none, [SAMPLED, STATE], { traceparent: continued, tracestate: state }],
    [
      'not sampled by its caller',
      all,
      [UNSAMPLED, STATE],
      { traceparent: same(UNSAMPLED), tracestate: state },
    ],
    ['without a trace, sampled', all, [], { ...nothing, traceparent: anew }],
    ['without a trace, not sampled', none, [], nothing],
    ['a state without a trace, sampled', all, [STATE], { ...nothing, traceparent: anew }],
    ['untrusted, sampled', edge, [SAMPLED, STATE], { ...nothing, traceparent: anew }],
    [
      'untrusted and not sampled by its caller, sampled',
      edge,
      [UNSAMPLED],
      { ...nothing, traceparent: anew },
    ],
    ['untrusted, not sampled', edgeNone, [SAMPLED, STATE], nothing],
    ['random', none, [SAMPLED.replace(/01$/, '03')], { traceparent: /-03$/ }],
    ['with unknown flags', none, [SAMPLED.replace(/01$/, 'ff')], { traceparent: /-03$/ }],
    ['of a later version', none, [`traceparent: 01-${TRACE}-${PARENT}-01-more`], { traceparent: continued }],
    ['with a long state', none, [SAMPLED, long], { traceparent: continued, tracestate: same(long) }],
  ] as const) {
    t.match(await traceAtUpstream(...lines), expected, what)
  }
})

t.test('a traceparent of a wrong form is replaced, or dropped, with its state', async (t) => {
  const all = await tracedSetup(t, { settings: ALL })
  const none = await tracedSetup(t, { settings: NONE })
  const good = `00-${TRACE}-${PARENT}-01`
  for (const [what, values] of [
    ['54 characters', [good.slice(0, -1)]],
    ['56 characters', [`${good}0`]],
    ['more behind version 00', [`${good}-00`]],
    ['upper case', [good.toUpperCase()]],
    ['version ff', [`ff${good.slice(2)}`]],
    ['a trace id of zeros', [`00-${'0'.repeat(32)}-${PARENT}-01`]],
    ['a parent of zeros', [`00-${TRACE}-${'0'.repeat(16)}-01`]],
    ['nothing', ['']],
    ['twice', [good, good]],
  ] as const) {
    const lines = [...values.map((value) => `traceparent: ${value}`), STATE]
    const replaced = await all.traceAtUpstream(...lines)
    t.match(replaced.traceparent, /^00-(?!4bf92f35)[0-9a-f]{32}-[0-9a-f]{16}-01$/, what)
    t.equal(replaced.tracestate, undefined, what)
    const dropped = await none.traceAtUpstream(...lines)
    t.strictSame(dropped, { traceparent: undefined, tracestate: undefined }, what)
  }
  const spans = await all.collector.received(18)
  t.strictSame(
    spans.flatMap(({ links }) => links),
    [],
  )
})

t.test('the flag of an untrusted client counts for nothing, and its trace is linked', async (t) => {
  const settings = { 'tracing-trust-incoming': 'false', 'tracing-sample-ratio': '0.1' }
  const { collector, connect, upstream, head } = await tracedSetup(t, { settings })
  const client = await connect()
  for (let sent = 0; sent < 200; sent++) {
    client.send(head('GET /a', SAMPLED))
    t.equal((await client.response()).status, 200)
  }
  const sampled = upstream.requests.filter(({ headers }) => headers['traceparent'] !== undefined)
  t.ok(sampled.length > 2 && sampled.length < 60, `${sampled.length} of 200 requests are sampled`)
  const spans = await collector.received(2 * sampled.length)
  t.strictSame(
    spans.filter(({ traceId }) => traceId === TRACE),
    [],
  )
  const servers = spans.filter(({ kind }) => kind === 'server')
  t.equal(servers.length, sampled.length)
  t.ok(servers.every(({ links, parentId }) => parentId === '' && links.length === 1))
  t.strictSame(servers[0]?.links, [{ traceId: TRACE, spanId: PARENT, isSampled: true }])
})

t.test('the link to an untrusted client that has not sampled says so', async (t) => {
  const { collector, traceAtUpstream } = await tracedSetup(t, {
    settings: { ...ALL, 'tracing-trust-incoming': 'false' },
  })
  await traceAtUpstream(UNSAMPLED)
  const { server } = await collector.pair()
  t.strictSame(server.links, [{ traceId: TRACE, spanId: PARENT, isSampled: false }])
})

t.test('one request of a hundred is sampled', async (t) => {
  const { collector, connect, upstream, head, sidecar } = await tracedSetup(t)
  const clients = await Promise.all(Array.from({ length: 20 }, connect))
  await Promise.all(
    clients.map(async (client) => {
      for (let sent = 0; sent < 150; sent++) {
        client.send(head('GET /a'))
        await client.response()
      }
    }),
  )
  t.equal(upstream.requests.length, 3000)
  const sampled = upstream.requests.filter(({ headers }) => headers['traceparent'] !== undefined).length
  t.ok(sampled > 5 && sampled < 75, `${sampled} of 3,000`)
  await collector.received(2 * sampled)
  await sidecar.stop()
  t.equal(collector.spans.length, 2 * sampled)
})

t.test('what a request is refused for stands on its span, and no span is below it', async (t) => {
  const { collector, ask, head, sidecar, upstream } = await tracedSetup(t, { settings: ALL })
  const plain = (start: string, ...lines: string[]) =>
    [`${start} HTTP/1.1`, 'Host: [::1]:8443', ...lines, '', ''].join('\r\n')
  const login = JSON.stringify(sidecar.logins[0])
  const wrong = JSON.stringify({ ...sidecar.logins[0], secret: 'wrong' })
  const post = (body: string) =>
    plain('POST /v2/auth/token?x=secret', `Content-Length: ${body.length}`) + body
  for (const [what, bytes, status, attributes] of [
    ['no token', plain('GET /a?secret'), 400, { 'auth_sidecar.reason': 'missing' }],
    [
      'a forged token',
      plain('GET /a', 'Authorization: Bearer a.b.c'),
      400,
      { 'auth_sidecar.reason': 'malformed', 'auth_sidecar.cache': 'miss' },
    ],
    [
      'two readings',
      plain('GET /a', 'Host: b'),
      400,
      { 'auth_sidecar.reason': 'admission', 'url.path': '/a' },
    ],
    ['a login', post(login), 200, { 'auth_sidecar.route': 'token_issue', 'url.path': '/v2/auth/token' }],
    ['a failed login', post(wrong), 403, { 'auth_sidecar.reason': 'rejected' }],
    ['an unknown method', plain('PROPFIND /a'), 400, { 'http.request.method': '_OTHER' }],
  ] as const) {
    collector.spans.length = 0
    t.equal((await ask(bytes)).status, status, what)
    const [span, ...others] = await collector.received(1)
    t.match(
      span,
      {
        kind: 'server',
        hasFailed: false,
        attributes: { 'http.response.status_code': status, ...attributes },
      },
      what,
    )
    t.strictSame(others, [], what)
    if (status === 400 && attributes['auth_sidecar.reason'] !== 'admission') {
      t.match(span?.attributes, { 'server.address': '::1', 'server.port': 8443 })
    }
  }
  t.equal(collector.spans[0]?.name, 'HTTP')
  t.equal(upstream.requests.length, 0)
  t.notMatch(JSON.stringify(collector.spans.map(({ attributes }) => attributes)), /secret/)
  t.equal((await ask(head('GET /a'))).status, 200)
})

t.test('how long a request waited shows in its spans', async (t) => {
  const { collector, connect, upstream, head } = await tracedSetup(t, {
    settings: { ...ALL, 'limits-upstream-connections': '1', 'limits-account-share': '1' },
  })
  const held: (() => void)[] = []
  upstream.reply((socket) => held.push(() => socket.write(OK)))
  const first = await connect()
  first.send(head('GET /first'))
  await upstream.received(1)
  const second = await connect()
  second.send(head('PUT /second', 'Content-Length: 2', 'Expect: 100-continue'))
  const mark = Date.now() + 1
  await eventually(() => Date.now() > mark, 'a millisecond')
  held.shift()?.()
  await first.response()
  await second.until('100 Continue')
  second.send('ok')
  await upstream.received(2)
  held.shift()?.()
  await second.response()
  const spans = await collector.received(4)
  const uploaded = spans.find(({ kind, name }) => kind === 'client' && name === 'PUT')
  t.strictSame(
    uploaded?.events.map(({ name }) => name),
    ['connected', 'request_sent', 'first_byte'],
  )
  const times = [uploaded?.startNs ?? 0n, ...(uploaded?.events ?? []).map(({ atNs }) => atNs)].map(ms)
  t.strictSame(times.toSorted(), times)
  t.ok((times[1] ?? 0) >= mark - 1, 'it waited for the connection of the first')
})

t.test('a failure of the upstream or of the client stands on both spans', async (t) => {
  const { collector, connect, ask, upstream, head } = await tracedSetup(t, { settings: ALL })
  const errors = async () => {
    const { server, client } = await collector.pair()
    collector.spans.length = 0
    const of = ({ hasFailed, attributes }: CollectedSpan) => [
      hasFailed,
      attributes['error.type'],
      attributes['http.response.status_code'],
    ]
    return { server: of(server), client: of(client), reason: server.attributes['auth_sidecar.reason'] }
  }
  upstream.reply('no HTTP')
  await ask(head('GET /a'))
  t.strictSame(await errors(), {
    server: [true, 'http_protocol_error', 500],
    client: [true, 'http_protocol_error', undefined],
    reason: 'http_protocol_error',
  })
  upstream.reply('HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n')
  await ask(head('GET /a'))
  t.strictSame(await errors(), {
    server: [false, undefined, 404],
    client: [true, '404', 404],
    reason: undefined,
  })
  upstream.reply('HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n')
  await ask(head('GET /a'))
  t.strictSame(await errors(), { server: [true, '502', 502], client: [true, '502', 502], reason: undefined })
  upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf-')
  const leaving = await connect()
  leaving.send(head('GET /a'))
  await leaving.until('half-')
  leaving.socket.destroy()
  t.strictSame(await errors(), {
    server: [true, 'client_aborted', 499],
    client: [true, 'client_aborted', 200],
    reason: 'client_aborted',
  })
})

t.test('a tunnel has its spans, too', async (t) => {
  const { port } = await echoServer(t)
  const { collector, sidecar } = await tracedSetup(t, {
    settings: { ...ALL, 'upgrade-enabled': 'true', 'upstream-url': `http://127.0.0.1:${port}` },
  })
  const headers = { Authorization: `Bearer ${sidecar.token}` }
  const socket = new WebSocket(`ws://127.0.0.1:${sidecar.port}/chat`, { headers })
  await once(socket, 'open')
  socket.send('hello')
  await once(socket, 'message')
  socket.close()
  const { server, client } = await collector.pair()
  t.match(server.attributes, { 'http.response.status_code': 101, 'url.path': '/chat' })
  t.match(client.attributes, { 'http.response.status_code': 101 })
  t.ok(server.endNs > client.endNs, 'until it is closed')
})

t.test('the attributes are a closed set, with the stable names of the conventions', async (t) => {
  const documented = tableUnder('docs/tracing.md', '## Spans')
  t.strictSame(
    documented.flatMap(({ attribute }) => codeIn(attribute)),
    [...SPAN_ATTRIBUTES],
  )
  t.strictSame(
    tableUnder('docs/tracing.md', '### Events').flatMap(({ event }) => codeIn(event)),
    [...SPAN_EVENTS],
  )
  const stable = new Set(
    Object.entries(conventions).flatMap(([name, value]) => (name.startsWith('ATTR_') ? [value] : [])),
  )
  for (const name of SPAN_ATTRIBUTES) {
    t.ok(name.startsWith('auth_sidecar.') || stable.has(name), name)
  }
  const { collector, ask, head, sidecar, authorization } = await tracedSetup(t, {
    settings: { ...ALL, 'tracing-account-attribute': 'true', 'links-enabled': 'true' },
  })
  const body = JSON.stringify({ method: 'GET', target: '/a?secret=1' })
  const made = await ask(head('POST /v2/auth/links', `Content-Length: ${body.length}`) + body)
  const { url } = JSON.parse(made.body.toString())
  t.equal((await ask(`GET ${url} HTTP/1.1\r\nHost: a\r\nCookie: secret\r\n\r\n`)).status, 200)
  const spans = await collector.received(3)
  const link = spans.filter(({ attributes }) => attributes['url.path'] === '/a')
  t.match(link.find(({ kind }) => kind === 'server')?.attributes, {
    'auth_sidecar.route': 'link',
    'auth_sidecar.account': 'acme',
  })
  for (const { attributes } of spans) {
    const others = Object.keys(attributes).filter((name) => !SPAN_ATTRIBUTES.some((known) => known === name))
    t.strictSame(others, [])
  }
  const { accessKey, secret } = sidecar.logins[0] ?? {}
  const everything = JSON.stringify(spans, (_key, value) =>
    typeof value === 'bigint' ? String(value) : value,
  )
  for (const hidden of ['secret', 'link_token', 'eyJ', accessKey, secret, authorization.trim()]) {
    t.notOk(everything.includes(hidden ?? ''), 'no query, token, key or header')
  }
})

t.test('long paths are cut, and others stay as they came', async (t) => {
  const { collector, ask, head } = await tracedSetup(t, { settings: ALL })
  await ask(head(`GET /${'a'.repeat(2000)}?secret`))
  await ask(head('GET /%C3%B6/../a;b"'))
  const paths = (await collector.received(4)).flatMap(({ kind, attributes }) =>
    kind === 'server' ? [attributes['url.path']] : [],
  )
  t.strictSame(paths, [`/${'a'.repeat(1023)}`, '/%C3%B6/../a;b"'])
})

t.test('audit lines of a sampled request have its ids', async (t) => {
  const { collector, ask, sidecar } = await tracedSetup(t, { settings: NONE })
  const body = JSON.stringify(sidecar.logins[0])
  const login = (line: string) =>
    `POST /v2/auth/token HTTP/1.1\r\nHost: a\r\n${line}\r\nContent-Length: ${body.length}\r\n\r\n${body}`
  await ask(login(SAMPLED))
  const [span] = await collector.received(1, TRACE)
  await ask(login(UNSAMPLED))
  const lines = sidecar.log.filter(({ msg }) => msg === 'audit')
  t.match(lines[0], { event: 'login', traceId: TRACE, spanId: span?.spanId })
  t.match(lines[1], { event: 'login', traceId: TRACE, spanId: undefined })
})

t.test('the status page says that spans were dropped', async (t) => {
  const { collector, traceAtUpstream, sidecar } = await tracedSetup(t)
  const problems = async () =>
    Object(await (await fetch(`http://127.0.0.1:${sidecar.adminPort}/status.json`)).json()).problems
  t.strictSame(await problems(), [])
  collector.respond((res) => res.writeHead(500).end())
  await traceAtUpstream(SAMPLED)
  await eventually(() => sidecar.log.some(({ msg }) => msg === 'spans were dropped'), 'the warning')
  t.match(await problems(), [
    { severity: 'warning', text: /^Traces have gaps: 2 spans dropped in \d+ min, see the log$/ },
  ])
})
