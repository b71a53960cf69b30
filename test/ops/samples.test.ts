import { mock } from 'node:test'
import t from 'tap'
import { Samples } from '../../src/ops/samples.ts'

t.test('the metrics are read each minute, and every five seconds while the page is looked at', async (t) => {
  mock.timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => mock.timers.reset())
  let reads = 0
  const samples = new Samples(async () => {
    reads++
    return []
  }, Date.now)
  samples.start((error) => t.error(error))
  t.equal(reads, 1, 'at the start')
  mock.timers.tick(59_999)
  t.equal(reads, 1, 'nothing while nobody looks')
  mock.timers.tick(1)
  t.equal(reads, 2)
  await samples.windows()
  t.equal(reads, 3, 'a look')
  mock.timers.tick(5000)
  mock.timers.tick(5000)
  t.equal(reads, 5, 'every five seconds')
  samples.stop()
  mock.timers.tick(600_000)
  t.equal(reads, 5)
})

t.test('ten minutes are kept, whatever the steps', async (t) => {
  let now = 0
  const samples = new Samples(
    async () => [],
    () => now,
  )
  for (const seconds of [0, 60, 60, 60, 60, 60, 5, 5, 5, 60, 60, 60, 60, 60, 60]) {
    now += seconds * 1000
    await samples.sample()
  }
  now += 1000
  const { tenMinutes, recently } = await samples.windows()
  t.ok(tenMinutes.seconds >= 600 && tenMinutes.seconds <= 660, `${tenMinutes.seconds} s`)
  t.equal(recently.seconds, 61, 'at least 30 s')
})
