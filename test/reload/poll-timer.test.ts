import t, { type Test } from 'tap'
import { PollTimer } from '../../src/reload/poll-timer.ts'

/** A timer, the delays that it has set, and how often it has polled without waiting. */
function setup(t: Test, monotonicMs = 0) {
  const polls = { count: 0 }
  const delays: unknown[] = []
  const unreferenced: unknown[] = []
  const setTimeout = (_poll: unknown, delayMs: unknown) => {
    delays.push(delayMs)
    return { unref: () => unreferenced.push(delayMs) }
  }
  t.intercept(globalThis, 'setTimeout', { value: setTimeout })
  t.capture(performance, 'now', () => monotonicMs)
  const pauses = { pollMs: 500, watchedMs: 10_000, settlingMs: 200, failingMs: 5000 }
  const timer = new PollTimer(pauses, () => polls.count++)
  return { timer, polls, delays, unreferenced }
}

t.test('the pause depends on what the last poll found', async (t) => {
  const { timer, delays, unreferenced } = setup(t)
  timer.start()
  timer.set('current', false)
  timer.set('watched', false)
  timer.set('settling', false)
  timer.set('failing', true)
  t.same(delays, [500, 10_000, 200, 5000])
  t.same(unreferenced, [500, 10_000, 200])
})

t.test('sources with the same pause are polled at the same moments', async (t) => {
  const { timer, delays } = setup(t, 2020)
  timer.start()
  timer.set('current', false)
  timer.set('settling', false)
  t.same(delays, [480, 200])
})

t.test('a timer that fires a moment early makes no second poll', async (t) => {
  const { timer, delays } = setup(t, 1999.5)
  timer.start()
  timer.set('current', false)
  t.same(delays, [501])
})

t.test('nothing is polled before the start, or after the stop', async (t) => {
  const { timer, delays } = setup(t)
  timer.set('current', false)
  timer.start()
  timer.stop()
  timer.set('current', false)
  t.same(delays, [])
})

t.test('a change of a watched source is polled at once', async (t) => {
  const { timer, polls } = setup(t)
  timer.start()
  timer.set('watched', false)
  timer.wake()
  t.equal(polls.count, 1)
})

t.test('but only once, and not between the polls of a source that settles', async (t) => {
  const { timer, polls } = setup(t)
  timer.start()
  timer.set('watched', false)
  timer.wake()
  timer.wake()
  timer.set('settling', false)
  timer.wake()
  t.equal(polls.count, 1)
})

t.test('after a change during a poll, the next one comes soon', async (t) => {
  const { timer, delays } = setup(t)
  timer.start()
  timer.set('watched', false)
  timer.cancel() // the poll begins
  timer.wake()
  timer.set('watched', false)
  timer.cancel()
  timer.set('watched', false)
  t.same(delays, [10_000, 500, 10_000])
})

t.test('a change wakes up nothing after the stop', async (t) => {
  const { timer, polls } = setup(t)
  timer.start()
  timer.set('watched', false)
  timer.stop()
  timer.wake()
  t.equal(polls.count, 0)
})
