/**
 * The accounts with most requests, bytes and refusals of the last ten minutes, for the status page.
 * Metrics never name an account. The memory is bounded: 100 accounts for each measure and minute,
 * by the space-saving algorithm (Metwally and others, 2005).
 * Beyond 100 accounts, the counts of the busiest are at most slightly too large.
 */
import { ACCESS_FAILURES } from '../base/errors.ts'
import type { OnRequestEnd } from './access-log.ts'

export const ACCOUNT_MEASURES = ['requests', 'bytes', 'refusals'] as const
type Measure = (typeof ACCOUNT_MEASURES)[number]

export type AccountCount = Readonly<{ account: string; count: number }>
/** The accounts with the largest counts first. */
export type AccountCounts = Readonly<Record<Measure, readonly AccountCount[]>>

const MAX_ACCOUNTS = 100
const MINUTE_MS = 60_000
const MAX_MINUTES = 10
const REFUSALS: ReadonlySet<string> = new Set(ACCESS_FAILURES)

interface Entry {
  readonly key: string
  count: number
  /** The place in the heap. */
  at: number
}

/**
 * Counts the most frequent keys of a stream.
 * A heap has the smallest count at its root, which a new key replaces.
 */
export class SpaceSaving {
  readonly #max: number
  readonly #byKey = new Map<string, Entry>()
  readonly #heap: Entry[] = []

  constructor(max: number) {
    this.#max = max
  }

  add(key: string, count: number): void {
    const known = this.#byKey.get(key)
    if (known !== undefined) {
      known.count += count
      this.#sink(known)
      return
    }
    const [smallest] = this.#heap
    if (smallest === undefined || this.#heap.length < this.#max) {
      this.#append({ key, count, at: this.#heap.length })
      return
    }
    // The new key may have been counted before, but at most as often as the key that it replaces.
    this.#byKey.delete(smallest.key)
    const entry = { key, count: smallest.count + count, at: 0 }
    this.#byKey.set(key, entry)
    this.#heap[0] = entry
    this.#sink(entry)
  }

  entries(): readonly Readonly<Pick<Entry, 'key' | 'count'>>[] {
    return this.#heap
  }

  #append(entry: Entry): void {
    this.#byKey.set(entry.key, entry)
    this.#heap.push(entry)
    while (entry.at > 0) {
      const parent = this.#heap[(entry.at - 1) >> 1]
      if (parent === undefined || parent.count <= entry.count) {
        return
      }
      this.#swap(entry, parent)
    }
  }

  #sink(entry: Entry): void {
    while (true) {
      const left = this.#heap[2 * entry.at + 1]
      const right = this.#heap[2 * entry.at + 2]
      const smaller = right !== undefined && left !== undefined && right.count < left.count ? right : left
      if (smaller === undefined || smaller.count >= entry.count) {
        return
      }
      this.#swap(entry, smaller)
    }
  }

  #swap(a: Entry, b: Entry): void {
    const { at } = a
    a.at = b.at
    b.at = at
    this.#heap[a.at] = a
    this.#heap[b.at] = b
  }
}

interface Minute extends Readonly<Record<Measure, SpaceSaving>> {
  readonly startedMs: number
}

export class BusiestAccounts {
  readonly #monotonicNow: () => number
  /** The newest is last. */
  readonly #minutes: Minute[] = []

  constructor(monotonicNow: () => number = () => performance.now()) {
    this.#monotonicNow = monotonicNow
  }

  /** Counts for an account that a token proved. A name that a failed login made up does not count. */
  readonly onRequestEnd: OnRequestEnd = ({ context }, { reason }) => {
    const account = context.isCallerProven ? context.identityForLog?.accountId : undefined
    if (account !== undefined) {
      const isRefused = reason !== undefined && REFUSALS.has(reason)
      this.add(account, context.bytesIn + context.bytesOut, isRefused)
    }
  }

  add(account: string, bytes: number, isRefused: boolean): void {
    const minute = this.#current()
    minute.requests.add(account, 1)
    if (bytes > 0) {
      minute.bytes.add(account, bytes)
    }
    if (isRefused) {
      minute.refusals.add(account, 1)
    }
  }

  counts(): AccountCounts {
    this.#forget()
    const of = (measure: Measure) =>
      largest(
        this.#minutes.map((minute) =>
          minute[measure].entries().map(({ key, count }) => ({ account: key, count })),
        ),
      )
    return { requests: of('requests'), bytes: of('bytes'), refusals: of('refusals') }
  }

  #current(): Minute {
    const now = this.#monotonicNow()
    const newest = this.#minutes.at(-1)
    if (newest !== undefined && now < newest.startedMs + MINUTE_MS) {
      return newest
    }
    this.#forget()
    const sketch = () => new SpaceSaving(MAX_ACCOUNTS)
    const minute = { startedMs: now, requests: sketch(), bytes: sketch(), refusals: sketch() }
    this.#minutes.push(minute)
    return minute
  }

  #forget(): void {
    const oldestMs = this.#monotonicNow() - MAX_MINUTES * MINUTE_MS
    while ((this.#minutes[0]?.startedMs ?? oldestMs) < oldestMs) {
      this.#minutes.shift()
    }
  }
}

/** Adds up the counts of minutes, or of workers. */
function largest(parts: readonly (readonly AccountCount[])[]): AccountCount[] {
  const sums = new Map<string, number>()
  for (const { account, count } of parts.flat()) {
    sums.set(account, (sums.get(account) ?? 0) + count)
  }
  return Array.from(sums, ([account, count]) => ({ account, count }))
    .sort((a, b) => b.count - a.count)
    .slice(0, MAX_ACCOUNTS)
}

export function sumOfCounts(parts: readonly AccountCounts[]): AccountCounts {
  const of = (measure: Measure) => largest(parts.map((part) => part[measure]))
  return { requests: of('requests'), bytes: of('bytes'), refusals: of('refusals') }
}

const SHOWN = 10

export function topAccounts({ requests, bytes, refusals }: AccountCounts): AccountCounts {
  return {
    requests: requests.slice(0, SHOWN),
    bytes: bytes.slice(0, SHOWN),
    refusals: refusals.slice(0, SHOWN),
  }
}
