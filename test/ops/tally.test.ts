import { Registry } from 'prom-client'
import t from 'tap'
import { registerSeries, SecondsTally, WordTally } from '../../src/ops/tally.ts'

t.test('a counter of words is there at zero, and counts each', async (t) => {
  const tally = new WordTally(['ok', 'expired', 'missing'])
  t.same(
    [...tally.entries()],
    [
      ['ok', 0],
      ['expired', 0],
      ['missing', 0],
    ],
  )
  tally.add('ok')
  tally.add('expired', 41)
  tally.add('ok')
  tally.add('expired')
  t.same(
    [...tally.entries()],
    [
      ['ok', 2],
      ['expired', 42],
      ['missing', 0],
    ],
  )
})

t.test('a histogram counts what is at most each bound', async (t) => {
  const tally = new SecondsTally([0.1, 1, 10])
  for (const seconds of [0, 0.05, 0.1, 0.100001, 1, 5, 10, 10.5, 1000]) tally.observe(seconds)
  const values = tally
    .series('wait_seconds', {})
    .map(({ metricName, labels, value }) => [metricName, labels['le'], value])
  t.same(values.slice(0, 4), [
    ['wait_seconds_bucket', 0.1, 3],
    ['wait_seconds_bucket', 1, 5],
    ['wait_seconds_bucket', 10, 7],
    ['wait_seconds_bucket', '+Inf', 9],
  ])
  t.same(values[5], ['wait_seconds_count', undefined, 9])
  t.equal(values[4]?.[0], 'wait_seconds_sum')
  t.ok(Math.abs(Number(values[4]?.[2]) - 1026.750001) < 1e-9)
})

t.test('a histogram of nothing is there at zero', async (t) => {
  t.same(
    new SecondsTally([1]).series('wait_seconds', {}).map(({ value }) => value),
    [0, 0, 0, 0],
  )
})

t.test('a scrape shows the state of that moment in the exposition format', async (t) => {
  const registry = new Registry()
  const words = new WordTally(['in', 'out'])
  const seconds = new SecondsTally([0.5, 2])
  registerSeries(registry, { name: 'bytes_total', help: 'Bytes.', type: 'counter' }, () =>
    [...words.entries()].map(([direction, value]) => ({ labels: { direction }, value })),
  )
  registerSeries(registry, { name: 'wait_seconds', help: 'Waits.', type: 'histogram' }, () =>
    seconds.series('wait_seconds', { route: 'proxy' }),
  )
  registerSeries(registry, { name: 'open', help: 'Open.', type: 'gauge', aggregator: 'sum' }, () => [
    { labels: {}, value: 7 },
  ])
  words.add('out', 10)
  seconds.observe(0.25)
  seconds.observe(1)
  t.equal(
    await registry.metrics(),
    `# HELP bytes_total Bytes.
# TYPE bytes_total counter
bytes_total{direction="in"} 0
bytes_total{direction="out"} 10

# HELP wait_seconds Waits.
# TYPE wait_seconds histogram
wait_seconds_bucket{route="proxy",le="0.5"} 1
wait_seconds_bucket{route="proxy",le="2"} 2
wait_seconds_bucket{route="proxy",le="+Inf"} 2
wait_seconds_sum{route="proxy"} 1.25
wait_seconds_count{route="proxy"} 2

# HELP open Open.
# TYPE open gauge
open 7
`,
  )
  words.add('in')
  t.match(await registry.metrics(), 'bytes_total{direction="in"} 1\n')
})

t.test('the series of several processes can be added up', async (t) => {
  const registries = [1, 2].map((value) => {
    const registry = new Registry()
    registerSeries(registry, { name: 'bytes_total', help: 'Bytes.', type: 'counter' }, () => [
      { labels: {}, value },
    ])
    return registry
  })
  const { AggregatorRegistry } = await import('prom-client')
  const each = await Promise.all(registries.map((registry) => registry.getMetricsAsJSON()))
  t.match(await AggregatorRegistry.aggregate(each).metrics(), 'bytes_total 3\n')
})

t.test('two metrics of one name are a mistake', async (t) => {
  const registry = new Registry()
  const register = () =>
    registerSeries(registry, { name: 'open', help: 'Open.', type: 'gauge', aggregator: 'sum' }, () => [])
  register()
  t.throws(register)
})
