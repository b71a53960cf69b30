import t, { type Test } from 'tap'
import { supervising } from './supervising.ts'

/** Looks when the test says so. */
function looking(t: Test): () => Promise<void> {
  let look = () => {}
  t.intercept(globalThis, 'setInterval', {
    value: (act: () => void, ms: number) => {
      t.equal(ms, 1000)
      look = act
      return { unref: () => undefined }
    },
  })
  return async () => {
    look()
    await new Promise(setImmediate)
  }
}

t.test('what workers have counted is fetched for when they die', async (t) => {
  const look = looking(t)
  const { create, forks } = supervising()
  await (await create()).start()
  await look()
  for (const { said } of forks) t.same(said.at(-1), { do: 'tell', question: 1, extent: 'counts' })
})

t.test('a worker that hangs is ended, once, whatever the clock says', async (t) => {
  const look = looking(t)
  const { create, forks, clock, lines } = supervising()
  await (await create()).start()
  const [hung, busy] = forks
  for (const fork of forks) fork.instead.tell = 'nothing'
  clock.now += 3_600_000 // the container was paused
  for (let second = 0; second < 20; second++) {
    await look()
    busy?.says({ did: 'learn', note: { pair: 'a b', failed: true } })
  }
  t.same([hung?.killed, busy?.killed], [undefined, undefined])
  await look()
  t.same([hung?.killed, busy?.killed], ['SIGKILL', undefined])
  await look()
  t.equal(lines().filter((line) => line === 'worker hangs').length, 1)
})

t.test('a replacement that never has its keys is ended, though later', async (t) => {
  const look = looking(t)
  const { create, forks, said } = supervising((fork, at) => {
    if (at === 2) fork.instead.make = 'nothing'
  })
  await (await create()).start()
  forks[0]?.ends(1, null)
  while (said(2)?.length !== 1) await new Promise(setImmediate)
  for (let second = 0; second < 60; second++) await look()
  t.equal(forks[2]?.killed, undefined)
  await look()
  t.equal(forks[2]?.killed, 'SIGKILL')
  t.equal(forks[1]?.killed, undefined)
})
