/**
 * The connections to one upstream and a queue of requests, both bounded. A request takes the connection that was used last.
 *
 * An upstream must not send bytes before a request: they would be taken for its response. So a connection whose response has
 * ended is first `released`. It is `ready` once Node has read its socket again (`afterReads`), and has found no bytes.
 */
import { afterReads } from '../http/node-http.ts'
import type { UpstreamAddress } from './address.ts'
import { type ConnectionPool, UpstreamConnection } from './connection.ts'
import type { UpstreamRequest } from './contract.ts'

/** One timer ticks all connections and waiting requests: a timer per request would cost more. */
const TICK_MS = 100

export class UpstreamPool implements ConnectionPool {
  /** The label `upstream` of the metrics. */
  readonly prefix: string
  readonly config: ConnectionPool['config']
  readonly #address: UpstreamAddress
  readonly #open = new Set<UpstreamConnection>() // changes only with a connection, unlike `#queue`
  readonly #released: UpstreamConnection[] = []
  readonly #ready: UpstreamConnection[] = [] // the connection that was used last is at the end
  /** The oldest is first. A `Map`, whose former tables keep ended requests in memory, costs 13 % more per request (Node 26). */
  readonly #queue: UpstreamRequest[] = []
  #isDispatchScheduled = false
  #isClosed = false
  #timer: NodeJS.Timeout | undefined

  constructor(prefix: string, address: UpstreamAddress, config: ConnectionPool['config']) {
    this.prefix = prefix
    this.#address = address
    this.config = config
  }

  get connections(): number {
    return this.#open.size
  }

  /** The number of requests that wait for another request to end. One that waits for its new connection does not count. */
  get queued(): number {
    return Math.max(0, this.#demand - this.config.limits.upstreamConnections)
  }

  /** The number of waiting requests, and of connections that serve a request or are being closed. */
  get #demand(): number {
    return this.#queue.length + this.#open.size - this.#ready.length - this.#released.length
  }

  /** Queues the request. A WebSocket handshake fails if it would have to wait for another request to end. */
  acquire(request: UpstreamRequest): void {
    const { upstreamConnections, upstreamQueue } = this.config.limits
    if (this.#demand >= upstreamConnections + (request.isWebSocket ? 0 : upstreamQueue)) {
      request.onFailure('connection_limit_reached')
    } else {
      this.#timer ??= setInterval(() => this.#tick(), TICK_MS).unref()
      this.#queue.push(request)
      this.#scheduleDispatch()
    }
  }

  /** Sends the request on `ready` or a new connection. A retry may exceed the limit by the connection that it replaces. */
  send(request: UpstreamRequest, ready?: UpstreamConnection): void {
    try {
      if (ready !== undefined) {
        ready.send(request)
      } else {
        this.#open.add(new UpstreamConnection(this.#address, this, request))
      }
    } catch (error) {
      request.onInternalError(error)
    }
  }

  /** Removes the request from the queue, or closes the connection that serves the request. */
  cancel(request: UpstreamRequest): void {
    const at = this.#queue.indexOf(request)
    if (at >= 0) {
      this.#queue.splice(at, 1)
    } else {
      for (const connection of this.#open) {
        if (connection.isServing(request)) {
          connection.close()
        }
      }
    }
  }

  /** Closes each connection as soon as it is idle. */
  close(): void {
    this.#isClosed = true
    clearInterval(this.#timer)
    for (const connection of this.#ready) {
      connection.close()
    }
  }

  onReusable(connection: UpstreamConnection): void {
    this.#released.push(connection)
    this.#scheduleDispatch()
  }

  onClosed(connection: UpstreamConnection): void {
    this.#open.delete(connection)
    const at = this.#ready.indexOf(connection)
    if (at >= 0) {
      this.#ready.splice(at, 1)
    }
    this.#scheduleDispatch()
  }

  #scheduleDispatch(): void {
    if (this.#isDispatchScheduled) {
      return
    }
    this.#isDispatchScheduled = true
    afterReads(this.#dispatch)
  }

  readonly #dispatch = (): void => {
    this.#isDispatchScheduled = false
    for (let request = this.#queue[0]; request !== undefined; request = this.#queue[0]) {
      const connection = this.#takeReady()
      const isFull = this.connections >= this.config.limits.upstreamConnections
      // A released connection serves the request sooner than a new one would.
      if (connection === undefined && (isFull || this.#queue.length <= this.#released.length)) {
        break
      }
      this.#queue.shift()
      this.send(request, connection)
    }
    for (const connection of this.#released) {
      if (!this.#isClosed && connection.isUsable) {
        this.#ready.push(connection)
      } else {
        connection.close()
      }
    }
    if (this.#queue.length > 0 && this.#released.length > 0) {
      this.#scheduleDispatch()
    }
    this.#released.length = 0
  }

  #takeReady(): UpstreamConnection | undefined {
    let connection = this.#ready.pop()
    while (connection?.isUsable === false) {
      connection = this.#ready.pop()
    }
    return connection
  }

  #tick(): void {
    const now = performance.now()
    for (const connection of this.#open) {
      connection.tick(now)
    }
    const queuedBefore = now - this.config.timeouts.upstreamResponseSeconds * 1000
    while ((this.#queue[0]?.queuedMonotonicMs ?? now) <= queuedBefore) {
      this.#queue.shift()?.onFailure('connection_limit_reached')
    }
    for (const request of this.#queue) {
      request.onTick()
    }
  }
}
