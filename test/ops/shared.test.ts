import t from 'tap'
import { shared } from '../../src/ops/shared.ts'

const turn = () => new Promise((resolve) => setImmediate(resolve))

t.test(
  'who asks in the same turn of the event loop has the same answer, who asks later another',
  async (t) => {
    let made = 0
    const ask = shared(async () => ++made)
    t.same(await Promise.all([ask(), ask()]), [1, 1])
    t.equal(await ask(), 1, 'it was made in this turn')
    await turn()
    await turn()
    t.equal(await ask(), 2)
  },
)

t.test('nothing is made twice at a time, however long it takes', async (t) => {
  const done: (() => void)[] = []
  let made = 0
  const ask = shared(() => {
    made++
    return new Promise<void>((resolve) => void done.push(resolve))
  })
  const first = ask()
  await turn()
  const second = ask()
  t.equal(made, 1)
  done[0]?.()
  await Promise.all([first, second])
})

t.test('a failure is told to all who asked, and forgotten', async (t) => {
  let made = 0
  const ask = shared(async () => {
    made++
    throw new Error('no')
  })
  const [one, other] = [ask(), ask()]
  await t.rejects(one, { message: 'no' })
  await t.rejects(other, { message: 'no' })
  t.equal(made, 1)
  await turn()
  await turn()
  await t.rejects(ask(), { message: 'no' })
  t.equal(made, 2)
})
