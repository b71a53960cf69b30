import t from 'tap'
import { Columns, growth } from '../../../src/ops/status/counters.ts'
import type { MetricFamily } from '../../../src/ops/status/metric-families.ts'

const requests = (...values: MetricFamily['values']): MetricFamily => ({
  name: 'auth_sidecar_requests_total',
  values,
})
const answers = (status: string, value: number) => ({ labels: { status }, value })

t.test('series that differ in what nobody looks at are one column', async (t) => {
  const columns = new Columns()
  const row = columns.read([requests(answers('200', 1), answers('206', 2), answers('404', 4))])
  t.strictSame(
    [...columns.of('answers')],
    [
      ['2xx', 0],
      ['4xx', 1],
    ],
  )
  t.strictSame([...row], [3, 4])
})

t.test(
  'a column keeps its place: a series that comes later gets the next one, one that went counts nothing',
  async (t) => {
    const columns = new Columns()
    const first = columns.read([requests(answers('200', 1))])
    const second = columns.read([requests(answers('503', 7))])
    t.strictSame([...second], [0, 7])
    t.equal(growth(first, second, 1), 7, 'a row from before the column has zero there')
    t.equal(growth(second, first, 1), 0)
  },
)

t.test('of a histogram its buckets are kept, not its sum and its count', async (t) => {
  const columns = new Columns()
  const name = 'auth_sidecar_request_duration_seconds'
  const labels = { route: 'proxy' }
  const row = columns.read([
    {
      name,
      values: [
        { metricName: `${name}_bucket`, labels: { ...labels, le: 0.1 }, value: 1 },
        { metricName: `${name}_bucket`, labels: { ...labels, le: '+Inf' }, value: 2 },
        { metricName: `${name}_sum`, labels, value: 8 },
        { metricName: `${name}_count`, labels, value: 2 },
      ],
    },
  ])
  t.strictSame([...columns.of('durations').keys()], ['proxy\n0.1', 'proxy\n+Inf'])
  t.strictSame([...row], [1, 2])
})
