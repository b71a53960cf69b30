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

  constructor(maxBytes = MAX_BYTES) {
    this.#maxBytes = maxBytes
  }

  /** @param from - the version that the changes apply to, which was the newest until now */
  add(from: string, changes: Changes): void {
    const bytes = bytesOf(changes)
    this.#steps.push({ from, changes, bytes })
    this.#bytes += bytes
    while (this.#bytes > this.#maxBytes || this.#steps.length > MAX_STEPS) {
      this.#bytes -= this.#steps.shift()?.bytes ?? 0
    }
  }

  /** Whether the changes since the version are known: it may be too old, or of another history. */
  has(version: string): boolean {
    return this.#lastStepFrom(version) >= 0
  }

  /** Must be called only for a version that is known. */
  since(version: string): Changes {
    return joined(this.#steps.slice(this.#lastStepFrom(version)).map(({ changes }) => changes))
  }

  /** A version may return, as that of a file that is written again. Its last occurrence counts. */
  #lastStepFrom(version: string): number {
    return this.#steps.findLastIndex(({ from }) => from === version)
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
