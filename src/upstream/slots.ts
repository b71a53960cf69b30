/**
 * Shares the connections of an upstream among accounts. A slot is the right to use one connection.
 * In: requests, and slots that are given back. Out: which request receives a slot next.
 * One account holds a part of the slots and of the waiting requests (`limits.accountShare`).
 * Accounts that wait for a slot receive one in turn, so no account waits behind the queue of another.
 */

/** What a request needs to say: its account. Requests without an account share one. */
export interface SlotRequest {
  readonly account: string | undefined
  /** It is refused if it would have to wait. */
  readonly isWebSocket: boolean
  readonly queuedMonotonicMs: number
}

export interface SlotLimits {
  readonly upstreamConnections: number
  readonly upstreamQueue: number
  readonly accountShare: number
}

interface AccountUse<Request> {
  slots: number
  /** The oldest is first. */
  readonly waiting: Request[]
}

export class Slots<Request extends SlotRequest> {
  readonly #limits: SlotLimits
  readonly #maxSlotsOfAccount: number
  readonly #maxWaitingOfAccount: number
  /** The accounts that hold a slot or wait for one. */
  readonly #accounts = new Map<string | undefined, AccountUse<Request>>()
  /** The accounts that wait. The first whose share is not used up receives the next slot. */
  readonly #turns: AccountUse<Request>[] = []
  #used = 0
  #waiting = 0

  constructor(limits: SlotLimits) {
    this.#limits = limits
    this.#maxSlotsOfAccount = shareOf(limits.upstreamConnections, limits.accountShare)
    this.#maxWaitingOfAccount = shareOf(limits.upstreamQueue, limits.accountShare)
  }

  get waiting(): number {
    return this.#waiting
  }

  /** `granted`: the request has a slot. `waiting`: `next` returns it later. */
  request(request: Request): 'granted' | 'waiting' | 'refused' {
    const use = this.#useOf(request.account)
    const isFree = this.#used < this.#limits.upstreamConnections
    if (isFree && use.slots < this.#maxSlotsOfAccount) {
      this.#grant(use)
      return 'granted'
    }
    const isFull = this.#waiting >= this.#limits.upstreamQueue
    if (request.isWebSocket || isFull || use.waiting.length >= this.#maxWaitingOfAccount) {
      this.#forgetIfUnused(request.account, use)
      return 'refused'
    }
    use.waiting.push(request)
    this.#waiting++
    if (use.waiting.length === 1) {
      this.#turns.push(use)
    }
    return 'waiting'
  }

  /**
   * Takes a slot for a second attempt, even if none is free:
   * the slot of the first attempt is given back soon.
   */
  takeExtra(account: string | undefined): void {
    this.#grant(this.#useOf(account))
  }

  giveBack(account: string | undefined): void {
    const use = this.#useOf(account)
    use.slots--
    this.#used--
    this.#forgetIfUnused(account, use)
  }

  /**
   * Gives a free slot to the next request, and returns that request.
   * Passes over at most the accounts that use their share up.
   */
  next(): Request | undefined {
    if (this.#used >= this.#limits.upstreamConnections) {
      return undefined
    }
    const at = this.#turns.findIndex(({ slots }) => slots < this.#maxSlotsOfAccount)
    const [use] = at < 0 ? [] : this.#turns.splice(at, 1)
    const request = use?.waiting.shift()
    if (use === undefined || request === undefined) {
      return undefined
    }
    this.#waiting--
    if (use.waiting.length > 0) {
      this.#turns.push(use)
    }
    this.#grant(use)
    return request
  }

  /** Removes a waiting request. False if it does not wait. */
  remove(request: Request): boolean {
    const use = this.#accounts.get(request.account)
    const at = use?.waiting.indexOf(request) ?? -1
    if (use === undefined || at < 0) {
      return false
    }
    use.waiting.splice(at, 1)
    this.#waiting--
    if (use.waiting.length === 0) {
      this.#turns.splice(this.#turns.indexOf(use), 1)
    }
    this.#forgetIfUnused(request.account, use)
    return true
  }

  /** The waiting requests, which may be removed meanwhile. */
  waitingRequests(): readonly Request[] {
    return this.#turns.flatMap(({ waiting }) => waiting)
  }

  #useOf(account: string | undefined): AccountUse<Request> {
    const known = this.#accounts.get(account)
    if (known !== undefined) {
      return known
    }
    const use: AccountUse<Request> = { slots: 0, waiting: [] }
    this.#accounts.set(account, use)
    return use
  }

  #grant(use: AccountUse<Request>): void {
    use.slots++
    this.#used++
  }

  #forgetIfUnused(account: string | undefined, use: AccountUse<Request>): void {
    if (use.slots === 0 && use.waiting.length === 0) {
      this.#accounts.delete(account)
    }
  }
}

/** Rounded down, at least one. */
const shareOf = (limit: number, share: number) => Math.max(1, Math.floor(limit * share))
