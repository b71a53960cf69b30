/**
 * Traces through nginx, the sidecar and a Node service with OpenTelemetry's own instrumentation, and the
 * spans as `opentelemetry-proto` of PyPI reads them. A test is skipped where its programs are missing.
 */
import { spawn, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import t from 'tap'
import { startCollector } from '../support/collector.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { listen } from '../support/listen.ts'
import { watchProcess, without } from '../support/other-programs.ts'
import { startSetup } from '../support/setup.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const PARENT = '00f067aa0ba902b7'
const TRACEPARENT = `traceparent: 00-${TRACE}-${PARENT}-01`

/** A service that sends a span for each request. Its packages stand in the directory that it runs in. */
const SERVICE = `
const { NodeTracerProvider, SimpleSpanProcessor } = require('@opentelemetry/sdk-trace-node')
const { registerInstrumentations } = require('@opentelemetry/instrumentation')
const { HttpInstrumentation } = require('@opentelemetry/instrumentation-http')
const { OTLPTraceExporter } = require('@opentelemetry/exporter-trace-otlp-proto')
const exporter = new OTLPTraceExporter({ url: process.env.COLLECTOR })
new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }).register()
registerInstrumentations({ instrumentations: [new HttpInstrumentation()] })
const server = require('node:http').createServer((req, res) => res.end('ok'))
server.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('listening'))
`

const packages = process.env['OPENTELEMETRY_NODE']
const noPackages =
  packages === undefined
    ? 'OPENTELEMETRY_NODE is not set: npm install @opentelemetry/{api,sdk-trace-node,instrumentation,instrumentation-http,exporter-trace-otlp-proto} in a directory, and name it'
    : false
const noNginx = without('/usr/sbin/nginx', '-v')

t.test('a trace leads from nginx to the sidecar to a service', { skip: noPackages || noNginx }, async (t) => {
  const collector = await startCollector(t)
  const servicePort = await freePort()
  const env = { ...process.env, NODE_OPTIONS: '', COLLECTOR: collector.url, PORT: String(servicePort) }
  const started = spawn(process.execPath, ['-e', SERVICE], { cwd: packages, env })
  const service = watchProcess(t, started)
  await eventually(() => service.stdout().includes('listening'), service.stderr)
  const sidecar = await startSidecar(t, {
    upstreamUrl: `http://127.0.0.1:${servicePort}`,
    settings: { 'tracing-endpoint': collector.url },
  })
  const directory = await temporaryDirectory(t)
  const nginxPort = await freePort()
  const kinds = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
  writeFileSync(
    join(directory, 'nginx.conf'),
    `pid nginx.pid; events {}
    http { access_log off; ${kinds.map((kind) => `${kind}_temp_path ${kind};`).join(' ')}
      server { listen 127.0.0.1:${nginxPort}; location / { proxy_pass http://127.0.0.1:${sidecar.port}; } } }`,
  )
  const args = ['-p', directory, '-e', 'stderr', '-g', 'daemon off;', '-c', 'nginx.conf']
  const nginx = watchProcess(t, spawn('/usr/sbin/nginx', args), 'SIGTERM')
  const headers = { Authorization: `Bearer ${sidecar.token}`, traceparent: `00-${TRACE}-${PARENT}-01` }
  const ask = () => fetch(`http://127.0.0.1:${nginxPort}/bucket/object?part=1`, { headers })
  await eventually(
    () =>
      ask().then(
        ({ status }) => status === 200,
        () => false,
      ),
    nginx.stderr,
  )
  const spans = await collector.received(3, TRACE)
  const own = spans.filter(({ scope }) => scope === 'storage-auth-sidecar')
  const server = own.find(({ kind }) => kind === 'server')
  const client = own.find(({ kind, parentId }) => kind === 'client' && parentId === server?.spanId)
  const ofService = spans.find(
    ({ scope, parentId }) => scope !== server?.scope && parentId === client?.spanId,
  )
  t.equal(server?.parentId, PARENT)
  t.match(ofService, { kind: 'server', traceId: TRACE })
  t.ok(client !== undefined && ofService !== undefined && client.startNs <= ofService.endNs)
})

const READ = `
import json, sys
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
request = ExportTraceServiceRequest()
request.ParseFromString(sys.stdin.buffer.read())
print(json.dumps(MessageToDict(request)))
`
const noProto = without('python3', '-c', 'import opentelemetry.proto.collector.trace.v1.trace_service_pb2')

t.test('opentelemetry-proto reads the spans', { skip: noProto }, async (t) => {
  const bodies: Buffer[] = []
  const server = createServer(async (req, res) => {
    bodies.push(Buffer.concat(await req.toArray()))
    res.end()
  })
  const endpoint = `http://127.0.0.1:${await listen(t, server)}/v1/traces`
  const { ask, head } = await startSetup(t, { settings: { 'tracing-endpoint': endpoint } })
  t.equal((await ask(head('GET /a?b', TRACEPARENT))).status, 200)
  await eventually(() => bodies.length === 1, 'the spans')
  const { stdout, stderr } = spawnSync('python3', ['-c', READ], { input: bodies[0] })
  t.equal(String(stderr), '')
  const { resourceSpans } = JSON.parse(String(stdout))
  const [client, own] = resourceSpans[0].scopeSpans[0].spans
  const base64 = (hex: string) => Buffer.from(hex, 'hex').toString('base64')
  t.match(own, {
    traceId: base64(TRACE),
    parentSpanId: base64(PARENT),
    kind: 'SPAN_KIND_SERVER',
    name: 'GET',
  })
  t.match(client, { traceId: base64(TRACE), parentSpanId: own.spanId, kind: 'SPAN_KIND_CLIENT' })
  t.same(
    client.events.map(({ name }: { readonly name: string }) => name),
    ['connected', 'first_byte'],
  )
  const path = { key: 'url.path', value: { stringValue: '/a' } }
  t.ok(JSON.stringify(own.attributes).includes(JSON.stringify(path)))
})
