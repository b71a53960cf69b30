import t, { type Test } from 'tap'
import { failed } from '../../src/base/result.ts'
import { TokenCache } from '../../src/token/cache.ts'
import type { Caller, VerifiedToken } from '../../src/token/caller.ts'
import type { RefusedToken, Verdict } from '../../src/token/verify.ts'
import { usedHeap } from '../support/heap.ts'
import { makeVerifiedToken } from '../support/tokens.ts'

const START = Date.UTC(2026, 10, 20, 12)

interface Asked {
  readonly accept: (verified: VerifiedToken) => void
  readonly refuse: (reason: RefusedToken['reason']) => void
  readonly fail: (fault: Error) => void
}

/** A cache over a verifier whose verdicts the test gives by hand, and a clock that the test sets. */
function setUp({ maxTokens = 10, maxAgeSeconds = 300 } = {}) {
  const clock = { now: START }
  const asked: Asked[] = []
  const verify = () =>
    new Promise<Verdict>((resolve, fail) => {
      const accept = (value: VerifiedToken) => resolve({ ok: true, value })
      asked.push({ accept, refuse: (reason) => resolve(failed({ reason })), fail })
    })
  const revokedIds = new Set<string>()
  const cache = new TokenCache({
    verify,
    isRevoked: ({ tokenId }) => revokedIds.has(tokenId),
    maxTokens,
    maxAgeSeconds,
    now: () => clock.now,
  })
  const resultOf = (verdict: Verdict<Caller>) => (verdict.ok ? verdict.value : verdict.error.reason)
  const check = (token: string) => {
    const verdict = cache.check(token)
    return verdict instanceof Promise ? verdict.then(resultOf) : resultOf(verdict)
  }
  /** Checks a token that the verifier accepts. */
  const accept = async (token: string, caller = good()) => {
    const pending = check(token)
    asked.at(-1)?.accept(caller)
    return pending
  }
  return { clock, asked, revokedIds, cache, check, accept }
}

const good = (accountId = 'acme', validUntilMs = START + 3_600_000, tokenId = 'j'): VerifiedToken =>
  makeVerifiedToken({ accountId, tokenId }, validUntilMs)
const isValue = (checked: unknown) => !(checked instanceof Promise)

t.test('a token is verified once; later lookups return the same value without a promise', async (t) => {
  const { asked, cache, check, accept } = setUp()
  const first = await accept('AA.AA.AA')
  t.match(first, { identity: { accountId: 'acme' } })
  for (let again = 0; again < 3; again++) {
    t.equal(check('AA.AA.AA'), first)
  }
  t.equal(asked.length, 1)
  t.match(cache.counts, { hits: 3, misses: 1, evictions: 0, size: 1 })
})

t.test('revoked tokens leave alone', async (t) => {
  const { cache, check, accept, revokedIds } = setUp({ maxTokens: 1000 })
  const identified = (tokenId: string) => good('acme', undefined, tokenId)
  for (let at = 0; at < 100; at++) {
    await accept(`AA.AA.${at}`, identified(`j${at % 50}`))
  }
  for (const tokenId of ['j7', 'j0', 'j49', 'none']) {
    revokedIds.add(tokenId)
  }
  t.equal(cache.counts.size, 100, 'entries are not searched')
  for (let at = 0; at < 100; at++) {
    t.equal(isValue(check(`AA.AA.${at}`)), ![7, 0, 49].includes(at % 50), `${at}`)
  }
  t.match(cache.counts, { size: 94, evictions: 0 })
})

t.test('links leave with the token that made them', async (t) => {
  const { check, accept, revokedIds } = setUp()
  const parent = { parentId: 'j', parentIssuedAtSeconds: 0, parentIssuer: 'us' }
  const link = { method: 'GET', target: '/', host: undefined, ...parent }
  await accept('AA.AA.AA', { ...good('acme', undefined, 'link'), link })
  t.ok(isValue(check('AA.AA.AA')))
  revokedIds.add('j')
  t.notOk(isValue(check('AA.AA.AA')))
})

t.test('a refused token is not cached, and not verified again after a change', async (t) => {
  const { asked, cache, check } = setUp()
  for (const at of [0, 1]) {
    const pending = check('AA.AA.AA')
    cache.clear()
    asked[at]?.refuse('signature')
    t.same(await pending, 'signature')
  }
  t.match(cache.counts, { hits: 0, misses: 2, size: 0 })
})

t.test('a cached token is valid until the millisecond before its end', async (t) => {
  const { clock, asked, cache, check, accept } = setUp({ maxAgeSeconds: 86_400 })
  const end = START + 1000
  await accept('AA.AA.AA', good('acme', end))
  clock.now = end - 1
  t.ok(isValue(check('AA.AA.AA')))
  clock.now = end
  const second = check('AA.AA.AA')
  t.notOk(isValue(second))
  t.equal(cache.counts.size, 0)
  asked[1]?.refuse('expired')
  t.equal(await second, 'expired')
})

t.test('an entry is used for at most maxAgeSeconds after verification', async (t) => {
  const { clock, asked, check, accept } = setUp({ maxAgeSeconds: 300 })
  const first = check('AA.AA.AA')
  clock.now += 500
  asked[0]?.accept(good())
  await first
  for (const age of [0, 150_000, 299_999]) {
    clock.now = START + 500 + age
    t.ok(isValue(check('AA.AA.AA')), String(age))
  }
  clock.now = START + 500 + 300_000
  t.notOk(isValue(check('AA.AA.AA')))
  await accept('AA.AA.AQ')
  clock.now -= 1 // the clock is set back
  t.notOk(isValue(check('AA.AA.AQ')))
})

t.test('concurrent first uses of one token share one verification', async (t) => {
  const { asked, cache, check } = setUp()
  const pending = [check('AA.AA.AA'), check('AA.AA.AA'), check('AA.AA.AQ')]
  t.equal(asked.length, 2)
  for (const { accept } of asked) {
    accept(good())
  }
  t.match(await Promise.all(pending), [{ issuer: 'us' }, { issuer: 'us' }, { issuer: 'us' }])
  t.match(cache.counts, { misses: 3, size: 2 })
})

t.test('an exception rejects all waiting checks, and the next check verifies again', async (t) => {
  const { asked, check, accept } = setUp()
  const pending = [check('AA.AA.AA'), check('AA.AA.AA')]
  const fault = new Error('no')
  asked[0]?.fail(fault)
  for (const each of pending) {
    await t.rejects(Promise.resolve(each), fault)
  }
  t.match(await accept('AA.AA.AA'), { issuer: 'us' })
})

t.test('a verification that began before a change, or a revocation, is repeated', async (t) => {
  for (const isRevocation of [false, true]) {
    const { asked, cache, check, revokedIds } = setUp()
    const before = check('AA.AA.AA')
    if (isRevocation) {
      revokedIds.add('j')
    } else {
      cache.clear()
    }
    const after = check('AA.AA.AA')
    asked[0]?.accept(good('as it was'))
    await new Promise(setImmediate)
    t.equal(cache.counts.size, 0)
    t.equal(asked.length, 2, 'one repetition is for the checks before and after the change')
    asked[1]?.refuse('revoked')
    t.same(await Promise.all([before, after]), ['revoked', 'revoked'])
    t.equal(cache.counts.size, 0)
  }
})

/** The least of several collections: the first ones leave what ends in the background. */
async function settledHeap(): Promise<number> {
  let least = Number.POSITIVE_INFINITY
  for (let collection = 0; collection < 4; collection++) {
    least = Math.min(least, usedHeap())
    await new Promise(setImmediate)
  }
  return least
}

/** Bytes of a cache of 10,000 tokens that are cut from the heads of requests. */
async function keptBytes(t: Test): Promise<number> {
  const { check, asked } = setUp({ maxTokens: 10_000 })
  const padding = 'A'.repeat(350)
  const before = await settledHeap()
  for (let n = 0; n < 10_000; n++) {
    const head = Buffer.from(`Bearer AA.${padding}.${n + 10_000}${' '.repeat(14_000)}`).toString('latin1')
    const pending = check(head.slice(7, 366))
    asked.pop()?.accept(good(`account ${n}`))
    await pending
  }
  const kept = (await settledHeap()) - before
  t.ok(isValue(check(`AA.${padding}.10000`)))
  return kept
}

t.test('10,000 cached tokens use at most 10 MB and do not retain their headers', async (t) => {
  // The first one also counts code that the process compiles, and what tap keeps.
  const kept = Math.min(await keptBytes(t), await keptBytes(t))
  t.ok(kept < 10_000_000, `${kept} bytes`)
})
