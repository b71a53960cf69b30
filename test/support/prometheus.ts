/** Reads metrics in Prometheus' text format. */

/** One sample. */
export interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/g

/** Throws at a line that is neither a comment nor a sample, and at a series that is repeated. */
export function parseMetrics(text: string): readonly Sample[] {
  const series = new Set<string>()
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return lines.map((line) => {
    const [, name = '', inner = '', value = ''] = LINE.exec(line) ?? []
    const labels = Object.fromEntries([...inner.matchAll(LABEL)].map(([, label, value]) => [label, value]))
    const key = `${name} ${JSON.stringify(Object.entries(labels).sort())}`
    if (name === '' || series.has(key)) {
      throw new Error(`no sample, or not the first of its series: ${line}`)
    }
    series.add(key)
    return { name, labels, value: Number(value) }
  })
}

/**
 * The value of a series at `/metrics`, such as `name{a="b"}`, or the sum of all series of
 * a name; 0 if there is none.
 */
export async function metricAt(adminPort: number, series: string): Promise<number> {
  return (await metricsAt(adminPort))(series)
}

/** Scrapes once; returns what gives the value of a series. */
export async function metricsAt(adminPort: number) {
  const lines = (await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text()).split('\n')
  return (series: string) =>
    lines
      .filter((line) => line.startsWith(`${series} `) || line.startsWith(`${series}{`))
      .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0)
}
