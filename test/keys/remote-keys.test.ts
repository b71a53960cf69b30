import { createServer, type ServerResponse } from 'node:http'
import { mock } from 'node:test'
import { gzipSync } from 'node:zlib'
import type { JWK } from 'jose'
import t, { type Test } from 'tap'
import { ALGORITHMS } from '../../src/keys/key-ring.ts'
import { createJwkSetLoader, createRemoteKeys, type RemoteKeysOptions } from '../../src/keys/remote-keys.ts'
import { eventually } from '../support/eventually.ts'
import { makeKey } from '../support/keys.ts'
import { listen } from '../support/listen.ts'

const first = await makeKey('ES256', 'first')
const second = await makeKey('EdDSA', 'second')
const third = await makeKey('ES384', 'third')

/** An issuer on a local port. It publishes a set, or gives any other response. */
async function startIssuer(t: Test, ...keys: unknown[]) {
  const issuer = {
    requests: [] as string[],
    respond: (_res: ServerResponse): void => {},
    publish: (...keys: unknown[]) => issuer.send(JSON.stringify({ keys })),
    send: (body: string | Buffer, headers = {}) => {
      issuer.respond = (res) => void res.writeHead(200, headers).end(body)
    },
    fail: (status: number, headers = {}) => {
      issuer.respond = (res) => void res.writeHead(status, headers).end()
    },
    url: '',
  }
  issuer.publish(...keys)
  const server = createServer((req, res) => {
    issuer.requests.push(String(req.url))
    issuer.respond(res)
  })
  issuer.url = `http://127.0.0.1:${await listen(t, server)}/jwks.json?canary`
  return issuer
}

/** The keys of an issuer, with a clock that stands still. */
async function watch(t: Test, { url }: { url: string }, onChange?: () => void) {
  const clock = { ms: 1_000_000 }
  const lines: { level: string; message: string; fields: object }[] = []
  const to = (level: string) => (fields: object, message: string) =>
    void lines.push({ level, message, fields })
  const results: string[] = []
  let changes = 0
  const keys = createRemoteKeys({
    url,
    log: { info: to('info'), warn: to('warn'), error: to('error') } as RemoteKeysOptions['log'],
    now: () => clock.ms,
    onChange: () => {
      changes++
      onChange?.()
    },
    onFetch: (result) => results.push(result),
  })
  t.teardown(keys.stop)
  const kids = () => [...keys.ring().verification.keys()]
  return { keys, clock, lines, results, kids, changes: () => changes }
}

/** The kids of a loaded set with its warnings, or its problems. */
async function load(url: string, timeoutMs = 5000) {
  const loaded = await createJwkSetLoader(url, { now: () => 1_000_000, timeoutMs })()
  return loaded.ok
    ? { kids: [...loaded.value.verification.keys()], lines: loaded.warnings }
    : { kids: [], lines: loaded.problems }
}

t.test('an unusable key is ignored with a warning that quotes no content', async (t) => {
  const issuer = await startIssuer(t)
  const table: readonly (readonly [object, string])[] = [
    [{ ...second.publicJwk, kid: '../canary' }, 'kid must be 1 to 128 letters, digits, . _ - and no . first'],
    [{ ...second.publicJwk, alg: 'canary' }, `alg must be one of ${ALGORITHMS.join(', ')}`],
  ]
  for (const [jwk, problem] of table) {
    issuer.publish(jwk, first.publicJwk)
    t.same(await load(issuer.url), { kids: ['first'], lines: [`keys[0] is ignored: ${problem}`] })
  }
})

t.test('an invalid key set is refused', async (t) => {
  const issuer = await startIssuer(t)
  const leaked = 'holds a private or symmetric key, which has leaked and must be replaced'
  const json = JSON.stringify({ keys: [first.publicJwk] })
  const sets: readonly (readonly [string | Buffer, string, object?])[] = [
    ['', 'is not a JWK Set'],
    ['<html>', 'is not a JWK Set'],
    ['[]', 'is not a JWK Set'],
    ['{"keys":{}}', 'is not a JWK Set'],
    ['{"keys":[7]}', 'is not a JWK Set'],
    ['{"keys":[]}', 'holds no key that can be used'],
    [JSON.stringify({ keys: [first.publicJwk, second.privateJwk] }), leaked],
    [JSON.stringify({ keys: [first.publicJwk, { kty: 'oct', k: 'canary' }] }), leaked],
    [
      JSON.stringify({ keys: [first.publicJwk, { ...second.publicJwk, kid: 'first' }] }),
      'holds two keys with the kid first',
    ],
    [JSON.stringify({ keys: Array(101).fill(first.publicJwk) }), 'holds more than 100 keys'],
    [json + ' '.repeat(1_048_576), 'is larger than 1048576 bytes'],
    [gzipSync(Buffer.alloc(10_000_000)), 'is larger than 1048576 bytes', { 'content-encoding': 'gzip' }],
  ]
  for (const [body, problem, headers] of sets) {
    issuer.send(body, headers)
    t.same(await load(issuer.url), { kids: [], lines: [problem] }, problem)
  }
  issuer.publish({ ...first.publicJwk, alg: 'none' })
  t.match((await load(issuer.url)).lines, [/^holds no key that can be used$/, /^keys\[0\] is ignored: alg/])
  issuer.send(gzipSync(json), { 'content-encoding': 'gzip' })
  t.same((await load(issuer.url)).kids, ['first'])
})

t.test('a failing issuer is reported with the kind of error only', async (t) => {
  const issuer = await startIssuer(t)
  const linesOf = async (timeoutMs?: number) => (await load(issuer.url, timeoutMs)).lines
  for (const status of [204, 302, 404, 500]) {
    issuer.fail(status, { location: '/other' })
    t.same(await linesOf(), [`was answered with status ${status}`])
  }
  t.notOk(issuer.requests.includes('/other'), 'a redirect is not followed')
  issuer.respond = (res) => void res.socket?.destroy()
  t.same(await linesOf(), ['cannot be fetched: UND_ERR_SOCKET'])
  issuer.respond = () => {}
  t.same(await linesOf(50), ['did not arrive within 0.05 s'])
  issuer.respond = (res) => {
    const drip = setInterval(() => res.write(' '), 5)
    res.on('close', () => clearInterval(drip))
  }
  t.same(await linesOf(50), ['did not arrive within 0.05 s'])
  const blocked = 'cannot be fetched: the Fetch standard blocks its port; use another one'
  t.same((await load('http://127.0.0.1:10080/canary')).lines, [blocked])
})

t.test('the first valid set becomes active, and later a changed one', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk)
  const { keys, clock, kids, changes, results, lines } = await watch(t, issuer)
  t.same([kids(), keys.state()], [[], { loaded: false }])
  t.equal(await keys.firstSet(), true)
  t.same(keys.state(), { loaded: true, ageSeconds: 0, lastFetch: 'ok' })
  clock.ms += 7000
  t.equal(keys.state().ageSeconds, 7)
  issuer.publish(second.publicJwk, first.publicJwk)
  await keys.reload()
  t.same(kids(), ['second', 'first'])
  const ring = keys.ring()
  issuer.publish(first.publicJwk, second.publicJwk)
  await keys.reload()
  t.equal(keys.ring(), ring, 'an equal set in another order keeps the ring')
  t.same([changes(), results], [2, ['ok', 'ok', 'ok']])
  t.notMatch(JSON.stringify(lines), 'canary')
})

t.test('the last valid set stays active while the issuer is down or publishes an invalid one', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk)
  const { keys, clock, kids, changes, lines } = await watch(t, issuer)
  await keys.firstSet()
  for (const breakIt of [() => issuer.fail(500), () => issuer.publish(first.publicJwk, second.privateJwk)]) {
    breakIt()
    clock.ms += 1000
    for (let times = 0; times < 2; times++) await keys.reload()
    t.same(kids(), ['first'])
  }
  t.same([changes(), keys.state()], [1, { loaded: true, ageSeconds: 2, lastFetch: 'failed' }])
  const failures = lines.filter(({ level }) => level === 'error')
  t.equal(failures.length, 2, 'each different reason is logged once')
  t.match(failures[0], { message: 'the JWK Set cannot be used, the last good one stays active' })
  t.notMatch(JSON.stringify(lines), String(second.privateJwk.d))
  issuer.publish(first.publicJwk)
  await keys.reload()
  t.same(keys.state(), { loaded: true, ageSeconds: 0, lastFetch: 'ok' })
  t.match(lines.at(-1), { level: 'info', message: /can be used again/ })
})

t.test('forged kids cause at most one fetch in five seconds, whether the issuer is up or down', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk)
  const { keys, clock } = await watch(t, issuer)
  await keys.firstSet()
  const flood = () => Promise.all(Array.from({ length: 500 }, (_, n) => keys.fetchFor(`forged-${n}`)))
  t.ok((await flood()).every((found) => !found))
  t.equal(issuer.requests.length, 2)
  clock.ms += 4999
  issuer.publish(second.publicJwk)
  t.equal(await keys.fetchFor('second'), false)
  clock.ms += 1
  t.same(await Promise.all(['second', 'x', 'second'].map((kid) => keys.fetchFor(kid))), [true, false, true])
  t.equal(issuer.requests.length, 3, 'one fetch for all requests')
  issuer.fail(500)
  clock.ms += 5000
  for (let times = 0; times < 3; times++) await flood()
  t.equal(issuer.requests.length, 4)
  clock.ms += 4999
  await flood()
  t.equal(issuer.requests.length, 4)
  clock.ms += 1
  await flood()
  t.equal(issuer.requests.length, 5)
  t.ok(keys.ring().verification.has('second'))
  clock.ms -= 1_000_000
  await flood()
  t.equal(issuer.requests.length, 6, 'a clock that is set back does not stop the fetches')
})

t.test('a fetch that began before the key was published is repeated', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk)
  const { keys } = await watch(t, issuer)
  await keys.firstSet()
  let release = () => {}
  issuer.respond = (res) => {
    release = () => void res.end(JSON.stringify({ keys: [first.publicJwk] }))
    issuer.publish(first.publicJwk, second.publicJwk)
  }
  const reloaded = keys.reload()
  await eventually(() => issuer.requests.length === 2, 'the request')
  const found = [keys.fetchFor('second'), keys.fetchFor('second')]
  release()
  await reloaded
  t.same(await Promise.all(found), [true, true])
  t.equal(issuer.requests.length, 3)
})

t.test('a hanging issuer delays a request by at most 2 s; its late response is used', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk)
  const { keys } = await watch(t, issuer)
  await keys.firstSet()
  let release = () => {}
  issuer.respond = (res) => {
    release = () => void res.end(JSON.stringify({ keys: [third.publicJwk] }))
  }
  const started = performance.now()
  t.equal(await keys.fetchFor('third'), false)
  t.ok(performance.now() - started < 2500)
  release()
  await eventually(() => keys.ring().verification.has('third'), 'the set')
})

t.test('the set is fetched every minute; a failed fetch is repeated after five seconds', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk)
  mock.timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => mock.timers.reset())
  const { keys, results } = await watch(t, issuer)
  const turn = () => new Promise(setImmediate)
  const ends = async (count: number) => {
    while (results.length < count) await turn()
    await turn()
  }
  const waits = async (ms: number) => {
    mock.timers.tick(ms - 1)
    await turn()
    const before = issuer.requests.length
    mock.timers.tick(1)
    await ends(before + 1)
    t.equal(issuer.requests.length, before + 1, `${ms} ms`)
  }
  await ends(1)
  await waits(60_000)
  issuer.fail(500)
  await waits(60_000)
  await waits(5000)
  issuer.publish(second.publicJwk)
  await waits(5000)
  t.ok(keys.ring().verification.has('second'))
  await waits(60_000)
})

t.test('an exception of onChange is logged, and fetching continues', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk)
  const { keys, kids, lines } = await watch(t, issuer, () => {
    throw new Error('broken')
  })
  await keys.reload()
  t.match(lines.at(-1), { level: 'error', message: 'a JWK Set could not be applied' })
  issuer.publish(second.publicJwk)
  await keys.reload()
  t.same(kids(), ['second'])
})

t.test('stop aborts a fetch in flight and ends fetching', async (t) => {
  const issuer = await startIssuer(t)
  issuer.respond = () => {}
  const { keys, results } = await watch(t, issuer)
  await eventually(() => issuer.requests.length === 1, 'the request')
  keys.stop()
  t.equal(await keys.firstSet(), false)
  issuer.publish(first.publicJwk satisfies JWK)
  await keys.reload()
  t.equal(await keys.fetchFor('first'), false)
  t.same([issuer.requests.length, results], [1, []])
})
