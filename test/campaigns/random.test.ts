import t from 'tap'
import { createRandom } from './random.ts'

t.test('the same numbers make the same choices, others make others', async (t) => {
  const choices = (seed: number, stream: number) => {
    const random = createRandom(seed, stream)
    return [random.text(20), random.int(0, 1e9), random.chance(0.5), random.pick([1, 2, 3])]
  }
  t.same(choices(7, 3), choices(7, 3))
  t.notSame(choices(7, 3), choices(7, 4))
  t.notSame(choices(7, 3), choices(8, 3))
  t.notSame(choices(2 ** 33, 1), choices(2 ** 34, 1))
})

t.test('choices are within their bounds and as likely as they should be', async (t) => {
  const random = createRandom(1, 1)
  const seen = new Map<number, number>()
  for (let round = 0; round < 6000; round++) {
    const number = random.int(3, 5)
    seen.set(number, (seen.get(number) ?? 0) + 1)
  }
  t.same([...seen.keys()].sort(), [3, 4, 5])
  for (const count of seen.values()) t.ok(count > 1800 && count < 2200, `${count} of 6000`)
  let heavy = 0
  for (let round = 0; round < 4000; round++)
    if (
      random.weighted([
        [3, true],
        [1, false],
      ])
    )
      heavy++
  t.ok(heavy > 2850 && heavy < 3150, `${heavy} of 4000`)
})
