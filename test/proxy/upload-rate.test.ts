import t from 'tap'
import { UploadRate } from '../../src/proxy/upload-rate.ts'

const SETTINGS = { limits: { uploadBytesPerSecond: 100 }, timeouts: { idleSeconds: 10 } }

t.test('an upload must bring its bytes on average over each idle time', async (t) => {
  const rate = new UploadRate(SETTINGS, 0)
  t.equal(rate.isTooSlow(true, 0, 9_900), false, 'the first idle time is not over')
  t.equal(rate.isTooSlow(true, 1000, 10_000), false, 'just enough, all at its end')
  t.equal(rate.isTooSlow(true, 1999, 19_900), false)
  t.equal(rate.isTooSlow(true, 1999, 20_000), true, 'one byte less')
})

t.test('the wait for the upstream does not count', async (t) => {
  const rate = new UploadRate(SETTINGS, 0)
  t.equal(rate.isTooSlow(true, 0, 9_000), false)
  t.equal(rate.isTooSlow(false, 0, 60_000), false)
  t.equal(rate.isTooSlow(true, 0, 60_900), false)
  t.equal(rate.isTooSlow(true, 0, 61_000), true)
})

t.test('with 0, any byte counts', async (t) => {
  const rate = new UploadRate({ ...SETTINGS, limits: { uploadBytesPerSecond: 0 } }, 0)
  t.equal(rate.isTooSlow(true, 0, 600_000), false)
})
