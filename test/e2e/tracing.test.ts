import t, { type Test } from 'tap'
import { startCollector } from '../support/collector.ts'
import { eventually } from '../support/eventually.ts'
import { type SetupOptions, startSetup } from '../support/setup.ts'

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
  for (let sent = 0; sent < 500; sent++) {
    client.send(head('GET /a', SAMPLED))
    t.equal((await client.response()).status, 200)
  }
  const sampled = upstream.requests.filter(({ headers }) => headers['traceparent'] !== undefined)
  t.ok(sampled.length > 10 && sampled.length < 120, `${sampled.length} of 500 requests are sampled`)
  const spans = await collector.received(2 * sampled.length)
  t.strictSame(
    spans.filter(({ traceId }) => traceId === TRACE),
    [],
  )
  const servers = spans.filter(({ kind }) => kind === 'server')
  t.equal(servers.length, sampled.length)
  t.ok(servers.every(({ links, parentId }) => parentId === '' && links.length === 1))
  t.strictSame(servers[0]?.links, [{ traceId: TRACE, spanId: PARENT }])
})
