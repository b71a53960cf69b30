/**
 * From measurements to the figures of a table.
 *
 * @module
 */
import { median } from '../lab/statistics.ts'
import type { LoadResult } from '../load/load.ts'
import type { Row } from './columns.ts'

/** A measurement. */
export interface Sample extends LoadResult {
  /** CPU time of the proxy, in microseconds. */
  readonly cpuMicros: number
}

/** The medians of several measurements. */
export function figuresOf(samples: readonly Sample[]): Row['figures'] {
  const of = (figure: (sample: Sample) => number) => median(samples.map(figure))
  return {
    cpuMicros: of(({ cpuMicros, requests }) => cpuMicros / requests),
    perSecond: of(({ requests, seconds }) => requests / seconds),
    p50: of(({ p50 }) => p50 / 1000),
    p99: of(({ p99 }) => p99 / 1000),
    megabytesPerSecond: of(({ bytes, seconds }) => bytes / 1e6 / seconds),
    cpuPerGigabyte: of(({ cpuMicros, bytes }) => cpuMicros / 1e6 / (bytes / 1e9)),
  }
}

/** Adds the ratio of CPU time to nginx and to stock http-proxy, where they are among the rows. */
export function withRatios(rows: readonly Row[]): Row[] {
  const cost = (name: string) => rows.find((row) => row.name === name)?.figures.cpuMicros
  const [nginx, stock] = [cost('nginx'), cost('http-proxy')]
  return rows.map(({ name, figures }) => {
    const { cpuMicros } = figures
    const toNginx = cpuMicros !== undefined && nginx !== undefined && { toNginx: cpuMicros / nginx }
    const toStock = cpuMicros !== undefined && stock !== undefined && { toStock: cpuMicros / stock }
    return { name, figures: { ...figures, ...toNginx, ...toStock } }
  })
}

/** Half the time of a measurement, in whole seconds. */
export const halved = (seconds: number): number => Math.ceil(seconds / 2)

/** Rows with only these figures. */
export function only(rows: readonly Row[], ...wanted: readonly (keyof Row['figures'])[]): Row[] {
  return rows.map(({ name, figures }) => ({
    name,
    figures: Object.fromEntries(
      wanted.flatMap((one) => (figures[one] === undefined ? [] : [[one, figures[one]]])),
    ),
  }))
}
