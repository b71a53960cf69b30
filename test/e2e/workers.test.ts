import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { eventually, inTime, succeeds } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { without } from '../support/other-programs.ts'
import type { ProgramOptions } from '../support/program.ts'
import { prepareFiles, runProgram, serve, serveArgs, startProgram } from '../support/program.ts'
import { metricAt } from '../support/prometheus.ts'
import { type RawClient, rawClient, rawRequest } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'

/** A sidecar of several processes, in front of an upstream. */
async function setup(t: Test, flags: Readonly<Record<string, string>> = {}, options: ProgramOptions = {}) {
  const upstream = await recordingUpstream(t)
  const { files, token } = await prepareFiles(t)
  const defaults = { 'upstream-url': upstream.url, workers: '2', 'shutdown-lame-duck-seconds': '0' }
  const sidecar = await serve(t, { ...files, ...defaults, ...flags }, options)
  const admin = (path: string) => rawRequest(t, sidecar.adminPort, `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`)
  const get = `GET /object HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`
  const connect = () => rawClient(t, sidecar.port)
  return {
    upstream,
    sidecar,
    files,
    admin,
    get,
    connect,
    /** Four clients that have received a half of their responses. */
    async halfServed() {
      upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf-')
      const clients = await Promise.all(Array.from({ length: 4 }, connect))
      for (const client of clients) {
        client.send(get)
        await client.until('half-')
      }
      return clients
    },
    /** The workers that have been started, in order. */
    pids: () => sidecar.log().flatMap(({ msg, pid }) => (msg === 'worker started' ? [Number(pid)] : [])),
    metric: (name: string) => metricAt(sidecar.adminPort, name),
  }
}

/** Sends the request on so many separate connections; returns the statuses. */
async function ask(connect: () => Promise<RawClient>, request: string, times: number): Promise<number[]> {
  return Promise.all(
    Array.from({ length: times }, async () => {
      const client = await connect()
      client.send(request)
      const { status } = await client.response()
      client.socket.destroy()
      return status
    }),
  )
}

t.test('workers act as one sidecar', async (t) => {
  const flags = { 'shutdown-deadline-seconds': '2147483' }
  const { upstream, sidecar, files, admin, get, connect, pids, metric, halfServed } = await setup(t, flags)
  /** Repeats the request until every response is as expected. */
  const allSay = (status: number, what: string) =>
    eventually(async () => (await ask(connect, get, 8)).every((answer) => answer === status), what)
  /** Waits until so many requests more than before have been counted. */
  const counted = (name: string, expected: number) =>
    eventually(async () => (await metric(name)) === expected, `${expected} of ${name}`)

  await t.test('listen on one port and respond alike', async (t) => {
    t.same(
      sidecar.log().flatMap(({ msg, listener, port }) => (msg === 'listening' ? [[listener, port]] : [])),
      [
        ['data', sidecar.port],
        ['admin', sidecar.adminPort],
      ],
    )
    t.equal(new Set(pids()).size, 2)
    t.same(new Set(await ask(connect, get, 20)), new Set([200]))
    await counted('auth_sidecar_requests_total', 20)
    t.ok((await metric('auth_sidecar_token_cache_misses_total')) >= 2, 'each has a cache of its own')
    t.equal(await metric('auth_sidecar_build_info'), 1)
    t.equal(await metric('auth_sidecar_workers'), 2)
    t.equal(await metric('auth_sidecar_ready'), 1)
    t.equal((await admin('/readyz')).status, 200)
    t.equal((await admin('/livez')).status, 200)
    t.equal(JSON.parse((await admin('/.well-known/jwks.json')).body.toString()).keys.length, 1)
    const status = JSON.parse((await admin('/status.json')).body.toString())
    t.match(status, {
      ready: true,
      keys: [{ ageSeconds: Number }],
      problems: [],
      requests: { count: Number },
    })
  })

  await t.test('a killed worker is replaced within a second', async (t) => {
    const [victim = 0] = pids()
    process.kill(victim, 'SIGKILL')
    await counted('auth_sidecar_worker_restarts_total', 1)
    t.same(new Set(await ask(connect, get, 4)), new Set([200]), 'the other one goes on')
    await counted('auth_sidecar_workers', 2)
    await eventually(async () => (await admin('/readyz')).status === 200, 'ready again')
    t.equal(pids().length, 3)
    t.same(new Set(await ask(connect, get, 6)), new Set([200]))
    const ended = sidecar.log().find(({ msg }) => msg === 'worker ended')
    t.match(ended, { pid: victim, signal: 'SIGKILL' })
    await counted('auth_sidecar_requests_total', 30) // of all three
    t.ok(Math.abs((await metric('process_start_time_seconds')) - Date.now() / 1000) < 600)
  })

  await t.test('one that ends as soon as it serves is not replaced at once', async (t) => {
    const [, other = 0, last = 0] = pids()
    process.kill(other, 'SIGSTOP')
    process.kill(last, 'SIGKILL')
    await eventually(() => sidecar.log().filter(({ msg }) => msg === 'worker ended').length === 2, 'the end')
    const waiting = ask(connect, get, 4) // for the next worker, but for one of them
    await eventually(() => pids().length === 4, 'another worker')
    const starts = sidecar.log().filter(({ msg }) => msg === 'worker started')
    const [former = 0, next = 0] = starts.slice(-2).map(({ time }) => Date.parse(String(time)))
    t.ok(next - former >= 1000, `${next - former} ms`)
    await eventually(() => upstream.requests.length >= 33, 'its first requests')
    process.kill(other, 'SIGCONT')
    t.same(await waiting, [200, 200, 200, 200])
    const ports = upstream.requests.map(({ headers }) => headers['x-forwarded-port'])
    t.same(new Set(ports), new Set([String(sidecar.port)]))
    await eventually(async () => (await admin('/readyz')).status === 200, 'ready again')
  })

  await t.test('a change of credentials is enforced by every worker', async () => {
    const text = readFileSync(files['credentials-file'], 'utf8')
    writeFileSync(files['credentials-file'], 'accounts: []\n')
    await allSay(400, 'all to refuse')
    writeFileSync(files['credentials-file'], text)
    sidecar.child.kill('SIGHUP')
    await allSay(200, 'all to accept')
  })

  await t.test('SIGUSR2 turns the log of every worker on, and off', async () => {
    const requests = () => sidecar.log().filter(({ msg, status }) => msg === 'request' && status === 200)
    const said = (verbose: boolean) => sidecar.log().some((line) => line['verbose'] === verbose)
    await allSay(200, 'all to accept')
    t.equal(requests().length, 0, 'log.access: errors')
    sidecar.child.kill('SIGUSR2')
    await eventually(() => said(true), 'the line')
    await allSay(200, 'all to accept')
    await eventually(() => requests().length > 1, 'lines of requests')
    sidecar.child.kill('SIGUSR2')
    await eventually(() => said(false), 'the line')
    const before = requests().length
    await allSay(200, 'all to accept')
    t.equal(requests().length, before)
  })

  await t.test('SIGTERM drains every worker, and the last line has the totals', async (t) => {
    const clients = await halfServed()
    sidecar.child.kill('SIGTERM')
    await eventually(async () => !(await succeeds(connect())), 'the listener to be closed')
    for (const socket of upstream.sockets) {
      if (!socket.destroyed) {
        socket.write('whole')
      }
    }
    for (const client of clients) {
      await client.until('half-whole')
    }
    t.match(await sidecar.ended, { code: 0, signal: null })
    t.match(sidecar.log().at(-1), { msg: 'stopped', drained: 4, cut: 0 })
  })
})

t.test('connection limits are divided among the workers', async (t) => {
  const { sidecar, connect, metric, halfServed } = await setup(t, {
    'limits-connections': '11',
    'trusted-issuers': '[{ issuer: "\u2028", jwksUrl: "http://[::1]:9", audience: a, accountPrefix: a }]',
    'shutdown-deadline-seconds': '0',
  })
  await halfServed()

  await t.test('above the limit, idle connections or new ones are closed at once', async (t) => {
    const more = await Promise.all(Array.from({ length: 10 }, connect))
    // Each worker has its half, whichever connections it is given.
    const closed = async () => {
      const dropped = await metric('auth_sidecar_client_connections_dropped_total')
      return dropped + (await metric('auth_sidecar_client_connections_evicted_total'))
    }
    await eventually(async () => (await closed()) >= 4, 'those above it to be closed')
    let ended = 0
    for (const client of more) {
      client.closed().then(() => ended++)
    }
    await eventually(async () => ended === (await closed()), 'their clients to see it')
    t.equal(await metric('auth_sidecar_client_connections'), 14 - ended)
    for (const { socket } of more) {
      socket.destroy()
    }
  })

  await t.test('requests at the deadline are aborted in every worker, with exit code 1', async (t) => {
    sidecar.child.kill('SIGINT')
    t.match(await sidecar.ended, { code: 1 })
    t.match(sidecar.log().at(-1), { msg: 'stopped', drained: 0, cut: 4 })
  })
})

t.test('a second signal ends all workers at once', async (t) => {
  const { upstream, sidecar, connect, get, pids } = await setup(t)
  upstream.reply('HTTP/1.1 200 OK\r\n\r\nhalf-')
  const client = await connect()
  client.send(get.replace('HTTP/1.1', 'HTTP/1.0'))
  await client.until('half-')
  sidecar.child.kill('SIGTERM')
  await eventually(async () => !(await succeeds(connect())), 'the listener to be closed')
  sidecar.child.kill('SIGTERM')
  t.match(await sidecar.ended, { code: 1 })
  await eventually(() => pids().every((pid) => !isAlive(pid)), 'the workers to end')
  t.equal(
    await client.closed(),
    'reset',
    'half a response that ends with its connection does not look complete',
  )
})

t.test('a sidecar whose log is not read replaces workers and ends at SIGTERM', async (t) => {
  const { sidecar, connect, get, admin, metric, pids } = await setup(t, { 'log-access': 'all' })
  sidecar.child.stdout?.pause()
  const long = get.replace('/object', `/${'x'.repeat(2000)}`)
  for (let times = 0; times < 6; times++) {
    await ask(connect, long, 100)
  }
  process.kill(pids()[0] ?? 0, 'SIGKILL')
  await eventually(async () => (await metric('auth_sidecar_worker_restarts_total')) === 1, 'another worker')
  await eventually(async () => (await admin('/readyz')).status === 200, 'ready again')
  const exited = once(sidecar.child, 'exit')
  sidecar.child.kill('SIGTERM')
  t.same(await exited, [0, null])
})

t.test('an unresponsive worker makes the sidecar not ready, and all end with the primary', async (t) => {
  const { sidecar, admin, pids, metric, connect, get } = await setup(t)
  const jwks = async () => (await admin('/.well-known/jwks.json')).body.toString()
  await ask(connect, get, 8)
  await eventually(async () => (await metric('auth_sidecar_requests_total')) === 8, 'all to be counted')
  const keys = await jwks()
  const [stopped = 0] = pids()
  process.kill(stopped, 'SIGSTOP')
  await eventually(async () => (await admin('/readyz')).status === 503, 'not ready')
  t.equal(await metric('auth_sidecar_requests_total'), 8, 'its counters stay')
  t.equal(await metric('auth_sidecar_workers'), 1)
  t.equal(await metric('auth_sidecar_ready'), 0)
  for (const pid of pids()) {
    process.kill(pid, 'SIGSTOP')
  }
  t.equal(await jwks(), keys, 'the last known keys')
  for (const pid of pids()) {
    process.kill(pid, 'SIGCONT')
  }
  await eventually(async () => (await admin('/readyz')).status === 200, 'ready again')
  sidecar.child.kill('SIGKILL')
  await sidecar.ended
  await eventually(() => pids().every((pid) => !isAlive(pid)), 'the workers to end')
  t.equal(pids().length, 2)
})

t.test('workers that wait for an issuer report their state', async (t) => {
  const issuer = await freePort()
  const port = await freePort()
  const flags = { 'keys-jwks-url': `http://127.0.0.1:${issuer}/`, 'upstream-url': 'http://127.0.0.1:9' }
  const args = serveArgs({ ...flags, workers: '2', 'admin-port': String(port) })
  const program = startProgram(t, ['serve', ...args])
  const page = async (path: string) => (await fetch(`http://127.0.0.1:${port}${path}`)).text()
  await program.until(() => program.log().some(({ problems }) => problems), 'a failed fetch')
  let readiness = '' // the next page may show the other worker, which may not have fetched yet
  await eventually(async () => {
    readiness = await page('/readyz')
    return /lastFetch/.test(readiness)
  }, 'a check of a worker')
  t.match(JSON.parse(readiness), {
    status: 'not ready',
    checks: [{ name: 'keys', ok: false, lastFetch: 'failed' }, {}, { name: 'workers', state: '0 of 2' }],
  })
  const metrics = await page('/metrics')
  t.match(metrics, /^auth_sidecar_build_info\{.*} 1$/m)
  t.match(metrics, /^auth_sidecar_jwks_fetches_total\{.*result="failed".*} [1-9]/m)
  t.match(metrics, /^auth_sidecar_workers 0$/m)
  t.equal(JSON.parse(await page('/.well-known/jwks.json')).code, 'ServiceNotReady')
  program.child.kill('SIGTERM')
  t.match(await program.ended, { code: 0 })
})

t.test('few open files', { skip: without('prlimit') }, async (t) => {
  const flags = { 'shutdown-deadline-seconds': '1' }
  const runner = ['prlimit', '--nofile=150:150']
  const { sidecar, pids, admin, connect, get, metric } = await setup(t, flags, { runner })

  await t.test('fewer than connections delay new ones', async (t) => {
    t.match(sidecar.log(), [{ msg: /^the limit of open files/, connections: 43, upstreamConnections: 43 }])
    const clients = await Promise.all(Array.from({ length: 400 }, connect))
    for (const { socket } of clients) {
      socket.destroy()
    }
    await eventually(() => succeeds(ask(connect, get, 4)), 'every worker to accept connections again')
  })

  const limitFiles = (limit: number) =>
    spawnSync('prlimit', ['--pid', String(sidecar.pid), `--nofile=${limit}:`])
  const failures = () => sidecar.log().filter(({ msg }) => msg === 'worker not started').length
  const killOne = async () => {
    const before = failures()
    limitFiles(10)
    process.kill(pids().at(-1) ?? 0, 'SIGKILL')
    await eventually(() => failures() > before, 'the fork to fail')
    limitFiles(150)
  }

  await t.test('a worker that could not be forked is forked again', async (t) => {
    await killOne()
    await eventually(async () => (await admin('/readyz')).status === 200, 'ready again')
    t.equal(pids().length, 3)
    t.equal(await metric('auth_sidecar_worker_restarts_total'), 1)
  })

  await t.test('a worker that cannot be forked does not prevent the stop', async (t) => {
    await killOne()
    sidecar.child.kill('SIGTERM')
    await inTime(sidecar.ended, 'the stop')
    t.match(sidecar.log().at(-1), { msg: 'stopped' })
  })
})

t.test('a worker that cannot start ends the sidecar with one message', async (t) => {
  const { files } = await prepareFiles(t)
  const flags = { ...files, 'upstream-url': 'http://127.0.0.1:9', workers: '2' }
  const broken = await runProgram(t, ['serve', ...serveArgs({ ...flags, 'keys-directory': '/nowhere' })])
  t.equal(broken.code, 2)
  t.match(broken.stderr, /keys\.directory/)
  t.equal(broken.stderr.match(/\n/g)?.length, 2)

  const { port } = await recordingUpstream(t)
  const inUse = await runProgram(t, ['serve', ...serveArgs({ ...flags, 'listen-port': String(port) })])
  t.equal(inUse.code, 1)
  t.equal(inUse.stderr, `port ${port} is in use (listen.port)\n`)
})

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
