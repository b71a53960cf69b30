import { AggregatorRegistry } from 'prom-client'
import t from 'tap'
import { exposition, storedFamilies } from '../../src/ops/exposition.ts'
import type { MetricFamily, MetricValue } from '../../src/ops/metrics.ts'

const family = (name: string, values: Iterable<MetricValue>): MetricFamily => ({
  name,
  help: 'One \\ of\ntwo.',
  type: 'gauge',
  aggregator: 'sum',
  values,
})

const FAMILIES = [
  family('without_series', []),
  family('without_labels', [{ labels: {}, value: 1.5 }]),
  family('special', [
    { labels: { text: 'a "b" \\ c\nd', empty: '' }, value: 1e21 },
    { labels: { le: '+Inf' }, value: Number.POSITIVE_INFINITY, metricName: 'special_bucket' },
    { labels: { le: 0.5 }, value: Number.NEGATIVE_INFINITY },
    { labels: { is: 'unknown' }, value: Number.NaN },
  ]),
]

t.test('the text is that of prom-client', async (t) => {
  const expected = await AggregatorRegistry.aggregate([await storedFamilies(FAMILIES)]).metrics()
  t.equal(String(await exposition(FAMILIES)), expected)
})

t.test(
  'the first of two metrics with one name is written, and none that belongs to one process',
  async (t) => {
    const text = await exposition([
      family('start', [{ labels: {}, value: 1 }]),
      { ...family('start', [{ labels: {}, value: 2 }]), aggregator: 'omit' },
      { ...family('other', [{ labels: {}, value: 3 }]), aggregator: 'omit' },
    ])
    t.match(String(text), /^start 1$/m)
    t.notMatch(String(text), /start 2|other/)
  },
)

t.test('other work takes place between thousands of series', async (t) => {
  let written = 0
  function* many(): Generator<MetricValue> {
    while (written < 10_000) {
      yield { labels: { number: written++ }, value: 1 }
    }
  }
  const pending = exposition([family('many', many())])
  const before = written
  await new Promise((resolve) => setImmediate(resolve))
  t.ok(before > 0 && before < 2000, `${before}`)
  t.ok(written < 5000, `${written}`)
  const lines = String(await pending).split('\n')
  t.equal(lines.filter((line) => line.startsWith('many{')).length, 10_000)
})
