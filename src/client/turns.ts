/**
 * Bounds the work for clients in one turn of the event loop.
 * What exceeds the bound waits, in order, for later turns. While 1,024 sockets are ready,
 * libuv reads them again and again, up to 48 times, before the turn ends. Clients that send again
 * at once would thereby keep the process from its upstreams, its timers and its other clients for seconds.
 */
import { onceAfterReads } from '../http/node-http.ts'

/**
 * Requests that begin in one turn, and reads that discard input.
 * The requests of one turn are sent together, at less cost.
 */
const MAX_BEGUN = 64
/**
 * While others wait, turns are shorter. `low`: the least of low priority, as
 * a client that was refused must not wait for ever beside others that were not.
 */
const WHILE_OTHERS_WAIT = { begun: 16, low: 4 }
/** In each turn, libuv accepts one connection. Thousands must not keep a new client waiting for seconds. */
const WHILE_CLIENTS_CONNECT = { begun: 4, low: 1 }

/**
 * From here on, clients are not read while they wait. Their requests then wait in the kernel:
 * thousands of parsed requests would cost the garbage collector more than the requests cost.
 */
const MIN_CROWD = 512

/** `low`: a client that was just refused, or whose input is discarded, waits longer than others. */
export type Priority = 'normal' | 'low'

export class Turns {
  #begun = 0
  #hasAccepted = false
  readonly #waiting: Readonly<Record<Priority, (() => void)[]>> = { normal: [], low: [] }
  readonly #scheduleEnd = onceAfterReads(() => this.#endTurn())

  /** Whether a client should not be read before its turn: so many wait already. */
  get isCrowded(): boolean {
    return this.#waitingCount >= MIN_CROWD
  }

  /** Must be called for each new connection. */
  onAccepted(): void {
    this.#hasAccepted = true
  }

  /**
   * Calls `begin` now or, after too many others, in a later turn. `begin` must not throw.
   * @param hasWaited - it has waited for a turn before, and goes before those that wait
   */
  run(begin: () => void, priority: Priority, hasWaited = false): void {
    const mustWait = this.#waitingCount > 0 && !hasWaited
    if (mustWait || this.#begun >= MAX_BEGUN) {
      this.defer(begin, priority)
      return
    }
    this.#begun++
    this.#scheduleEnd()
    begin()
  }

  /** Calls `begin` in a later turn. */
  defer(begin: () => void, priority: Priority): void {
    this.#waiting[priority].push(begin)
    this.#scheduleEnd()
  }

  get #waitingCount(): number {
    return this.#waiting.normal.length + this.#waiting.low.length
  }

  #endTurn(): void {
    const limits = this.#hasAccepted ? WHILE_CLIENTS_CONNECT : WHILE_OTHERS_WAIT
    this.#hasAccepted = false
    const { normal, low } = this.#waiting
    const ofLow = Math.min(low.length, limits.low)
    const due = normal.splice(0, limits.begun - ofLow)
    due.push(...low.splice(0, limits.begun - due.length))
    this.#begun = due.length
    if (due.length > 0) {
      this.#scheduleEnd()
    }
    for (const begin of due) {
      begin()
    }
  }
}
