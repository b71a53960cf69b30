import { createHook } from 'node:async_hooks'
import { generateKeyPairSync } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import { mock } from 'node:test'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { fetchJwks, importKeys } from '../../src/keys/jwk-set.ts'
import { type Algorithm, findInSet, PUBLIC_ALGORITHMS } from '../../src/keys/key-ring.ts'
import { RemoteKeys, type RemoteKeysOptions } from '../../src/keys/remote-keys.ts'
import { makeKey } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { longestTurnMs, withoutThreadTimes } from '../support/turns.ts'

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
      issuer.respond = (res) => {
        res.writeHead(200, headers).end(body)
      }
    },
    fail: (status: number, headers = {}) => {
      issuer.respond = (res) => {
        res.writeHead(status, headers).end()
      }
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
async function watch(t: Test, { url }: { url: string }) {
  const clock = { ms: 1_000_000 }
  const lines: { level: string; message: string; fields: object }[] = []
  const to = (level: string) => (fields: object, message: string) => {
    lines.push({ level, message, fields })
  }
  let changes = 0
  const keys = new RemoteKeys({
    issuer: 'https://issuer.example',
    jwksUrl: url,
    algorithms: PUBLIC_ALGORITHMS,
    log: { info: to('info'), warn: to('warn'), error: to('error') } as RemoteKeysOptions['log'],
    now: () => clock.ms,
  })
  keys.subscribe(() => {
    changes++
  })
  keys.start()
  t.teardown(() => keys.stop())
  const finds = async (kid: string, alg = 'EdDSA') => (await keys.findKey(kid, alg)).ok
  const kids = () => [...keys.ring().keys.keys()]
  return { keys, clock, lines, kids, finds, changes: () => changes }
}

/** The names of the usable keys of a set, and the lines about the others; or its problems. */
async function load(jwksUrl: string, algorithms: readonly Algorithm[] = PUBLIC_ALGORITHMS, timeoutMs = 5000) {
  const fetched = await fetchJwks({ jwksUrl, algorithms }, undefined, timeoutMs)
  if (!fetched.ok) {
    return { names: [], lines: fetched.problems }
  }
  const { keys, warnings } = await importKeys(fetched.value, algorithms)
  return { names: keys.map(({ kid, alg }) => `${alg} ${kid}`), lines: warnings, keys }
}

t.test('a withdrawn key is reported as a change though its log line cannot be written', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk, second.publicJwk)
  const { keys, lines, changes } = await watch(t, issuer)
  await keys.whenLoaded
  lines.push = () => {
    throw new Error('no log')
  }
  issuer.publish(first.publicJwk)
  await keys.reload().catch(() => {})
  t.equal(changes(), 2)
})

t.test('a key that cannot be used is ignored, and the rest of the set is used', async (t) => {
  const issuer = await startIssuer(t)
  const rsa = await makeKey('RS256', 'rsa')
  const weak = generateKeyPairSync('rsa', { modulusLength: 2040 }).publicKey.export({ format: 'jwk' })
  const fits = 'its kty, crv or alg fits none of RS256, ES256'
  const leaked = 'it is private or symmetric, so it has leaked and must be replaced'
  const kid = 'canary'
  const ignored: readonly (readonly [unknown, RegExp | string])[] = [
    ...[null, 7, 'x', []].map((member) => [member, fits] as const),
    [{ ...rsa.publicJwk, alg: 'RS512' }, fits],
    [{ ...rsa.publicJwk, alg: 7 }, fits],
    [{ kty: 'RSA', alg: 'ES256', kid }, fits],
    [{ kty: kid, kid }, fits],
    [third.publicJwk, fits],
    [first.privateJwk, leaked],
    [{ kty: 'oct', k: 'canary', kid }, leaked],
    [{ ...weak, kid }, /modulus is shorter than 2048 bits/],
    [{ ...rsa.publicJwk, e: 'Aw' }, /exponent is smaller/],
    [{ ...first.publicJwk, x: 'AAAA' }, /no valid ES256 key/],
    [{ ...first.publicJwk, use: 'other' }, /use must be sig/],
    [{ ...first.publicJwk, key_ops: ['wrapKey'] }, /must be sign or verify/],
    [{ ...first.publicJwk, kid: 7 }, /kid must be a string/],
  ]
  issuer.publish(...ignored.map(([jwk]) => jwk), first.publicJwk)
  const { names, lines } = await load(issuer.url, ['RS256', 'ES256'])
  t.same(names, ['ES256 first'])
  for (const [at, [, problem]] of ignored.entries()) {
    t.match(lines[at], problem)
  }
  t.notMatch(lines.join(), 'canary')
  issuer.publish({ ...first.publicJwk, use: 'enc' }, { ...first.publicJwk, kid: 'a+b/c=' })
  t.match(await load(issuer.url), { names: ['ES256 a+b/c='], lines: [] }, 'encryption keys are no problem')
  issuer.publish({ ...first.publicJwk, alg: 'none' })
  t.match(await load(issuer.url), { names: [], lines: ['holds no key that can be used', /^keys\[0\]/] })
})

t.test('a key is found by the kid and an algorithm that fits it', async (t) => {
  const issuer = await startIssuer(t)
  const rsa = await makeKey('RS256', 'rsa')
  const { alg: _alg, ...anyAlg } = rsa.publicJwk
  const { kid: _kid, ...noKid } = second.publicJwk
  const twin = { ...(await makeKey('ES256', 'twin')).publicJwk, kid: 'first' }
  issuer.publish(anyAlg, noKid, first.publicJwk, twin, { ...third.publicJwk, kid: 'first' })
  const { keys = [] } = await load(issuer.url)
  const cases: readonly (readonly [string | undefined, string, string])[] = [
    ['rsa', 'RS256', 'a key'],
    ['rsa', 'PS256', 'a key'],
    ['rsa', 'ES256', 'algorithm'],
    ['rsa', 'HS256', 'algorithm'],
    ['rsa', 'none', 'algorithm'],
    [undefined, 'RS256', 'a key'],
    [undefined, 'EdDSA', 'a key'],
    [undefined, 'ES256', 'unknown_key'], // two
    ['', 'EdDSA', 'unknown_key'],
    ['first', 'ES256', 'unknown_key'], // of two keys with one name neither
    ['first', 'ES384', 'a key'],
    ['x', 'RS256', 'unknown_key'],
  ]
  for (const [kid, alg, expected] of cases) {
    const found = findInSet(keys, PUBLIC_ALGORITHMS, kid, alg)
    t.equal(found.ok ? 'a key' : found.error, expected, `${kid} ${alg}`)
  }
  for (const { publicJwk } of keys.filter(({ kid }) => kid === 'rsa')) {
    t.notOk(publicJwk !== undefined && 'alg' in publicJwk, 'it is published without an algorithm, as it came')
  }
})

const large = 'a set of 1 MiB and 10,000 keys is used, and does not stop the event loop'
t.test(large, { skip: withoutThreadTimes }, async (t) => {
  const issuer = await startIssuer(t)
  const { x } = second.publicJwk
  const keys = Array.from({ length: 10_000 }, (_, n) => ({ kty: 'OKP', crv: 'Ed25519', x, kid: `k${n}` }))
  issuer.send(JSON.stringify({ keys }).padEnd(1_048_576))
  const loading = load(issuer.url)
  const longestMs = await longestTurnMs(loading)
  t.equal((await loading).names.length, 10_000)
  t.ok(longestMs < 500, `${longestMs} ms`)
})

t.test('a response that is no JWK Set is refused with the kind of fault only', async (t) => {
  const issuer = await startIssuer(t)
  const linesOf = async (timeoutMs?: number) => (await load(issuer.url, undefined, timeoutMs)).lines
  const json = JSON.stringify({ keys: [first.publicJwk] })
  for (const body of ['', '<html>', '[]', '{"keys":{}}', '\ufeff{}', gzipSync(json)]) {
    issuer.send(body)
    t.same(await linesOf(), ['is not a JWK Set'])
  }
  issuer.send(json.padEnd(1_048_577))
  t.same(await linesOf(), ['is larger than 1048576 bytes'])
  for (const status of [204, 302, 304, 404, 500]) {
    issuer.fail(status, { location: '/other' })
    t.same(await linesOf(), [`was answered with status ${status}`])
  }
  t.notOk(issuer.requests.includes('/other'), 'a redirect is not followed')
  issuer.respond = (res) => {
    res.socket?.destroy()
  }
  t.same(await linesOf(), ['cannot be fetched: ECONNRESET'])
  issuer.respond = (res) => {
    res.writeHead(200, { 'content-length': 9 }).write('{', () => res.destroy())
  }
  t.same(await linesOf(), ['cannot be fetched: ECONNRESET'])
  issuer.respond = () => {}
  t.same(await linesOf(50), ['did not arrive within 0.05 s'])
  issuer.respond = (res) => {
    res.socket?.write('HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n')
  }
  t.same(await linesOf(50), ['did not arrive within 0.05 s'], 'an unasked 101')
  issuer.respond = (res) => {
    const drip = setInterval(() => res.write(' '), 5)
    res.on('close', () => clearInterval(drip))
  }
  t.same(await linesOf(50), ['did not arrive within 0.05 s'])
})

t.test('the bearer token is read anew for each fetch', async (t) => {
  const file = t.testdir({ token: 'one\n' })
  const seen: unknown[] = []
  const server = createServer((req, res) => {
    seen.push(req.headers.authorization)
    res.end(JSON.stringify({ keys: [first.publicJwk] }))
  })
  const jwksUrl = `http://127.0.0.1:${await listen(t, server)}/`
  const bearerTokenFile = `${file}/token`
  const fetchOnce = () => fetchJwks({ jwksUrl, bearerTokenFile, algorithms: ['ES256'] })
  await fetchOnce()
  writeFileSync(bearerTokenFile, 'two')
  t.match(await fetchOnce(), { ok: true })
  writeFileSync(bearerTokenFile, 'two\r\nX: y')
  t.match(await fetchOnce(), { ok: false, problems: [/holds no token/] })
  t.same(seen, ['Bearer one', 'Bearer two'])
})

t.test('the first valid set becomes active, and later a changed one', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk)
  const { keys, clock, kids, finds, changes, lines } = await watch(t, issuer)
  t.same([kids(), keys.state()], [[], { loaded: false }])
  t.match(await keys.whenLoaded, { value: true })
  t.same(keys.state(), { loaded: true, ageSeconds: 0, lastFetch: 'ok' })
  clock.ms += 7000
  t.equal(keys.state().ageSeconds, 7)
  issuer.publish(second.publicJwk, first.publicJwk)
  await keys.reload()
  t.same(kids(), ['second', 'first'])
  issuer.publish(first.publicJwk, second.publicJwk)
  clock.ms += 5000
  t.equal(await finds('x'), false)
  t.same([changes(), keys.fetches], [2, { ok: 3, failed: 0 }], 'an equal set in another order is no change')
  t.notMatch(JSON.stringify(lines), 'canary')
  const nested = `{"kty":"EC","crv":{"toString":0,"valueOf":0},"x":${'['.repeat(6000)}${']'.repeat(6000)}}`
  issuer.send(`{"keys":[${nested},${JSON.stringify(third.publicJwk)}]}`)
  await keys.reload()
  t.same(kids(), ['third'], 'a key that is nested too deeply is ignored')
})

t.test('the last valid set stays active while the issuer is down or publishes an invalid one', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk)
  const { keys, clock, kids, changes, lines } = await watch(t, issuer)
  await keys.whenLoaded
  for (const breakIt of [() => issuer.fail(500), () => issuer.send('<html>')]) {
    breakIt()
    clock.ms += 1000
    for (let times = 0; times < 2; times++) {
      await keys.reload()
    }
    t.same(kids(), ['first'])
  }
  t.same([changes(), keys.state()], [1, { loaded: true, ageSeconds: 2, lastFetch: 'failed' }])
  const failures = lines.filter(({ level }) => level === 'error')
  t.equal(failures.length, 2, 'each different reason is logged once')
  t.match(failures[0], { message: 'the JWK Set cannot be used, the last good one stays active' })
  issuer.publish(first.publicJwk)
  await keys.reload()
  t.same(keys.state(), { loaded: true, ageSeconds: 0, lastFetch: 'ok' })
  issuer.publish()
  await keys.reload()
  t.same(kids(), [], 'the keys of a set that empties are withdrawn')
})

t.test('forged kids cause at most one fetch in five seconds, whether the issuer is up or down', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk)
  const { keys, clock, finds } = await watch(t, issuer)
  await keys.whenLoaded
  const flood = async () => {
    const found = await Promise.all(Array.from({ length: 500 }, (_, n) => finds(`forged-${n}`)))
    await keys.whenFetched() // tokens wait for a second at most
    return found
  }
  const timers = new Set<number>()
  const init = (id: number, type: string) => type === 'Timeout' && timers.add(id)
  const hook = createHook({ init, destroy: (id) => timers.delete(id) }).enable()
  t.ok((await flood()).every((found) => !found))
  await new Promise(setImmediate)
  t.ok(timers.size < 50, `${timers.size} timers are left`)
  hook.disable()
  t.intercept(globalThis, 'setTimeout', { value: () => ({ unref() {} }) }) // no fetch but those for tokens
  t.equal(issuer.requests.length, 2)
  clock.ms += 4999
  issuer.publish(second.publicJwk)
  t.equal(await finds('second'), false)
  clock.ms += 1
  t.same(await Promise.all(['second', 'x', 'second'].map((kid) => finds(kid))), [true, false, true])
  t.equal(issuer.requests.length, 3, 'one fetch for all requests')
  issuer.fail(500)
  clock.ms += 5000
  for (let times = 0; times < 3; times++) {
    await flood()
  }
  t.equal(issuer.requests.length, 4)
  clock.ms += 4999
  await flood()
  t.equal(issuer.requests.length, 4)
  clock.ms += 1
  await flood()
  t.equal(issuer.requests.length, 5)
  t.ok(keys.ring().keys.has('second'))
  clock.ms -= 1_000_000
  await flood()
  t.equal(issuer.requests.length, 6, 'a clock that is set back does not stop the fetches')
})

t.test('the set is fetched every minute; a failed fetch is repeated after five seconds', async (t) => {
  const issuer = await startIssuer(t, first.publicJwk)
  mock.timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => mock.timers.reset())
  const { keys } = await watch(t, issuer)
  const turn = () => new Promise(setImmediate)
  const ends = async (count: number) => {
    while (keys.fetches.ok + keys.fetches.failed < count) {
      await turn()
    }
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
  t.ok(keys.ring().keys.has('second'))
  await waits(60_000)
})
