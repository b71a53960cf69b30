import t from 'tap'
import { createBackOff } from '../../src/workers/back-off.ts'

t.test('each death soon after a start makes the next wait twice as long, up to a bound', async (t) => {
  const delayAfter = createBackOff()
  t.same(
    Array.from({ length: 9 }, () => delayAfter(9_999)),
    [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000],
  )
})

t.test('one that lived long is replaced at once, and what was before it is forgotten', async (t) => {
  const delayAfter = createBackOff()
  t.same([0, 0, 10_000, 10_000, 0].map(delayAfter), [100, 200, 0, 0, 100])
})
