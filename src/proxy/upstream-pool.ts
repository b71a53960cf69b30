/**
 * The connections to one upstream, bounded in number, and a bounded queue of requests. The last used connection goes first.
 *
 * A request is written after all reads of a turn (`event-loop.ts`): bytes that follow a response have then closed their
 * connection. A connection whose response has ended is `released`. It is `idle` one turn later, after one more read.
 */
import type { Config } from '../config/config.ts'
import { afterReads } from '../event-loop.ts'
import type { ConnectionPool, UpstreamAddress, UpstreamRequest } from './upstream-connection.ts'
import { UpstreamConnection } from './upstream-connection.ts'

/** One timer checks all deadlines: a timer per request would cost more. */
const DEADLINE_CHECK_MS = 100

export class UpstreamPool implements ConnectionPool {
  /** The label `upstream` of its metrics. */
  readonly prefix: string
  readonly #address: UpstreamAddress
  readonly #config: Config
  readonly #open = new Set<UpstreamConnection>()
  readonly #released: UpstreamConnection[] = []
  /** The last used one is at the end. */
  readonly #idle: UpstreamConnection[] = []
  /** The oldest is first. The replaced tables of a `Map` would keep ended requests in memory: 13 % of a request (Node 26). */
  readonly #queue: UpstreamRequest[] = []
  #isDispatchScheduled = false
  #isClosed = false
  readonly #timer: NodeJS.Timeout

  constructor(prefix: string, address: UpstreamAddress, config: Config) {
    this.prefix = prefix
    this.#address = address
    this.#config = config
    this.#timer = setInterval(() => this.#checkDeadlines(), DEADLINE_CHECK_MS).unref()
  }

  get connections(): number {
    return this.#open.size
  }

  /** Requests that wait for another one to end. */
  get queued(): number {
    return Math.max(0, this.#requests - this.#config.limits.upstreamConnections)
  }

  /** Waiting requests, and connections that serve one or are being closed. */
  get #requests(): number {
    return this.#queue.length + this.#open.size - this.#idle.length - this.#released.length
  }

  /** Queues the request. A WebSocket handshake fails where it would have to wait for another request. */
  acquire(request: UpstreamRequest): void {
    const { upstreamConnections, upstreamQueue } = this.#config.limits
    if (this.#requests >= upstreamConnections + (request.isUpgrade ? 0 : upstreamQueue)) {
      request.onFailure('connection_limit_reached')
    } else {
      this.#queue.push(request)
      this.#scheduleDispatch()
    }
  }

  /** Sends the request on an idle connection, or opens one. A retry may exceed the limit by one, its old connection. */
  send(request: UpstreamRequest, idle?: UpstreamConnection): void {
    try {
      if (idle !== undefined) idle.send(request)
      else this.#open.add(new UpstreamConnection(this.#address, this, request, this.#config))
    } catch (error) {
      request.onInternalError(error)
    }
  }

  /** Removes the request from the queue, or closes its connection, if it has either. */
  cancel(request: UpstreamRequest): void {
    const at = this.#queue.indexOf(request)
    if (at >= 0) this.#queue.splice(at, 1)
    else for (const connection of this.#open) if (connection.isServing(request)) connection.close()
  }

  /** Closes each connection as soon as it is idle. */
  close(): void {
    this.#isClosed = true
    clearInterval(this.#timer)
    for (const connection of this.#idle) connection.close()
  }

  onReusable(connection: UpstreamConnection): void {
    this.#released.push(connection)
    this.#scheduleDispatch()
  }

  onClosed(connection: UpstreamConnection): void {
    this.#open.delete(connection)
    const at = this.#idle.indexOf(connection)
    if (at >= 0) this.#idle.splice(at, 1)
    this.#scheduleDispatch()
  }

  #scheduleDispatch(): void {
    if (this.#isDispatchScheduled) return
    this.#isDispatchScheduled = true
    afterReads(this.#dispatch)
  }

  readonly #dispatch = (): void => {
    this.#isDispatchScheduled = false
    for (let request = this.#queue[0]; request !== undefined; request = this.#queue[0]) {
      const connection = this.#takeIdle()
      const isFull = this.connections >= this.#config.limits.upstreamConnections
      // A released connection will serve it sooner than a new one.
      if (connection === undefined && (isFull || this.#queue.length <= this.#released.length)) break
      this.#queue.shift()
      this.send(request, connection)
    }
    for (const connection of this.#released) {
      if (this.#isClosed) connection.close()
      else if (connection.socket.writable) this.#idle.push(connection)
    }
    if (this.#queue.length > 0 && this.#released.length > 0) this.#scheduleDispatch()
    this.#released.length = 0
  }

  #takeIdle(): UpstreamConnection | undefined {
    let connection = this.#idle.pop()
    while (connection?.socket.writable === false) connection = this.#idle.pop()
    return connection
  }

  #checkDeadlines(): void {
    const now = performance.now()
    for (const connection of this.#open) connection.checkDeadline(now)
    const queuedBefore = now - this.#config.timeouts.upstreamResponseSeconds * 1000
    while ((this.#queue[0]?.queuedMonotonicMs ?? now) <= queuedBefore)
      this.#queue.shift()?.onFailure('connection_limit_reached')
  }
}
