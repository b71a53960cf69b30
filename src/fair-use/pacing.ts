/**
 * Lets paused transfers read on, the one that has waited longest first. One timer serves all transfers. It
 * runs only while one waits.
 */
import type { Direction, PacedReader } from '../room.ts'
import type { Account } from './account.ts'

const TICK_MS = 50
/** The most that one read brings. */
const READ_BYTES = 64 * 1024

interface Waiting {
  readonly account: Account
  readonly direction: Direction
  readonly sinceMs: number
}

export class Pacing {
  /** How long transfers have waited. */
  readonly pacedSeconds = { in: 0, out: 0 }
  /** Monotonic milliseconds. */
  readonly now: () => number
  /** The one that has waited longest is first. */
  readonly #waiting = new Map<PacedReader, Waiting>()
  #timer: NodeJS.Timeout | undefined

  constructor(now: () => number) {
    this.now = now
  }

  add(reader: PacedReader, account: Account, direction: Direction): void {
    if (this.#waiting.has(reader)) {
      return
    }
    this.#waiting.set(reader, { account, direction, sinceMs: this.now() })
    this.#timer ??= setInterval(() => this.tick(), TICK_MS).unref()
  }

  remove(reader: PacedReader): void {
    const waiting = this.#waiting.get(reader)
    if (waiting === undefined) {
      return
    }
    this.#waiting.delete(reader)
    this.pacedSeconds[waiting.direction] += (this.now() - waiting.sinceMs) / 1000
  }

  tick(): void {
    for (const reader of this.#due()) {
      reader.readOn()
    }
    if (this.#waiting.size === 0) {
      this.stop()
    }
  }

  stop(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** Selects readers until the credit of their account is used up. Each counts as one full read. */
  #due(): readonly PacedReader[] {
    const nowMs = this.now()
    const granted = { in: new Map<Account, number>(), out: new Map<Account, number>() }
    const due: PacedReader[] = []
    for (const [reader, { account, direction }] of this.#waiting) {
      const bytes = granted[direction].get(account) ?? 0
      if (account.byteCredit(direction, nowMs) > bytes) {
        granted[direction].set(account, bytes + READ_BYTES)
        due.push(reader)
      }
    }
    return due
  }
}
