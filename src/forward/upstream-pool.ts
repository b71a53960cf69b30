/**
 * The connections to one upstream: used again newest first, bounded in number, with a bounded queue behind them.
 *
 * A connection whose response has just ended is not used before the next turn of the event loop, so that bytes
 * that came with or right behind that response are seen while it is nobody's.
 *
 * @module
 */
import type { Deadlines } from '../http/deadlines.ts'
import type { MessageLimits } from '../http1/message-reader.ts'
import { ReadMemory } from '../read-memory.ts'
import type { Connect } from './upstream-address.ts'
import { type ConnectionOwner, type ConnectionUser, UpstreamConnection } from './upstream-connection.ts'
import type { UpstreamFault } from './upstream-fault.ts'

/** What a pool works with. */
export interface UpstreamPoolOptions {
  readonly connect: Connect
  readonly readyEvent: 'connect' | 'secureConnect'
  readonly deadlines: Deadlines
  readonly connectMs: number
  readonly limits: MessageLimits
  /** Connections at most, whatever they do. */
  readonly maxConnections: number
  /** Requests that may wait for one. */
  readonly maxQueue: number
}

/** A pool of connections to one upstream. */
export class UpstreamPool implements ConnectionOwner {
  turn = 0
  readonly memory = new ReadMemory()
  readonly #options: UpstreamPoolOptions
  /** Unused connections, the one used last at the end. */
  readonly #unused: UpstreamConnection[] = []
  /** Connections whose response ended in this turn. */
  #freed: UpstreamConnection[] = []
  readonly #open = new Set<UpstreamConnection>()
  /** Requests that wait, in order of arrival. */
  readonly #queue = new Set<ConnectionUser>()
  #turnEnds = false
  #closed = false

  constructor(options: UpstreamPoolOptions) {
    this.#options = options
  }

  /** Connections that exist, connecting ones included. */
  get connections(): number {
    return this.#open.size
  }

  /** Requests that wait for a connection. */
  get queued(): number {
    return this.#queue.size
  }

  /** Finds a connection for a request, at once or later; tells the user which, or why there is none. */
  request(user: ConnectionUser): void {
    for (let unused = this.#unused.pop(); unused !== undefined; unused = this.#unused.pop()) {
      if (unused.isOpen) {
        unused.use(user)
        return
      }
    }
    if (this.#open.size < this.#options.maxConnections) this.#connect(user)
    else if (this.#queue.size < this.#options.maxQueue) this.#queue.add(user)
    else user.onFault('connection_limit_reached', false)
  }

  /** Makes a new connection in place of a used one that turned out to be closed, and may still be counted. */
  requestFresh(user: ConnectionUser): void {
    this.#connect(user)
  }

  /** Makes a connection for a request that will keep it: it can be neither shared nor waited for. */
  requestOwn(user: ConnectionUser): void {
    if (this.#open.size >= this.#options.maxConnections) {
      const unused = this.#unused.shift()
      if (unused === undefined) {
        user.onFault('connection_limit_reached', false)
        return
      }
      unused.abandon() // leaves the count a moment later
    }
    this.#connect(user)
  }

  /** A request that has been given no connection yet needs none any more. Says what it waited for in vain. */
  cancel(user: ConnectionUser): UpstreamFault {
    if (this.#queue.delete(user)) return 'connection_limit_reached'
    for (const connection of this.#open) if (connection.isFor(user)) connection.abandon()
    return 'connection_timeout'
  }

  /** Closes every connection that is unused now or becomes so. */
  close(): void {
    this.#closed = true
    for (const connection of this.#unused.splice(0)) connection.abandon()
  }

  onWrite(): void {
    this.#awaitTurn()
  }

  onFree(connection: UpstreamConnection): void {
    this.#freed.push(connection)
    this.#awaitTurn()
  }

  onClosed(connection: UpstreamConnection): void {
    this.#open.delete(connection)
    const at = this.#unused.indexOf(connection)
    if (at >= 0) this.#unused.splice(at, 1)
    if (this.#open.size >= this.#options.maxConnections) return
    const next = this.#nextQueued()
    if (next !== undefined) this.#connect(next)
  }

  /** Makes a connection for a request that is to use it first. Whoever calls has looked at the count. */
  #connect(user: ConnectionUser): void {
    this.#open.add(new UpstreamConnection({ ...this.#options, owner: this }, user))
  }

  #awaitTurn(): void {
    if (this.#turnEnds) return
    this.#turnEnds = true
    setImmediate(this.#onTurn)
  }

  readonly #onTurn = (): void => {
    this.#turnEnds = false
    this.turn++
    const freed = this.#freed
    this.#freed = []
    for (const connection of freed) this.#reuse(connection)
    // What was written just now is answered in the next turn's reading at the soonest: it belongs to this turn's past.
    this.turn++
  }

  #reuse(connection: UpstreamConnection): void {
    if (!connection.isOpen) return // once it has closed, whoever waits is given its place
    if (this.#closed) {
      connection.abandon()
      return
    }
    const next = this.#nextQueued()
    if (next === undefined) this.#unused.push(connection)
    else connection.use(next)
  }

  #nextQueued(): ConnectionUser | undefined {
    const next = this.#queue.values().next().value
    if (next !== undefined) this.#queue.delete(next)
    return next
  }
}
