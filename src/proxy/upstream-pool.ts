/**
 * The connections to one upstream: reused newest first, bounded in number, with a bounded queue of requests.
 * Requests are written in the check phase of the event loop, so that unsolicited bytes are noticed before.
 */
import type { ResponseLimits } from './response-parser.ts'
import {
  type ConnectionOwner,
  type UpstreamAddress,
  UpstreamConnection,
  type UpstreamRequest,
} from './upstream-connection.ts'

export interface UpstreamPoolOptions {
  readonly address: UpstreamAddress
  readonly timeouts: { readonly upstreamConnectSeconds: number; readonly upstreamResponseSeconds: number }
  readonly limits: ResponseLimits & { readonly upstreamConnections: number; readonly upstreamQueue: number }
}

/** Interval of the deadline check, in milliseconds: a timer per request would cost more. */
const CHECK_MS = 100
const READ_BYTES = 64 * 1024
const MAX_SPARE_BUFFERS = 16

export class UpstreamPool implements ConnectionOwner {
  readonly #options: UpstreamPoolOptions
  readonly #open = new Set<UpstreamConnection>()
  /** The one used last is at the end. */
  readonly #idle: UpstreamConnection[] = []
  /** Connections whose response ended in this turn. */
  readonly #freed: UpstreamConnection[] = []
  /**
   * Waiting requests in order of arrival, with monotonic deadlines. Not a map: after a rehash its dead tables keep dead
   * requests alive for the young generation's collector. Measured: 45 -> 28 µs a request.
   */
  readonly #queue: { readonly request: UpstreamRequest; readonly deadline: number }[] = []
  readonly #spareBuffers: Buffer[] = []
  #isTurnScheduled = false
  #closed = false
  readonly #timer: NodeJS.Timeout

  constructor(options: UpstreamPoolOptions) {
    this.#options = options
    this.#timer = setInterval(() => this.#checkDeadlines(), CHECK_MS)
    this.#timer.unref()
  }

  get connections(): number {
    return this.#open.size
  }

  /** Requests for which there is no room. */
  get queued(): number {
    return Math.max(0, this.#excess)
  }

  acquire(request: UpstreamRequest): void {
    const { limits, timeouts } = this.#options
    if (this.#excess >= (request.isHandshake ? 0 : limits.upstreamQueue)) {
      request.onFault('connection_limit_reached', false)
      return
    }
    this.#queue.push({ request, deadline: performance.now() + timeouts.upstreamResponseSeconds * 1000 })
    this.#scheduleTurn()
  }

  /** A retry may exceed the limit by one: its old connection still counts. */
  connect(request: UpstreamRequest): void {
    const { address, timeouts, limits } = this.#options
    const connectMs = timeouts.upstreamConnectSeconds * 1000
    this.#open.add(new UpstreamConnection(address, this, request, connectMs, limits))
  }

  /** Cancels a request that has no connection yet. */
  cancel(request: UpstreamRequest): void {
    const at = this.#queue.findIndex((waiting) => waiting.request === request)
    if (at >= 0) this.#queue.splice(at, 1)
    else for (const connection of this.#open) if (connection.isServing(request)) connection.abandon()
  }

  /** Closes every connection as soon as it is idle. */
  close(): void {
    this.#closed = true
    clearInterval(this.#timer)
    for (const connection of this.#idle.splice(0)) connection.abandon()
  }

  takeBuffer(): Buffer {
    return this.#spareBuffers.pop() ?? Buffer.allocUnsafeSlow(READ_BYTES)
  }

  returnBuffer(buffer: Buffer): void {
    if (this.#spareBuffers.length < MAX_SPARE_BUFFERS) this.#spareBuffers.push(buffer)
  }

  onReusable(connection: UpstreamConnection): void {
    this.#freed.push(connection)
    this.#scheduleTurn()
  }

  onClosed(connection: UpstreamConnection): void {
    this.#open.delete(connection)
    const at = this.#idle.indexOf(connection)
    if (at >= 0) this.#idle.splice(at, 1)
    this.#scheduleTurn()
  }

  #scheduleTurn(): void {
    if (this.#isTurnScheduled) return
    this.#isTurnScheduled = true
    setImmediate(this.#onTurn)
  }

  /**
   * Gives waiting requests a connection. Node reads sockets (poll phase), runs this (check phase), and reads again:
   * bytes that arrived before a request was written are read before it is written.
   */
  readonly #onTurn = (): void => {
    this.#isTurnScheduled = false
    const freed = this.#freed.splice(0)
    for (let [next] = this.#queue; next !== undefined; [next] = this.#queue) {
      const connection = this.#takeIdle()
      if (connection === undefined && (this.#isFull() || this.#queue.length <= freed.length)) break
      this.#queue.shift()
      if (connection === undefined) this.connect(next.request)
      else connection.send(next.request)
    }
    // For the next turn: a socket that was paused may have bytes after the response.
    for (const connection of freed) {
      if (this.#closed) connection.abandon()
      else if (connection.socket.writable) this.#idle.push(connection)
    }
    if (this.#queue.length > 0 && this.#idle.length > 0) this.#scheduleTurn()
  }

  #takeIdle(): UpstreamConnection | undefined {
    const connection = this.#idle.pop()
    return connection === undefined || connection.socket.writable ? connection : this.#takeIdle()
  }

  #checkDeadlines(): void {
    const now = performance.now()
    for (const connection of this.#open) if (connection.deadline <= now) connection.expire()
    for (let [next] = this.#queue; next !== undefined && next.deadline <= now; [next] = this.#queue) {
      this.#queue.shift()
      next.request.onFault('connection_limit_reached', false)
    }
  }

  #isFull(): boolean {
    return this.connections >= this.#options.limits.upstreamConnections
  }

  /** Waiting requests minus those for which there is room. */
  get #excess(): number {
    const unused = this.#idle.length + this.#freed.length
    return this.#queue.length - unused - this.#options.limits.upstreamConnections + this.connections
  }
}
