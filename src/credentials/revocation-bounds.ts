/**
 * The times before which tokens are revoked, for each account, or for each access key, in epoch milliseconds.
 * A name may have many: all are kept, because each may be removed alone, and the latest one decides.
 */

export class RevocationBounds {
  /** Of each name; `NaN` while it is not known. */
  readonly #latest = new Map<string, number>()
  /** Of the names that have had more than one revocation: how many have each time. */
  readonly #counts = new Map<string, Map<number, number>>()

  add(name: string, boundMs: number): void {
    const latest = this.#latest.get(name)
    if (latest === undefined) {
      this.#latest.set(name, boundMs)
      return
    }
    let counts = this.#counts.get(name)
    if (counts === undefined) {
      counts = new Map([[latest, 1]])
      this.#counts.set(name, counts)
    }
    counts.set(boundMs, (counts.get(boundMs) ?? 0) + 1)
    this.#latest.set(name, Math.max(latest, boundMs)) // `NaN` if `latest` is
  }

  /** Removes one revocation that was added with the same time. */
  remove(name: string, boundMs: number): void {
    const counts = this.#counts.get(name)
    if (counts === undefined) {
      if (this.#latest.get(name) === boundMs) {
        this.#latest.delete(name)
      }
      return
    }
    const count = counts.get(boundMs) ?? 0
    if (count > 1) {
      counts.set(boundMs, count - 1)
      return
    }
    counts.delete(boundMs)
    if (counts.size === 0) {
      this.#counts.delete(name)
      this.#latest.delete(name)
    } else if (this.#latest.get(name) === boundMs) {
      this.#latest.set(name, Number.NaN)
    }
  }

  has(name: string, boundMs: number): boolean {
    const counts = this.#counts.get(name)
    return counts === undefined ? this.#latest.get(name) === boundMs : counts.has(boundMs)
  }

  /** The latest time of the name, or undefined. Called for each hit of the token cache. */
  latestOf(name: string): number | undefined {
    const latest = this.#latest.get(name)
    if (latest === undefined || !Number.isNaN(latest)) {
      return latest
    }
    return this.#findLatest(name)
  }

  #findLatest(name: string): number {
    let latest = Number.NEGATIVE_INFINITY
    for (const boundMs of this.#counts.get(name)?.keys() ?? []) {
      latest = Math.max(latest, boundMs)
    }
    this.#latest.set(name, latest)
    return latest
  }

  names(): Iterable<string> {
    return this.#latest.keys()
  }

  /** Each name with its different times, as they are at this moment. */
  all(): readonly (readonly [name: string, boundsMs: readonly number[]])[] {
    return [...this.#latest].map(([name, latest]) => {
      const counts = this.#counts.get(name)
      return [name, counts === undefined ? [latest] : [...counts.keys()]]
    })
  }
}
