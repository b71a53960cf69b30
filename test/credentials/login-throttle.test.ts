import t from 'tap'
import {
  type Attempt,
  createLoginThrottle,
  type InLine,
  type LoginThrottle,
  type NoAttempt,
  type ThrottleNote,
} from '../../src/credentials/login-throttle.ts'
import type { LoginVerdict } from '../../src/credentials/store.ts'

const CLIENT = '192.0.2.7'

function makeThrottle({ count = 20, windowSeconds = 60, maxPairs = 1000 } = {}) {
  const clock = { now: 1_800_000_000_000 }
  const throttle = createLoginThrottle({ count, windowSeconds, maxPairs, now: () => clock.now })
  return { throttle, clock }
}

/** One whole attempt; what the throttle said to it: 0 to go on, or the seconds to wait. */
function attempt(throttle: LoginThrottle, outcome: LoginVerdict, account = 'acme', address = CLIENT): number {
  const reservation = throttle.reserve(account, address)
  if (reservation.ok === 'later') throw new Error('it would have to wait')
  if (!reservation.ok) return reservation.retryAfterSeconds
  reservation.settle(outcome)
  return 0
}

function fail(throttle: LoginThrottle, times: number, account?: string, address?: string): number[] {
  return Array.from({ length: times }, () => attempt(throttle, 'rejected', account, address))
}

t.test('after the allowed failures a pair waits until the window has passed', async (t) => {
  const { throttle, clock } = makeThrottle()
  t.same(new Set(fail(throttle, 10)), new Set([0]))
  clock.now += 10_000
  t.same(new Set(fail(throttle, 10)), new Set([0]))
  t.equal(attempt(throttle, 'rejected'), 50, 'the window began with the first failure')
  t.equal(attempt(throttle, 'accepted'), 50, 'the right secret waits, too')
  clock.now += 49_001
  t.equal(attempt(throttle, 'rejected'), 1, 'never less than a second')
  clock.now += 999
  t.same(new Set(fail(throttle, 20)), new Set([0]), 'then all failures are allowed again')
  t.equal(attempt(throttle, 'rejected'), 60)
})

t.test('windows that have passed make room, and their pairs begin anew', async (t) => {
  const { throttle, clock } = makeThrottle({ count: 1 })
  fail(throttle, 1, 'first')
  fail(throttle, 1, 'second')
  clock.now += 60_000
  fail(throttle, 1, 'third')
  t.same(fail(throttle, 2, 'first'), [0, 60])
  t.same(fail(throttle, 2, 'second'), [0, 60])
  t.same(fail(throttle, 1, 'third'), [60])
})

t.test('refused attempts do not prolong the wait', async (t) => {
  const { throttle, clock } = makeThrottle({ count: 1 })
  fail(throttle, 1)
  clock.now += 59_000
  fail(throttle, 100)
  clock.now += 1000
  t.equal(attempt(throttle, 'accepted'), 0)
})

t.test('other clients of the account and other accounts of the client are untouched', async (t) => {
  const { throttle } = makeThrottle()
  fail(throttle, 20)
  t.equal(attempt(throttle, 'accepted', 'acme', '192.0.2.8'), 0)
  t.equal(attempt(throttle, 'accepted', 'other', CLIENT), 0)
  t.equal(
    attempt(throttle, 'accepted', 'acme', `::ffff:${CLIENT}`),
    60,
    'the same client in another spelling',
  )
})

t.test('a success clears the pair', async (t) => {
  const { throttle } = makeThrottle()
  fail(throttle, 19)
  attempt(throttle, 'accepted')
  t.same(new Set(fail(throttle, 20)), new Set([0]))
  t.equal(attempt(throttle, 'accepted'), 60)
})

t.test('a login that was not judged is neither a failure nor a success', async (t) => {
  const { throttle } = makeThrottle()
  fail(throttle, 19)
  for (let times = 0; times < 50; times++) {
    attempt(throttle, 'busy')
    attempt(throttle, 'unavailable')
  }
  t.same(fail(throttle, 2), [0, 60])
})

/** Asks permission, and keeps account of what came of it. */
function asker(throttle: LoginThrottle, account = 'acme', address = CLIENT) {
  const under: Attempt[] = []
  const refused: NoAttempt[] = []
  const places: InLine[] = []
  const take = (outcome: Attempt | NoAttempt | undefined) => {
    if (outcome?.ok === true) under.push(outcome)
    else if (outcome !== undefined) refused.push(outcome)
  }
  const ask = (times = 1) => {
    for (let at = 0; at < times; at++) {
      const reservation = throttle.reserve(account, address)
      if (reservation.ok === 'later') {
        places.push(reservation)
        void reservation.turn.then(take)
      } else take(reservation)
    }
  }
  /** Ends the oldest attempt under way. */
  const end = async (outcome: LoginVerdict) => {
    under.shift()?.settle(outcome)
    await turn()
  }
  return { ask, end, under, refused, places }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

t.test('a thousand guesses at once get no more tries than one by one', async (t) => {
  const { throttle } = makeThrottle()
  fail(throttle, 5)
  const { ask, under, refused, places } = asker(throttle)
  ask(1000)
  t.same([under.length, places.length, refused.length], [15, 100, 885], 'those left, and a bounded line')
  t.same(refused[0], { ok: false, reason: 'busy', retryAfterSeconds: 1 }, 'those under way may yet succeed')
  let tries = 0
  for (; under.length > 0; tries++) {
    const attempt = under.shift()
    attempt?.settle('rejected')
    attempt?.settle('accepted') // a second call does nothing
    await turn()
  }
  t.equal(tries, 15)
  t.same(refused.at(-1), { ok: false, reason: 'throttled', retryAfterSeconds: 60 }, 'those in line, at once')
  t.equal(refused.length, 985)
  t.equal(attempt(throttle, 'rejected'), 60)
})

t.test('right logins at once all go through, however many, in their order', async (t) => {
  const { throttle } = makeThrottle({ count: 3 })
  fail(throttle, 2)
  const { ask, end, under, refused, places } = asker(throttle)
  ask(50)
  t.same([under.length, places.length], [1, 49])
  let done = 0
  for (; under.length > 0; done++) {
    t.ok(under.length <= 3, 'never more under way than failures left')
    await end('accepted')
  }
  t.same([done, refused.length], [50, 0])
  t.same(fail(throttle, 4), [0, 0, 0, 60], 'nothing is left of them')
})

t.test('a login that was not judged lets the next in line go on', async (t) => {
  const { throttle } = makeThrottle({ count: 2 })
  const { ask, end, under, places } = asker(throttle)
  ask(4)
  t.same([under.length, places.length], [2, 2], 'attempts before any failure are bounded, too')
  await end('busy')
  t.equal(under.length, 2)
  await end('unavailable')
  t.equal(under.length, 2)
  await end('accepted')
  await end('accepted')
  t.equal(attempt(throttle, 'busy'), 0, 'nobody is left in line')
})

t.test('nobody overtakes those in line, and who leaves holds up nobody', async (t) => {
  const { throttle } = makeThrottle({ count: 1 })
  const early = asker(throttle)
  const late = asker(throttle)
  early.ask(3)
  late.ask()
  early.places[0]?.giveUp()
  early.places[0]?.giveUp() // a second call does nothing
  await early.end('accepted')
  t.same([early.under.length, late.under.length], [1, 0])
  late.ask()
  await early.end('accepted')
  t.same([late.under.length, late.places.length, early.refused.length], [1, 2, 0])
})

t.test('the wait in line has an end', async (t) => {
  const timers = new Set<{ ms: number; fire: () => void }>()
  const throttle = createLoginThrottle({
    count: 1,
    windowSeconds: 60,
    now: () => 0,
    after: (ms, fire) => {
      const timer = { ms, fire }
      timers.add(timer)
      return () => timers.delete(timer)
    },
  })
  const { ask, end, under, refused } = asker(throttle)
  ask(3)
  t.same(
    [...timers].map(({ ms }) => ms),
    [5000, 5000],
  )
  const [first] = timers
  first?.fire()
  await turn()
  t.same(refused, [{ ok: false, reason: 'busy', retryAfterSeconds: 1 }])
  await end('accepted')
  t.same([under.length, timers.size], [1, 0], 'the other one had its turn, and no timer is left')
})

t.test('all lines together are bounded, too, and places are free again', async (t) => {
  const { throttle } = makeThrottle({ count: 1 })
  const askers = Array.from({ length: 11 }, (_, at) => asker(throttle, `account ${at}`))
  for (const { ask } of askers) ask(101)
  t.same(
    askers.map(({ places }) => places.length),
    [...Array(10).fill(100), 0],
  )
  t.ok(askers.every(({ under }) => under.length === 1))
  await askers[0]?.end('rejected')
  askers[10]?.ask(150)
  t.equal(askers[10]?.places.length, 100)
  for (const { places } of askers) for (const { giveUp } of places) giveUp()
})

t.test('what ends in another process moves the line, too', async (t) => {
  const notes: ThrottleNote[] = []
  const { throttle: here } = makeThrottle({ count: 2 })
  const there = createLoginThrottle({
    count: 2,
    windowSeconds: 60,
    now: () => 0,
    onNote: (note) => notes.push(note),
  })
  const { ask, under, refused } = asker(here)
  fail(here, 1)
  ask(2)
  attempt(there, 'accepted')
  for (const note of notes.splice(0)) here.learn(note)
  await turn()
  t.equal(under.length, 2, 'a success clears the failures')
  ask()
  fail(there, 2)
  for (const note of notes) here.learn(note)
  await turn()
  t.match(refused, [{ reason: 'throttled' }])
})

t.test('a failure that ends after the window opens a new one', async (t) => {
  const { throttle, clock } = makeThrottle({ count: 2 })
  fail(throttle, 1)
  const slow = throttle.reserve('acme', CLIENT)
  clock.now += 61_000
  if (slow.ok === true) slow.settle('rejected')
  t.same(fail(throttle, 2), [0, 60])
})

t.test('a clock set back does not prolong the wait', async (t) => {
  const { throttle, clock } = makeThrottle({ count: 1 })
  fail(throttle, 1)
  clock.now -= 3_600_000
  t.equal(attempt(throttle, 'accepted'), 0)
})

t.test('a full table forgets the window that began first and locks nobody out', async (t) => {
  const { throttle } = makeThrottle({ count: 1, maxPairs: 3 })
  fail(throttle, 1, 'first')
  fail(throttle, 1, 'second')
  fail(throttle, 1, 'third')
  t.equal(attempt(throttle, 'busy', 'first'), 60, 'asking again does not make a window younger')
  fail(throttle, 1, 'fourth')
  t.equal(attempt(throttle, 'busy', 'first'), 0, 'forgotten')
  for (const account of ['second', 'third', 'fourth']) {
    t.equal(attempt(throttle, 'busy', account), 60)
  }
})

t.test('a window that begins anew is the youngest', async (t) => {
  const { throttle, clock } = makeThrottle({ count: 1, maxPairs: 2 })
  fail(throttle, 1, 'first')
  clock.now += 30_000
  fail(throttle, 1, 'second')
  clock.now += 30_000
  fail(throttle, 1, 'first')
  fail(throttle, 1, 'third')
  t.equal(attempt(throttle, 'busy', 'first'), 60)
  t.equal(attempt(throttle, 'busy', 'second'), 0)
})

t.test('windows that are over make room before one that is not', async (t) => {
  const { throttle, clock } = makeThrottle({ count: 1, maxPairs: 4 })
  for (const account of ['a', 'b', 'c']) fail(throttle, 1, account)
  clock.now += 60_000
  for (const account of ['d', 'e', 'f', 'g']) fail(throttle, 1, account)
  for (const account of ['d', 'e', 'f', 'g']) t.equal(attempt(throttle, 'busy', account), 60)
})

t.test('the usual table holds many pairs', async (t) => {
  const throttle = createLoginThrottle({ count: 1, windowSeconds: 60, now: () => 0 })
  for (let account = 0; account < 2000; account++) fail(throttle, 1, `account ${account}`)
  t.equal(attempt(throttle, 'busy', 'account 0'), 60)
})

t.test('what ended in another process counts like what ended here', async (t) => {
  const notes: ThrottleNote[] = []
  const clock = { now: 1_800_000_000_000 }
  const options = { count: 2, windowSeconds: 60, now: () => clock.now }
  const here = createLoginThrottle(options)
  const there = createLoginThrottle({ ...options, onNote: (note) => notes.push(note) })
  t.same(fail(there, 2), [0, 0])
  for (const note of notes.splice(0)) here.learn(note)
  t.equal(attempt(here, 'accepted'), 60)
  clock.now += 60_000
  attempt(there, 'busy')
  attempt(there, 'unavailable')
  t.same(notes, [], 'what is no failure is told to nobody')
  t.same(fail(here, 1), [0])
  attempt(there, 'accepted')
  for (const note of notes) here.learn(note)
  t.same(fail(here, 2), [0, 0], 'a success elsewhere clears the pair')
  t.notMatch(JSON.stringify(notes), /acme/, 'names travel as digests')
})
