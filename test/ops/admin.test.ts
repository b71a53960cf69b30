import { connect } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { createSecureContext, type SecureContext } from 'node:tls'
import { gunzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { type AdminData, createAdminListener } from '../../src/ops/admin.ts'
import type { MetricFamily } from '../../src/ops/metrics.ts'
import type { ReadyCondition } from '../../src/ops/status.ts'
import { makeCertificate } from '../support/certificates.ts'
import { rawClient, rawTlsClient } from '../support/raw-client.ts'

const CONFIG = {
  // As a positional argument, Node would take this host for a backlog of 127.
  admin: { host: '127.1', port: 0 },
  name: 'test',
  upstreams: [],
  credentials: { file: undefined, postgres: undefined },
  cache: { maxTokens: 1, maxAgeSeconds: 1 },
}

const DATA: AdminData = {
  conditions: () => [{ name: 'keys', ok: true }],
  jwks: () => ({ keys: [{ kid: 'k1' }] }),
  signingKid: () => 'k1',
  metrics: async () => [],
  accounts: () => ({ requests: [], bytes: [], refusals: [] }),
}

const TLS = makeCertificate({ commonName: '127.0.0.1', names: ['127.0.0.1'] })

/** An admin listener on a free port. */
async function adminListener(t: Test, data: Partial<AdminData> = {}, secureContext?: () => SecureContext) {
  const faults: unknown[] = []
  const log = {
    error: ({ err }: { err: unknown }) => {
      faults.push(err)
    },
  }
  const adminData = { ...DATA, ...data }
  const admin = createAdminListener({
    config: CONFIG,
    adminData,
    secureContext,
    rooms: [],
    log,
    now: Date.now,
  })
  const { port } = await admin.listen()
  t.teardown(() => admin.close())
  const ask = async (request: string, { head = false } = {}) => {
    const client = await (secureContext ? rawTlsClient(t, port, { ca: TLS.cert }) : rawClient(t, port))
    client.send(request)
    const response = await client.response({ head })
    client.socket.destroy()
    return { ...response, json: () => JSON.parse(response.body.toString()) }
  }
  const get = (target: string) => ask(`GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`)
  return { admin, port, faults, ask, get }
}

const TEXT = /^text\/plain; version=0\.0\.4/
const JSON_TYPE = /^application\/json$/
const PAGES: Readonly<Record<string, RegExp>> = {
  '/': /^text\/html; charset=utf-8$/,
  '/status.json': JSON_TYPE,
  '/livez': JSON_TYPE,
  '/readyz': JSON_TYPE,
  '/metrics': TEXT,
  '/.well-known/jwks.json': /^application\/jwk-set\+json$/,
  '/page.js': /^text\/javascript/,
  '/page.css': /^text\/css/,
  '/uplot.js': /^text\/javascript/,
  '/uplot.css': /^text\/css/,
}

t.test('every page answers GET with its media type, and HEAD without a body', async (t) => {
  const { ask, get } = await adminListener(t)
  for (const [page, type] of Object.entries(PAGES)) {
    const response = await get(`${page}?verbose=1`)
    t.equal(response.status, 200, page)
    t.match(
      response.headers,
      {
        'content-type': type,
        'content-length': String(response.body.length),
        'cache-control': 'no-store',
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'no-referrer',
        'content-security-policy': /default-src 'none'; script-src 'self'; .*frame-ancestors 'none'/,
      },
      page,
    )
    const head = await ask(`HEAD ${page} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`, { head: true })
    t.match(head, { status: 200, headers: { 'content-type': type } }, page)
  }
  t.strictSame((await get('/.well-known/jwks.json')).json(), { keys: [{ kid: 'k1' }] })
  t.match((await get('/status.json')).json(), { ready: true, problems: [] })
})

t.test('ready is 503 and lists the checks while one of them fails; alive is 200', async (t) => {
  const checks: ReadyCondition[] = [{ name: 'keys', ok: true }]
  const { get } = await adminListener(t, { conditions: () => checks })
  const ready = await get('/readyz')
  t.equal(ready.status, 200)
  t.strictSame(ready.json(), { status: 'ready', checks })
  checks.push({ name: 'accepting', ok: false })
  const notReady = await get('/readyz')
  t.equal(notReady.status, 503)
  t.strictSame(notReady.json(), { status: 'not ready', checks })
  t.strictSame((await get('/livez')).json(), { status: 'alive' })
})

t.test('a large page is compressed for clients that accept gzip', async (t) => {
  const metrics = async (): Promise<MetricFamily[]> => [
    {
      name: 'a',
      help: 'x'.repeat(5000),
      type: 'gauge',
      aggregator: 'sum',
      values: [{ labels: {}, value: 1 }],
    },
  ]
  const { ask } = await adminListener(t, { metrics })
  const get = (accepted: string, path = '/metrics') =>
    ask(`GET ${path} HTTP/1.1\r\nHost: a\r\n${accepted}\r\n`)
  for (const accepted of ['gzip', 'deflate, GZIP;q=0.5', 'br , gzip ; q=1.0']) {
    const { headers, body } = await get(`Accept-Encoding: ${accepted}\r\n`)
    t.match(headers, { 'content-encoding': 'gzip', vary: 'Accept-Encoding' }, accepted)
    t.match(gunzipSync(body).toString(), 'a 1')
  }
  for (const accepted of ['', 'Accept-Encoding: gzip;q=0\r\n', 'Accept-Encoding: br, xgzip\r\n']) {
    const { headers, body } = await get(accepted)
    t.notOk('content-encoding' in headers, accepted)
    t.match(body.toString(), 'a 1')
  }
  const { headers } = await get('Accept-Encoding: gzip\r\n', '/livez')
  t.notOk('content-encoding' in headers, 'a small page is not worth it')
})

t.test('other paths are 404, other methods 405, with JSON', async (t) => {
  const { ask, get } = await adminListener(t)
  const paths = '/metrics/ //metrics /Metrics /%6detrics /page.html /assets.ts /v2/auth/token'.split(' ')
  for (const target of [...paths, '/__proto__', '/x/../metrics', `/${'x'.repeat(8000)}`]) {
    const response = await get(target)
    t.equal(response.status, 404, target)
    t.match(response.json(), { code: String, message: String }, target)
  }
  for (const page of ['/', '/metrics', '/readyz', '/nothing']) {
    for (const method of ['POST', 'DELETE', 'OPTIONS', 'TRACE']) {
      const response = await ask(`${method} ${page} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody`)
      t.equal(response.status, 405, `${method} ${page}`)
      t.equal(response.headers['allow'], 'GET, HEAD', `${method} ${page}`)
    }
  }
})

t.test('a malformed request is refused and the next one is served', async (t) => {
  const { ask, get, port, faults } = await adminListener(t)
  for (const request of ['rubbish\r\n\r\n', 'GET /livez HTTP/1.1\r\n\r\n']) {
    t.equal((await ask(request)).status, 400, request)
  }
  t.equal((await ask(`GET /livez HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`)).status, 431)
  const upgrade = 'GET /livez HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'
  t.equal((await ask(upgrade)).status, 200)
  for (const request of ['CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n', '\x16\x03\x01\x02\0\x01\0']) {
    const client = await rawClient(t, port)
    client.send(request)
    client.socket.end()
    await client.closed()
  }
  t.equal((await get('/livez')).status, 200)
  t.strictSame(faults, [])
})

t.test('a failing page is a 500 without the cause, which is reported', async (t) => {
  const fault = new Error('canary')
  const metrics = async (group: string) => (group === 'all' ? Promise.reject(fault) : [])
  const { get, faults } = await adminListener(t, { metrics })
  const response = await get('/metrics')
  t.equal(response.status, 500)
  t.notMatch(response.body.toString(), /canary/)
  t.strictSame(faults, [fault])
  t.equal((await get('/livez')).status, 200)
})

/** Turns of the event loop: a tenth of a second of waiting. A busy machine adds none. */
const MANY_TURNS = 10_000

/** Lets the event loop turn until something holds; returns how often it turned. */
async function turnsUntil(holds: () => boolean): Promise<number> {
  let turns = 0
  while (!holds()) {
    await nextTurn()
    turns++
  }
  return turns
}

t.test('probes are answered within a second beside as many connections as clients can open', async (t) => {
  const plain = await adminListener(t)
  const secureContext = createSecureContext(TLS)
  const secure = await adminListener(t, {}, () => secureContext)
  for (const { kind, bytes, listener } of [
    { kind: 'idle', bytes: '', listener: plain },
    { kind: 'half-sent', bytes: 'GET /metr', listener: plain },
    { kind: 'slow', bytes: 'GET /uplot.js HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(4), listener: plain },
    { kind: 'before a TLS handshake', bytes: '', listener: secure },
    { kind: 'in a TLS handshake', bytes: '\x16\x03\x01\x02', listener: secure },
  ]) {
    const sockets = Array.from({ length: 1200 }, () => {
      const socket = connect(listener.port, '127.0.0.1', () => socket.pause().write(bytes))
      return socket.on('error', () => {})
    })
    const turnsToConnect = await turnsUntil(() => sockets.every(({ connecting }) => !connecting))
    t.ok(turnsToConnect < MANY_TURNS, `${kind}: no SYN is dropped, after ${turnsToConnect} turns`)
    await listener.get('/livez') // accepted after the burst, whose cost is that of this process too
    for (let probe = 0; probe < 5; probe++) {
      const before = process.cpuUsage()
      let status = 0
      listener.get('/livez').then((response) => {
        status = response.status
      })
      const turns = await turnsUntil(() => status !== 0)
      const { user, system } = process.cpuUsage(before)
      t.equal(status, 200, kind)
      t.ok(turns < MANY_TURNS, `${kind}: ${turns} turns`)
      t.ok(user + system < 1e6, `${kind}: ${user + system} µs`)
    }
    for (const socket of sockets) {
      socket.destroy()
    }
  }
})
