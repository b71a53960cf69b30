import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { measureEventLoop } from '../../../src/ops/status/event-loop-lag.ts'

t.test('an event loop that was blocked shows, until the measurement is reset', async (t) => {
  const meter = measureEventLoop()
  t.teardown(() => meter.stop())
  t.strictSame(meter.read(false), { p99Seconds: 0, worstSeconds: 0 }, 'nothing yet')
  // The meter has to have fired once before it can be late.
  await sleep(150)
  const until = performance.now() + 300
  while (performance.now() < until);
  await sleep(100)
  const { p99Seconds, worstSeconds } = meter.read(true)
  t.ok(worstSeconds > 0.2, String(worstSeconds))
  t.ok(worstSeconds >= p99Seconds)
  t.strictSame(meter.read(true), { p99Seconds: 0, worstSeconds: 0 }, 'reset')
})
