import t from 'tap'
import { median, quantile } from '../../bench/lab/statistics.ts'
import { seeded, zipf } from '../../bench/lab/zipf.ts'
import { chartOf } from '../../bench/report/chart.ts'
import { type Section, tableOf } from '../../bench/report/columns.ts'
import { figuresOf, halved, only, withRatios } from '../../bench/report/figures.ts'
import { goalsOf } from '../../bench/report/goals.ts'
import { judge } from '../../bench/report/guard-verdict.ts'

t.test('the median is the middle one, or between the two in the middle', (t) => {
  t.equal(median([5, 1, 3]), 3)
  t.equal(median([4, 1, 3, 2]), 2.5)
  t.ok(Number.isNaN(median([])))
  t.end()
})

t.test('a quantile is the smallest value that so many do not exceed', (t) => {
  const values = Array.from({ length: 100 }, (_, at) => 100 - at)
  t.equal(quantile(values, 0.99), 99)
  t.equal(quantile(values, 0.5), 50)
  t.equal(quantile([10, 9], 0.99), 10)
  t.ok(Number.isNaN(quantile([], 0.99)))
  t.end()
})

t.test("ranks come in Zipf's proportions", (t) => {
  const rank = zipf(100, 1, seeded(1))
  const counts = new Array<number>(100).fill(0)
  for (let drawn = 0; drawn < 50_000; drawn++) {
    const at = rank()
    counts[at] = (counts[at] ?? 0) + 1
  }
  const [first = 0, second = 0] = counts
  t.ok(Math.abs(first / second - 2) < 0.2, `${first} to ${second}`)
  t.ok(Math.abs(first / (counts[9] ?? 0) - 10) < 2)
  t.equal(
    counts.reduce((sum, count) => sum + count, 0),
    50_000,
  )
  t.end()
})

t.test('figures are medians over the rounds, in the units of the tables', (t) => {
  const sample = { requests: 1000, seconds: 2, bytes: 4e6, p50: 500, p99: 2000 }
  const figures = figuresOf([
    { ...sample, cpuMicros: 20_000 },
    { ...sample, cpuMicros: 90_000 },
    { ...sample, cpuMicros: 30_000 },
  ])
  t.strictSame(figures, {
    cpuMicros: 30,
    perSecond: 500,
    p50: 0.5,
    p99: 2,
    megabytesPerSecond: 2,
    cpuPerGigabyte: 7.5,
  })
  t.end()
})

t.test('ratios are to the peers of the same table', (t) => {
  const rows = [
    { name: 'sidecar', figures: { cpuMicros: 30 } },
    { name: 'nginx', figures: { cpuMicros: 15 } },
  ]
  t.strictSame(withRatios(rows)[0]?.figures, { cpuMicros: 30, toNginx: 2 })
  const stock = { name: 'http-proxy', figures: { cpuMicros: 60 } }
  t.strictSame(withRatios([...rows, stock])[0]?.figures, { cpuMicros: 30, toNginx: 2, toStock: 0.5 })
  t.strictSame(withRatios([...rows, { name: 'idle', figures: {} }])[2]?.figures, {})
  t.strictSame(withRatios(rows.slice(0, 1))[0]?.figures, { cpuMicros: 30 })
  t.end()
})

t.test('a table can show a part of the figures', (t) => {
  const rows = [{ name: 'a', figures: { cpuMicros: 1, p50: 2 } }]
  t.strictSame(only(rows, 'p50', 'p99'), [{ name: 'a', figures: { p50: 2 } }])
  t.end()
})

t.test('half the time is whole seconds', (t) => {
  t.strictSame([1, 2, 3].map(halved), [1, 1, 2])
  t.end()
})

t.test('the guard fails what has become dearer than it allows', async (t) => {
  for (const [ratio, verdict] of [
    [0.5, 'good'],
    [0.57, 'good'],
    [0.58, 'too dear'],
    [0.43, 'good'],
    [0.42, 'much cheaper'],
  ] as const) {
    t.equal(judge(ratio, 0.5), verdict, `finds ${ratio} ${verdict} beside 0.5`)
  }
})

const hot: Section = {
  name: 'hot',
  title: 'GET <1 KiB>',
  note: '',
  rows: [
    { name: 'sidecar', figures: { cpuMicros: 30, toNginx: 2, rss: 100 } },
    { name: 'nginx', figures: { cpuMicros: 15, toNginx: 1 } },
  ],
}

t.test('goals are judged by what was measured, and left out where nothing was', (t) => {
  t.match(goalsOf([hot]), [
    { goal: /2\.2x nginx/, reads: '2.00x nginx', reached: true },
    { goal: /1\.75x nginx/, reads: '2.00x nginx', reached: false },
  ])
  t.equal(goalsOf([hot]).length, 2)
  const login = { name: 'POST /v2/auth/token', figures: { perSecond: 2999 } }
  t.match(goalsOf([{ ...hot, name: 'login', rows: [login] }]), [{ reads: '2999/s', reached: false }])
  t.end()
})

t.test('every goal is judged', (t) => {
  const section = (
    name: string,
    rows: readonly (readonly [string, Section['rows'][0]['figures']])[],
  ): Section => ({
    ...hot,
    name,
    rows: rows.map(([name, figures]) => ({ name, figures })),
  })
  const cpu = (cpuMicros: number) => ({ cpuMicros })
  const kinds = ['10 MiB down', '10 MiB up', '1 GiB down', '1 GiB up']
  const refused = [
    'missing',
    'malformed',
    'unknown key',
    'forged',
    'expired',
    'forged, repeated',
    'expired, repeated',
  ]
  const goals = goalsOf([
    section('hot', [
      ['sidecar', cpu(30)],
      ['nginx', cpu(20)],
      ['haproxy-es256', cpu(60)],
      ['http-proxy', cpu(50)],
    ]),
    section('refused', [
      ['sidecar, forwarded', cpu(30)],
      ...refused.map((kind) => [`sidecar, ${kind}`, cpu(20)] as const),
    ]),
    section(
      'objects',
      kinds.flatMap((kind) => [
        [`${kind}: sidecar`, { megabytesPerSecond: 95 }] as const,
        [`${kind}: nginx`, { megabytesPerSecond: 100 }] as const,
      ]),
    ),
    section('half-load', [
      ['sidecar', { p99: 1.5 }],
      ['nginx', { p99: 1 }],
    ]),
    section('token-memory', [['difference', { rssGrowth: 12 }]]),
    section('start', [['sidecar', { readyMs: 399, rss: 80.1 }]]),
    section('login', [['POST /v2/auth/token', { perSecond: 3000 }]]),
  ])
  t.strictSame(
    goals.map(({ reads, reached }) => `${reads} ${reached ? 'reached' : 'missed'}`),
    [
      '1.50x nginx reached',
      '1.50x nginx reached',
      '0.50x HAProxy reached',
      '0.60x http-proxy missed',
      ...refused.map(() => '0.67x forwarded missed'),
      ...kinds.map(() => '0.95x nginx reached'),
      '+0.50 ms reached',
      '12.0 MB missed',
      '399 ms reached',
      '80.1 MB missed',
      '3000/s reached',
    ],
  )
  const faster = section('half-load', [
    ['sidecar', { p99: 0.5 }],
    ['nginx', { p99: 1 }],
  ])
  t.match(goalsOf([faster]), [{ reads: '-0.50 ms', reached: true }])
  t.end()
})

t.test('a table has the columns that some row fills', (t) => {
  t.strictSame(tableOf(hot.rows).split('\n'), [
    '|  | CPU µs/request | to nginx | RSS MB |',
    '| --- | ---: | ---: | ---: |',
    '| sidecar | 30.0 | 2.00 | 100.0 |',
    '| nginx | 15.0 | 1.00 |  |',
  ])
  t.end()
})

t.test('the chart has a bar for each row, the cheapest on top', (t) => {
  const svg = chartOf(hot)
  t.ok(svg.indexOf('>nginx<') < svg.indexOf('>sidecar<'))
  t.match(svg, '30.0 (2.00x nginx)')
  t.match(svg, 'GET &lt;1 KiB&gt;')
  t.notMatch(svg, '<1 KiB>')
  t.equal(svg.match(/<rect x=/g)?.length, 2)
  const rows = [
    { name: 'alone', figures: { cpuMicros: 7 } },
    { name: 'idle', figures: { rss: 1 } },
  ]
  t.match(chartOf({ ...hot, rows }), />7\.0</)
  t.end()
})
