/**
 * Bars of CPU time per request, as SVG without a library: readable on light and dark pages.
 *
 * @module
 */
import type { Section } from './columns.ts'

const BAR = 22
const GAP = 8
const LEFT = 150
const WIDTH = 760
const TOP = 44

/** Draws the CPU time of every row of a section, cheapest first; the sidecar stands out. */
export function chartOf({ title, rows }: Section): string {
  const bars = rows
    .flatMap(({ name, figures: { cpuMicros, toNginx } }) =>
      cpuMicros === undefined ? [] : [{ name, cpuMicros, toNginx }],
    )
    .sort((a, b) => a.cpuMicros - b.cpuMicros)
  const longest = Math.max(1, ...bars.map(({ cpuMicros }) => cpuMicros))
  const height = TOP + bars.length * (BAR + GAP) + GAP
  const drawn = bars.map(({ name, cpuMicros, toNginx }, at) => {
    const y = TOP + at * (BAR + GAP)
    const width = ((WIDTH - LEFT - 130) * cpuMicros) / longest
    const fill = name === 'sidecar' ? '#2563eb' : '#94a3b8'
    const times = toNginx === undefined ? '' : ` (${toNginx.toFixed(2)}x nginx)`
    return [
      `<text x="${LEFT - 10}" y="${y + 15}" text-anchor="end">${escaped(name)}</text>`,
      `<rect x="${LEFT}" y="${y}" width="${width.toFixed(1)}" height="${BAR}" rx="3" fill="${fill}"/>`,
      `<text x="${(LEFT + width + 8).toFixed(1)}" y="${y + 15}">${cpuMicros.toFixed(1)}${times}</text>`,
    ].join('\n')
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" font-family="system-ui, sans-serif" font-size="13">
<title>${escaped(title)}: CPU microseconds per request</title>
<rect width="100%" height="100%" fill="#ffffff"/>
<g fill="#0f172a">
<text x="16" y="26" font-size="15" font-weight="600">${escaped(title)}: CPU µs per request of the proxy (less is better)</text>
${drawn.join('\n')}
</g>
</svg>
`
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}
