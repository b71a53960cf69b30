import { createServer } from 'node:http'
import { SpanKind, TraceFlags } from '@opentelemetry/api'
import { resourceFromAttributes } from '@opentelemetry/resources'
import t from 'tap'
import { SpanQueue } from '../../src/tracing/span-queue.ts'
import { FinishedSpan } from '../../src/tracing/spans.ts'
import { type Collector, startCollector } from '../support/collector.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { listen } from '../support/listen.ts'

const TOO_LONG = 'OTLP export response body exceeded size limit of 4194304 bytes'
/** A stop waits for a second: a busy machine must not fail a test. */
const PATIENCE_MS = 60_000
/** As many are sent at once. */
const BATCH = 512
const RESOURCE = resourceFromAttributes({})

function span(path = '/a') {
  const facts = {
    kind: SpanKind.SERVER,
    context: {
      traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
      spanId: '00f067aa0ba902b7',
      traceFlags: TraceFlags.SAMPLED,
    },
    parent: undefined,
    startMs: 1_700_000_000_000.25,
    endMs: 1_700_000_001_000.75,
    method: 'GET',
    attributes: { 'http.request.method': 'GET', 'url.path': path },
  } as const
  return new FinishedSpan(facts, RESOURCE)
}

const spans = (count: number) => Array.from({ length: count }, () => span())

/** A queue, its log, and the clock of its log. */
function queueFor(endpoint: string) {
  const log: unknown[] = []
  const clock = { nowMs: 0 }
  const queue = new SpanQueue({
    endpoint,
    log: { warn: (fields: unknown) => log.push(fields) },
    monotonicNow: () => clock.nowMs,
  })
  return { queue, log, clock }
}

t.test('spans arrive with what they say', async (t) => {
  const collector = await startCollector(t)
  const { queue, log } = queueFor(collector.url)
  queue.add([span('/ö')])
  const [found] = await collector.received(1)
  t.match(found, {
    traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
    name: 'GET',
    kind: 'server',
    startNs: 1_700_000_000_000_250_000n,
    endNs: 1_700_000_001_000_750_000n,
    attributes: { 'http.request.method': 'GET', 'url.path': '/ö' },
  })
  await queue.stop(PATIENCE_MS)
  t.equal(queue.dropped, 0)
  t.strictSame(log, [])
})

t.test('a stop sends what waits', async (t) => {
  const collector = await startCollector(t)
  const { queue } = queueFor(collector.url)
  queue.add(spans(700))
  await queue.stop(PATIENCE_MS)
  t.equal(collector.spans.length, 700)
  t.equal(queue.dropped, 0)
})

t.test('what a collector does not take is counted, with the cause in the log', async (t) => {
  let followed = 0
  const other = createServer((_req, res) => {
    followed++
    res.end()
  })
  const elsewhere = `http://127.0.0.1:${await listen(t, other)}/v1/traces`
  type Respond = Parameters<Collector['respond']>[0]
  const cases: readonly (readonly [string, Respond, string])[] = [
    ['a 500', (res) => res.writeHead(500).end('a secret'), 'status 500'],
    ['a 400', (res) => res.writeHead(400).end('a secret'), 'status 400'],
    ['a 401', (res) => res.writeHead(401).end('a secret'), 'status 401'],
    ['a redirect', (res) => res.writeHead(307, { Location: elsewhere }).end(), 'status 307'],
    [
      'a 429 for long',
      (res) => res.writeHead(429, { 'Retry-After': '60' }).end(),
      'Export failed with retryable status',
    ],
    ['10 MB', (res) => res.writeHead(200).end(Buffer.alloc(10 * 1024 * 1024)), TOO_LONG],
    ['no HTTP', (res) => res.socket?.end('no HTTP\r\n\r\n'), 'HPE_INVALID_CONSTANT'],
  ]
  for (const [what, respond, cause] of cases) {
    const collector = await startCollector(t)
    const { queue, log } = queueFor(`${collector.url}?key=secret`)
    collector.respond(respond)
    queue.add(spans(BATCH))
    await eventually(() => queue.dropped === BATCH, `the spans to be dropped after ${what}`)
    t.strictSame(log, [{ collector: new URL(collector.url).origin, cause, dropped: BATCH }], what)
    collector.respond()
    queue.add(spans(2))
    await queue.stop(PATIENCE_MS)
    t.equal(collector.spans.length, 2, `those after ${what} arrive`)
    t.equal(queue.dropped, BATCH, what)
  }
  t.equal(followed, 0)
})

t.test('a collector that is slow costs the memory of 2048 spans', async (t) => {
  const collector = await startCollector(t)
  const { queue, log, clock } = queueFor(collector.url)
  const waiting: (() => void)[] = []
  collector.respond((res) => waiting.push(() => res.end()))
  for (let added = 0; added < 3000; added += 2) {
    queue.add(spans(2))
  }
  t.equal(queue.dropped, 952)
  t.match(log, [{ cause: 'too many wait', dropped: 2 }])
  clock.nowMs = 59_999
  queue.add(spans(1))
  t.equal(log.length, 1, 'a line a minute')
  clock.nowMs = 60_000
  queue.add(spans(1))
  t.match(log[1], { cause: 'too many wait', dropped: 952 })
  await collector.until(() => waiting.length > 0, 'a batch')
  collector.respond()
  waiting[0]?.()
  await eventually(() => collector.spans.length === 2048 - BATCH, 'the others')
  queue.add(spans(100))
  await queue.stop(PATIENCE_MS)
  t.equal(collector.spans.length, 2048 - BATCH + 100)
  t.equal(queue.dropped, 954)
})

t.test('a stop does not wait for a collector that says nothing', async (t) => {
  const collector = await startCollector(t)
  const { queue, log } = queueFor(collector.url)
  collector.respond(() => {})
  queue.add(spans(300))
  await queue.stop()
  t.equal(queue.dropped, 300)
  t.match(log, [{ cause: 'the sidecar stops', dropped: 300 }])
  collector.server.closeAllConnections()
})

t.test('a collector that comes back takes what waited', async (t) => {
  const port = await freePort()
  const { queue } = queueFor(`http://127.0.0.1:${port}/v1/traces`)
  queue.add(spans(3))
  const collector = await startCollector(t, port)
  t.equal((await collector.received(3)).length, 3)
  await queue.stop(PATIENCE_MS)
  t.equal(queue.dropped, 0)
})
