/**
 * What happened between the oldest sample and now.
 *
 * In: samples, oldest first. Out: how much each counter grew, over the whole window or from one sample to the next.
 *
 * @module
 */
import { type Columns, type Group, growth } from './counters.ts'
import { type Bucket, quantile } from './quantile.ts'
import type { Sample } from './sampler.ts'

/** Percentiles of a duration, in seconds; null where nothing was observed. */
export interface Percentiles {
  readonly p50Seconds: number | null
  readonly p90Seconds: number | null
  readonly p99Seconds: number | null
}

/** How much the columns of a group grew, by what tells them apart. */
export type Growth = ReadonlyMap<string, number>

/** A span of time between samples. */
export interface Window {
  readonly seconds: number
  /** How much each column of a group grew. */
  grown(group: Group): Growth
  /** Each step from one sample to the next. */
  steps(): readonly Window[]
  /** When it ends, in epoch milliseconds. */
  readonly until: number
}

/** The window that samples span; of a single one it is empty. */
export function windowOf(samples: readonly Sample[], columns: Columns): Window {
  const pairs: [earlier: Sample, later: Sample][] = []
  let earlier: Sample | undefined
  for (const later of samples) {
    if (earlier !== undefined) pairs.push([earlier, later])
    earlier = later
  }
  const from = samples[0]?.at ?? 0
  const until = samples.at(-1)?.at ?? 0
  return {
    seconds: Math.max(0, (until - from) / 1000),
    until,
    grown(group) {
      const grown = new Map<string, number>()
      for (const [name, at] of columns.of(group)) {
        grown.set(
          name,
          pairs.reduce((sum, [earlier, later]) => sum + growth(earlier.row, later.row, at), 0),
        )
      }
      return grown
    },
    steps: () => pairs.map((pair) => windowOf(pair, columns)),
  }
}

/** How much one column grew; 0 where there is none. */
export function countOf(grown: Growth, name: string): number {
  return grown.get(name) ?? 0
}

/** All that a group grew by. */
export function total(grown: Growth): number {
  let sum = 0
  for (const value of grown.values()) sum += value
  return sum
}

/** Splits the columns that are told apart by two labels: by the first one, then by the second. */
export function byFirst(grown: Growth): Map<string, Map<string, number>> {
  const outer = new Map<string, Map<string, number>>()
  for (const [name, value] of grown) {
    const [first = '', second = ''] = name.split('\n')
    const inner = outer.get(first) ?? new Map<string, number>()
    outer.set(first, inner.set(second, value))
  }
  return outer
}

/** Of columns that are told apart by two labels, those with this first one: by the second. */
export function within(grown: Growth, first: string): Growth {
  const start = `${first}\n`
  const inner = new Map<string, number>()
  for (const [name, value] of grown) {
    if (name.startsWith(start)) inner.set(name.slice(start.length), value)
  }
  return inner
}

/** Sums the columns that are told apart by two labels up by the second one. */
export function bySecond(grown: Growth): Map<string, number> {
  const sums = new Map<string, number>()
  for (const [name, value] of grown) {
    const second = name.slice(name.indexOf('\n') + 1)
    sums.set(second, countOf(sums, second) + value)
  }
  return sums
}

/** How many observations the buckets of a histogram hold. */
export function observations(buckets: Growth): number {
  return countOf(buckets, '+Inf')
}

/** The percentiles of observations, by the upper bounds of their buckets. */
export function percentiles(buckets: Growth): Percentiles {
  const sorted = [...buckets]
    .map(([le, grown]): Bucket => [le === '+Inf' ? Infinity : Number(le), grown])
    .sort(([a], [b]) => a - b)
  return {
    p50Seconds: rounded(quantile(0.5, sorted)),
    p90Seconds: rounded(quantile(0.9, sorted)),
    p99Seconds: rounded(quantile(0.99, sorted)),
  }
}

/** A part of a whole, from 0 to 1; null where there is no whole. */
export function share(part: number, whole: number): number | null {
  return whole > 0 ? rounded(part / whole) : null
}

/** So many in a second; null where no time has passed. */
export function perSecond(count: number, seconds: number): number | null {
  return seconds > 0 ? rounded(count / seconds) : null
}

/** Four digits are more than anybody reads, and keep the document small. */
export function rounded(value: number): number
export function rounded(value: number | null): number | null
export function rounded(value: number | null): number | null {
  return value === null ? null : Number(value.toPrecision(4))
}
