import t from 'tap'
import {
  type Chart,
  ceilingOf,
  chartWords,
  drawChart,
  drawSpark,
  linePath,
  spanOf,
} from '../../src/status-page/chart.ts'
import { showAmount } from '../../src/status-page/figures.ts'

const chart = (values: readonly (number | null)[], times = values.map((_, at) => at * 5)): Chart => ({
  title: 'Requests',
  times,
  span: 600,
  lines: [{ name: 'all', look: 'one', values }],
  show: showAmount,
})

t.test('scales end at a round number, at or above the highest value', async (t) => {
  for (const [value, ceiling] of [
    [0, 1],
    [-1, 1],
    [0.0011, 0.002],
    [0.3, 0.3],
    [0.7, 0.8],
    [0.81, 1],
    [1, 1],
    [1.01, 2],
    [4.9, 5],
    [5.1, 6],
    [8.1, 10],
    [84, 100],
    [1000, 1000],
  ] as const) {
    t.equal(ceilingOf(value), ceiling, String(value))
  }
})

t.test('soon after the start the width stands for less than ten minutes', async (t) => {
  t.equal(spanOf([]), 60)
  t.equal(spanOf([100]), 60)
  t.equal(spanOf([0, 61]), 120)
  t.equal(spanOf([0, 300]), 300)
  t.equal(spanOf([0, 301]), 600)
  t.equal(spanOf([0, 605]), 600)
})

t.test('a line stands by the clock: the last value at the right, the highest at the top', async (t) => {
  t.equal(linePath([0, 300, 600], [0, 5, 10], 600, 10), 'M0 100L300 50L600 0')
  t.equal(linePath([0, 10], [20, 0], 100, 10), 'M540 0L600 100', 'what is above the scale stays inside')
  t.equal(linePath([], [], 600, 1), '')
  t.equal(linePath([], [1], 600, 1), 'M600 0h.01', 'a value without a time is the last one')
})

t.test('where there is no value a line is interrupted; a value alone is a dot', async (t) => {
  t.equal(linePath([0, 1, 2, 3, 4], [1, null, 1, null, 1], 4, 1), 'M0 0h.01M300 0h.01M600 0h.01')
  t.equal(linePath([0, 1, 2, 3], [1, 1, null, 1], 3, 1), 'M0 0L200 0M600 0h.01')
})

t.test('a chart is told in words, to whoever cannot see it', async (t) => {
  t.equal(chartWords(chart([1, 8, 3])), 'Requests. all: 3 last, 8 at most.')
  t.equal(chartWords(chart([null])), 'Requests. all: nothing yet.')
  const drawn = drawChart({ ...chart([1]), title: '<"title"' })
  t.match(drawn, 'role="img" aria-label="&lt;&quot;title&quot;. all: 1 last, 1 at most."')
})

t.test('a chart has its scale, its span and the last value of each line beside it', async (t) => {
  const drawn = drawChart(chart([1, 8, 3]))
  t.match(drawn, '<span>8</span><span>4</span><span>0</span>')
  t.match(drawn, '<span>10 min ago</span><span>5 min</span><span>now</span>')
  t.match(drawn, 'all <b>3</b>')
  t.match(drawChart(chart([])), 'all <b>–</b>')
})

t.test('the area under a line is filled where the line has no gaps', async (t) => {
  t.match(drawChart(chart([1, 1])), '<path class="area one" d="M595 0L600 0L600 100L595 100Z"/>')
  t.notMatch(drawChart(chart([1, null])), 'class="area')
  t.notMatch(drawChart(chart([])), 'class="area')
})

t.test('small charts share a scale, and have no text but their words', async (t) => {
  t.match(drawSpark(chart([1, 2]), 4), 'd="M595 75L600 50"')
  t.notMatch(drawSpark(chart([1, 2]), 4), '<span')
})
