import t from 'tap'
import type { KeyRing } from '../../src/keys/key-ring.ts'
import { withCache } from '../../src/token/cache.ts'
import { createIssuer } from '../../src/token/issue.ts'
import type { LastToken, Verdict } from '../../src/token/verdict.ts'
import { createVerifier, type Verified } from '../../src/token/verify.ts'
import { makeKey, makeKeyDirectory } from '../support/keys.ts'
import { AUDIENCE, ISSUER, mintToken, respellings } from '../support/tokens.ts'

const START = Date.UTC(2026, 10, 20, 12)

/** A cache over a verifier that a test answers by hand, and a clock that a test sets. */
function setUp({ maxTokens = 10, maxAgeSeconds = 300 } = {}) {
  const clock = { now: START }
  const asked: { token: string; answer: (verified: Verified) => void; fail: (fault: Error) => void }[] = []
  const verify = (token: string) =>
    new Promise<Verified>((answer, fail) => asked.push({ token, answer, fail }))
  const cached = withCache(verify, { maxTokens, maxAgeSeconds, now: () => clock.now })
  return { clock, asked, cached }
}

const good = (accountId = 'acme', usableUntil = START + 3_600_000): Verified => ({
  ok: true,
  identity: { accountId, accessKey: 'AK', tokenId: 'j', expiresAt: usableUntil / 1000 },
  usableUntil,
})
const refusal: Verified = { ok: false, reason: 'signature' }
const isNow = (verdict: Verdict | Promise<Verdict>): verdict is Verdict => 'ok' in verdict

t.test('a token is verified once, and then answered at once with the same identity', async (t) => {
  const { asked, cached } = setUp()
  const first = cached('AA.AA.AA')
  t.notOk(isNow(first))
  asked[0]?.answer(good())
  t.match(await first, { ok: true, identity: { accountId: 'acme' } })
  for (let again = 0; again < 3; again++) {
    const verdict = cached('AA.AA.AA')
    t.ok(isNow(verdict))
    t.equal(verdict, await first)
  }
  t.equal(asked.length, 1)
  t.match({ ...cached }, { hits: 3, misses: 1, evictions: 0, size: 1 })
})

t.test('a refused token is not remembered', async (t) => {
  const { asked, cached } = setUp()
  for (const round of [0, 1]) {
    const pending = cached('AA.AA.AA')
    asked[round]?.answer(refusal)
    t.same(await pending, refusal)
  }
  t.match({ ...cached }, { hits: 0, misses: 2, size: 0 })
})

t.test('what the verifier refuses at once is refused at once, and asked for again', async (t) => {
  const asked: string[] = []
  const verify = (token: string) => {
    asked.push(token)
    return { ok: false, reason: 'unknown_key' } as const
  }
  const cached = withCache(verify, { maxTokens: 10, maxAgeSeconds: 300, now: () => START })
  const last = connection()
  for (const _ of [0, 1]) t.same(cached('AA.AA.AA', last), { ok: false, reason: 'unknown_key' })
  t.equal(asked.length, 2)
  t.match({ ...cached }, { hits: 0, misses: 2, size: 0 })
})

t.test('what has not the shape of a token is refused on the spot: no verification, no entry', async (t) => {
  const { asked, cached } = setUp()
  const pending = cached('AAAA.AAAA.AA')
  asked[0]?.answer(good())
  await pending
  for (const [name, respelled] of respellings('AAAA.AAAA.AA')) {
    t.same(cached(respelled), { ok: false, reason: 'malformed' }, name)
  }
  t.same(cached(`AA.AA.${'A'.repeat(8192)}`), { ok: false, reason: 'malformed' })
  t.equal(asked.length, 1)
  t.match({ ...cached }, { hits: 0, misses: 1, size: 1 })
})

t.test('a remembered token is good until the millisecond before its end', async (t) => {
  const { clock, asked, cached } = setUp({ maxAgeSeconds: 86_400 })
  const end = START + 1000
  const first = cached('AA.AA.AA')
  asked[0]?.answer(good('acme', end))
  await first
  clock.now = end - 1
  t.ok(isNow(cached('AA.AA.AA')))
  clock.now = end
  const second = cached('AA.AA.AA')
  t.notOk(isNow(second), 'at its end it is verified anew')
  t.equal(cached.size, 0)
  asked[1]?.answer({ ok: false, reason: 'expired' })
  t.match(await second, { reason: 'expired' })
})

t.test('an entry lives no longer than allowed, however often it is used', async (t) => {
  const { clock, asked, cached } = setUp({ maxAgeSeconds: 300 })
  const first = cached('AA.AA.AA')
  clock.now += 500 // verification took this long: the age counts from its end
  asked[0]?.answer(good())
  await first
  for (const age of [0, 150_000, 299_999]) {
    clock.now = START + 500 + age
    t.ok(isNow(cached('AA.AA.AA')), String(age))
  }
  clock.now = START + 500 + 300_000
  t.notOk(isNow(cached('AA.AA.AA')))
  t.equal(asked.length, 2)
})

t.test('the least recently used token makes room', async (t) => {
  const { asked, cached } = setUp({ maxTokens: 2 })
  const remember = async (token: string) => {
    const pending = cached(token)
    asked.at(-1)?.answer(good())
    await pending
  }
  await remember('AA.AA.AA')
  await remember('AA.AA.AQ')
  t.ok(isNow(cached('AA.AA.AA')))
  await remember('AA.AA.Ag')
  t.match({ ...cached }, { evictions: 1, size: 2 })
  t.ok(isNow(cached('AA.AA.AA')))
  t.notOk(isNow(cached('AA.AA.AQ')))
})

t.test('those who ask while a token is verified share one verification', async (t) => {
  const { asked, cached } = setUp()
  const pending = [cached('AA.AA.AA'), cached('AA.AA.AA'), cached('AA.AA.AQ')]
  t.equal(asked.length, 2)
  for (const { answer } of asked) answer(good())
  t.same(
    (await Promise.all(pending)).map(({ ok }) => ok),
    [true, true, true],
  )
  t.match({ ...cached }, { misses: 3, size: 2 })
})

t.test('a fault reaches all who asked, and the next one tries again', async (t) => {
  const { asked, cached } = setUp()
  const pending = [cached('AA.AA.AA'), cached('AA.AA.AA')]
  const fault = new Error('no')
  asked[0]?.fail(fault)
  for (const each of pending) await t.rejects(Promise.resolve(each), fault)
  const again = cached('AA.AA.AA')
  asked[1]?.answer(good())
  t.match(await again, { ok: true })
})

t.test('clear forgets every token', async (t) => {
  const { asked, cached } = setUp()
  const first = cached('AA.AA.AA')
  asked[0]?.answer(good())
  await first
  cached.clear()
  t.equal(cached.size, 0)
  t.notOk(isNow(cached('AA.AA.AA')))
  t.equal(asked.length, 2)
})

t.test('what was being verified when something changed is verified again', async (t) => {
  const { asked, cached } = setUp()
  const before = cached('AA.AA.AA')
  cached.clear()
  const after = cached('AA.AA.AA')
  t.equal(asked.length, 2, 'who asks after the change does not wait for an answer from before it')
  asked[0]?.answer(good('as it was'))
  await new Promise(setImmediate)
  t.equal(cached.size, 0)
  t.equal(asked.length, 2, 'the check again joins the one that is on its way')
  asked[1]?.answer({ ok: false, reason: 'revoked' })
  t.same(await before, { ok: false, reason: 'revoked' })
  t.same(await after, { ok: false, reason: 'revoked' })
  t.equal(cached.size, 0)
})

t.test('a fault from before a change does not disturb what is verified after it', async (t) => {
  const { asked, cached } = setUp()
  const before = cached('AA.AA.AA')
  cached.clear()
  const after = cached('AA.AA.AA')
  asked[0]?.fail(new Error('no'))
  await t.rejects(Promise.resolve(before))
  const joined = cached('AA.AA.AA')
  t.equal(asked.length, 2)
  asked[1]?.answer(good())
  t.match(await Promise.all([after, joined]), [{ ok: true }, { ok: true }])
})

function verifierFor(ring: KeyRing, now: () => number) {
  return createVerifier({
    keys: () => ring,
    standing: () => ({ inForce: true, until: Number.POSITIVE_INFINITY }),
    issuer: ISSUER,
    audience: AUDIENCE,
    maxLifetimeSeconds: 86_400,
    clockToleranceSeconds: 0,
    now,
  })
}

t.test(
  '10,000 mixed checks by many users at once: each gets its own identity, no forger gets any',
  async (t) => {
    const { ring, ...key } = await makeKeyDirectory(t, { alg: 'HS256' })
    const now = () => START
    // Too small for all users, so that entries come and go all the time.
    const check = withCache(verifierFor(ring, now), { maxTokens: 100, maxAgeSeconds: 300, now })
    const issue = createIssuer({
      keys: () => ring,
      issuer: ISSUER,
      audience: AUDIENCE,
      lifetimeSeconds: 60,
      now,
    })
    const users = await Promise.all(
      Array.from({ length: 150 }, async (_, at) => {
        const { token, identity } = await issue({ accountId: `account ${at}`, accessKey: `key ${at % 7}` })
        const forged = await mintToken({
          key: { ...(await makeKey('HS256', 'attacker')), kid: key.kid },
          now: START,
          claims: { sub: `account ${at}` },
        })
        return { token, identity, forged }
      }),
    )
    let wrong = 0
    const one = async (round: number) => {
      const user = users[(round * 7919) % users.length]
      if (user === undefined) throw new Error('no user')
      if (round % 5 === 0) {
        const verdict = await check(user.forged)
        if (verdict.ok) wrong++
      } else {
        const verdict = await check(user.token)
        if (!verdict.ok || JSON.stringify(verdict.identity) !== JSON.stringify(user.identity)) wrong++
      }
      if (round % 997 === 0) check.clear()
    }
    for (let batch = 0; batch < 100; batch++) {
      await Promise.all(Array.from({ length: 100 }, (_, at) => one(batch * 100 + at)))
    }
    t.equal(wrong, 0)
    t.ok(check.hits > 0 && check.evictions > 0)
    t.ok(check.size <= 100)
  },
)

/** A connection on which no token has come yet. */
const connection = (): LastToken => ({ token: '', digest: '' })

for (const reason of ['signature', 'expired'] as const) {
  t.test(`a token that was refused for its ${reason} is refused again without a check`, async (t) => {
    const { clock, asked, cached } = setUp()
    const last = connection()
    const pending = cached('AA.AA.AA', last)
    asked[0]?.answer({ ok: false, reason, claim: 'exp' })
    await pending
    for (const later of [0, 1, 86_400_000]) {
      clock.now = START + later
      t.match(cached('AA.AA.AA', last), { ok: false, reason })
    }
    t.equal(asked.length, 1)
    t.match({ ...cached }, { hits: 0, misses: 4, size: 0 }, 'each counts as one that was not remembered')
  })

  t.test(`clear forgets that a token was refused for its ${reason}`, async (t) => {
    const { asked, cached } = setUp()
    const last = connection()
    const before = cached('AA.AA.AA', last)
    asked[0]?.answer({ ok: false, reason })
    await before
    cached.clear()
    const after = cached('AA.AA.AA', last)
    asked[1]?.answer(good())
    t.match(await after, { ok: true })
    t.match(cached('AA.AA.AA', last), { ok: true })
    t.equal(asked.length, 2)
  })
}

for (const reason of ['claims', 'revoked', 'unknown_key', 'malformed', 'algorithm'] as const) {
  t.test(`a token that was refused as ${reason} is checked again`, async (t) => {
    const { asked, cached } = setUp()
    const last = connection()
    const refused = cached('AA.AA.AA', last)
    asked[0]?.answer({ ok: false, reason })
    t.match(await refused, { reason })
    const again = cached('AA.AA.AA', last)
    asked[1]?.answer(good())
    t.match(await again, { ok: true })
  })
}

t.test('an expired token is checked again when the clock is set back, a forged one is not', async (t) => {
  const { clock, asked, cached } = setUp()
  const [expired, forged] = [connection(), connection()]
  const refused = [cached('AA.AA.AA', expired), cached('AA.AA.AQ', forged)]
  asked[0]?.answer({ ok: false, reason: 'expired' })
  asked[1]?.answer({ ok: false, reason: 'signature' })
  await Promise.all(refused)
  clock.now--
  t.match(cached('AA.AA.AQ', forged), { reason: 'signature' })
  const again = cached('AA.AA.AA', expired)
  t.equal(asked.length, 3)
  asked[2]?.answer(good('acme', START))
  t.match(await again, { ok: true })
  clock.now = START
  const late = cached('AA.AA.AA', expired)
  t.match(await late, { reason: 'expired' }, 'and by the time it was refused at it is expired again')
  t.equal(asked.length, 3)
})

t.test(
  'a clock that was set back while a token was checked does not make it expired for longer',
  async (t) => {
    const { clock, asked, cached } = setUp()
    const last = connection()
    const refused = cached('AA.AA.AA', last)
    clock.now -= 60_000
    asked[0]?.answer({ ok: false, reason: 'expired' })
    await refused
    clock.now += 59_999
    const again = cached('AA.AA.AA', last)
    asked[1]?.answer(good())
    t.match(await again, { ok: true })
  },
)

t.test('of the tokens on a connection only the last one is known as refused', async (t) => {
  const { asked, cached } = setUp()
  const last = connection()
  const first = cached('AA.AA.AA', last)
  asked[0]?.answer(refusal)
  await first
  const other = cached('AA.AA.AQ', last)
  asked[1]?.answer(good())
  t.match(await other, { ok: true }, 'another token is judged by itself')
  t.match(cached('AA.AA.AQ', last), { ok: true })
  const again = cached('AA.AA.AA', last)
  t.notOk(isNow(again))
  t.equal(asked.length, 3)
  asked[2]?.answer(refusal)
  await again
  t.ok(isNow(cached('AA.AA.AA', last)))
})

t.test('a refusal that is found after another token came is not taken for that token', async (t) => {
  const { asked, cached } = setUp()
  const last = connection()
  const first = cached('AA.AA.AA', last)
  const second = cached('AA.AA.AQ', last)
  asked[0]?.answer(refusal)
  await first
  asked[1]?.answer({ ok: false, reason: 'revoked' })
  await second
  t.notOk(isNow(cached('AA.AA.AQ', last)))
  t.equal(asked.length, 3)
})

t.test('a refusal from before a change is not known after it', async (t) => {
  const { asked, cached } = setUp()
  const last = connection()
  const pending = cached('AA.AA.AA', last)
  cached.clear()
  asked[0]?.answer(refusal)
  await new Promise(setImmediate)
  asked[1]?.answer(refusal)
  t.match(await pending, refusal)
  t.notOk(isNow(cached('AA.AA.AA', last)), 'it was asked for before the change')
})

t.test('a refused token is known on the connection that sent it, and on no other', async (t) => {
  const { asked, cached } = setUp()
  const [one, other] = [connection(), connection()]
  const refused = cached('AA.AA.AA', one)
  asked[0]?.answer(refusal)
  await refused
  t.ok(isNow(cached('AA.AA.AA', one)))
  t.notOk(isNow(cached('AA.AA.AA', other)))
  t.notOk(isNow(cached('AA.AA.AA')))
  t.equal(asked.length, 2, 'those two share one check')
})

t.test('who shared the check of a refused token knows it as well', async (t) => {
  const { asked, cached } = setUp()
  const [one, other] = [connection(), connection()]
  const refused = [cached('AA.AA.AA', one), cached('AA.AA.AA', other)]
  asked[0]?.answer(refusal)
  await Promise.all(refused)
  t.ok(isNow(cached('AA.AA.AA', one)))
  t.ok(isNow(cached('AA.AA.AA', other)))
  t.equal(asked.length, 1)
})

t.test('a token that another connection proved good in the meantime is good', async (t) => {
  const { clock, asked, cached } = setUp()
  const [one, other] = [connection(), connection()]
  const refused = cached('AA.AA.AA', one)
  asked[0]?.answer({ ok: false, reason: 'expired' })
  await refused
  clock.now -= 1000
  const proved = cached('AA.AA.AA', other)
  asked[1]?.answer(good())
  await proved
  clock.now += 1000
  t.match(cached('AA.AA.AA', one), { ok: true })
})

t.test('a forged token that a connection repeats costs one check, until keys change', async (t) => {
  const { ring, ...key } = await makeKeyDirectory(t, { alg: 'ES256' })
  const forger = { ...(await makeKey('ES256', 'attacker')), kid: key.kid }
  const now = () => START
  let checks = 0
  const verify = verifierFor(ring, now)
  const counted = (token: string) => {
    checks++
    return verify(token)
  }
  const check = withCache(counted, { maxTokens: 10, maxAgeSeconds: 300, now })
  const [forged, fine] = [await mintToken({ key: forger, now: START }), await mintToken({ key, now: START })]
  const last = connection()
  for (let round = 0; round < 100; round++) {
    t.match(await check(forged, last), { ok: false, reason: 'signature' })
    if (round === 50) check.clear()
  }
  t.equal(checks, 2)
  t.match(await check(fine, last), { ok: true })
  t.match({ ...check }, { hits: 0, misses: 101, size: 1 })
})

t.test('a flood of forged tokens costs no remembered one', async (t) => {
  const { ring, ...key } = await makeKeyDirectory(t, { alg: 'HS256' })
  const now = () => START
  const check = withCache(verifierFor(ring, now), { maxTokens: 10, maxAgeSeconds: 300, now })
  const token = await mintToken({ key, now: START })
  t.match(await check(token), { ok: true })
  const [header, payload] = token.split('.')
  for (let at = 0; at < 5000; at++) {
    const signature = Buffer.alloc(32)
    signature.writeUInt32BE(at)
    const verdict = await check(`${header}.${payload}.${signature.toString('base64url')}`)
    if (verdict.ok) t.fail('a forged token was accepted')
  }
  t.match({ ...check }, { size: 1, evictions: 0 })
  t.ok(isNow(check(token)))
})
