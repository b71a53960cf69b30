/**
 * One connection from a client, and the requests in flight on it.
 *
 * HTTP/1.1 lets a client send the next request before the last one is answered, and Node starts each at once. Here
 * a connection has its share of requests in flight and no more; the rest are held, in order, and the socket is
 * not read meanwhile, so that what is held is never more than one read brings. A connection ends with the first
 * request that cannot be understood, once those before it are answered.
 *
 * @module
 */
import type { Socket } from 'node:net'
import type { LastToken } from '../token/verdict.ts'
import { cut } from './cut.ts'
import type { Exchange } from './exchange.ts'
import { lingerThenClose, writeLastAndLinger } from './linger.ts'
import type { Peer } from './peer.ts'

/** What a connection works with. */
export interface ClientConnectionOptions {
  readonly socket: Socket
  readonly peer: Peer
  /** On the clock of the deadlines, in milliseconds. */
  readonly openedAt: number
  /** Requests in flight at most. */
  readonly maxInFlight: number
  /** Begins to work on a request. */
  readonly start: (exchange: Exchange) => void
  /** Told once for each request that was started. `finished`: its response was sent whole. */
  readonly onOver: (exchange: Exchange, finished: boolean) => void
}

/** A client's connection. */
export class ClientConnection {
  readonly socket: Socket
  readonly peer: Peer
  /** The token that came last. */
  readonly lastToken: LastToken = { token: '', digest: '' }
  readonly openedAt: number
  readonly #options: ClientConnectionOptions
  readonly #inFlight = new Set<Exchange>()
  readonly #held: Exchange[] = []
  /** No further request is taken. */
  #ending = false
  #bodyIsMalformed = false
  /** The socket is not read. */
  #stopped = false
  /** What is written when everything before it has been answered. */
  #last: string | undefined

  constructor(options: ClientConnectionOptions) {
    this.#options = options
    this.socket = options.socket
    this.peer = options.peer
    this.openedAt = options.openedAt
    options.socket.once('close', () => this.#onClose())
    // Node goes on reading at the end of each request, whatever was said meanwhile.
    options.socket.on('resume', () => {
      if (this.#stopped) this.socket.pause()
    })
  }

  /** Requests that have been started and not answered yet; a tunnel is none. */
  get inFlight(): number {
    let count = 0
    for (const exchange of this.#inFlight) if (!exchange.switched) count++
    return count
  }

  /** Whether it has left HTTP. */
  get isTunnel(): boolean {
    for (const exchange of this.#inFlight) if (exchange.switched) return true
    return false
  }

  /** Takes a request: starts it now, or when it is its turn, or never if the connection is ending. */
  take(exchange: Exchange): void {
    if (this.#ending) {
      this.#stop() // nobody will ask for what comes behind the last request
    } else if (this.#inFlight.size < this.#options.maxInFlight) {
      this.#inFlight.add(exchange)
      this.#options.start(exchange)
    } else {
      this.#held.push(exchange)
      this.#stop()
    }
  }

  /** Whether no further request is taken. */
  get ending(): boolean {
    return this.#ending
  }

  /**
   * The connection ends with a response, and not because the client asked for it: no request that has not been
   * started yet ever is (RFC 9112, section 9.6), and what the client sends until it sees that costs it no answer.
   */
  end(): void {
    this.#ending = true
    this.#held.length = 0
    this.#last = undefined
    this.socket.destroySoon = this.#linger // Node calls it when the last response of a connection has been written
  }

  readonly #linger = (): void => {
    this.#stopped = false
    lingerThenClose(this.socket)
  }

  /**
   * Node has taken its handlers off the socket, as it does at CONNECT and Upgrade. The responses that are still to be
   * sent need two of them.
   */
  onDetached(): void {
    this.socket.on('error', () => this.socket.destroy())
    this.socket.on('drain', () => {
      for (const { res } of this.#inFlight) if (res.socket === this.socket) res.emit('drain')
    })
  }

  /**
   * What the client sent last cannot be understood. Tells, once, whoever reads the body that it was meant to be a part
   * of, also where a response that closes the connection has begun already.
   *
   * @returns whether it was part of a body, rather than a new request
   */
  malformedBody(): boolean {
    if (this.#bodyIsMalformed) return true
    const unread = [...this.#inFlight, ...this.#held].find(({ req }) => !req.complete)
    if (unread === undefined) return false
    this.#bodyIsMalformed = true
    this.#ending = true
    unread.malformedBody()
    return true
  }

  /**
   * What the client sent last is no request. Ends the connection with an answer to it.
   *
   * @param last - the answer, each character one byte
   */
  refuse(last: string): void {
    this.#ending = true
    if (this.#inFlight.size === 0) {
      this.#writeLast(last)
    } else {
      this.#last = last
      this.#stop()
    }
  }

  /** Destroys it, whatever is in flight on it. */
  cut(): void {
    cut(
      this.socket,
      [...this.#inFlight].map(({ res }) => res),
    )
  }

  /** A response has been handed to the operating system. */
  responseSent(exchange: Exchange): void {
    if (!this.#inFlight.delete(exchange)) return
    this.#options.onOver(exchange, true)
    const next = this.#held.shift()
    if (next !== undefined) {
      if (this.#held.length === 0 && !this.#ending) this.#goOn()
      this.#inFlight.add(next)
      this.#options.start(next)
    } else if (this.#last !== undefined && this.#inFlight.size === 0) {
      this.#writeLast(this.#last)
    }
  }

  #stop(): void {
    this.#stopped = true
    this.socket.pause()
  }

  #goOn(): void {
    this.#stopped = false
    this.socket.resume()
  }

  #writeLast(last: string): void {
    this.#stopped = false
    writeLastAndLinger(this.socket, last)
  }

  #onClose(): void {
    this.#ending = true
    this.#held.length = 0
    for (const exchange of this.#inFlight) this.#options.onOver(exchange, false)
    this.#inFlight.clear()
  }
}
