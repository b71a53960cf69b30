/**
 * The connections to one upstream: reused newest first, bounded in number, with a bounded queue of requests.
 * A connection is reused in the check phase after its response has ended, so that unsolicited bytes after that response
 * are noticed while it is idle.
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
  turn = 0
  readonly #options: UpstreamPoolOptions
  readonly #open = new Set<UpstreamConnection>()
  #tunnels = 0
  /** The one used last is at the end. */
  readonly #idle: UpstreamConnection[] = []
  /** Connections whose response ended in this turn. */
  #freed: UpstreamConnection[] = []
  /** Waiting requests in order of arrival, each with its monotonic deadline. */
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

  get connections(): number {
    return this.#open.size + this.#tunnels
  }

  get queued(): number {
    return this.#queue.size
  }

  acquire(request: UpstreamRequest): void {
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      if (idle.socket.writable) {
        idle.send(request)
        return
      }
    }
    if (!this.#isFull()) this.connect(request)
    else if (this.#queue.size < this.#options.limits.upstreamQueue)
      this.#queue.set(request, performance.now() + this.#options.timeouts.upstreamResponseSeconds * 1000)
    else request.onFault('connection_limit_reached', false)
  }

  /** A retry may exceed the limit by one: its old connection still counts. */
  connect(request: UpstreamRequest): void {
    const { address, timeouts, limits } = this.#options
    const connectMs = timeouts.upstreamConnectSeconds * 1000
    this.#open.add(new UpstreamConnection(address, this, request, connectMs, limits))
  }

  /** Counts a tunnel, which opens its own connection, and closes an idle one for it. Returns whether there is room. */
  addTunnel(): boolean {
    const idle = this.#isFull() ? this.#idle.shift() : undefined
    if (idle === undefined && this.#isFull()) return false
    idle?.abandon() // still counted until `close`
    this.#tunnels++
    return true
  }

  removeTunnel(): void {
    this.#tunnels--
    this.#connectQueued()
  }

  /** Cancels a request that has no connection yet. */
  cancel(request: UpstreamRequest): void {
    if (this.#queue.delete(request)) return
    for (const connection of this.#open) if (connection.isServing(request)) connection.abandon()
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

  onWritten(): void {
    this.#scheduleTurn()
  }

  onReusable(connection: UpstreamConnection): void {
    this.#freed.push(connection)
    this.#scheduleTurn()
  }

  onClosed(connection: UpstreamConnection): void {
    this.#open.delete(connection)
    const at = this.#idle.indexOf(connection)
    if (at >= 0) this.#idle.splice(at, 1)
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
      if (!connection.socket.writable) continue // `onClosed` gives its slot to the next queued request
      const next = this.#closed ? undefined : this.#nextQueued()
      if (next !== undefined) connection.send(next)
      else if (this.#closed) connection.abandon()
      else this.#idle.push(connection)
    }
    // Node reads sockets (poll phase), runs this (check phase), and reads again:
    //   poll: a response ends, bytes after it are noticed | check: turn 1, next request, turn 2 | poll: its response
    // A request that is written in a poll phase cannot have a response in the same one.
    this.turn++
  }

  #checkDeadlines(): void {
    const now = performance.now()
    for (const connection of this.#open) if (connection.deadline <= now) connection.expire()
    for (const [request, deadline] of this.#queue) {
      if (deadline > now) return // in order of arrival
      this.#queue.delete(request)
      request.onFault('connection_limit_reached', false)
    }
  }

  #connectQueued(): void {
    const next = this.#isFull() ? undefined : this.#nextQueued()
    if (next !== undefined) this.connect(next)
  }

  #isFull(): boolean {
    return this.connections >= this.#options.limits.upstreamConnections
  }

  #nextQueued(): UpstreamRequest | undefined {
    const [next] = this.#queue.keys()
    if (next !== undefined) this.#queue.delete(next)
    return next
  }
}
