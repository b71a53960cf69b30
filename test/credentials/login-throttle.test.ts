import t from 'tap'
import { createLoginThrottle } from '../../src/credentials/login-throttle.ts'
import type { LoginVerdict } from '../../src/credentials/store.ts'

/** A throttle of three failures a minute, whose clock the test sets. */
function throttled() {
  const clock = { now: 1_800_000_000_000 }
  const throttle = createLoginThrottle({ count: 3, windowSeconds: 60, now: () => clock.now })
  /** Tries to log in, and returns the seconds to wait where that is refused. */
  const login = (verdict: LoginVerdict, account = 'acme', address = '192.0.2.1'): number | undefined => {
    const permission = throttle.check(account, address)
    if (!permission.ok) return permission.retryAfterSeconds
    permission.settle(verdict)
    return undefined
  }
  const fail = (count: number) => Array.from({ length: count }, () => login('rejected'))
  return { clock, throttle, login, fail }
}

t.test('after the allowed failures a pair is refused until the window has passed', async (t) => {
  const { clock, login, fail } = throttled()
  t.same(fail(3), [undefined, undefined, undefined])
  t.equal(login('accepted'), 60, 'the right secret too')
  clock.now += 59_999
  t.equal(login('accepted'), 1)
  clock.now += 1
  t.same(fail(4), [undefined, undefined, undefined, 60])
})

t.test('a change of the system clock does not change the wait', async (t) => {
  const throttle = createLoginThrottle({ count: 1, windowSeconds: 60 })
  const first = throttle.check('acme', '192.0.2.1')
  if (first.ok) first.settle('rejected')
  t.intercept(Date, 'now', { value: () => 0 })
  t.match(throttle.check('acme', '192.0.2.1'), { ok: false, retryAfterSeconds: 60 })
})

t.test('other accounts and other addresses are not affected', async (t) => {
  const { login, fail } = throttled()
  fail(3)
  t.equal(login('accepted', 'other'), undefined)
  t.equal(login('accepted', 'acme', '192.0.2.2'), undefined)
  t.equal(login('accepted', 'acme', '::ffff:192.0.2.1'), 60, 'a mapped address is the same client')
})

t.test('all addresses of one IPv6 /64 are one client', async (t) => {
  const { login } = throttled()
  for (const last of ['1', '2', '3']) login('rejected', 'acme', `2001:db8::${last}`)
  t.equal(login('accepted', 'acme', '2001:db8::4'), 60)
  t.equal(login('accepted', 'acme', '2001:db8:0:1::4'), undefined)
})

t.test('clients behind NAT64 are distinguished by their IPv4 address', async (t) => {
  const { login } = throttled()
  for (let times = 0; times < 3; times++) login('rejected', 'acme', '64:ff9b::c000:201')
  t.equal(login('accepted', 'acme', '64:ff9b::c000:201'), 60)
  t.equal(login('accepted', 'acme', '64:ff9b::c000:202'), undefined)
})

t.test('an unchecked login is not a failure', async (t) => {
  const { login } = throttled()
  for (const verdict of ['busy', 'unavailable'] as const) {
    for (let times = 0; times < 10; times++) t.equal(login(verdict), undefined)
  }
})

t.test('200 concurrent attempts get no more than the allowed failures', async (t) => {
  const { throttle, login } = throttled()
  const permissions = Array.from({ length: 200 }, () => throttle.check('acme', '192.0.2.1'))
  const allowed = permissions.filter((permission) => permission.ok)
  t.equal(allowed.length, 3)
  t.same(permissions.at(-1), { ok: false, retryAfterSeconds: 1 }, 'those in flight may still succeed')
  for (const permission of allowed) permission.settle('rejected')
  t.equal(login('accepted'), 60)
})

t.test('successful attempts free their slots at once', async (t) => {
  const { throttle, login } = throttled()
  const permissions = Array.from({ length: 3 }, () => throttle.check('acme', '192.0.2.1'))
  for (const permission of permissions) if (permission.ok) permission.settle('accepted')
  t.equal(login('accepted'), undefined)
})

t.test('the table is bounded: beyond 50,000 pairs the least recently used is dropped', async (t) => {
  const { login, fail } = throttled()
  fail(3)
  for (let at = 0; at < 50_000; at++) {
    login('rejected', `account ${at}`, '198.51.100.1')
    if (at === 25_000) t.equal(login('accepted'), 60, 'a pair that is still used stays')
  }
  t.equal(login('accepted'), 60)
  for (let at = 0; at < 50_000; at++) login('rejected', `another ${at}`, '198.51.100.1')
  t.equal(login('rejected'), undefined)
})

t.test('an accepted login clears the failures of its pair', async (t) => {
  const { login, fail } = throttled()
  fail(2)
  t.equal(login('accepted'), undefined)
  t.same(fail(4), [undefined, undefined, undefined, 60])
})
