import t, { type Test } from 'tap'
import { PollTimer } from '../../src/reload/poll-timer.ts'

/** A timer and the delays that it has set. */
function setup(t: Test, monotonicMs = 0) {
  const delays: unknown[] = []
  const unreferenced: unknown[] = []
  const setTimeout = (_poll: unknown, delayMs: unknown) => {
    delays.push(delayMs)
    return { unref: () => unreferenced.push(delayMs) }
  }
  t.intercept(globalThis, 'setTimeout', { value: setTimeout })
  t.capture(performance, 'now', () => monotonicMs)
  const timer = new PollTimer({ pollMs: 500, settlingMs: 200, failingMs: 5000 }, () => {})
  return { timer, delays, unreferenced }
}

t.test('the pause depends on what the last poll found', async (t) => {
  const { timer, delays, unreferenced } = setup(t)
  timer.start()
  timer.set('current', false)
  timer.set('settling', false)
  timer.set('failing', true)
  t.same(delays, [500, 200, 5000])
  t.same(unreferenced, [500, 200])
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
