/**
 * The last versions of the state, and the changes from each to the next one.
 * In: each new version with its changes. Out: the changes since a version that a follower has.
 * Versions are compared for equality alone: a restored database may repeat or go back in their numbers.
 */
import { type Change, type Changes, joined } from './diff.ts'

interface Step {
  readonly from: string
  readonly changes: Changes
  readonly bytes: number
}

const MAX_BYTES = 16 * 1024 * 1024
const MAX_STEPS = 10_000

export class History {
  readonly #maxBytes: number
  readonly #steps: Step[] = []
  #bytes = 0
  /** How many steps were forgotten. */
  #forgotten = 0
  /**
   * The number of the step from each version, counted from the first of all. A version may return, as that of
   * a file that is written again. Its last occurrence counts.
   */
  readonly #numbers = new Map<string, number>()

  constructor(maxBytes = MAX_BYTES) {
    this.#maxBytes = maxBytes
  }

  /** @param from - the version that the changes apply to, which was the newest until now */
  add(from: string, changes: Changes): void {
    const bytes = bytesOf(changes)
    this.#numbers.set(from, this.#forgotten + this.#steps.length)
    this.#steps.push({ from, changes, bytes })
    this.#bytes += bytes
    while (this.#bytes > this.#maxBytes || this.#steps.length > MAX_STEPS) {
      this.#forgetOldest()
    }
  }

  /** Whether the changes since the version are known: it may be too old, or of another history. */
  has(version: string): boolean {
    return this.#numbers.has(version)
  }

  /** Must be called only for a version that is known. */
  since(version: string): Changes {
    return joined(this.#stepsSince(version).map(({ changes }) => changes))
  }

  /** What `since` takes in memory, at most. */
  bytesSince(version: string): number {
    return this.#stepsSince(version).reduce((sum, { bytes }) => sum + bytes, 0)
  }

  #stepsSince(version: string): readonly Step[] {
    const number = this.#numbers.get(version) ?? this.#forgotten
    return this.#steps.slice(number - this.#forgotten)
  }

  #forgetOldest(): void {
    const oldest = this.#steps.shift()
    if (oldest === undefined) {
      return
    }
    this.#bytes -= oldest.bytes
    if (this.#numbers.get(oldest.from) === this.#forgotten) {
      this.#numbers.delete(oldest.from)
    }
    this.#forgotten++
  }
}

/** What an entry of a map takes beside its text. */
const ENTRY_BYTES = 100

function bytesOf({ credentials, revocations }: Changes): number {
  return textBytes(credentials) + textBytes(revocations) + ENTRY_BYTES
}

function textBytes(changes: ReadonlyMap<string, Change<object>>): number {
  let bytes = 0
  for (const [key, { entry }] of changes) {
    bytes += key.length + JSON.stringify(entry).length + ENTRY_BYTES
  }
  return bytes
}
