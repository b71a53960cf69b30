/**
 * The connections to one upstream: reused newest first, bounded in number, with a bounded queue of requests.
 */
import type { Config } from '../config/config.ts'
import type { ConnectionPool, UpstreamAddress, UpstreamRequest } from './upstream-connection.ts'
import { UpstreamConnection } from './upstream-connection.ts'

/** Interval of the deadline check, in milliseconds: a timer per request would cost more. */
const DEADLINE_CHECK_MS = 100

export class UpstreamPool implements ConnectionPool {
  /** The label `upstream` of its metrics. */
  readonly prefix: string
  readonly #address: UpstreamAddress
  readonly #config: Config
  readonly #open = new Set<UpstreamConnection>()
  /** The one used last is at the end. */
  readonly #idle: UpstreamConnection[] = []
  /** Connections whose response is complete; idle from the next dispatch on. */
  readonly #released: UpstreamConnection[] = []
  /**
   * Waiting requests in order of arrival, with monotonic deadlines. Not a `Map`, whose dead tables keep dead requests
   * alive for the young generation's collector: 13 % of a request (Node 26).
   */
  readonly #queue: { readonly request: UpstreamRequest; readonly deadline: number }[] = []
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

  get queued(): number {
    return Math.max(0, this.#lackingConnections)
  }

  acquire(request: UpstreamRequest): void {
    const { limits, timeouts } = this.#config
    if (this.#lackingConnections >= (request.isWebSocket ? 0 : limits.upstreamQueue)) {
      request.onFailure('connection_limit_reached', false)
      return
    }
    const deadline = performance.now() + timeouts.upstreamResponseSeconds * 1000
    this.#queue.push({ request, deadline })
    this.#scheduleDispatch()
  }

  /** A retry may exceed the limit by one: its old connection still counts. */
  connect(request: UpstreamRequest): void {
    this.#open.add(new UpstreamConnection(this.#address, this, request, this.#config))
  }

  /** Removes the request from the queue, or closes its connection. */
  cancel(request: UpstreamRequest): void {
    const at = this.#queue.findIndex((waiting) => waiting.request === request)
    if (at >= 0) this.#queue.splice(at, 1)
    else for (const connection of this.#open) if (connection.isServing(request)) connection.abandon()
  }

  /** Closes every connection as soon as it is idle. */
  close(): void {
    this.#isClosed = true
    clearInterval(this.#timer)
    for (const connection of this.#idle.splice(0)) connection.abandon()
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
    setImmediate(this.#dispatch)
  }

  /**
   * Gives waiting requests a connection. Node reads sockets (poll phase), runs this (check phase), and reads again:
   * bytes that arrived before a request was written are read before it is written.
   */
  readonly #dispatch = (): void => {
    this.#isDispatchScheduled = false
    const released = this.#released.splice(0).filter(({ socket }) => socket.writable)
    for (let [next] = this.#queue; next !== undefined; [next] = this.#queue) {
      const connection = this.#takeIdle()
      const isFull = this.connections >= this.#config.limits.upstreamConnections
      if (connection === undefined && (isFull || this.#queue.length <= released.length)) break
      this.#queue.shift()
      if (connection === undefined) this.connect(next.request)
      else connection.send(next.request)
    }
    // Not idle before: bytes after the response are noticed by the read before the next dispatch.
    for (const connection of released) {
      if (this.#isClosed) connection.abandon()
      else this.#idle.push(connection)
    }
    if (this.#queue.length > 0 && this.#idle.length > 0) this.#scheduleDispatch()
  }

  #takeIdle(): UpstreamConnection | undefined {
    let connection = this.#idle.pop()
    while (connection?.socket.writable === false) connection = this.#idle.pop()
    return connection
  }

  #checkDeadlines(): void {
    const now = performance.now()
    for (const connection of this.#open) connection.checkDeadline(now)
    for (let [next] = this.#queue; next !== undefined && next.deadline <= now; [next] = this.#queue) {
      this.#queue.shift()
      next.request.onFailure('connection_limit_reached', false)
    }
  }

  /** Waiting requests minus those that can have a connection at once; negative if there is room for more. */
  get #lackingConnections(): number {
    const unused = this.#idle.length + this.#released.length
    return this.#queue.length - unused - this.#config.limits.upstreamConnections + this.connections
  }
}
