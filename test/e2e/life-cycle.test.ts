import { spawnSync } from 'node:child_process'
import { closeSync, constants, openSync, readSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { VERSION } from '../../src/base/version.ts'
import { eventually, succeeds } from '../support/eventually.ts'
import { without } from '../support/other-programs.ts'
import { prepareFiles, serve, serveArgs, startProgram } from '../support/program.ts'
import { metricAt } from '../support/prometheus.ts'
import { type RawClient, rawClient, rawRequest } from '../support/raw-client.ts'
import { fillBuffers, OK, recordingUpstream } from '../support/recording-upstream.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

/** A sidecar in a process of its own, in front of an upstream. */
async function setup(
  t: Test,
  flags: Readonly<Record<string, string>> = {},
  options: Parameters<typeof serve>[2] = {},
) {
  const upstream = await recordingUpstream(t)
  const { files, token } = await prepareFiles(t)
  const sidecar = await serve(t, { ...files, 'upstream-url': upstream.url, ...flags }, options)
  const get = `GET /object HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`
  const ready = () => rawRequest(t, sidecar.adminPort, 'GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n')
  return { upstream, sidecar, get, ready }
}

/** Sends a request whose response the upstream has begun and does not end by itself. */
async function begin(client: RawClient, get: string, upstream: { reply(reply: string): void }) {
  upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf-')
  client.send(get)
  await client.until('half-')
}

t.test('SIGTERM: not ready at once, accepts during the lame duck, then drains without aborts', async (t) => {
  const { upstream, sidecar, get, ready } = await setup(t, { 'shutdown-lame-duck-seconds': '4' })
  t.equal((await ready()).status, 200)
  const idle = await rawClient(t, sidecar.port)
  idle.send(get)
  t.notMatch((await idle.response()).headers, { connection: 'close' })
  const slow = await rawClient(t, sidecar.port)
  await begin(slow, get, upstream)
  const slowSocket = upstream.sockets.at(-1)
  const unanswered = await rawClient(t, sidecar.port)

  sidecar.child.kill('SIGTERM')
  await eventually(async () => (await ready()).status === 503, 'not being ready')
  t.match(JSON.parse((await ready()).body.toString()).checks, [
    { name: 'keys', ok: true },
    { name: 'credentials', ok: true },
    { name: 'accepting', ok: false },
  ])

  // The lame duck: new and kept-alive connections get `Connection: close`.
  upstream.reply(OK)
  const late = await rawClient(t, sidecar.port)
  for (const client of [late, idle, unanswered]) {
    client.send(get)
    t.match(await client.response(), { status: 200, headers: { connection: 'close' } })
    t.equal(await client.closed(), 'end')
  }
  const refused = await rawRequest(t, sidecar.port, 'GET /v2/auth/token HTTP/1.1\r\nHost: a\r\n\r\n')
  t.match(refused, { status: 400, headers: { connection: 'close' } })

  await eventually(async () => !(await succeeds(rawClient(t, sidecar.port))), 'the end of the lame duck')
  t.equal((await ready()).status, 503, 'probes are still served')
  t.equal(sidecar.child.exitCode, null, 'the transfer under way is not cut')
  await sidecar.until(
    () => sidecar.log().some(({ msg }) => msg === 'waiting for requests in flight'),
    'a line that a kill would leave as the last one',
  )
  const waiting = sidecar.log().filter(({ msg }) => msg === 'waiting for requests in flight')
  t.match(waiting[0], { level: 30, inFlight: 1, secondsLeft: 25 })
  slowSocket?.write('whole')
  await slow.until('half-whole')
  t.match(await sidecar.ended, { code: 0, signal: null })
  t.match(sidecar.log().at(-1), { msg: 'stopped', drained: 1, cut: 0 })
  t.equal(sidecar.stderr(), '')
})

t.test('SIGINT: no lame duck; requests at the deadline are aborted and counted, exit code 1', async (t) => {
  const { upstream, sidecar, get } = await setup(t, {
    'shutdown-lame-duck-seconds': '3600',
    'shutdown-deadline-seconds': '0.3',
  })
  const slow = await rawClient(t, sidecar.port)
  await begin(slow, get, upstream)
  sidecar.child.kill('SIGINT')
  await slow.closed()
  t.match(await sidecar.ended, { code: 1, signal: null })
  t.match(sidecar.log().slice(-2), [
    { msg: 'request', status: 503, reason: 'drain_deadline' },
    { msg: 'stopped', drained: 0, cut: 1 },
  ])
  t.match(sidecar.stderr(), /^[^\n]*: 1\n$/)
})

t.test('a drain completes a response that waits in a buffer, and answers a late head', async (t) => {
  const { upstream, sidecar, get } = await setup(t, {
    'shutdown-lame-duck-seconds': '0',
    'timeouts-headers-seconds': '1.001', // times 1000 is no integer
  })
  const body = 'x'.repeat(50_000)
  upstream.reply(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  const client = await rawClient(t, sidecar.port)
  client.send(get)
  await client.until('\r\n\r\n')
  client.socket.pause()
  await fillBuffers(client, upstream, get)
  const late = await rawClient(t, sidecar.port)
  late.send('GET /object HT')
  sidecar.child.kill('SIGTERM')
  await sidecar.until(() => sidecar.log().some(({ msg }) => msg === 'draining'), 'draining')
  t.equal((await late.response()).status, 408)
  client.socket.resume()
  t.equal(await client.closed(), 'end')
  const { length } = upstream.requests
  for (let count = 0; count < length; count++) {
    if ((await client.response()).body.length !== body.length) {
      t.fail('a response is truncated')
    }
  }
  t.equal(client.rest().length, 0, 'each request that reached the upstream got its response')
  for (const { socket } of [client, late]) {
    socket.destroy()
  }
  t.match(await sidecar.ended, { code: 0 })
  t.match(sidecar.log().at(-1), { msg: 'stopped', cut: 0 })
})

t.test('an incomplete response framed by its close never ends cleanly', async (t) => {
  for (const [how, signals, flags] of [
    ['cut at the deadline', ['SIGINT'], { 'shutdown-deadline-seconds': '0.3' }],
    ['cut by a second signal', ['SIGTERM', 'SIGTERM'], { 'shutdown-lame-duck-seconds': '3600' }],
  ] as const) {
    const { upstream, sidecar, get, ready } = await setup(t, flags)
    const clients: RawClient[] = []
    for (const reply of [
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhalf-\r\n',
      'HTTP/1.1 200 OK\r\n\r\nhalf-',
    ]) {
      upstream.reply(reply)
      const client = await rawClient(t, sidecar.port)
      client.send(get.replace('HTTP/1.1', 'HTTP/1.0'))
      await client.until('half-')
      clients.push(client)
    }
    for (const signal of signals) {
      sidecar.child.kill(signal)
      const isNoticed = async () => sidecar.child.exitCode !== null || (await ready()).status === 503
      if (signals.length > 1) {
        await eventually(() => isNoticed().catch(() => true), 'the signal to take effect')
      }
    }
    for (const client of clients) {
      t.equal(await client.closed(), 'reset', how)
    }
    t.match(await sidecar.ended, { code: 1, signal: null }, how)
  }
})

t.test('only SIGTERM and SIGINT stop it, a second one at once; SIGUSR1 opens no inspector', async (t) => {
  const { upstream, sidecar, get, ready } = await setup(
    t,
    { 'shutdown-lame-duck-seconds': '3600', 'log-access': 'all' },
    { stdio: ['pipe', 'pipe', 'pipe'] },
  )
  sidecar.child.stdin?.destroy()
  sidecar.child.kill('SIGHUP')
  sidecar.child.kill('SIGPIPE')
  sidecar.child.kill('SIGUSR1')
  const client = await rawClient(t, sidecar.port)
  for (let times = 0; times < 3; times++) {
    client.send(get)
    t.equal((await client.response()).status, 200)
  }
  await begin(client, get, upstream)
  sidecar.child.kill('SIGTERM')
  client.send('')
  await eventually(async () => (await ready()).status === 503, 'the first signal')
  sidecar.child.kill('SIGINT')
  t.match(await sidecar.ended, { code: 1, signal: null })
  t.notMatch(sidecar.stderr(), /Debugger/)
  await client.closed()
})

t.test('an unread or closed log blocks neither traffic nor shutdown', async (t) => {
  const pipe = join(await temporaryDirectory(t), 'stdout')
  spawnSync('mkfifo', [pipe])
  const reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK)
  const writer = openSync(pipe, constants.O_WRONLY)
  const upstream = await recordingUpstream(t)
  const { files, token } = await prepareFiles(t)
  const flags = { 'upstream-url': upstream.url, 'log-access': 'all', 'shutdown-lame-duck-seconds': '0' }
  const args = ['serve', ...serveArgs({ ...files, ...flags })]
  const sidecar = startProgram(t, args, { stdio: ['ignore', writer, 'pipe'] })
  closeSync(writer)
  let log = ''
  const chunk = Buffer.alloc(65_536)
  await eventually(() => {
    try {
      log += chunk.toString('utf8', 0, readSync(reader, chunk))
    } catch {
      // nothing to read yet
    }
    return log.split('\n').length > 2
  }, 'the two lines that say where it listens')
  const [port = 0, adminPort = 0] = [...log.matchAll(/"port":(\d+)/g)].map(([, port]) => Number(port))

  const metric = (name: string) => metricAt(adminPort, name)
  /** Sends requests, each with a line of the log, on a few connections. */
  const flood = async (count: number) => {
    const path = `/${'x'.repeat(200)}`
    const request = `GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`
    await Promise.all(
      Array.from({ length: 4 }, async () => {
        const client = await rawClient(t, port)
        for (let answered = 0; answered < count / 4; answered++) {
          if (answered % 10 === 0) {
            client.send(request.repeat(10))
          }
          if ((await client.response()).status !== 200) {
            throw new Error('not forwarded')
          }
        }
        client.socket.destroy()
      }),
    )
  }
  await flood(200)
  const before = await metric('process_resident_memory_bytes')
  await flood(4000)
  t.ok((await metric('auth_sidecar_log_lines_dropped_total')) > 0, 'lines are dropped, and it is known')
  t.ok((await metric('process_resident_memory_bytes')) - before < 64 * 1024 * 1024, 'memory is bounded')

  closeSync(reader)
  await flood(400)
  const get = `GET /object HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`
  t.equal((await rawRequest(t, port, get)).status, 200)
  sidecar.child.kill('SIGTERM')
  t.match(await sidecar.ended, { code: 0, signal: null })
  t.equal(sidecar.stderr(), '')
})

t.test(
  'without free descriptors open connections are served, and new ones later',
  { skip: without('prlimit') },
  async (t) => {
    const { sidecar, get } = await setup(t)
    spawnSync('prlimit', ['--pid', String(sidecar.pid), '--nofile=100:100'])
    const kept = await rawClient(t, sidecar.port)
    kept.send(get)
    t.equal((await kept.response()).status, 200)
    const many = Array.from({ length: 200 }, () => connect(sidecar.port, '127.0.0.1'))
    const refused = () => many.filter(({ destroyed }) => destroyed).length
    for (const socket of many) {
      socket.on('error', () => {})
    }
    await eventually(() => refused() > 50, 'connections to be closed for want of descriptors')
    kept.send(get)
    t.equal((await kept.response()).status, 200, 'who is there is served')
    for (const socket of many) {
      socket.destroy()
    }
    const isServed = () =>
      rawRequest(t, sidecar.port, get).then(
        ({ status }) => status === 200,
        () => false,
      )
    await eventually(isServed, 'a new client to be served')
    t.equal(sidecar.child.exitCode, null)
  },
)

t.test('the program runs with a read-only file system and without a home directory', async (t) => {
  // Node's own permissions stand for a read-only file system:
  // tests may run as root, who may write everywhere.
  const [major = 0] = process.versions.node.split('.').map(Number)
  const permission = major >= 24 ? '--permission' : '--experimental-permission'
  const cwd = await temporaryDirectory(t)
  const { sidecar, get } = await setup(
    t,
    { 'shutdown-lame-duck-seconds': '0', 'log-access': 'all' },
    {
      cwd,
      nodeArgs: [permission, '--allow-fs-read=*', '--allow-worker', ...(major >= 25 ? ['--allow-net'] : [])],
      env: { HOME: undefined, TMPDIR: '/nonexistent' },
    },
  )
  t.equal((await rawRequest(t, sidecar.port, get)).status, 200)
  sidecar.child.kill('SIGTERM')
  t.match(await sidecar.ended, { code: 0, signal: null })
  t.match(sidecar.log().at(-1), { msg: 'stopped' })
  t.notMatch(sidecar.stderr(), /ERR_ACCESS_DENIED/)
})

t.test('a start line names settings, key and trust; plain HTTP beyond loopback warns once', async (t) => {
  const { files } = await prepareFiles(t)
  for (const workers of ['1', '2']) {
    const settings = { 'upstream-url': 'http://127.0.0.1:9', 'forwarded-trust': '10.0.0.0/8', workers }
    const flags = { ...files, ...settings }
    const sidecar = await serve(t, { ...flags, 'listen-host': '0.0.0.0' })
    const started = sidecar.log().filter(({ msg }) => msg === 'started')
    t.match(started, [
      {
        version: VERSION,
        upstreams: ['/ http://127.0.0.1:9'],
        signingKey: /^\w/,
        tls: false,
        adminTls: false,
        enforcement: 'enforce',
        trustedProxies: ['10.0.0.0/8'],
      },
    ])
    t.equal(sidecar.log().filter(({ msg }) => /plain HTTP/.test(String(msg))).length, 1)
    if (workers === '1') {
      t.equal((await serve(t, flags)).log().filter(({ level }) => level === 40).length, 0)
    }
  }
})
