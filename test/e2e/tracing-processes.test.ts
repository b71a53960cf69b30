import { readdirSync, readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { startCollector } from '../support/collector.ts'
import { eventually } from '../support/eventually.ts'
import { type ProgramOptions, prepareFiles, serve } from '../support/program.ts'
import { metricAt } from '../support/prometheus.ts'
import { rawRequest } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'

const ALL = { 'tracing-sample-ratio': '1' }
const DROPPED = 'auth_sidecar_spans_dropped_total'

/** The built program, in front of an upstream, with a collector. */
async function setup(t: Test, flags: Readonly<Record<string, string>> = {}, options: ProgramOptions = {}) {
  const collector = await startCollector(t)
  const upstream = await recordingUpstream(t)
  const { files, token } = await prepareFiles(t)
  const program = await serve(
    t,
    {
      ...files,
      'upstream-url': upstream.url,
      'shutdown-lame-duck-seconds': '0',
      'tracing-endpoint': collector.url,
      ...flags,
    },
    options,
  )
  const get = `GET /object HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`
  return {
    collector,
    program,
    upstream,
    /** The status of a request on a new connection. */
    ask: async () => (await rawRequest(t, program.port, get)).status,
    metric: (name: string) => metricAt(program.adminPort, name),
    async stop() {
      program.child.kill('SIGTERM')
      return (await program.ended).code
    },
  }
}

/** The modules that a run of the program loads, by what V8 says of their coverage. */
async function loadedModules(t: Test, flags: Readonly<Record<string, string>>) {
  const directory = t.testdir()
  const { ask, stop } = await setup(t, flags, { env: { NODE_V8_COVERAGE: directory } })
  t.equal(await ask(), 200)
  t.equal(await stop(), 0)
  const files = readdirSync(directory).map((file) => readFileSync(`${directory}/${file}`, 'utf8'))
  const urls = files.flatMap((text) =>
    [...text.matchAll(/"url":"(file:[^"]+)"/g)].map(([, url]) => url ?? ''),
  )
  return [...new Set(urls)].map((url) => url.replace(/^.*?(?=\/dist\/|\/node_modules\/)/, '')).sort()
}

// What is not loaded takes no idle memory either.
t.test('without an endpoint, nothing of tracing is loaded', async (t) => {
  const off = await loadedModules(t, { 'tracing-endpoint': '' })
  const on = await loadedModules(t, {})
  t.ok(off.includes('/dist/main.js') && off.includes('/dist/rooms.js'))
  const isOfTracing = (url: string) => /^\/dist\/tracing\/|\/@opentelemetry\/(?!api\/)/.test(url)
  t.strictSame(off.filter(isOfTracing), [])
  t.ok(on.filter(isOfTracing).length > 50)
  t.strictSame(
    off.filter((url) => !on.includes(url)),
    [],
  )
})

t.test('the variables of OpenTelemetry are obeyed where no setting says otherwise', async (t) => {
  const elsewhere = 'http://127.0.0.1:9'
  const env = {
    OTEL_SERVICE_NAME: 'storage-edge',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test,service.name=ignored,k8s.pod.name=api-1',
    OTEL_EXPORTER_OTLP_HEADERS: 'x-api-key=a-secret',
    OTEL_TRACES_SAMPLER_ARG: '1',
    // These have no effect.
    OTEL_TRACES_SAMPLER: 'always_off',
    OTEL_TRACES_EXPORTER: 'none',
    OTEL_EXPORTER_OTLP_ENDPOINT: elsewhere,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: elsewhere,
    OTEL_EXPORTER_OTLP_TIMEOUT: '1',
    OTEL_BSP_SCHEDULE_DELAY: '3600000',
    OTEL_BSP_MAX_QUEUE_SIZE: '1',
    OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT: '1',
    OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT: '1',
    OTEL_PROPAGATORS: 'none',
  }
  const { collector, ask, program, metric, stop } = await setup(t, { name: 'eu-1' }, { env })
  t.equal(await ask(), 200)
  const { server } = await collector.pair()
  t.match(server.attributes, { 'url.path': '/object', 'auth_sidecar.route': 'proxy' })
  t.match(server.resource, {
    'service.name': 'storage-edge',
    'deployment.environment.name': 'test',
    'k8s.pod.name': 'api-1',
  })
  t.equal(collector.requests[0]?.headers['x-api-key'], 'a-secret')
  collector.respond((res) => res.writeHead(401).end('a-secret'))
  t.equal(await ask(), 200)
  await program.until(() => program.log().some(({ msg }) => msg === 'spans were dropped'), 'the warning')
  t.equal(await metric(DROPPED), 2)
  t.equal(await stop(), 0)
  t.notMatch(program.stdout() + program.stderr(), 'a-secret')
})

t.test('a setting wins over the variables, and the name of the sidecar names the service', async (t) => {
  const env = { OTEL_TRACES_SAMPLER_ARG: '0', OTEL_RESOURCE_ATTRIBUTES: 'not valid' }
  const { collector, ask } = await setup(t, { ...ALL, name: 'eu-1' }, { env })
  t.equal(await ask(), 200)
  const { server } = await collector.pair()
  t.equal(server.resource['service.name'], 'eu-1')
})

t.test('a ratio that is none is a warning, and OTEL_SDK_DISABLED turns tracing off', async (t) => {
  const wrong = await setup(t, {}, { env: { OTEL_TRACES_SAMPLER_ARG: '7' } })
  t.match(
    wrong.program.log().filter(({ level }) => level === 40),
    [{ msg: 'OTEL_TRACES_SAMPLER_ARG is no number from 0 to 1, so 0.01 counts' }],
  )
  const off = await setup(t, ALL, { env: { OTEL_SDK_DISABLED: 'True' } })
  t.match(
    off.program.log().filter(({ level }) => level === 40),
    [{ msg: 'tracing is off, because OTEL_SDK_DISABLED is true' }],
  )
  t.equal(await off.ask(), 200)
  t.equal(await off.stop(), 0)
  t.notOk(off.upstream.requests[0]?.headers['traceparent'])
  t.equal(off.collector.requests.length, 0)
})

t.test('a drain sends what waits', async (t) => {
  const { collector, ask, stop } = await setup(t, ALL)
  t.equal(await ask(), 200)
  t.equal(await stop(), 0)
  t.equal(collector.spans.length, 2)
})

t.test('the spans of a request that the drain cuts do not blame its client', async (t) => {
  const { collector, ask, upstream, stop } = await setup(t, { ...ALL, 'shutdown-deadline-seconds': '0.1' })
  upstream.reply('')
  const cut = t.rejects(ask())
  await eventually(() => upstream.requests.length === 1, 'the request')
  t.equal(await stop(), 1)
  await cut
  t.strictSame(
    collector.spans.map(({ kind, attributes }) => [kind, attributes['error.type']]),
    [
      ['client', 'drain_deadline'],
      ['server', 'drain_deadline'],
    ],
  )
})

t.test('a collector that hangs delays neither requests nor the drain', async (t) => {
  const { collector, ask, program, stop } = await setup(t, ALL)
  collector.respond(() => {})
  t.equal(await ask(), 200)
  await collector.until(() => collector.requests.length === 1, 'a batch')
  t.equal(await ask(), 200)
  t.equal(await stop(), 0)
  t.match(
    program.log().filter(({ msg }) => msg === 'spans were dropped'),
    [{ cause: 'the sidecar stops', dropped: 4 }],
  )
})

t.test('each worker sends its spans, and their counts are added', async (t) => {
  const { collector, ask, metric, stop } = await setup(t, { ...ALL, workers: '2' })
  const instances = () => new Set(collector.spans.map(({ resource }) => resource['service.instance.id']))
  let asked = 0
  while (instances().size < 2) {
    t.strictSame(new Set(await Promise.all(Array.from({ length: 8 }, ask))), new Set([200]))
    asked += 8
    await collector.received(2 * asked)
  }
  t.equal(await metric(DROPPED), 0)
  collector.respond((res) => res.writeHead(500).end())
  await Promise.all(Array.from({ length: 32 }, ask))
  await eventually(async () => (await metric(DROPPED)) === 64, 'the spans of both workers to be counted')
  t.equal(await stop(), 0)
})
