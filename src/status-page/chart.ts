/**
 * Line charts as SVG, with their scales and legends beside them as text.
 *
 * The drawing is stretched to whatever room there is, so it holds nothing but lines; a line has the same width however
 * it is stretched. Lines differ in their dashes, not only in colour. Used in the sidecar and in the browser: see
 * `figures.ts`.
 *
 * @module
 */
import { escapeText, showAge } from './figures.ts'

/** One line of a chart. */
export interface Line {
  readonly name: string
  /** Class that gives it its colour and dashes. */
  readonly look: string
  readonly values: readonly (number | null)[]
}

/** A chart. */
export interface Chart {
  /** What is drawn, such as `Requests per second`. */
  readonly title: string
  /** Epoch seconds of each value. */
  readonly times: readonly number[]
  /** Seconds that the width stands for; it ends at the last time. */
  readonly span: number
  readonly lines: readonly Line[]
  /** The value as text, with its unit. */
  readonly show: (value: number | null) => string
}

/** The smallest round number that is not smaller: its half is round as well. */
export function ceilingOf(value: number): number {
  if (value <= 0) return 1
  const power = 10 ** Math.floor(Math.log10(value))
  const step = [1, 2, 3, 4, 5, 6, 8].find((digit) => digit * power >= value * 0.999999) ?? 10
  return Number((step * power).toPrecision(1))
}

/** The seconds that charts of these times stand for: ten minutes, fewer soon after the start. */
export function spanOf(times: readonly number[]): number {
  const covered = (times.at(-1) ?? 0) - (times[0] ?? 0)
  return [60, 120, 300].find((seconds) => covered <= seconds) ?? 600
}

/** The path of a line in a field of 600 by 100; interrupted where there is no value. */
export function linePath(
  times: readonly number[],
  values: readonly (number | null)[],
  span: number,
  ceiling: number,
): string {
  const end = times.at(-1) ?? 0
  let path = ''
  let drawing = false
  for (const [at, value] of values.entries()) {
    if (value === null) {
      drawing = false
      continue
    }
    const x = 600 - ((end - (times[at] ?? end)) / span) * 600
    const y = 100 - (Math.min(value, ceiling) / ceiling) * 100
    const next = values[at + 1]
    const point = `${Number(x.toFixed(1))} ${Number(y.toFixed(1))}`
    path += drawing ? `L${point}` : `M${point}`
    // A value without neighbours would be a line without length, which nobody sees.
    if (!drawing && (next === null || next === undefined)) path += 'h.01'
    drawing = true
  }
  return path
}

/** What a chart says, in words: for whoever cannot see it. */
export function chartWords({ title, lines, show }: Chart): string {
  const words = lines.map(({ name, values }) => {
    const known = values.filter((value) => value !== null)
    const last = known.at(-1)
    if (last === undefined) return `${name}: nothing yet`
    return `${name}: ${show(last)} last, ${show(Math.max(...known))} at most`
  })
  return `${title}. ${words.join('; ')}.`
}

/** The lines alone. */
export function drawLines(chart: Chart, ceiling: number, fill: boolean): string {
  const { times, lines, span } = chart
  const paths = lines.map(({ look, values }, at) => {
    const path = linePath(times, values, span, ceiling)
    const area = fill && at === 0 && path !== '' && !values.includes(null)
    const first = 600 - (((times.at(-1) ?? 0) - (times[0] ?? 0)) / span) * 600
    return `${area ? `<path class="area ${look}" d="${path}L600 100L${Number(first.toFixed(1))} 100Z"/>` : ''}<path class="line ${look}" d="${path}"/>`
  })
  // The last line drawn lies on top: the first one of the list, which is the one that matters most.
  return paths.reverse().join('')
}

/** A chart with scales and legend. */
export function drawChart(chart: Chart): string {
  const { lines, show, span } = chart
  const known = lines.flatMap(({ values }) => values.filter((value) => value !== null))
  const ceiling = ceilingOf(Math.max(0, ...known))
  const legend = lines.map(
    ({ name, look, values }) =>
      `<li><svg class="swatch" viewBox="0 0 24 8" aria-hidden="true"><path class="line ${look}" d="M1 4H23"/></svg>${escapeText(name)} <b>${escapeText(show(values.at(-1) ?? null))}</b></li>`,
  )
  return `<ul class="legend">${legend.join('')}</ul>
<div class="plot"><div class="scale" aria-hidden="true"><span>${escapeText(show(ceiling))}</span><span>${escapeText(show(ceiling / 2))}</span><span>0</span></div>
<svg class="chart" viewBox="0 0 600 100" preserveAspectRatio="none" role="img" aria-label="${escapeText(chartWords(chart))}"><path class="rule" d="M0 0H600M0 50H600M0 100H600M150 0V100M300 0V100M450 0V100"/>${drawLines(chart, ceiling, true)}</svg>
<div class="hours" aria-hidden="true"><span>${showAge(span)} ago</span><span>${showAge(span / 2)}</span><span>now</span></div></div>`
}

/** A chart the size of a word, without scales; all that share a `ceiling` can be compared. */
export function drawSpark(chart: Chart, ceiling: number): string {
  return `<svg class="spark" viewBox="0 0 600 100" preserveAspectRatio="none" role="img" aria-label="${escapeText(chartWords(chart))}"><path class="rule" d="M0 100H600"/>${drawLines(chart, ceiling, true)}</svg>`
}
