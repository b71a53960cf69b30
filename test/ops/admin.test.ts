import { Registry } from 'prom-client'
import t, { type Test } from 'tap'
import { type AdminOptions, createAdminListener, type ReadyCheck } from '../../src/ops/admin.ts'
import { eventually } from '../support/eventually.ts'
import { rawClient } from '../support/raw-client.ts'
import { statusScene } from '../support/status-scene.ts'

/** An admin listener on a free port. */
async function adminListener(t: Test, options: Partial<AdminOptions> = {}) {
  const faults: Error[] = []
  const { reporter } = statusScene()
  // Memory and the lag of the event loop change from one answer to the next, and the length of an answer with them.
  const report = await reporter.report()
  const admin = createAdminListener({
    host: '127.0.0.1',
    port: 0,
    exposition: new Registry(),
    ready: () => [{ name: 'keys', ok: true }],
    jwks: () => ({ keys: [{ kid: 'k1' }] }),
    status: { ...reporter, report: async () => report },
    onFault: (error) => void faults.push(error),
    ...options,
  })
  const { port } = await admin.listen()
  t.teardown(() => admin.close())
  const ask = async (request: string, { head = false } = {}) => {
    const client = await rawClient(t, port)
    client.send(request)
    const response = await client.response({ head })
    client.socket.destroy()
    return { ...response, json: () => JSON.parse(response.body.toString()) }
  }
  const get = (target: string) => ask(`GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`)
  return { admin, port, faults, ask, get }
}

const PAGES = ['/', '/status.json', '/livez', '/readyz', '/metrics', '/.well-known/jwks.json']

t.test('every page answers GET, and HEAD with the same header and no body', async (t) => {
  const { ask, get } = await adminListener(t)
  for (const page of PAGES) {
    const response = await get(page)
    t.equal(response.status, 200, page)
    t.equal(response.headers['content-length'], String(response.body.length), page)
    t.equal(response.headers['cache-control'], 'no-store', page)
    t.equal(response.headers['x-content-type-options'], 'nosniff', page)
    t.equal(response.headers['referrer-policy'], 'no-referrer', page)
    t.match(response.headers['content-security-policy'], /default-src 'none'.*frame-ancestors 'none'/, page)
    const head = await ask(`HEAD ${page} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`, { head: true })
    t.equal(head.status, 200, page)
    t.equal(head.headers['content-type'], response.headers['content-type'], page)
    t.equal(head.headers['content-length'], response.headers['content-length'], page)
  }
})

t.test('a query changes nothing', async (t) => {
  const { get } = await adminListener(t)
  t.equal((await get('/livez?verbose=1?x')).status, 200)
})

t.test('alive is said whatever else holds', async (t) => {
  const { get } = await adminListener(t, { ready: () => [{ name: 'keys', ok: false }] })
  const response = await get('/livez')
  t.equal(response.headers['content-type'], 'application/json')
  t.strictSame(response.json(), { status: 'alive' })
})

t.test('ready is said when every check holds, and which do not otherwise', async (t) => {
  let checks: ReadyCheck[] = [
    { name: 'keys', ok: true },
    { name: 'accepting', ok: true },
  ]
  const { get } = await adminListener(t, { ready: () => checks })
  const ready = await get('/readyz')
  t.equal(ready.status, 200)
  t.strictSame(ready.json(), { status: 'ready', checks })
  checks = [
    { name: 'keys', ok: true },
    { name: 'accepting', ok: false },
  ]
  const notReady = await get('/readyz')
  t.equal(notReady.status, 503)
  t.strictSame(notReady.json(), { status: 'not ready', checks })
})

t.test('public keys are served as a JWK Set', async (t) => {
  const { get } = await adminListener(t)
  const response = await get('/.well-known/jwks.json')
  t.equal(response.headers['content-type'], 'application/jwk-set+json')
  t.strictSame(response.json(), { keys: [{ kid: 'k1' }] })
})

t.test('the status is served as JSON, and as a page that allows its own script only', async (t) => {
  const { get } = await adminListener(t)
  const status = await get('/status.json')
  t.equal(status.headers['content-type'], 'application/json')
  t.match(status.json(), { ready: true, version: '1.2.3' })
  const page = await get('/')
  t.equal(page.headers['content-type'], 'text/html; charset=utf-8')
  t.match(page.headers['content-security-policy'], /script-src 'sha256-/)
  t.match(page.body.toString(), '<title>✓ Ready')
})

t.test('samples for the status are taken while it listens, and only then', async (t) => {
  const calls: string[] = []
  const { reporter } = statusScene()
  const status = { ...reporter, start: () => void calls.push('start'), stop: () => void calls.push('stop') }
  const { admin } = await adminListener(t, { status })
  t.strictSame(calls, ['start'])
  await admin.close()
  t.strictSame(calls, ['start', 'stop'])
})

t.test('metrics are served as Prometheus text', async (t) => {
  const { get } = await adminListener(t)
  const response = await get('/metrics')
  t.match(response.headers['content-type'], /^text\/plain; version=0\.0\.4/)
})

t.test('other pages are not found, whatever they resemble', async (t) => {
  const { get } = await adminListener(t)
  for (const target of [
    '/metrics/',
    '/status',
    '/status.json/',
    '/index.html',
    '//metrics',
    '/Metrics',
    '/%6detrics',
    '/debug',
    '/v2/auth/token',
    '/__proto__',
    '/constructor',
    '/x/../metrics',
    `/${'x'.repeat(8000)}`,
  ]) {
    const response = await get(target)
    t.equal(response.status, 404, target)
    t.match(response.json(), { message: String }, target)
  }
})

t.test('other methods are not allowed, on any page, with or without a body', async (t) => {
  const { ask } = await adminListener(t)
  for (const page of [...PAGES, '/nothing']) {
    for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'PROPFIND']) {
      const response = await ask(`${method} ${page} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody`)
      t.equal(response.status, 405, `${method} ${page}`)
      t.equal(response.headers['allow'], 'GET, HEAD', `${method} ${page}`)
    }
  }
})

t.test('what is no request is refused, and the next one answered', async (t) => {
  const { ask, get, port, faults } = await adminListener(t)
  for (const request of [
    'rubbish\r\n\r\n',
    'GET /livez HTTP/9.9\r\n\r\n',
    'GET /livez HTTP/1.1\r\n\r\n',
    'GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n',
    'GET /livez HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\nContent-Length: 1\r\n\r\n',
  ]) {
    t.equal((await ask(request)).status, 400, request)
  }
  t.equal((await ask(`GET /livez HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`)).status, 431)
  const upgrading = await ask(
    'GET /livez HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
  )
  t.equal(upgrading.status, 200)
  for (const request of ['CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n', '\x16\x03\x01\x02\0\x01\0']) {
    const client = await rawClient(t, port)
    client.send(request)
    client.socket.end()
    await client.closed()
  }
  t.equal((await get('/livez')).status, 200)
  t.strictSame(faults, [])
})

t.test('a page that cannot be made is a fault of ours, told to the log and not to the client', async (t) => {
  const fault = new Error('canary')
  const registry = new Registry()
  registry.registerMetric({
    name: 'broken',
    get: () => {
      throw fault
    },
  } as never)
  const { get, faults } = await adminListener(t, { exposition: registry })
  const response = await get('/metrics')
  t.equal(response.status, 500)
  t.notMatch(response.body.toString(), /canary/)
  t.strictSame(faults, [fault])
  t.equal((await get('/livez')).status, 200)
})

t.test('an address that cannot be had is an error, and leaves nothing open', async (t) => {
  const { port } = await adminListener(t)
  const second = createAdminListener({
    host: '127.0.0.1',
    port,
    exposition: new Registry(),
    ready: () => [],
    jwks: () => ({}),
    status: statusScene().reporter,
    onFault: () => {},
  })
  await t.rejects(second.listen(), { code: 'EADDRINUSE' })
  await t.resolves(second.close())
})

t.test('closing does not wait for clients that keep their connection', async (t) => {
  const { admin, port } = await adminListener(t)
  const client = await rawClient(t, port)
  client.send('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n')
  await client.response()
  await admin.close()
  await client.closed()
})

const METRICS = 'GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n'
const LIVEZ = 'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n'

/** Metrics that are not there before they are given; `asked` counts who makes them. */
function heldMetrics() {
  const held: (() => void)[] = []
  const counted = { asked: 0 }
  const exposition = {
    contentType: 'text/plain',
    metrics: () => {
      counted.asked++
      return new Promise<string>((resolve) => void held.push(() => resolve(`asked ${counted.asked}\n`)))
    },
  }
  return { exposition, counted, give: () => held.shift()?.() }
}

t.test('requests that come at once on a connection are answered in order, one at a time', async (t) => {
  const { exposition, counted, give } = heldMetrics()
  let ready = 0
  const { port } = await adminListener(t, { exposition, ready: () => [{ name: String(++ready), ok: true }] })
  const client = await rawClient(t, port)
  client.send(`${METRICS}GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n${LIVEZ}`)
  await eventually(() => counted.asked === 1, 'the first')
  t.equal(ready, 0, 'the second is not looked at')
  give()
  t.equal((await client.response()).body.toString(), 'asked 1\n')
  t.match((await client.response()).body.toString(), '"ready"')
  const last = await client.response()
  t.match(last.body.toString(), 'alive')
  t.equal(last.headers['connection'], 'keep-alive')
})

t.test(
  'a connection that sends request upon request ends, and costs no more than a few answers',
  async (t) => {
    let asked = 0
    let atOnce = 0
    const exposition = {
      contentType: 'text/plain',
      metrics: async () => {
        asked++
        atOnce++
        await new Promise((resolve) => setTimeout(resolve, 5))
        t.equal(atOnce--, 1, 'one at a time')
        return 'x'.repeat(100_000)
      },
    }
    const { port, get } = await adminListener(t, { exposition })
    const client = await rawClient(t, port)
    client.send(METRICS.repeat(2000))
    client.socket.on('error', () => {})
    for (let answered = 1; answered <= 8; answered++) {
      const { headers } = await client.response()
      t.equal(headers['connection'], answered < 8 ? 'keep-alive' : 'close')
    }
    await client.closed()
    t.equal(client.rest().length, 0)
    t.ok(asked <= 8, `${asked} made`)
    t.equal((await get('/metrics')).status, 200)
  },
)

t.test('whoever asks at the same time is sent the same, made once; who asks later, another', async (t) => {
  const { exposition, counted, give } = heldMetrics()
  const { port } = await adminListener(t, { exposition })
  const clients = await Promise.all(Array.from({ length: 20 }, () => rawClient(t, port)))
  const all = async (text: string) => {
    for (const client of clients) t.equal((await client.response()).body.toString(), text)
  }
  for (const client of clients) client.send(METRICS)
  await eventually(() => counted.asked > 0, 'the first')
  for (const client of clients) client.send(LIVEZ) // behind: all have come
  const other = await rawClient(t, port)
  other.send(LIVEZ)
  await other.response()
  give()
  await all('asked 1\n')
  for (const client of clients) await client.response()
  clients[0]?.send(METRICS)
  await eventually(() => counted.asked === 2, 'another')
  give()
  t.equal((await clients[0]?.response())?.body.toString(), 'asked 2\n')
})

t.test('however many connections are open, a probe gets in at once', async (t) => {
  const { exposition, give } = heldMetrics()
  const { port } = await adminListener(t, { exposition })
  const open = (count: number) => Promise.all(Array.from({ length: count }, () => rawClient(t, port)))
  const probe = async () => {
    const client = await rawClient(t, port)
    client.send(LIVEZ)
    return (await client.response()).status
  }
  const [first, waiting] = await open(2)
  waiting?.send(METRICS)
  const silent = await open(300)
  t.equal(await probe(), 200, 'silent ones make room')
  await first?.closed()
  t.equal(silent.at(-1)?.socket.readyState, 'open', 'the oldest first')
  give()
  t.equal((await waiting?.response())?.status, 200, 'one in use is kept')

  const busy = await open(256)
  for (const client of busy) client.send(LIVEZ + METRICS)
  for (const client of busy) await client.response()
  t.equal(await probe(), 200, 'and so do those in use, where there are no others')
  give()
})
