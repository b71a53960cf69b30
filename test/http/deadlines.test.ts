import t, { type Test } from 'tap'
import { createDeadlines, type DeadlinesOptions, type Waiting } from '../../src/http/deadlines.ts'

/** Deadlines on a clock that stands still until it is set, and what expired on it. */
function clocked(t: Test, options: DeadlinesOptions = {}) {
  const clock = { ms: 0 }
  const expired: string[] = []
  const deadlines = createDeadlines({ monotonicNow: () => clock.ms, periodMs: 3_600_000, ...options })
  t.teardown(deadlines.stop)
  const wait = (name: string, deadline: number, expire?: (waiting: Waiting) => void): Waiting => {
    const waiting: Waiting = {
      deadline,
      expire: () => {
        expired.push(name)
        expire?.(waiting)
      },
    }
    deadlines.add(waiting)
    return waiting
  }
  const at = (ms: number) => {
    clock.ms = ms
    expired.length = 0
    deadlines.sweep()
    return [...expired].sort() // in no order that anybody may rely on
  }
  return { deadlines, wait, at }
}

t.test('a deadline is met when it has come, never early', async (t) => {
  const { wait, at } = clocked(t)
  wait('a', 100)
  wait('b', 100.5)
  t.same(at(0), [])
  t.same(at(99.9), [])
  t.same(at(100), ['a'])
  t.same(at(101), ['a', 'b'], 'again and again, until somebody does something about it')
})

t.test('progress moves a deadline on', async (t) => {
  const { wait, at } = clocked(t)
  const waiting = wait('a', 100)
  waiting.deadline = 200
  t.same(at(150), [])
  waiting.deadline = Number.POSITIVE_INFINITY
  t.same(at(1e12), [])
  waiting.deadline = 300
  t.same(at(1e12), ['a'])
})

t.test('what has been removed does not expire', async (t) => {
  const { deadlines, wait, at } = clocked(t)
  const waiting = wait('a', 100)
  wait('b', 100)
  deadlines.delete(waiting)
  deadlines.delete(waiting)
  t.same(at(100), ['b'])
})

t.test('adding a thing twice does not make it expire twice', async (t) => {
  const { deadlines, wait, at } = clocked(t)
  deadlines.add(wait('a', 100))
  t.same(at(100), ['a'])
})

t.test('what expires may remove itself and others, and add new ones', async (t) => {
  for (const which of ['oldest', 'newest']) {
    const { deadlines, wait, at } = clocked(t)
    const others = which === 'oldest' ? [] : [wait('first', 100), wait('second', 100)]
    const removing = wait('removing', 100, () => {
      deadlines.delete(removing)
      for (const other of others) deadlines.delete(other)
      wait('later', 500)
    })
    if (which === 'oldest') others.push(wait('third', 100), wait('fourth', 100))
    const expired = at(100)
    t.ok(expired.includes('removing') && !expired.includes('later'))
    t.same(at(100), [], 'all of them are gone')
    t.same(at(500), ['later'])
    for (const waiting of others) t.equal(waiting.place, -1)
  }
})

t.test('an interval looks by itself, on a clock that only goes forward', async (t) => {
  const deadlines = createDeadlines({ periodMs: 5 })
  t.teardown(deadlines.stop)
  const start = deadlines.monotonicNow()
  const met = await new Promise<number>((resolve) => {
    const expire = () => resolve(deadlines.monotonicNow())
    deadlines.add({ deadline: start + 20, expire })
    const alive = setInterval(() => {}, 1000)
    t.teardown(() => clearInterval(alive))
  })
  t.ok(met >= start + 20)
})

t.test('the interval ends when it is stopped', async (t) => {
  let looks = 0
  const monotonicNow = () => {
    looks++
    return 0
  }
  const stopped = createDeadlines({ monotonicNow, periodMs: 1 })
  stopped.stop()
  const other = createDeadlines({ periodMs: 1 })
  t.teardown(other.stop)
  await new Promise<void>((resolve) => {
    const alive = setInterval(() => {}, 1000)
    t.teardown(() => clearInterval(alive))
    other.add({ deadline: other.monotonicNow() + 20, expire: resolve })
  })
  t.equal(looks, 0, 'while another looked for 20 ms')
})

t.test('the clock is that of the process unless told otherwise', async (t) => {
  const deadlines = createDeadlines()
  t.teardown(deadlines.stop)
  const before = performance.now()
  const told = deadlines.monotonicNow()
  t.ok(before <= told && told <= performance.now())
})
