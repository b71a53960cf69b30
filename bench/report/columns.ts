/**
 * Every figure a report can hold: its name in the JSON, its heading, its unit and how many digits are worth telling.
 *
 * @module
 */

/** Heading and digits behind the point. */
interface Column {
  readonly heading: string
  readonly digits: number
}

/** In the order in which tables show them. */
export const COLUMNS = {
  cpuMicros: { heading: 'CPU µs/request', digits: 1 },
  toNginx: { heading: 'to nginx', digits: 2 },
  toStock: { heading: 'to http-proxy', digits: 2 },
  perSecond: { heading: 'requests/s', digits: 0 },
  p50: { heading: 'p50 ms', digits: 2 },
  p99: { heading: 'p99 ms', digits: 2 },
  megabytesPerSecond: { heading: 'MB/s', digits: 0 },
  cpuPerGigabyte: { heading: 'CPU s/GB', digits: 3 },
  readyMs: { heading: 'ready after ms', digits: 0 },
  readyWorstMs: { heading: 'worst ms', digits: 0 },
  connections: { heading: 'connections', digits: 0 },
  rssBefore: { heading: 'RSS before, MB', digits: 1 },
  rss: { heading: 'RSS MB', digits: 1 },
  rssGrowth: { heading: 'RSS growth, MB', digits: 1 },
  kilobytesEach: { heading: 'KB each', digits: 2 },
  idleCpuPercent: { heading: 'CPU % idle', digits: 2 },
  medianMs: { heading: 'median ms', digits: 3 },
  toFirst: { heading: 'to the first', digits: 3 },
  samples: { heading: 'samples', digits: 0 },
  answered200: { heading: '200', digits: 0 },
  answered503: { heading: '503', digits: 0 },
} as const satisfies Readonly<Record<string, Column>>

/** The name of a figure. */
export type Figure = keyof typeof COLUMNS

/** The figures of one line. */
export interface Row {
  readonly name: string
  readonly figures: Readonly<Partial<Record<Figure, number>>>
}

/** What one scenario found. */
export interface Section {
  readonly name: string
  readonly title: string
  /** How it was measured, and what to make of it. */
  readonly note: string
  readonly rows: readonly Row[]
}

/** A section as a Markdown table. */
export function tableOf(rows: readonly Row[]): string {
  const used = (Object.keys(COLUMNS) as Figure[]).filter((figure) =>
    rows.some(({ figures }) => figures[figure] !== undefined),
  )
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [
    line(['', ...used.map((figure) => COLUMNS[figure].heading)]),
    line(['---', ...used.map(() => '---:')]),
    ...rows.map(({ name, figures }) =>
      line([
        name,
        ...used.map((figure) => {
          const value = figures[figure]
          return value === undefined ? '' : value.toFixed(COLUMNS[figure].digits)
        }),
      ]),
    ),
  ].join('\n')
}
