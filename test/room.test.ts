/**
 * The calls that a room receives for each request, in the order that `src/room.ts` documents.
 * A fake room stands in for fair use.
 */
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { WebSocket } from 'ws'
import { FairUse } from '../src/fair-use/fair-use.ts'
import type { PacedReader, RequestWatcher, Room } from '../src/room.ts'
import { eventually } from './support/eventually.ts'
import { limitsFile } from './support/limited-setup.ts'
import { bodyReply, OK } from './support/recording-upstream.ts'
import { type SetupOptions, startSetup } from './support/setup.ts'
import { startSidecar } from './support/sidecar.ts'
import { temporaryDirectory } from './support/temporary-directory.ts'
import { echoServer } from './support/websocket.ts'

/** A watcher that writes its calls down. `mayRead` is asked before each read. */
function recorder(mayRead: (reader: PacedReader) => boolean = () => true) {
  const calls: string[] = []
  const bytes = { in: 0, out: 0 }
  /** The readers that have asked, each with the number of its ends. */
  const readers = new Map<PacedReader, number>()
  const watcher: RequestWatcher = {
    onDecision: ({ caller }) => calls.push(`decision for ${caller?.identity.accountId}`),
    onForward: ({ pathPrefix }) => calls.push(`forward to "${pathPrefix}"`),
    onResponse: (status) => calls.push(`response ${status}`),
    onForwardEnd: (outcome) => calls.push(`forward end ${outcome}`),
    onEnd: ({ status }) => calls.push(`end ${status}`),
    onBytes(direction, count) {
      bytes[direction] += count
      if (calls.at(-1)?.startsWith('end')) {
        calls.push('bytes after the end')
      }
    },
    mayRead(_direction, reader) {
      readers.set(reader, readers.get(reader) ?? 0)
      return mayRead(reader)
    },
    onReadEnd(reader) {
      const ends = readers.get(reader)
      if (ends !== undefined) {
        readers.set(reader, ends + 1)
      }
    },
  }
  return { watcher, calls, bytes, readers, isOver: () => calls.at(-1)?.startsWith('end') }
}

/** Replaces fair use by a room that reviews each request with this function. */
function fakeRoom(t: Test, review: NonNullable<Room['review']>): void {
  t.capture(FairUse.prototype, 'review', review)
}

/** A sidecar whose requests are all followed by one recorder. */
async function watchedSetup(t: Test, record = recorder(), { settings, ...options }: SetupOptions = {}) {
  fakeRoom(t, (_decision, context) => {
    context.addWatcher(record.watcher)
    return undefined
  })
  const file = await limitsFile(t, '{}')
  const setup = await startSetup(t, { ...options, settings: { 'fair-use-file': file, ...settings } })
  return { ...setup, ...record, isEnded: () => eventually(record.isOver, 'the end of the request') }
}

t.test('a request with two bodies', async (t) => {
  const { ask, head, calls, bytes, readers, isEnded } = await watchedSetup(t)
  t.equal((await ask(`${head('PUT /a', 'Content-Length: 3')}abc`)).status, 200)
  await isEnded()
  t.strictSame(calls, ['decision for acme', 'forward to ""', 'response 200', 'forward end ok', 'end 200'])
  t.strictSame(bytes, { in: 3, out: 2 })
  t.ok(readers.size > 0)
  t.ok(
    [...readers.values()].every((ends) => ends === 1),
    'each reader has ended',
  )
})

t.test('a request whose upstream cannot be reached', async (t) => {
  const { upstream, ask, head, calls, isEnded } = await watchedSetup(t)
  await upstream.close()
  t.equal((await ask(head('GET /a'))).status, 503)
  await isEnded()
  t.strictSame(calls, ['decision for acme', 'forward to ""', 'forward end connection_refused', 'end 503'])
})

t.test('a request whose client leaves', async (t) => {
  const { upstream, request, calls, isEnded } = await watchedSetup(t)
  upstream.reply(() => {})
  const client = await request('GET /a')
  await upstream.received(1)
  client.socket.resetAndDestroy()
  await isEnded()
  t.strictSame(calls, ['decision for acme', 'forward to ""', 'forward end client_aborted', 'end 499'])
})

t.test('a request that is decided anew while it waits, and then refused', async (t) => {
  const revocations = join(await temporaryDirectory(t), 'revocations.yaml')
  writeFileSync(revocations, 'revocations: []\n')
  const record = recorder()
  fakeRoom(t, (_decision, context) => {
    if (context.admitted?.path === '/waits') {
      context.addWatcher(record.watcher)
    }
    return undefined
  })
  const { upstream, request, sidecar } = await startSetup(t, {
    settings: {
      'fair-use-file': await limitsFile(t, '{}'),
      'revocations-file': revocations,
      'limits-upstream-connections': '1',
    },
  })
  upstream.reply(() => {})
  await request('GET /first')
  await upstream.received(1)
  const waiting = await request('GET /waits')
  await eventually(() => record.calls.length === 2, 'the request to wait')
  writeFileSync(revocations, 'revocations: [{ accountId: another }]\n')
  await eventually(() => record.calls.length === 3, 'another decision')
  writeFileSync(revocations, `revocations: [{ accountId: ${sidecar.logins[0]?.accountId} }]\n`)
  t.equal((await waiting.response()).status, 400)
  await eventually(record.isOver, 'its end')
  t.strictSame(record.calls, [
    'decision for acme',
    'forward to ""',
    'decision for acme',
    'decision for undefined',
    'forward end refused',
    'end 400',
  ])
})

t.test('a stale connection is retried within one request', async (t) => {
  const { upstream, ask, head, calls, isEnded } = await watchedSetup(t)
  t.equal((await ask(head('GET /a'))).status, 200)
  await isEnded()
  calls.length = 0
  upstream.reply((socket, { connection }) => {
    if (connection === 0) {
      socket.destroy()
    } else {
      socket.write(OK)
    }
  })
  t.equal((await ask(head('GET /b'))).status, 200)
  await isEnded()
  t.strictSame(calls, ['decision for acme', 'forward to ""', 'response 200', 'forward end ok', 'end 200'])
})

t.test('a download that a watcher holds reads on when the watcher says so', async (t) => {
  const held = new Set<PacedReader>()
  let isOpen = false
  const record = recorder((reader) => {
    held.add(reader)
    return isOpen
  })
  const { upstream, request, bytes, readers, isEnded } = await watchedSetup(t, record)
  const body = Buffer.alloc(1_000_000, 'x')
  upstream.reply(bodyReply(body))
  const client = await request('GET /a')
  await upstream.received(1)
  await eventually(() => held.size === 1, 'the download to be held')
  t.ok(bytes.out < body.length)
  isOpen = true
  for (const reader of held) {
    reader.readOn()
  }
  t.ok((await client.response()).body.equals(body))
  await isEnded()
  t.equal(bytes.out, body.length)
  t.ok([...readers.values()].every((ends) => ends === 1))
})

t.test('a tunnel ends long after its exchange', async (t) => {
  const record = recorder()
  fakeRoom(t, (_decision, context) => {
    context.addWatcher(record.watcher)
    return undefined
  })
  const { port } = await echoServer(t)
  const sidecar = await startSidecar(t, {
    upstreamUrl: `http://127.0.0.1:${port}`,
    settings: { 'upgrade-enabled': 'true', 'fair-use-file': await limitsFile(t, '{}') },
  })
  const headers = { Authorization: `Bearer ${sidecar.token}` }
  const socket = new WebSocket(`ws://127.0.0.1:${sidecar.port}/`, { headers, perMessageDeflate: false })
  await once(socket, 'open')
  socket.send('hello')
  await once(socket, 'message')
  t.strictSame(record.calls, ['decision for acme', 'forward to ""', 'response 101', 'forward end ok'])
  socket.terminate()
  await eventually(record.isOver, 'the end of the tunnel')
  t.strictSame(record.calls.slice(4), ['end 101'])
  t.ok(record.bytes.in > 5 && record.bytes.out > 5)
  t.ok([...record.readers.values()].every((ends) => ends === 1))
})

t.test('a room sees no request that has no upstream, and may refuse the others', async (t) => {
  const reviewed: string[] = []
  fakeRoom(t, ({ caller, admitted }) => {
    reviewed.push(admitted.path)
    return {
      act: 'refuse',
      reason: 'fair_use',
      caller,
      error: { status: 429, code: 'TooManyRequests', message: 'Later.' },
      headers: [],
      retryAfterSeconds: 7,
    }
  })
  const { upstream, ask, head } = await startSetup(t, {
    settings: {
      'fair-use-file': await limitsFile(t, '{}'),
      'public-routes': '[{ method: GET, path: /healthz }]',
    },
  })
  t.match(await ask(head('GET /a')), { status: 429, headers: { 'retry-after': '7' } })
  t.equal((await ask('GET /a HTTP/1.1\r\nHost: a\r\n\r\n')).status, 400, 'the gate refuses it first')
  t.equal((await ask('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n')).status, 429)
  t.equal((await ask(head('TRACE /a'))).status, 400)
  t.strictSame(reviewed, ['/a', '/healthz'])
  t.equal(upstream.requests.length, 0)
})
