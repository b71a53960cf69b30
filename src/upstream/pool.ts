/**
 * The connections to one upstream and a queue of requests, both bounded.
 * A request takes the connection that was used last.
 *
 * An upstream must not send bytes before a request: they would be taken for its response.
 * So a connection whose response has ended is first `released`.
 * It is `ready` once Node has read its socket again (`afterReads`), and has found no bytes.
 */
import type { Socket } from 'node:net'
import { onceAfterReads } from '../http/node-http.ts'
import type { UpstreamAddress } from './address.ts'
import type { ReadBuffers } from './buffers.ts'
import { type ConnectionPool, UpstreamConnection } from './connection.ts'
import type { UpstreamRequest, UpstreamSettings } from './contract.ts'
import type { OwnConnections } from './own-connections.ts'
import { Slots } from './slots.ts'

/** One timer ticks all connections and waiting requests: a timer per request would cost more. */
const TICK_MS = 100

/** What the pools of all upstreams of a process have in common. */
interface SharedByPools {
  readonly ownConnections: OwnConnections
  readonly readBuffers: ReadBuffers
}

export class UpstreamPool implements ConnectionPool {
  /** The label `upstream` of the metrics. */
  readonly prefix: string
  readonly config: UpstreamSettings
  readonly readBuffers: ReadBuffers
  readonly #address: UpstreamAddress
  readonly #ownConnections: OwnConnections
  readonly #slots: Slots<UpstreamRequest>
  readonly #open = new Set<UpstreamConnection>()
  /**
   * The accounts of the connections that hold a slot: they serve a request or a tunnel, or
   * are being closed after it.
   */
  readonly #holders = new Map<UpstreamConnection, string | undefined>()
  readonly #released: UpstreamConnection[] = []
  readonly #ready: UpstreamConnection[] = [] // the connection that was used last is at the end
  /**
   * The requests that have a slot and are about to be sent. The oldest is first.
   * An array, because the former tables of a `Map` keep ended requests in memory.
   */
  readonly #starting: UpstreamRequest[] = []
  readonly #scheduleDispatch = onceAfterReads(() => this.#dispatch())
  #isClosed = false
  #timer: NodeJS.Timeout | undefined

  constructor(prefix: string, address: UpstreamAddress, config: UpstreamSettings, shared: SharedByPools) {
    this.prefix = prefix
    this.#address = address
    this.config = config
    this.#ownConnections = shared.ownConnections
    this.readBuffers = shared.readBuffers
    this.#slots = new Slots(config.limits)
  }

  get connections(): number {
    return this.#open.size
  }

  /**
   * The number of requests that wait for another request to end.
   * One that waits for its new connection does not count.
   */
  get queued(): number {
    return this.#slots.waiting
  }

  /** Queues the request. A WebSocket handshake fails if it would have to wait for another request to end. */
  acquire(request: UpstreamRequest): void {
    const verdict = this.#slots.request(request)
    if (verdict === 'refused') {
      request.onFailure('connection_limit_reached')
      return
    }
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS).unref()
    if (verdict === 'granted') {
      this.#starting.push(request)
      this.#scheduleDispatch()
    }
  }

  /**
   * Sends the request on a new connection. It may exceed the limit by the stale connection that it replaces.
   */
  retry(request: UpstreamRequest): void {
    this.#slots.takeExtra(request.account)
    this.#send(request, undefined)
  }

  /** Removes the request from the queue, or closes the connection that serves the request. */
  cancel(request: UpstreamRequest): void {
    if (this.#slots.remove(request)) {
      return
    }
    const at = this.#starting.indexOf(request)
    if (at >= 0) {
      this.#starting.splice(at, 1)
      this.#giveBack(request.account)
      return
    }
    for (const connection of this.#open) {
      if (connection.isServing(request)) {
        connection.close()
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

  onConnected(socket: Socket): void {
    this.#ownConnections.add(socket)
  }

  onReusable(connection: UpstreamConnection): void {
    this.#released.push(connection)
    this.#giveBackSlotOf(connection)
    this.#scheduleDispatch()
  }

  onClosed(connection: UpstreamConnection): void {
    this.#open.delete(connection)
    const at = this.#ready.indexOf(connection)
    if (at >= 0) {
      this.#ready.splice(at, 1)
    }
    this.#giveBackSlotOf(connection)
    this.#scheduleDispatch()
  }

  #send(request: UpstreamRequest, ready: UpstreamConnection | undefined): void {
    try {
      if (ready === undefined) {
        const connection = new UpstreamConnection(this.#address, this, request)
        this.#open.add(connection)
        this.#holders.set(connection, request.account)
      } else {
        this.#holders.set(ready, request.account)
        ready.send(request)
      }
    } catch (error) {
      request.onInternalError(error)
    }
  }

  #giveBackSlotOf(connection: UpstreamConnection): void {
    if (this.#holders.has(connection)) {
      const account = this.#holders.get(connection)
      this.#holders.delete(connection)
      this.#giveBack(account)
    }
  }

  #giveBack(account: string | undefined): void {
    this.#slots.giveBack(account)
    const next = this.#slots.next()
    if (next !== undefined) {
      this.#starting.push(next)
      this.#scheduleDispatch()
    }
  }

  #dispatch(): void {
    this.#sendStarting()
    for (const connection of this.#released) {
      if (!this.#isClosed && connection.isUsable) {
        this.#ready.push(connection)
      } else {
        connection.close()
      }
    }
    if (this.#starting.length > 0 && this.#released.length > 0) {
      this.#scheduleDispatch()
    }
    this.#released.length = 0
  }

  /** Sends requests while there are connections that are ready, or may be opened. */
  #sendStarting(): void {
    while (this.#starting.length > 0) {
      const connection = this.#takeReady()
      const isFull = this.connections >= this.config.limits.upstreamConnections
      // A released connection serves the request sooner than a new one would.
      if (connection === undefined && (isFull || this.#starting.length <= this.#released.length)) {
        return
      }
      const request = this.#starting.shift()
      if (request !== undefined) {
        this.#send(request, connection)
      }
    }
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
    for (const request of [...this.#starting, ...this.#slots.waitingRequests()]) {
      if (request.queuedMonotonicMs > queuedBefore) {
        request.onTick()
      } else {
        this.cancel(request)
        request.onFailure('connection_limit_reached')
      }
    }
  }
}
