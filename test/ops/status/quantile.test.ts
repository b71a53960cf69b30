import t from 'tap'
import { quantile } from '../../../src/ops/status/quantile.ts'

t.test('a percentile lies in the bucket where its rank falls, as far into it as the rank', async (t) => {
  const buckets = [
    [0.1, 10],
    [0.5, 30],
    [1, 40],
    [Infinity, 40],
  ] as const
  t.equal(quantile(0.25, buckets), 0.1)
  t.equal(quantile(0.5, buckets)?.toFixed(6), '0.300000')
  t.equal(quantile(0.125, buckets), 0.05)
  t.equal(quantile(1, buckets), 1)
})

t.test('buckets that hold nothing more are passed over', async (t) => {
  const buckets = [
    [1, 0],
    [2, 0],
    [4, 4],
    [8, 4],
    [Infinity, 4],
  ] as const
  t.equal(quantile(0.5, buckets), 3)
  t.equal(quantile(1, buckets), 4)
})

t.test('what lies above the last bound is told as that bound', async (t) => {
  t.equal(
    quantile(0.99, [
      [1, 1],
      [60, 2],
      [Infinity, 100],
    ]),
    60,
  )
})

t.test('of nothing there is no percentile', async (t) => {
  t.equal(quantile(0.5, []), null)
  t.equal(
    quantile(0.5, [
      [1, 0],
      [Infinity, 0],
    ]),
    null,
  )
})
