import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { supervising } from './supervising.ts'

t.test('a worker that does not stop in its time is ended, and counts as cut', async (t) => {
  const { create, forks } = supervising((fork) => {
    fork.instead.stop = 'nothing'
  })
  const app = await create()
  await app.start()
  t.intercept(globalThis, 'setTimeout', {
    value: Object.assign((act: () => void) => setImmediate(act), { __promisify__: undefined }),
  })
  const stopped = app.stop()
  await eventually(() => forks.every(({ killed }) => killed === 'SIGKILL'), 'their end')
  for (const fork of forks) fork.ends(null, 'SIGKILL')
  t.same(await stopped, { drained: 0, cut: 2 })
})

t.test('a worker that cannot stop is ended at once', async (t) => {
  const { create, forks, lines } = supervising((fork, at) => {
    if (at === 1) fork.instead.stop = { did: 'fail', what: 'stop', error: { name: 'Error', message: 'no' } }
  })
  const app = await create()
  await app.start()
  t.same(await app.stop(), { drained: 1, cut: 1 })
  t.equal(forks[1]?.killed, 'SIGKILL')
  t.ok(lines().includes('worker not stopped'))
})

t.test('a worker that had let nobody in cuts nobody off when it dies', async (t) => {
  const { create, forks } = supervising((fork, at) => {
    if (at === 2) {
      fork.instead.listen = 'nothing'
      fork.instead.stop = 'nothing'
    }
  })
  const app = await create()
  await app.start()
  forks[0]?.ends(1, null)
  await eventually(() => forks[2]?.said.at(-1)?.do === 'listen', 'the replacement')
  const stopped = app.stop()
  forks[2]?.ends(1, null)
  t.same(await stopped, { drained: 1, cut: 0 })
})

t.test('the end of a worker that dies while it drains is told', async (t) => {
  const { create, forks, lines } = supervising((fork, at) => {
    if (at === 1) fork.instead.stop = 'nothing'
  })
  const app = await create()
  await app.start()
  const stopped = app.stop()
  forks[1]?.ends(null, 'SIGSEGV')
  t.same(await stopped, { drained: 1, cut: 1 })
  t.ok(lines().includes('worker not stopped'))
  t.equal(forks.length, 2)
})
