import { mock } from 'node:test'
import t from 'tap'
import { Samples } from '../../src/ops/samples.ts'
import { statusSetup } from '../support/status-setup.ts'

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
  t.equal(reads, 1, 'not before')
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

t.test('the status of ten times as many upstreams does not take a hundred times as long', async (t) => {
  /** In microseconds. */
  const cpuTimeWith = async (count: number) => {
    const upstreams = Array.from({ length: count }, (_, index) => ({
      prefix: `/service-${index}/`,
      url: 'http://127.0.0.1:9000',
    }))
    const { metrics, step, report } = statusSetup({ upstreams })
    for (let steps = 0; steps < 10; steps++) {
      for (const { prefix } of upstreams) {
        metrics.ofUpstream(prefix).onOutcome('ok')
      }
      await step()
    }
    await report()
    const before = process.cpuUsage()
    await report()
    const { user, system } = process.cpuUsage(before)
    return user + system
  }
  await cpuTimeWith(20)
  const few = await cpuTimeWith(20)
  const many = await cpuTimeWith(200)
  t.ok(many < few * 25, `${few} and ${many}`)
})
