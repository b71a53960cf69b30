import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import t from 'tap'
import { aggregate, withEnded } from '../../src/workers/aggregate.ts'

/** The metrics of one process. */
async function familiesOf({ count = 0, held = 0, key = 0, startedAt = 0, seconds = [] as number[] }) {
  const registers = [new Registry()]
  new Counter({ name: 'a_total', help: 'a', labelNames: ['status'], registers }).inc({ status: '200' }, count)
  new Gauge({ name: 'a_held', help: 'a', registers }).set(held)
  new Gauge({ name: 'a_key', help: 'a', registers, aggregator: 'max' }).set(key)
  new Gauge({ name: 'process_start_time_seconds', help: 'a', registers, aggregator: 'min' }).set(startedAt)
  const histogram = new Histogram({ name: 'a_seconds', help: 'a', buckets: [1], registers })
  for (const value of seconds) histogram.observe(value)
  return (registers[0] as Registry).getMetricsAsJSON()
}

/** The samples of a registry, by name and labels. */
async function samplesOf(registry: Pick<Registry, 'metrics'>): Promise<Record<string, number>> {
  const lines = (await registry.metrics()).split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return Object.fromEntries(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.split(' ').at(-1))]),
  )
}

t.test('counts and what is held add up, what is the same in all is told once', async (t) => {
  const one = await familiesOf({ count: 3, held: 2, key: 70, startedAt: 1000, seconds: [0.5, 2] })
  const two = await familiesOf({ count: 4, held: 5, key: 71, startedAt: 900, seconds: [0.5] })
  t.same(await samplesOf(aggregate([one, two])), {
    'a_total{status="200"}': 7,
    a_held: 7,
    a_key: 71,
    process_start_time_seconds: 900,
    'a_seconds_bucket{le="1"}': 2,
    'a_seconds_bucket{le="+Inf"}': 3,
    a_seconds_sum: 3,
    a_seconds_count: 3,
  })
})

t.test('what an ended process counted stays, what it held is gone', async (t) => {
  const ended = withEnded([], await familiesOf({ count: 3, held: 2, key: 70, seconds: [0.5] }))
  const both = withEnded(ended, await familiesOf({ count: 10, held: 2, seconds: [0.5] }))
  const alive = await familiesOf({ count: 4, held: 5, key: 71, startedAt: 900, seconds: [2] })
  t.same(await samplesOf(aggregate([alive, both])), {
    'a_total{status="200"}': 17,
    a_held: 5,
    a_key: 71,
    process_start_time_seconds: 900,
    'a_seconds_bucket{le="1"}': 2,
    'a_seconds_bucket{le="+Inf"}': 3,
    a_seconds_sum: 3,
    a_seconds_count: 3,
  })
})

t.test('without a process there is nothing to tell', async (t) => {
  t.same(await samplesOf(aggregate([])), {})
  t.same(withEnded([], []), [])
})
