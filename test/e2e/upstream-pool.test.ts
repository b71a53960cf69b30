import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { fileEditors } from '../../src/credentials/editor.ts'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse, unavailable } from '../support/own-response.ts'
import { prepareFiles, serve } from '../support/program.ts'
import { rawClient } from '../support/raw-client.ts'
import { OK, recordingUpstream } from '../support/recording-upstream.ts'
import { startSetup } from '../support/setup.ts'
import { startSidecar } from '../support/sidecar.ts'

const EVIL = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil'
const LIMIT = unavailable('connection_limit_reached')
const TERMINATED = unavailable('connection_terminated')

t.test('upstream connections are reused, most recently used first', async (t) => {
  const { upstream, sidecar, head, recovers } = await startSetup(t)
  const client = await rawClient(t, sidecar.port)
  for (let count = 0; count < 5; count++) {
    client.send(head('GET /'))
    t.equal((await client.response()).status, 200)
  }
  client.send(head('GET /').repeat(5)) // each begins when the response before it ends
  for (let count = 0; count < 5; count++) {
    await client.response()
  }
  t.equal(upstream.sockets.length, 1)
  // Two at a time need a second connection.
  const hold: (() => void)[] = []
  upstream.reply((socket) => {
    hold.push(() => {
      socket.write(OK)
    })
  })
  const second = await rawClient(t, sidecar.port)
  for (const each of [client, second]) {
    each.send(head('GET /'))
  }
  await upstream.received(12)
  for (const answer of hold) {
    answer()
  }
  for (const each of [client, second]) {
    await each.response()
  }
  upstream.reply(OK)
  for (let count = 0; count < 3; count++) {
    client.send(head('GET /'))
    await client.response()
  }
  t.equal(upstream.sockets.length, 2)
  t.equal(new Set(upstream.requests.slice(12).map(({ connection }) => connection)).size, 1)
  upstream.sockets[0]?.destroy()
  await recovers()
})

t.test('an upstream connection that must close is not reused', async (t) => {
  const { upstream, sidecar, head, recovers } = await startSetup(t)
  const client = await rawClient(t, sidecar.port)
  for (const [what, reply] of [
    ['Connection: close', 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok'],
    ['a promise too short', 'HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok'],
    ['HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok'],
  ] as const) {
    upstream.reply(reply)
    client.send(head('PUT /', 'Content-Length: 0'))
    t.equal((await client.response()).status, 200, what)
    await upstream.until(() => upstream.open() === 0, 'the connection to be closed')
  }
  await recovers()
})

t.test('an unsolicited second response reaches no client', async (t) => {
  const { upstream, sidecar, head, recovers } = await startSetup(t)
  const ways: Readonly<Record<string, (socket: Socket, next: () => void) => void>> = {
    'in the packet of the first': (socket, next) => {
      socket.write(OK + EVIL)
      next()
    },
    'right after the first': (socket, next) => {
      socket.write(OK)
      socket.write(EVIL)
      next()
    },
    'a turn after the first': (socket, next) => {
      socket.write(OK)
      setImmediate(() => socket.write(EVIL))
      next()
    },
    'while the connection is unused': (socket, next) => {
      socket.write(OK)
      setTimeout(() => {
        socket.write(EVIL)
        setTimeout(next, 5)
      }, 5)
    },
    'in part': (socket, next) => {
      socket.write(`${OK}HTTP/1.1 200 OK\r\nContent-Le`)
      next()
    },
    'as one byte': (socket, next) => {
      socket.write(`${OK}\n`)
      next()
    },
  }
  for (const [way, act] of Object.entries(ways)) {
    await t.test(way, async (t) => {
      for (const method of ['GET', 'PUT']) {
        const client = await rawClient(t, sidecar.port)
        await new Promise<void>((next) => {
          upstream.reply((socket) => act(socket, next))
          client.send(head('GET /first'))
        })
        t.equal((await client.response()).body.toString(), 'ok')
        upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext')
        client.send(head(`${method} /next`))
        const response = await client.response()
        t.equal(response.status, 200)
        t.equal(response.body.toString(), 'next')
      }
    })
  }
  await t.test('in the turn of the next request', async (t) => {
    const client = await rawClient(t, sidecar.port)
    for (const method of ['GET', 'POST']) {
      upstream.reply(OK)
      client.send(head('GET /first'))
      await client.response()
      upstream.sockets.at(-1)?.write(EVIL)
      client.send(head(`${method} /next`))
      t.match(await client.response(), { status: 200, body: Buffer.from('ok') })
    }
  })
  await recovers()
})

t.test('more requests than one read of all sockets returns are each sent once', async (t) => {
  const upstream = await recordingUpstream(t)
  const { files, token } = await prepareFiles(t)
  const sidecar = await serve(t, { ...files, 'upstream-url': upstream.url, 'limits-account-share': '1' })
  const clients = await Promise.all(Array.from({ length: 1100 }, () => rawClient(t, sidecar.port)))
  const all = async (method: string) => {
    for (const client of clients) {
      client.send(`${method} /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`)
    }
    return new Set(await Promise.all(clients.map(async (client) => (await client.response()).status)))
  }
  t.same(await all('GET'), new Set([200]))
  const sent = upstream.requests.length
  // libuv reads up to 1,024 sockets at once, and again without a check phase if there were so many.
  sidecar.child.kill('SIGSTOP')
  const responses = all('DELETE')
  await new Promise((resolve) => setTimeout(resolve, 200)) // the kernel has all requests
  sidecar.child.kill('SIGCONT')
  t.same(await responses, new Set([200]))
  t.equal(upstream.requests.length, sent + clients.length)
})

t.test('a request on a stale connection', async (t) => {
  const { upstream, sidecar, head, recovers, outcome } = await startSetup(t)
  /** Leaves an unused connection whose upstream will do something else than respond, and a client for it. */
  const spoil = async (t: Test, act: (socket: Socket) => void) => {
    const client = await rawClient(t, sidecar.port)
    upstream.reply(OK)
    client.send(head('GET /before'))
    await client.response()
    const used = upstream.sockets[upstream.requests.at(-1)?.connection ?? 0]
    upstream.reply((socket) => {
      if (socket === used) {
        act(socket)
      } else {
        socket.write(OK)
      }
    })
    return client
  }

  for (const [what, act] of [
    ['by closing', (socket: Socket) => socket.end()],
    ['by a reset', (socket: Socket) => socket.resetAndDestroy()],
  ] as const) {
    for (const [method, lines] of [
      ['GET', []],
      ['HEAD', []],
      ['GET', ['Content-Length: 0']],
    ] as const) {
      await t.test(`${what}: ${method} ${lines.join()} is sent once more, on a new connection`, async (t) => {
        const client = await spoil(t, act)
        const requests = upstream.requests.length
        const sockets = upstream.sockets.length
        client.send(head(`${method} /again`, ...lines))
        t.equal((await client.response({ head: method === 'HEAD' })).status, 200)
        t.equal(upstream.requests.length - requests, 2)
        t.equal(upstream.sockets.length - sockets, 1)
      })
    }
    for (const [method, lines, body] of [
      ['PUT', ['Content-Length: 3'], 'abc'],
      ['PUT', ['Content-Length: 0'], ''],
      ['POST', ['Transfer-Encoding: chunked'], '3\r\nabc\r\n0\r\n\r\n'],
      ['DELETE', [], ''],
      ['OPTIONS', [], ''],
      ['GET', ['Content-Length: 3'], 'abc'],
      ['GET', ['Transfer-Encoding: chunked'], '0\r\n\r\n'],
    ] as const) {
      await t.test(`${what}: ${method} ${lines.join()} is never sent again`, async (t) => {
        const client = await spoil(t, act)
        const requests = upstream.requests.length
        client.send(head(`${method} /once`, ...lines) + body)
        isOwnResponse(t, await client.response(), TERMINATED)
        t.equal(upstream.requests.length - requests, 1)
      })
    }
  }

  await t.test('is retried only once', async (t) => {
    const client = await rawClient(t, sidecar.port)
    upstream.reply(OK)
    client.send(head('GET /before'))
    await client.response()
    upstream.reply((socket) => socket.end())
    const requests = upstream.requests.length
    client.send(head('GET /again'))
    isOwnResponse(t, await client.response(), TERMINATED)
    t.equal(upstream.requests.length - requests, 2)
  })

  for (const [when, reply] of [
    ['the first response byte', 'H'],
    ['an informational response', 'HTTP/1.1 100 Continue\r\n\r\n'],
  ] as const) {
    await t.test(`is not retried after ${when}`, async (t) => {
      const client = await spoil(t, (socket) => socket.end(reply))
      const requests = upstream.requests.length
      client.send(head('GET /again'))
      isOwnResponse(t, await client.response(), { ...TERMINATED, error: 'http_response_incomplete' })
      t.equal(upstream.requests.length - requests, 1)
    })
  }

  await t.test('the failed second attempt is reported', async (t) => {
    const { upstream, sidecar } = await startSetup(t)
    const client = await rawClient(t, sidecar.port)
    const get = `GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`
    client.send(get)
    t.equal((await client.response()).status, 200)
    upstream.reply((socket) => {
      upstream.close().then(() => socket.destroy())
    })
    client.send(get)
    isOwnResponse(t, await client.response(), { ...TERMINATED, error: 'connection_refused' })
  })

  t.equal(await outcome('connection_terminated'), 15)
  await recovers()
})

t.test('a full pool', async (t) => {
  const settings = {
    'limits-upstream-connections': '1',
    'limits-upstream-queue': '3',
    'limits-account-share': '1',
  }
  const { upstream, sidecar, head, recovers, outcome, send } = await startSetup(t, { settings })
  const queued = () => sidecar.metric('auth_sidecar_upstream_queue{upstream="/"}')
  const fill = async (targets: readonly string[]) => {
    const clients = []
    for (const [at, target] of targets.entries()) {
      const client = await send(head(`GET ${target}`))
      await eventually(
        async () => upstream.requests.at(-1)?.target === target || (await queued()) === at,
        target,
      )
      clients.push(client)
    }
    return clients
  }

  await t.test('queues requests in order and responds 503 when the queue is full', async (t) => {
    const hold: Socket[] = []
    upstream.reply((socket) => {
      hold.push(socket)
    })
    const clients = await fill(['/0', '/1', '/2', '/3'])
    t.equal(await queued(), 3)
    const late = await send(head('GET /late'))
    isOwnResponse(t, await late.response(), LIMIT)
    t.equal(await outcome('connection_limit_reached'), 1)
    for (const page of ['/livez', '/readyz']) {
      const { status } = await fetch(`http://127.0.0.1:${sidecar.adminPort}${page}`)
      t.equal(status, 200, `${page}: it is the upstream that is busy`)
    }
    for (const [at, client] of clients.entries()) {
      await eventually(() => hold.length === at + 1, `request ${at}`)
      hold[at]?.write(OK)
      t.equal((await client.response()).status, 200)
    }
    const targets = upstream.requests.map(({ target }) => target)
    t.same(targets, ['/0', '/1', '/2', '/3'])
    t.equal(upstream.sockets.length, 1)
    late.send(head('GET /late'))
    await upstream.received(5)
    hold.at(-1)?.write(OK)
    t.equal((await late.response()).status, 200, 'the refused client kept its connection')
  })

  await t.test('gives the slot of a closed connection to the next queued request', async (t) => {
    const requests = upstream.requests.length
    upstream.reply((socket, { target }) => {
      if (target === '/dies') {
        socket.destroy()
      } else {
        socket.write(OK)
      }
    })
    const clients = await Promise.all(['PUT /dies', 'GET /a', 'GET /b'].map((line) => send(head(line))))
    const statuses = await Promise.all(clients.map(async (client) => (await client.response()).status))
    t.same(statuses.sort(), [200, 200, 503])
    t.equal(upstream.requests.length - requests, 3)
  })

  await t.test('drops a queued request whose client disconnects', async (t) => {
    const requests = upstream.requests.length
    const hold: Socket[] = []
    upstream.reply((socket) => {
      hold.push(socket)
    })
    const [first, leaves, last] = await fill(['/first', '/leaves', '/last'])
    leaves?.socket.destroy()
    await eventually(async () => (await queued()) === 1, 'the queue to forget it')
    hold[0]?.write(OK)
    t.equal((await first?.response())?.status, 200)
    await eventually(() => hold.length === 2, 'the last request')
    hold[1]?.write(OK)
    t.equal((await last?.response())?.status, 200)
    t.same(
      upstream.requests.slice(requests).map(({ target }) => target),
      ['/first', '/last'],
    )
  })

  await t.test('reads no body of a queued request', async (t) => {
    const hold: Socket[] = []
    upstream.reply((socket) => {
      hold.push(socket)
    })
    await fill(['/holds'])
    const client = await send(head('PUT /waits', 'Content-Length: 5', 'Expect: 100-continue'))
    await eventually(async () => (await queued()) === 1, 'it to wait')
    t.equal(client.received().length, 0, 'no 100 before there is a connection for it')
    hold[0]?.write(OK)
    t.equal((await client.response()).status, 100)
    client.send('hello')
    await eventually(() => hold.length === 2, 'its body')
    hold[1]?.write(OK)
    t.equal((await client.response()).status, 200)
  })

  await t.test('decides again on queued requests whose scope changes or whose token expires', async (t) => {
    const hold: Socket[] = []
    upstream.reply((socket) => {
      hold.push(socket)
    })
    await fill(['/holds'])
    const expiring = head('GET /').replace(sidecar.token, await sidecar.mint({ lifetimeSeconds: 10 }))
    const [denied, expired] = await Promise.all([head('DELETE /'), expiring, head('GET /')].map(send))
    await eventually(async () => (await queued()) === 3, 'all to wait')
    const { credentials } = fileEditors(sidecar.credentialsFile)
    await credentials.update({ accountId: 'acme', accessKey: 'AK0' }, { scope: 'storage.read:/' })
    t.match(await denied?.response(), { status: 403, headers: { 'proxy-status': /"scope"/ } })
    t.match(await expired?.response(), { status: 400, headers: { 'proxy-status': /"expired"/ } })
    hold[0]?.write(OK)
    await eventually(() => hold.length === 2, 'the last request')
    hold[1]?.write(OK)
    t.same(upstream.requests.at(-1)?.headers['x-authenticated-scope'], 'storage.read:/')
  })
  await recovers()
})

t.test('a client that leaves during the TLS handshake with the upstream frees its slot', async (t) => {
  // A server that never completes the TLS handshake: connected, and not ready.
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url.replace('http:', 'https:') })
  const client = await rawClient(t, sidecar.port)
  client.send(`GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
  await upstream.until(() => upstream.open() === 1, 'a connection')
  client.socket.destroy()
  await upstream.until(() => upstream.open() === 0, 'the connection to be given up')
  await eventually(
    async () => (await sidecar.metric('auth_sidecar_upstream_connections{upstream="/"}')) === 0,
    'nothing to be connected',
  )
})
