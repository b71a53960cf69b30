import type { Socket } from 'node:net'
import t from 'tap'
import { LOOKS, StallWatch } from '../../src/forward/stall-watch.ts'

const socket = {} as Socket

for (const [what, queue] of [
  ['whose queue keeps its length', 5],
  ['whose queue cannot be known', undefined],
] as const) {
  t.test(`a socket ${what} has stalled at the last look, not before`, async (t) => {
    const watch = new StallWatch(async () => queue)
    const sights: string[] = []
    for (let look = 0; look < LOOKS; look++) sights.push(await watch.look(socket))
    t.same(sights, ['unsure', 'unsure', 'unsure', 'stalled'])
  })
}

t.test('a queue that changes at each look is somebody reading', async (t) => {
  let queued = 100
  const watch = new StallWatch(async () => queued--)
  for (let look = 0; look < 3 * LOOKS; look++) t.equal(await watch.look(socket), 'unsure')
})

t.test('the looks begin anew when bytes have moved', async (t) => {
  const watch = new StallWatch(async () => 5)
  for (let look = 1; look < LOOKS; look++) await watch.look(socket)
  watch.reset()
  t.equal(await watch.look(socket), 'unsure')
})

t.test('a look during which bytes moved says nothing', async (t) => {
  let tell = (_queued: number) => {}
  const watch = new StallWatch(
    () =>
      new Promise((resolve) => {
        tell = resolve
      }),
  )
  const looking = watch.look(socket)
  watch.reset()
  tell(5)
  t.equal(await looking, 'moved')
})
