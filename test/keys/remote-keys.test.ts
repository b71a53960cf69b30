import { execFile } from 'node:child_process'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { promisify } from 'node:util'
import type { JWK } from 'jose'
import t from 'tap'
import type { KeyRing } from '../../src/keys/key-ring.ts'
import type { Fetched } from '../../src/keys/remote-fetch.ts'
import { createRemoteKeys, type RemoteKeysOptions } from '../../src/keys/remote-keys.ts'
import { createVerifier } from '../../src/token/verify.ts'
import { makeKey } from '../support/keys.ts'
import { AUDIENCE, ISSUER, mintToken } from '../support/tokens.ts'

const first = await makeKey('ES256', 'first')
const second = await makeKey('EdDSA', 'second')
const third = await makeKey('ES384', 'third')

const setOf = (...keys: JWK[]): Fetched => ({ ok: true, bytes: Buffer.from(JSON.stringify({ keys })) })
const away: Fetched = { ok: false, problem: 'cannot be fetched: ECONNREFUSED' }

/** An issuer that answers when it is told to, and a clock that stands still. */
function follow(
  t: { teardown(stop: () => void): void },
  answer: Fetched | undefined,
  options: Partial<RemoteKeysOptions> = {},
) {
  const it = { answer, time: 1_000_000, fetches: 0, wait: -1, fire: () => {} }
  const waiting: ((answer: Fetched) => void)[] = []
  const changes: KeyRing[] = []
  const results: string[] = []
  const lines: { level: string; message: string; fields: unknown }[] = []
  const to = (level: string) => (fields: object, message: string) =>
    void lines.push({ level, message, fields })
  const keys = createRemoteKeys({
    url: 'https://issuer.example/jwks.json?canary',
    log: { info: to('info'), warn: to('warn'), error: to('error') } as RemoteKeysOptions['log'],
    now: () => it.time,
    onChange: (ring) => changes.push(ring),
    onFetch: (result) => results.push(result),
    fetchSet: async (_url, abort) => {
      it.fetches++
      if (it.answer !== undefined) return it.answer
      return new Promise((resolve) => {
        waiting.push(resolve)
        abort.signal.addEventListener('abort', () => resolve(away))
      })
    },
    after: (ms, callback) => {
      it.wait = ms
      it.fire = callback
      return () => {
        it.wait = -1
        it.fire = () => {}
      }
    },
    ...options,
  })
  t.teardown(keys.stop)
  /** Lets everything that needs no timer happen. */
  const settle = () => new Promise((resolve) => setTimeout(resolve, 20))
  const fireTimer = async () => {
    it.time += it.wait
    it.fire()
    await settle()
  }
  const respond = (answer: Fetched) => {
    it.answer = answer
    for (const resolve of waiting.splice(0)) resolve(answer)
  }
  const kids = () => [...keys.ring().verification.keys()]
  return { it, keys, kids, changes, results, lines, settle, fireTimer, respond }
}

t.test('the first set is in force as soon as it is there, and fetched anew every minute', async (t) => {
  const { it, keys, kids, changes, results, fireTimer, lines } = follow(t, setOf(first.publicJwk))
  t.same([kids(), keys.state()], [[], { loaded: false }])
  t.equal(await keys.firstSet(), true)
  t.same(kids(), ['first'])
  t.same(keys.state(), { loaded: true, ageSeconds: 0, lastFetch: 'ok' })
  await new Promise((resolve) => setImmediate(resolve))
  t.equal(it.wait, 60_000)
  it.answer = setOf(second.publicJwk, first.publicJwk)
  await fireTimer()
  t.same(kids(), ['second', 'first'])
  t.same([changes.length, results, it.fetches], [2, ['ok', 'ok'], 2])
  t.notMatch(JSON.stringify(lines), 'canary')
})

t.test('the same set again changes nothing, in whatever order', async (t) => {
  const { it, keys, changes, fireTimer } = follow(t, setOf(first.publicJwk, second.publicJwk))
  await keys.firstSet()
  const ring = keys.ring()
  it.answer = setOf(second.publicJwk, first.publicJwk)
  await fireTimer()
  t.equal(keys.ring(), ring)
  t.equal(changes.length, 1)
  t.equal(keys.state().ageSeconds, 0, 'it is as fresh as a new one')
})

t.test('until there is a first set it is tried again, ever later up to a bound', async (t) => {
  const { it, keys, settle, fireTimer, lines, results } = follow(t, away)
  await settle()
  const waits = []
  for (let failure = 0; failure < 6; failure++) {
    waits.push(it.wait)
    await fireTimer()
  }
  t.same(waits, [500, 1000, 2000, 4000, 5000, 5000])
  t.same(keys.state(), { loaded: false, lastFetch: 'failed' })
  t.match(lines, [
    { level: 'error', message: /none yet/, fields: { problems: ['cannot be fetched: ECONNREFUSED'] } },
  ])
  t.equal(lines.length, 1, 'it is told once')
  it.answer = setOf(first.publicJwk)
  await fireTimer()
  t.equal(await keys.firstSet(), true)
  t.equal(it.wait, 60_000)
  t.equal(results.at(-1), 'ok')
})

t.test('the last good set stays while the issuer is away or answers nonsense', async (t) => {
  const { it, keys, kids, changes, fireTimer, lines, settle } = follow(t, setOf(first.publicJwk))
  await settle()
  for (const answer of [
    away,
    { ok: true, bytes: Buffer.from('<html>') },
    setOf(),
    setOf({ ...second.publicJwk, alg: 'none' }),
  ] as const) {
    it.answer = answer
    await fireTimer()
    t.same(kids(), ['first'])
  }
  t.same([changes.length, keys.state().lastFetch, keys.state().loaded], [1, 'failed', true])
  t.equal(keys.state().ageSeconds, 60 + 0.5 + 1 + 2)
  t.equal(lines.filter(({ level }) => level === 'error').length, 4, 'each new reason is told')
  it.answer = setOf(first.publicJwk)
  await fireTimer()
  t.same(keys.state(), { loaded: true, ageSeconds: 0, lastFetch: 'ok' })
  t.match(lines.at(-1), { level: 'info', message: /can be used again/ })
  t.equal(changes.length, 1)
})

t.test('what is odd about a set is told once, and again when it is something else', async (t) => {
  const { it, fireTimer, lines, settle } = follow(t, setOf(first.privateJwk))
  const warned = () => lines.filter(({ level }) => level === 'warn').length
  await settle()
  await fireTimer()
  t.equal(warned(), 1)
  it.answer = setOf(first.publicJwk, { ...second.publicJwk, use: 'enc' })
  await fireTimer()
  t.equal(warned(), 2)
  t.notMatch(JSON.stringify(lines), String(first.privateJwk.d))
})

t.test('a kid that nobody knows is looked for at once, by one fetch for all who ask', async (t) => {
  const { it, keys, settle, respond } = follow(t, setOf(first.publicJwk))
  await settle()
  it.answer = undefined
  const asked = Promise.all(['second', 'x', 'second'].map((kid) => keys.refresh(kid)))
  await settle()
  t.equal(it.fetches, 2)
  respond(setOf(first.publicJwk, second.publicJwk))
  t.same(await asked, [true, false, true])
  t.equal(it.fetches, 2)
})

t.test('a flood of made-up kids costs one fetch in five seconds, whatever becomes of it', async (t) => {
  const { it, keys, settle } = follow(t, setOf(first.publicJwk))
  await settle()
  const flood = (name: string) =>
    Promise.all(Array.from({ length: 1000 }, (_, n) => keys.refresh(`${name}${n}`)))
  t.ok((await flood('a')).every((found) => !found))
  t.equal(it.fetches, 2)
  it.time += 4999
  it.answer = setOf(second.publicJwk)
  t.equal(await keys.refresh('second'), false)
  it.time += 1
  await flood('b')
  t.equal(it.fetches, 3)
  t.equal(await keys.refresh('second'), true)
  t.equal(it.fetches, 3, 'what is known needs no fetch')
  it.time += 5000
  it.answer = away
  await flood('c')
  await flood('d')
  t.equal(it.fetches, 4)
  it.time -= 1_000_000
  await flood('e')
  t.equal(it.fetches, 5, 'a clock that was set back holds nothing off')
})

t.test('a fetch that began before a key was published is followed by another for its kid', async (t) => {
  const { it, keys, settle, respond, fireTimer } = follow(t, setOf(first.publicJwk))
  await settle()
  it.answer = undefined
  await fireTimer()
  const found = keys.refresh('second')
  await settle()
  t.equal(it.fetches, 2)
  respond(setOf(first.publicJwk))
  it.answer = setOf(first.publicJwk, second.publicJwk)
  t.equal(await found, true)
  t.equal(it.fetches, 3)
})

t.test('an issuer that hangs is waited for a second, not longer, and its answer still counts', async (t) => {
  let patience = { ms: -1, end: () => {} }
  const { it, keys, settle, respond, fireTimer } = follow(t, setOf(first.publicJwk), {
    afterPatience: (ms, end) => {
      patience = { ms, end }
      return () => {}
    },
  })
  await settle()
  it.answer = undefined
  const answers: boolean[] = []
  const ask = (kid: string) => void keys.refresh(kid).then((found) => answers.push(found))
  for (const kid of ['second', 'x', 'y']) ask(kid)
  await settle()
  t.same([it.fetches, patience.ms, answers], [2, 1000, []])
  patience.end()
  await settle()
  t.same(answers, [false, false, false])
  it.time += 6000
  ask('second')
  await settle()
  t.same(answers.length, 4, 'who comes later does not wait at all')
  respond(setOf(first.publicJwk))
  await settle()
  it.answer = setOf(first.publicJwk, second.publicJwk)
  t.equal(
    await keys.refresh('second'),
    true,
    'nor was the next fetch used up by who found this one under way',
  )
  it.answer = undefined
  await fireTimer()
  patience.end()
  respond(setOf(third.publicJwk))
  await settle()
  t.ok(keys.ring().verification.has('third'), 'what comes late comes into force')
})

t.test('only so many wait at once, and whoever finds the key there has not to wait', async (t) => {
  const { it, keys, settle, respond } = follow(t, setOf(first.publicJwk))
  await settle()
  it.answer = undefined
  let answered = 0
  for (let at = 0; at < 1000; at++) void keys.refresh(`made-up-${at}`).then(() => answered++)
  await settle()
  t.equal(answered, 1000 - 256)
  t.equal(await keys.refresh('first'), true)
  respond(setOf(second.publicJwk))
  await settle()
  t.equal(answered, 1000)
  it.time += 5000
  it.answer = setOf(third.publicJwk)
  t.equal(await keys.refresh('third'), true, 'all places are free again')
})

t.test('who asks for it has the set fetched, due or not', async (t) => {
  const { it, keys, kids } = follow(t, setOf(first.publicJwk))
  const asked = keys.refetch()
  it.answer = setOf(second.publicJwk)
  await asked
  t.same([kids(), it.fetches], [['second'], 2], 'a fetch under way may have begun too early')
  await keys.refresh('x')
  it.answer = setOf(third.publicJwk)
  await keys.refetch()
  t.same(kids(), ['third'])
  keys.stop()
  await keys.refetch()
  t.equal(it.fetches, 4)
})

t.test('a timer that fires while a fetch is under way begins no second one', async (t) => {
  const { it, settle, respond } = follow(t, setOf(first.publicJwk))
  await settle()
  const { fire } = it
  it.answer = undefined
  fire()
  fire()
  await settle()
  t.equal(it.fetches, 2)
  respond(away)
  await settle()
  t.equal(it.wait, 500)
})

t.test('a fault of who is told of a new set ends nothing', async (t) => {
  const { it, keys, kids, fireTimer, lines, settle } = follow(t, setOf(first.publicJwk), {
    onChange: () => {
      throw new Error('a fault')
    },
  })
  await settle()
  t.match(lines.at(-1), { level: 'error', message: /fault/ })
  it.answer = setOf(second.publicJwk)
  await fireTimer()
  t.same(kids(), ['second'])
  t.equal(await keys.refresh('x'), false)
})

t.test('once stopped it fetches no more, and nothing comes into force', async (t) => {
  const waiting = follow(t, undefined)
  await waiting.settle()
  waiting.keys.stop()
  t.equal(await waiting.keys.firstSet(), false)
  waiting.it.answer = setOf(first.publicJwk)
  await waiting.settle()
  t.same([waiting.kids(), waiting.results, waiting.it.wait], [[], [], -1])
  const idle = follow(t, setOf(first.publicJwk))
  await idle.settle()
  idle.keys.stop()
  t.equal(idle.it.wait, -1)
  t.equal(await idle.keys.refresh('second'), false)
  t.equal(idle.it.fetches, 1)
})

t.test(
  'over real sockets a token of a key that appeared a moment ago is accepted at its first use',
  async (t) => {
    let published = [first.publicJwk]
    let fetches = 0
    const issuer = createServer((_req, res) => {
      fetches++
      res.end(JSON.stringify({ keys: published }))
    })
    await new Promise<void>((resolve) => issuer.listen(0, '127.0.0.1', resolve))
    t.teardown(() => {
      issuer.close()
      issuer.closeAllConnections()
    })
    const url = `http://127.0.0.1:${(issuer.address() as AddressInfo).port}/.well-known/jwks.json`
    const log = { info: () => {}, warn: () => {}, error: () => {} }
    const keys = createRemoteKeys({ url, log, now: Date.now })
    t.teardown(keys.stop)
    await keys.firstSet()
    const verify = createVerifier({
      keys: keys.ring,
      refreshKeys: keys.refresh,
      issuer: ISSUER,
      audience: AUDIENCE,
      maxLifetimeSeconds: 86_400,
      clockToleranceSeconds: 0,
      now: Date.now,
    })
    t.match(await verify(await mintToken({ key: first })), { ok: true })
    published = [first.publicJwk, second.publicJwk]
    const tokens = await Promise.all(Array.from({ length: 20 }, () => mintToken({ key: second })))
    const verified = await Promise.all(tokens.map(verify))
    t.ok(verified.every(({ ok }) => ok))
    t.match(await verify(await mintToken({ key: third })), { ok: false, reason: 'unknown_key' })
    t.equal(fetches, 2)
  },
)

t.test('a stopped one keeps no process alive', async (t) => {
  const program = `
    import { createServer } from 'node:http'
    import { createRemoteKeys } from './src/keys/remote-keys.ts'
    const issuer = createServer((req, res) => res.end(${JSON.stringify(JSON.stringify({ keys: [first.publicJwk] }))}))
    await new Promise((resolve) => issuer.listen(0, '127.0.0.1', resolve))
    const keys = createRemoteKeys({ url: 'http://127.0.0.1:' + issuer.address().port, log: { info() {} }, now: Date.now })
    console.log(await keys.firstSet())
    keys.stop()
    issuer.close()
    issuer.closeAllConnections()
  `
  const args = ['--import=ts-blank-space/register', '--input-type=module', '--eval', program]
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 10_000 })
  t.equal(stdout, 'true\n')
})
