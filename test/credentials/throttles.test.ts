import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import type { LoginVerdict } from '../../src/credentials/store.ts'
import { createLoginThrottle } from '../../src/credentials/throttles.ts'

const NAME = { accountId: 'acme', accessKey: 'AK' }

/** A throttle of three failures a minute, whose clock the test sets. */
function throttled() {
  const clock = { now: 1_800_000_000_000 }
  const throttle = createLoginThrottle({ count: 3, windowSeconds: 60 }, () => clock.now)
  /** Tries to log in, and returns the seconds to wait where that is refused. */
  const login = async (verdict: LoginVerdict, accountId = 'acme', address = '192.0.2.1', accessKey = 'AK') =>
    (await throttle({ accountId, accessKey }, address, async () => verdict)).retryAfterSeconds
  const fail = (count: number) => Promise.all(Array.from({ length: count }, () => login('rejected')))
  return { clock, throttle, login, fail }
}

/** Concurrent logins of one pair, whose checks the test ends in order of their start. */
async function concurrent({ throttle }: ReturnType<typeof throttled>, count: number) {
  const checks: ((verdict: LoginVerdict) => void)[] = []
  const check = () => new Promise<LoginVerdict>((resolve) => checks.push(resolve))
  const attempts = Array.from({ length: count }, () => throttle(NAME, '192.0.2.1', check))
  await setImmediate()
  const end = async (at: number, verdict: LoginVerdict) => {
    checks[at]?.(verdict)
    await setImmediate()
  }
  return { attempts, started: () => checks.length, end }
}

t.test('after the allowed failures a pair is refused until the window has passed', async (t) => {
  const { clock, login, fail } = throttled()
  t.same(await fail(3), [undefined, undefined, undefined])
  t.equal(await login('accepted'), 60, 'the right secret too')
  clock.now += 59_999
  t.equal(await login('accepted'), 1)
  clock.now += 1
  t.same(await fail(4), [undefined, undefined, undefined, 60])
})

t.test('other accounts and other clients are not affected', async (t) => {
  const { login, fail } = throttled()
  await fail(3)
  t.equal(await login('accepted', 'other'), undefined)
  t.equal(await login('accepted', 'acme', '192.0.2.2'), undefined)
  t.equal(await login('accepted'), 60)
})

t.test('an unchecked login is not a failure', async (t) => {
  const { login } = throttled()
  for (const verdict of ['busy', 'unavailable'] as const) {
    for (let times = 0; times < 10; times++) t.equal(await login(verdict), undefined)
  }
})

t.test('200 concurrent guesses get no more checks than the allowed failures', async (t) => {
  const { attempts, started, end } = await concurrent(throttled(), 200)
  for (const at of [1, 0, 2]) {
    t.equal(started(), 3, 'those in flight may fail')
    await end(at, 'rejected')
  }
  const outcomes = await Promise.all(attempts)
  t.equal(outcomes.filter(({ verdict }) => verdict === 'rejected').length, 3)
  for (const outcome of outcomes.slice(3)) t.same(outcome, { verdict: 'throttled', retryAfterSeconds: 60 })
  t.equal(started(), 3)
})

t.test('logins beyond the count wait, and none is refused before a failure', async (t) => {
  const { attempts, started, end } = await concurrent(throttled(), 8)
  await end(0, 'accepted')
  t.equal(started(), 4)
  await end(1, 'rejected')
  t.equal(started(), 4, 'one failure leaves two attempts at a time')
  await end(2, 'busy')
  t.equal(started(), 5)
  await end(3, 'accepted')
  t.equal(started(), 7, 'a success clears the failure')
  for (const at of [4, 5, 6, 7]) await end(at, 'accepted')
  const verdicts = (await Promise.all(attempts)).map(({ verdict }) => verdict)
  const accepted = 'accepted'
  t.same(verdicts, [accepted, 'rejected', 'busy', accepted, accepted, accepted, accepted, accepted])
})

t.test('at most 1,000 logins wait, and other pairs are not affected', async (t) => {
  const setup = throttled()
  const { attempts, started, end } = await concurrent(setup, 1004)
  t.same(await attempts[1003], { verdict: 'busy' })
  t.equal(
    (await setup.throttle({ ...NAME, accountId: 'other' }, '192.0.2.1', async () => 'accepted')).verdict,
    'accepted',
  )
  for (let at = 0; at < 1003; at++) await end(at, 'accepted')
  t.equal(started(), 1003)
})

t.test('the table is bounded: beyond 50,000 pairs the least recently used is dropped', async (t) => {
  const { login, fail } = throttled()
  await fail(3)
  for (let times = 0; times < 3; times++) await login('rejected', 'unused')
  for (let at = 0; at < 50_000; at++) {
    await login('rejected', `account ${at}`, '198.51.100.1')
    if (at === 25_000) t.equal(await login('accepted'), 60)
  }
  t.equal(await login('accepted'), 60, 'a pair that is still used stays')
  t.equal(await login('rejected', 'unused'), undefined)
})

t.test('an accepted login removes the failures of its own access key only', async (t) => {
  const { clock, login } = throttled()
  const guess = (verdict: LoginVerdict, accessKey: string) => login(verdict, 'acme', '192.0.2.1', accessKey)
  for (let times = 0; times < 2; times++) {
    await guess('rejected', 'victim')
    clock.now += 1000
    t.equal(await guess('accepted', 'own'), undefined)
  }
  await guess('rejected', 'own')
  t.equal(await guess('accepted', 'own'), 58, 'refused, like any login of the pair')
  clock.now += 58_000
  t.equal(await guess('accepted', 'own'), undefined)
})
