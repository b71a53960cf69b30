import t from 'tap'
import * as figures from '../../src/status-page/figures.ts'

type Table = readonly (readonly [number | null, string])[]

const TABLES: Readonly<Record<string, readonly [(value: never) => string, Table]>> = {
  showCount: [
    figures.showCount,
    [
      [0, '0'],
      [1234567, '1,234,567'],
      [2.5, '3'],
    ],
  ],
  showAmount: [
    figures.showAmount,
    [
      [null, '–'],
      [0, '0'],
      [0.001, '< 0.01'],
      [0.2, '0.2'],
      [3.456, '3.46'],
      [50, '50'],
      [12.34, '12.3'],
      [1234.5, '1,235'],
    ],
  ],
  showShare: [
    figures.showShare,
    [
      [null, '–'],
      [0, '0 %'],
      [1, '100 %'],
      [0.00001, '< 0.01 %'],
      [0.99999, '> 99.99 %'],
      [0.005, '0.50 %'],
      [0.1234, '12.3 %'],
      [0.9996, '99.96 %'],
    ],
  ],
  showLatency: [
    figures.showLatency,
    [
      [null, '–'],
      [0, '0 ms'],
      [1e-9, '1 µs'],
      [0.00085, '850 µs'],
      [0.0012, '1.2 ms'],
      [0.34, '340 ms'],
      [2.5, '2.5 s'],
      [60, '60 s'],
    ],
  ],
  showAge: [
    figures.showAge,
    [
      [0, '0 s'],
      [59.9, '59 s'],
      [60, '1 min'],
      [3600, '1 h'],
      [11_100, '3 h 5 min'],
      [86_400, '1 d'],
      [1_051_200, '12 d 4 h'],
      [8_651_000, '100 d'],
    ],
  ],
  showMegabytes: [figures.showMegabytes, [[71_400_000, '71 MB']]],
}

for (const [name, [show, table]] of Object.entries(TABLES)) {
  t.test(`${name} reads well`, async (t) => {
    for (const [value, words] of table) t.equal(show(value as never), words, String(value))
  })
}

t.test('clocks are of UTC, whoever looks', async (t) => {
  t.equal(figures.showClock('2026-11-20T20:57:35.123Z'), '20:57:35 UTC')
})

t.test('text becomes neither a tag nor an attribute', async (t) => {
  t.equal(figures.escapeText(`<a b="c" d='e'>&`), '&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;')
  t.equal(figures.escapeText(7), '7')
})
