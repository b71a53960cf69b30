import t from 'tap'
import {
  createFollower,
  type FollowerOptions,
  pauseAfter,
} from '../../../src/credentials/postgres/follower.ts'

const HOUR = 3_600_000

/** A follower whose updates a test ends one by one. */
function followed(t: { teardown(stop: () => unknown): void }, more: Partial<FollowerOptions> = {}) {
  const pending: { resolve: () => void; reject: (cause: Error) => void }[] = []
  const told: string[] = []
  const state = { calls: 0 }
  const whenCalled: (() => void)[] = []
  const follower = createFollower({
    update: () => {
      state.calls++
      for (const call of whenCalled.splice(0)) call()
      return new Promise((resolve, reject) => pending.push({ resolve, reject }))
    },
    pollMs: HOUR,
    longestPauseMs: HOUR,
    patienceMs: HOUR,
    onAway: (cause) => told.push(`away: ${cause}`),
    onBack: () => told.push('back'),
    ...more,
  })
  t.teardown(follower.stop)
  const settle = async (how: 'resolve' | 'reject') => {
    pending.shift()?.[how](new Error('x'))
    await new Promise((resolve) => setImmediate(resolve))
  }
  const called = () => new Promise<void>((resolve) => whenCalled.push(resolve))
  return { follower, state, told, settle, called }
}

t.test('whoever asks while an update is under way shares the next one', async (t) => {
  const { follower, state, settle } = followed(t)
  const first = follower.confirm()
  const others = [follower.confirm(), follower.confirm(), follower.wake()]
  t.equal(state.calls, 1, 'the first may rest on older data than they need')
  await settle('resolve')
  t.equal(await first, true)
  t.equal(state.calls, 2)
  const late = follower.confirm()
  await settle('resolve')
  t.same(await Promise.all(others), [true, true, undefined])
  t.equal(state.calls, 3)
  await settle('resolve')
  t.equal(await late, true)
})

t.test('who asks between two updates does not make a third', async (t) => {
  const { follower, state, settle } = followed(t)
  const first = follower.confirm()
  const second = follower.confirm()
  const between = first.then(() => follower.confirm())
  await settle('resolve')
  t.equal(state.calls, 2)
  await settle('resolve')
  await settle('resolve')
  t.same(await Promise.all([first, second, between]), [true, true, true])
})

t.test('a failure ends every wait, and until it is over nobody waits', async (t) => {
  const { follower, state, told, settle } = followed(t)
  const waiting = [follower.confirm(), follower.confirm()]
  await settle('reject')
  t.same(await Promise.all(waiting), [false, false])
  t.equal(follower.away, true)
  t.equal(await follower.confirm(), false)
  t.equal(state.calls, 1, 'nor is the database asked for a login')
  t.same(told, ['away: Error: x'])
})

t.test('a database that is away is tried again, told of once, and back at the first success', async (t) => {
  const { follower, told, settle, called } = followed(t, { longestPauseMs: 1 })
  const first = follower.confirm()
  let again = called()
  await settle('reject')
  await first
  await again
  again = called()
  await settle('reject')
  await again
  await settle('resolve')
  t.equal(follower.away, false)
  t.same(told, ['away: Error: x', 'back'])
  const confirmed = follower.confirm()
  await settle('resolve')
  t.equal(await confirmed, true)
})

t.test('without being asked it asks at regular times', async (t) => {
  const { settle, called } = followed(t, { pollMs: 1 })
  for (let round = 0; round < 3; round++) {
    await called()
    await settle('resolve')
  }
})

t.test('a login waits only so long', async (t) => {
  const { follower, settle } = followed(t, { patienceMs: 1 })
  t.equal(await follower.confirm(), false)
  t.equal(follower.away, false, 'the update itself may still end well')
  await settle('resolve')
})

t.test('a stopped follower asks nothing more and tells nothing', async (t) => {
  const { follower, state, told, settle } = followed(t, { pollMs: 1, longestPauseMs: 1 })
  const waiting = [follower.confirm(), follower.confirm()]
  follower.stop()
  await settle('reject')
  t.same(await Promise.all(waiting), [false, false])
  await follower.wake()
  t.equal(await follower.confirm(), false)
  t.equal(state.calls, 1)
  t.same(told, [])
})

t.test('a stop while an update succeeds starts no other', async (t) => {
  const { follower, state, settle } = followed(t)
  const waiting = [follower.confirm(), follower.confirm()]
  follower.stop()
  await settle('resolve')
  t.same(await Promise.all(waiting), [true, false])
  t.equal(state.calls, 1)
})

t.test('pauses grow to a bound, and differ', async (t) => {
  const within = (ms: number, low: number, high: number) => t.ok(ms >= low && ms <= high, `${ms}`)
  within(pauseAfter(1, 1000), 80, 100)
  within(pauseAfter(2, 1000), 160, 200)
  within(pauseAfter(3, 1000), 320, 400)
  within(pauseAfter(5000, 1000), 800, 1000)
})
