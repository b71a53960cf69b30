/**
 * The connections to one upstream: reused newest first, bounded in number, with a bounded queue of requests behind them.
 * A connection whose response has just ended is reused in the next turn of the event loop, so that bytes right behind that
 * response are seen while it is unused.
 */

import {
  type ConnectionOwner,
  type UpstreamAddress,
  UpstreamConnection,
  type UpstreamRequest,
} from './upstream-connection.ts'
import type { UpstreamFault } from './upstream-errors.ts'

export interface UpstreamPoolOptions {
  readonly address: UpstreamAddress
  readonly connectMs: number
  /** How long a request may wait for a connection, in milliseconds. */
  readonly queueMs: number
  readonly headerBytes: number
  readonly headerLines: number
  readonly maxConnections: number
  /** Requests that may wait for a connection. */
  readonly maxQueue: number
}

/** Deadlines are checked this often, in milliseconds: a timer per request would cost more than the check. */
const CHECK_MS = 100
const READ_BYTES = 64 * 1024
const MAX_SPARE_BUFFERS = 16

export class UpstreamPool implements ConnectionOwner {
  turn = 0
  readonly #options: UpstreamPoolOptions
  readonly #open = new Set<UpstreamConnection>()
  #tunnels = 0
  /** Unused connections, the one used last at the end. */
  readonly #unused: UpstreamConnection[] = []
  /** Connections whose response ended in this turn. */
  #freed: UpstreamConnection[] = []
  /** Waiting requests in order of arrival, each with the monotonic time until which it waits. */
  readonly #queue = new Map<UpstreamRequest, number>()
  readonly #spareBuffers: Buffer[] = []
  #isTurnScheduled = false
  #closed = false
  readonly #timer: NodeJS.Timeout

  constructor(options: UpstreamPoolOptions) {
    this.#options = options
    this.#timer = setInterval(() => this.#checkDeadlines(), CHECK_MS)
    this.#timer.unref()
  }

  /** Connections, connecting ones included. */
  get connections(): number {
    return this.#open.size + this.#tunnels
  }

  get queued(): number {
    return this.#queue.size
  }

  /** Gives a request a connection, at once or later, or reports why there is none. */
  acquire(user: UpstreamRequest): void {
    for (let unused = this.#unused.pop(); unused !== undefined; unused = this.#unused.pop()) {
      if (unused.socket.writable) {
        unused.use(user)
        return
      }
    }
    if (!this.#isFull()) this.connect(user)
    else if (this.#queue.size < this.#options.maxQueue)
      this.#queue.set(user, performance.now() + this.#options.queueMs)
    else user.onFault('connection_limit_reached', false)
  }

  /** Opens a connection for a request whose reused one turned out to be closed, and may still be counted. */
  connect(user: UpstreamRequest): void {
    this.#open.add(new UpstreamConnection(this.#options.address, this, user, this.#options))
  }

  /** Counts a tunnel, which has a connection of its own. Returns whether there is room for it. */
  addTunnel(): boolean {
    const unused = this.#isFull() ? this.#unused.shift() : undefined
    if (unused === undefined && this.#isFull()) return false
    unused?.abandon() // it is counted for a moment more
    this.#tunnels++
    return true
  }

  removeTunnel(): void {
    this.#tunnels--
    this.#connectQueued()
  }

  /** A request that has no connection yet needs none any more. Returns what it waited for in vain. */
  cancel(user: UpstreamRequest): UpstreamFault {
    if (this.#queue.delete(user)) return 'connection_limit_reached'
    for (const connection of this.#open) if (connection.isUsedBy(user)) connection.abandon()
    return 'connection_timeout'
  }

  /** Closes every connection that is unused, now or later. */
  close(): void {
    this.#closed = true
    clearInterval(this.#timer)
    for (const connection of this.#unused.splice(0)) connection.abandon()
  }

  takeBuffer(): Buffer {
    return this.#spareBuffers.pop() ?? Buffer.allocUnsafeSlow(READ_BYTES)
  }

  returnBuffer(buffer: Buffer): void {
    if (this.#spareBuffers.length < MAX_SPARE_BUFFERS) this.#spareBuffers.push(buffer)
  }

  onWritten(): void {
    this.#scheduleTurn()
  }

  onReusable(connection: UpstreamConnection): void {
    this.#freed.push(connection)
    this.#scheduleTurn()
  }

  onClosed(connection: UpstreamConnection): void {
    this.#open.delete(connection)
    const at = this.#unused.indexOf(connection)
    if (at >= 0) this.#unused.splice(at, 1)
    this.#connectQueued()
  }

  #scheduleTurn(): void {
    if (this.#isTurnScheduled) return
    this.#isTurnScheduled = true
    setImmediate(this.#onTurn)
  }

  readonly #onTurn = (): void => {
    this.#isTurnScheduled = false
    this.turn++
    const freed = this.#freed
    this.#freed = []
    for (const connection of freed) {
      if (!connection.socket.writable) continue // once it is closed, the next queued request gets its place
      const next = this.#closed ? undefined : this.#nextQueued()
      if (next !== undefined) connection.use(next)
      else if (this.#closed) connection.abandon()
      else this.#unused.push(connection)
    }
    // A request written just now is answered in the next turn's reading at the soonest.
    this.turn++
  }

  #checkDeadlines(): void {
    const now = performance.now()
    for (const connection of this.#open) if (connection.deadline <= now) connection.expire()
    for (const [user, deadline] of this.#queue) {
      if (deadline > now) return // they wait in order
      this.#queue.delete(user)
      user.onFault('connection_limit_reached', false)
    }
  }

  /** A place has become free. */
  #connectQueued(): void {
    const next = this.#isFull() ? undefined : this.#nextQueued()
    if (next !== undefined) this.connect(next)
  }

  #isFull(): boolean {
    return this.connections >= this.#options.maxConnections
  }

  #nextQueued(): UpstreamRequest | undefined {
    const [next] = this.#queue.keys()
    if (next !== undefined) this.#queue.delete(next)
    return next
  }
}
