import t from 'tap'
import { withinTime } from '../../../src/credentials/postgres/within-time.ts'

t.test('what comes in time is had, and what does not is not waited for', async (t) => {
  t.equal(await withinTime(Promise.resolve(1), 60_000), 1)
  t.equal(await withinTime(new Promise(() => {}), 1), undefined)
  await t.rejects(withinTime(Promise.reject(new Error('a fault')), 60_000), { message: 'a fault' })
})
