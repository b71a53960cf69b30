/**
 * What each account uses: its requests, those in flight, and the bytes of its transfers. It watches all
 * requests of the account.
 * Memory: at most 200 bytes for each account. An account is forgotten once it has paid back all and no
 * request is in flight.
 */
import type { UpstreamOutcome } from '../base/errors.ts'
import type { Direction, PacedReader, RequestWatcher } from '../room.ts'
import type { AccountLimits } from './limits.ts'
import type { Pacing } from './pacing.ts'
import { changeRate, creditOf, type Rate, use, waitMs } from './rate.ts'

/** The limit that refuses a request: `limit` of the metric, and `wouldLimit` of the access log. */
export const LIMITS = ['requests', 'in_flight'] as const
export type Limit = (typeof LIMITS)[number]

/**
 * What an exceeded limit says to the client. `waitMs`: until the request would be allowed, if nothing else
 * happens.
 */
export type Excess = Readonly<{ limit: Limit; waitMs: number }>

const IN_FLIGHT: Excess = { limit: 'in_flight', waitMs: 0 }

export class Account implements RequestWatcher {
  readonly #pacing: Pacing
  #limits: AccountLimits | undefined
  #inFlight = 0
  /** See `rate.ts`. */
  #requestsFullAtMs = 0
  #uploadFullAtMs = 0
  #downloadFullAtMs = 0

  constructor(limits: AccountLimits, pacing: Pacing) {
    this.#limits = limits
    this.#pacing = pacing
  }

  /** Takes a request, unless a limit is exceeded. Then nothing is used. */
  take(nowMs: number): Excess | undefined {
    const limits = this.#limits
    if (limits === undefined) {
      this.#inFlight++
      return undefined
    }
    if (this.#inFlight >= limits.inFlight) {
      return IN_FLIGHT
    }
    const { requests } = limits
    if (requests !== undefined) {
      const wait = waitMs(requests, this.#requestsFullAtMs, nowMs)
      if (wait > 0) {
        return { limit: 'requests', waitMs: wait }
      }
      this.#requestsFullAtMs = use(requests, this.#requestsFullAtMs, 1, nowMs)
    }
    this.#inFlight++
    return undefined
  }

  /** A request that the sidecar itself did not forward uses nothing of the rate. */
  onForwardEnd(outcome: UpstreamOutcome | 'refused'): void {
    const rate = this.#limits?.requests
    const isForwarded = outcome !== 'refused' && outcome !== 'connection_limit_reached'
    if (rate !== undefined && !isForwarded) {
      this.#requestsFullAtMs = use(rate, this.#requestsFullAtMs, -1, this.#pacing.now())
    }
  }

  onEnd(): void {
    this.#inFlight--
  }

  onBytes(direction: Direction, bytes: number): void {
    const rate = byteRate(this.#limits, direction)
    if (rate === undefined) {
      return
    }
    const nowMs = this.#pacing.now()
    if (direction === 'in') {
      this.#uploadFullAtMs = use(rate, this.#uploadFullAtMs, bytes, nowMs)
    } else {
      this.#downloadFullAtMs = use(rate, this.#downloadFullAtMs, bytes, nowMs)
    }
  }

  mayRead(direction: Direction, reader: PacedReader): boolean {
    if (this.byteCredit(direction, this.#pacing.now()) > 0) {
      this.#pacing.remove(reader)
      return true
    }
    this.#pacing.add(reader, this, direction)
    return false
  }

  onReadEnd(reader: PacedReader): void {
    this.#pacing.remove(reader)
  }

  /** The bytes that may move now. Infinite without a limit. */
  byteCredit(direction: Direction, nowMs: number): number {
    const rate = byteRate(this.#limits, direction)
    const fullAtMs = direction === 'in' ? this.#uploadFullAtMs : this.#downloadFullAtMs
    return rate === undefined ? Number.POSITIVE_INFINITY : creditOf(rate, fullAtMs, nowMs)
  }

  /** Undefined: nothing limits the account any more. What it owes stays, but no more than the new bursts. */
  changeLimits(limits: AccountLimits | undefined, nowMs: number): void {
    const former = this.#limits
    this.#limits = limits
    this.#requestsFullAtMs = changed(former?.requests, limits?.requests, this.#requestsFullAtMs, nowMs)
    this.#uploadFullAtMs = changed(former?.upload, limits?.upload, this.#uploadFullAtMs, nowMs)
    this.#downloadFullAtMs = changed(former?.download, limits?.download, this.#downloadFullAtMs, nowMs)
  }

  /** Whether it can be forgotten: a new account has the same state. */
  isQuiet(nowMs: number): boolean {
    const fullAtMs = Math.max(this.#requestsFullAtMs, this.#uploadFullAtMs, this.#downloadFullAtMs)
    return this.#inFlight === 0 && fullAtMs <= nowMs
  }
}

const byteRate = (limits: AccountLimits | undefined, direction: Direction): Rate | undefined =>
  direction === 'in' ? limits?.upload : limits?.download

function changed(former: Rate | undefined, rate: Rate | undefined, fullAtMs: number, nowMs: number): number {
  if (former === undefined || rate === undefined) {
    return 0
  }
  return changeRate(former, rate, fullAtMs, nowMs)
}
