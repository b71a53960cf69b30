import dns from 'node:dns/promises'
import { Socket } from 'node:net'
import { mock } from 'node:test'
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base'
import pg from 'pg'
import t from 'tap'
import { networkFailureOf } from '../../src/base/errors.ts'
import { createPeers } from '../../src/client/client-address.ts'
import { createLoginThrottle } from '../../src/credentials/login-throttle.ts'
import { clientConfig } from '../../src/credentials/postgres/database-pool.ts'
import { afterReads } from '../../src/http/node-http.ts'
import { fetchJwks } from '../../src/keys/jwk-set.ts'
import { LinkUses } from '../../src/ops/link-uses.ts'
import { requestHeadText } from '../../src/proxy/request-headers.ts'
import { TokenCache } from '../../src/token/cache.ts'
import { Tracing } from '../../src/tracing/tracing.ts'
import { usedHeap } from '../support/heap.ts'
import { requestContext, requestOn } from '../support/request-context.ts'
import { admitted } from '../support/request-heads.ts'
import { makeCaller } from '../support/tokens.ts'

t.test('a host whose lookup hangs takes one thread', async (t) => {
  const hanging: { readonly host: string; readonly fail: () => void }[] = []
  mock.method(dns, 'lookup', async (host: string) => {
    if (host === 'localhost') {
      return [{ address: '127.0.0.1', family: 4 }]
    }
    const error = Object.assign(new Error(), { code: 'EAI_AGAIN' })
    return new Promise((_, reject) => hanging.push({ host, fail: () => reject(error) }))
  })
  const alive = setInterval(() => {}, 1000) // unlike a lookup, a replaced one does not keep the process
  t.teardown(() => {
    mock.restoreAll()
    clearInterval(alive)
  })
  const fetchFrom = async (host: string) => {
    const source = { jwksUrl: `http://${host}:1/`, algorithms: [] }
    const fetched = await fetchJwks(source, undefined, 50)
    return fetched.ok ? [] : fetched.problems
  }
  const connectTo = (host: string) => {
    const config = clientConfig({ url: `postgres://u@${host}/d`, label: '' }, 1000)
    return new pg.Client({ ...config, connectionTimeoutMillis: 50 }).connect()
  }
  const asked = () => hanging.map(({ host }) => host).join()
  const late = ['did not arrive within 0.05 s']
  for (const host of ['one', 'two', 'one', 'two']) {
    t.same(await fetchFrom(host), late)
  }
  t.equal(asked(), 'one,two', 'one lookup for each')
  await t.rejects(connectTo('one'), /timeout/)
  t.equal(asked(), 'one,two', 'that of the database, too')
  t.same(await fetchFrom('localhost'), ['cannot be fetched: ECONNREFUSED'], 'another one at once')
  const waiting = fetchFrom('one')
  for (const { fail } of hanging.splice(0)) {
    fail()
  }
  t.same(await waiting, ['cannot be fetched: EAI_AGAIN'])
  t.same(await fetchFrom('one'), late)
  t.equal(asked(), 'one', 'a new one once the first has ended')
  hanging.shift()?.fail()
})

t.test('callbacks after the reads keep their order, and one that throws holds up none', async (t) => {
  const turns: (() => void)[] = []
  t.teardown(() => mock.restoreAll())
  mock.method(globalThis, 'setImmediate', (call: (due?: []) => void, due?: []) => turns.push(() => call(due)))
  const called: string[] = []
  afterReads(() => afterReads(() => called.push('nested')))
  for (const name of ['a', 'b']) {
    afterReads(() => called.push(name))
  }
  afterReads(() => JSON.parse('{'))
  for (const name of ['c', 'd']) {
    afterReads(() => called.push(name))
  }
  t.equal(turns.length, 1, 'one turn for all')
  t.throws(() => turns.shift()?.(), SyntaxError)
  t.equal(called.join(), 'a,b', 'none in the turn of its own call')
  for (const turn of turns) {
    turn()
  }
  t.equal(called.join(), 'a,b,nested,c,d')
})

const COUNT = 1000
const LINE = 15_000

/** A text cut from the middle of a line of its own. */
function cut(text: string): string {
  const line = Buffer.alloc(LINE, `${text},`).toString('latin1')
  return line.slice(text.length + 1, 2 * text.length + 1)
}

/** Megabytes that stay on the heap after COUNT calls. */
async function growth(fill: (at: number) => unknown): Promise<number> {
  for (let at = 0; at < 10; at++) {
    await fill(-at)
  }
  const before = usedHeap()
  for (let at = 0; at < COUNT; at++) {
    await fill(at)
  }
  return (usedHeap() - before) / 2 ** 20
}

t.test('no cache keeps the line from which its keys and values were cut', async (t) => {
  const throttle = createLoginThrottle({ count: 20, windowSeconds: 60 })
  const peer = createPeers(['127.0.0.1'])({ remoteAddress: '127.0.0.1' }, false, 8080)
  const cache = new TokenCache({
    verify: async () => ({ ok: true, value: makeCaller() }),
    isRevoked: () => false,
    maxTokens: 10_000,
    maxAgeSeconds: 300,
    now: Date.now,
  })
  const uses = new LinkUses()
  const waiting: ReadableSpan[] = []
  const socket = new Socket()
  const requestWith = (headers: { readonly Host: string; readonly traceparent: string }) => {
    const req = requestOn(socket, peer)
    Object.assign(req, { method: 'GET', url: '/'.padEnd(LINE, 'a') })
    req.headers = { traceparent: headers.traceparent }
    const route = { to: 'service', act: 'forward', needsToken: true, label: 'proxy' } as const
    const facts = { ...admitted({}), host: headers.Host }
    req.context.recordHead({ admitted: facts, route, requested: facts, link: undefined, changesBefore: 0 })
    return req
  }
  const tracing = new Tracing({
    config: {
      name: '',
      listen: { host: '', port: 0, basePath: '' },
      upstreams: [],
      tracing: { endpoint: '', trustIncoming: true, accountAttribute: false },
    },
    now: Date.now,
    ratio: 0,
    trustIncoming: true,
    queue: { add: (spans) => waiting.push(...spans), dropped: 0, stop: async () => {} },
  })
  const caches: Record<string, (at: number) => unknown> = {
    'tokens and their identity lines': async (at) => {
      const verdict = await cache.check(cut(`AAAAAAAAAAAAAAAA.${at}.AAAAAAAAAAAAAAAA`))
      if (!verdict.ok) {
        throw new Error(verdict.error.reason)
      }
      const decision = {
        act: 'forward',
        admitted: admitted({}),
        caller: verdict.value,
        forwardsAuthorization: false,
        isRestricted: false,
      } as const
      const context = requestContext(peer, 'r')
      requestHeadText(context, decision, { host: 'h', assertionAudience: '' })
    },
    'failed logins': (at) => {
      const forwardedFor = cut(`203.0.${(at + 10) >> 8}.${(at + 10) % 256}`)
      const address = peer.clientAddress({ 'x-forwarded-for': forwardedFor })
      const login = { accountId: cut(`an account with a long name ${at}`), accessKey: cut(`a key ${at}`) }
      return throttle(login, address, async () => ({ outcome: 'rejected' }))
    },
    'uses of links': (at) => {
      const forwardedFor = cut(`203.100.${100 + ((at + 10) >> 8)}.${100 + ((at + 10) % 100)}`)
      uses.isFirst(String(at), peer.clientAddress({ 'x-forwarded-for': forwardedFor }))
    },
    'spans that wait': (at) => {
      const req = requestWith({
        Host: `a${at}`.padEnd(LINE, 'a'),
        traceparent: `01-${'a'.repeat(32)}-${'b'.repeat(16)}-01-`.padEnd(LINE, '.'),
      })
      tracing.onRequest(req)
      for (const watcher of req.context.watchers) {
        watcher.onForward?.({ host: 'h', pathPrefix: '' }, performance.now())
        watcher.onEnd?.({ status: 200, reason: undefined, seconds: 0 })
      }
    },
  }
  for (const [name, fill] of Object.entries(caches)) {
    const grown = await growth(fill)
    t.ok(grown < 3, `${name}: ${grown.toFixed(1)} MB for ${COUNT} entries from ${(COUNT * LINE) / 1e6} MB`)
  }
})

t.test('a socket error has a name of RFC 9209', async (t) => {
  const table = {
    connection_refused: ['ECONNREFUSED', 'ENOENT', 'EACCES', 'EPERM'],
    dns_error: ['ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL'],
    connection_timeout: ['ETIMEDOUT'],
    destination_ip_unroutable: ['ENETUNREACH', 'EHOSTUNREACH', 'EADDRNOTAVAIL'],
    connection_terminated: ['ECONNRESET', 'EPIPE', 'EIO'],
    connection_limit_reached: ['EMFILE', 'ENFILE'],
    tls_protocol_error: ['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_TLS_HANDSHAKE_TIMEOUT'],
    tls_certificate_error: [
      'CERT_HAS_EXPIRED',
      'DEPTH_ZERO_SELF_SIGNED_CERT',
      'SELF_SIGNED_CERT_IN_CHAIN',
      'INVALID_CA',
      'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
      'ERR_TLS_CERT_ALTNAME_INVALID',
      'PATH_LENGTH_EXCEEDED',
      'INVALID_PURPOSE',
      'UNSPECIFIED',
    ],
    undefined: ['ERR_INVALID_ARG_TYPE', 'ERR_HTTP_HEADERS_SENT', ''],
  }
  for (const [failure, codes] of Object.entries(table)) {
    for (const code of codes) {
      t.equal(String(networkFailureOf(Object.assign(new Error('any text'), { code }))), failure, code)
    }
  }
  for (const thrown of [new TypeError('x'), Object.assign(new Error(), { code: 5 }), 'ECONNREFUSED', null]) {
    t.equal(networkFailureOf(thrown), undefined)
  }
})
