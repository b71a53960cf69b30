/**
 * The values that the sidecar counts itself.
 * Those by label are maps, so that `metrics.ts` can read them as series.
 */

const LATENCY_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

/**
 * An entry for each value of a label.
 * `create` makes it: for known values at once, for others when it is first used.
 */
export class ByLabel<Key extends string, Entry> extends Map<Key, Entry> {
  readonly #create: (value: Key) => Entry

  constructor(create: (value: Key) => Entry, known: readonly Key[] = []) {
    super()
    this.#create = create
    for (const value of known) {
      this.of(value)
    }
  }

  of(value: Key): Entry {
    const known = this.get(value)
    if (known !== undefined) {
      return known
    }
    const created = this.#create(value)
    this.set(value, created)
    return created
  }
}

/**
 * A count for each value of the last label, from zero for the known values.
 * Costs less than `inc` of prom-client.
 */
export class Counts<const Key extends string = string> extends Map<Key, number> {
  constructor(known: readonly Key[] = []) {
    super(known.map((value) => [value, 0]))
  }

  add(value: Key, count = 1): void {
    this.set(value, (this.get(value) ?? 0) + count)
  }
}

/** One series of a histogram. It costs less per request than prom-client's `observe`. */
export class Durations {
  /** Cumulative: each counts all durations up to its bound. */
  readonly #buckets = LATENCY_BUCKETS.map((le) => ({ le, value: 0 }))
  #count = 0
  #sum = 0

  observe(seconds: number): void {
    for (const bucket of this.#buckets) {
      if (seconds <= bucket.le) {
        bucket.value++
      }
    }
    this.#count++
    this.#sum += seconds
  }

  values(name: string, labels: Readonly<Record<string, string>>) {
    const buckets = [...this.#buckets, { le: '+Inf', value: this.#count }]
    return [
      ...buckets.map(({ le, value }) => ({ metricName: `${name}_bucket`, labels: { le, ...labels }, value })),
      { metricName: `${name}_sum`, labels, value: this.#sum },
      { metricName: `${name}_count`, labels, value: this.#count },
    ]
  }
}
