/**
 * Estimates a percentile from the buckets of a histogram.
 *
 * @module
 */

/** A bucket: its upper bound and how many observations it holds, those of smaller buckets included. */
export type Bucket = readonly [bound: number, cumulative: number]

/**
 * The value below which the share `q` of the observations lies, taken to be spread evenly within a bucket, as
 * Prometheus' `histogram_quantile` does. What lies above the last finite bound is told as that bound.
 *
 * @param ascending - by bound; `Infinity` is that of the last one
 * @returns null where nothing was observed
 */
export function quantile(q: number, ascending: readonly Bucket[]): number | null {
  const rank = q * (ascending.at(-1)?.[1] ?? 0)
  if (rank === 0) return null
  let below: Bucket = [0, 0]
  for (const bucket of ascending) {
    const [bound, cumulative] = bucket
    if (cumulative >= rank && bound !== Infinity) {
      const [lower, before] = below
      return lower + ((bound - lower) * (rank - before)) / (cumulative - before)
    }
    if (bound !== Infinity) below = bucket
  }
  return below[0]
}
