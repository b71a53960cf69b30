import t from 'tap'
import { type PollKind, PollQueue } from '../../src/reload/poll-queue.ts'

t.test('polls run one after the other, and those who wait for one share it', async (t) => {
  const begun: PollKind[] = []
  const ends: (() => void)[] = []
  const queue = new PollQueue((kind) => {
    begun.push(kind)
    return new Promise((resolve) => ends.push(() => resolve(true)))
  })
  const endNewest = async () => {
    ends.at(-1)?.()
    await new Promise(setImmediate)
  }
  const first = queue.ask('refresh')
  await new Promise(setImmediate)
  t.same(begun, ['refresh'])

  const second = queue.ask('refresh')
  const reload = queue.ask('reload')
  t.not(second, first, 'the first one has begun, and may have missed a change')
  t.equal(queue.ask('refresh'), second)
  t.equal(queue.ask('reload'), reload)
  t.same(begun, ['refresh'])

  await endNewest()
  t.same(begun, ['refresh', 'refresh'])
  await endNewest()
  t.same(begun, ['refresh', 'refresh', 'reload'])
  const idle = queue.whenIdle()
  await endNewest()
  t.same(await Promise.all([first, second, reload]), [true, true, true])
  await idle
})
