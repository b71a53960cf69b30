import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import type { MetricFamily } from '../../../src/ops/status/metric-families.ts'
import { createSampler, type SamplerOptions } from '../../../src/ops/status/sampler.ts'

const hits = (value: number): MetricFamily => ({
  name: 'auth_sidecar_token_cache_hits_total',
  values: [{ labels: {}, value }],
})

/** A sampler whose source counts how often it was asked. */
function counting(options: Partial<SamplerOptions> = {}) {
  const clock = { ms: 0 }
  const faults: Error[] = []
  let asked = 0
  const sampler = createSampler({
    source: async () => [hits(++asked)],
    lag: () => ({ p99Seconds: 0, worstSeconds: 0 }),
    now: () => clock.ms,
    onFault: (error) => void faults.push(error),
    ...options,
  })
  return { clock, faults, sampler, asked: () => asked }
}

t.test('so many samples are kept and no more: the oldest one goes', async (t) => {
  const { sampler, clock } = counting({ capacity: 3 })
  for (let i = 0; i < 5; i++) {
    clock.ms = i
    await sampler.take()
  }
  t.strictSame(
    sampler.samples().map(({ at }) => at),
    [2, 3, 4],
  )
})

t.test('ten minutes are kept, one sample every five seconds', async (t) => {
  const { sampler } = counting()
  for (let i = 0; i < 130; i++) await sampler.take()
  t.equal(((sampler.samples().length - 1) * sampler.everyMs) / 60_000, 10)
})

t.test('looking keeps nothing, and leaves the measurement of the lag to the samples', async (t) => {
  const resets: boolean[] = []
  const { sampler } = counting({
    lag: (reset) => {
      resets.push(reset)
      return { p99Seconds: 0, worstSeconds: 0 }
    },
  })
  await sampler.take()
  const { sample, families } = await sampler.look()
  t.equal(sampler.samples().length, 1)
  t.strictSame(families, [hits(2)])
  t.strictSame([...sample.row], [2])
  t.strictSame(resets, [true, false])
})

t.test('a source that is slow is not asked again before it has answered', async (t) => {
  let answer: (families: MetricFamily[]) => void = () => {}
  let asked = 0
  const { sampler } = counting({
    source: () => {
      asked++
      return new Promise((resolve) => {
        answer = resolve
      })
    },
  })
  const first = sampler.take()
  const second = sampler.take()
  answer([hits(1)])
  await Promise.all([first, second])
  t.equal(asked, 1)
  t.equal(sampler.samples().length, 1)
})

t.test('a source that fails costs a sample, and is told', async (t) => {
  let fault: Error | undefined = new Error('no worker answers')
  const { sampler, faults } = counting({
    source: async () => {
      if (fault) throw fault
      return [hits(1)]
    },
  })
  await sampler.take()
  await t.rejects(sampler.look(), fault)
  t.strictSame(faults, [fault])
  fault = undefined
  await sampler.take()
  t.equal(sampler.samples().length, 1)
})

t.test('a sample is taken at the start, and more by the clock, until it is stopped', async (t) => {
  const { sampler, asked } = counting({ everyMs: 1 })
  sampler.start()
  sampler.start()
  t.equal(asked(), 1, 'at once, and once')
  while (asked() < 3) await new Promise((resolve) => setTimeout(resolve, 1))
  sampler.stop()
  await turn()
  const after = asked()
  await new Promise((resolve) => setTimeout(resolve, 20))
  t.equal(asked(), after)
  sampler.start()
  t.equal(asked(), after + 1, 'it can be started again')
  sampler.stop()
})
