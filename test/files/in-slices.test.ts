import t from 'tap'
import { atOnce, inSlices } from '../../src/files/in-slices.ts'

function* steps(count: number) {
  for (let done = 0; done < count; done++) {
    const end = performance.now() + 1
    while (performance.now() < end);
    yield
  }
  return count
}

t.test('others get their turn while long work is done', async (t) => {
  let turns = 0
  const turn = setInterval(() => turns++, 1)
  t.equal(await inSlices(steps(50)), 50)
  clearInterval(turn)
  t.ok(turns >= 3, `${turns} turns`)
})

t.test('work may be done at once, and a fault of it is told', async (t) => {
  t.equal(atOnce(steps(3)), 3)
  // biome-ignore lint/correctness/useYield: it fails before it has begun
  const faulty = function* (): Generator<undefined, never> {
    throw new Error('a fault')
  }
  await t.rejects(inSlices(faulty()), { message: 'a fault' })
})
