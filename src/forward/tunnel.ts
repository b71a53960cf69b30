/**
 * The tunnel: one connection that leaves HTTP.
 *
 * In: an exchange that asked for another protocol and may pass. Out: the upstream's 101 and, from then on, bytes in
 * both directions until either side closes, the token expires or we stop; or, where the upstream says no, its
 * answer, and the end of the connection. What the client sends before the 101 is kept back: bytes behind a handshake
 * that failed are a request that nobody checked.
 *
 * @module
 */
import type { Socket } from 'node:net'
import type { Waiting } from '../http/deadlines.ts'
import type { Exchange } from '../http/exchange.ts'
import { closeWritten } from '../http/linger.ts'
import type { ResponseHead } from './response-parser.ts'
import { switchedResponseHead } from './towards-client.ts'
import { Transfer, type TransferContext } from './transfer.ts'

/** What every tunnel works with, beside what transfers do. */
export interface TunnelContext extends TransferContext {
  /** Epoch milliseconds. */
  readonly now: () => number
}

/** Bytes that are kept of a client that speaks before the other protocol has begun. */
const EARLY_BYTES = 64 * 1024

/** A handshake on its way to the upstream; a tunnel once it has succeeded. */
export class Tunnel extends Transfer {
  readonly #context: TunnelContext
  readonly #exchange: Exchange
  readonly #client: Socket
  readonly #early: Buffer[] = []
  #readBefore = 0
  #writtenBefore = 0

  /**
   * @param exchange - an exchange that asked for another protocol and may pass
   * @param requestHead - the head for the upstream, with the wish to upgrade
   * @param early - what the client sent behind its head
   */
  constructor(exchange: Exchange, requestHead: string, early: Buffer, context: TunnelContext) {
    super(exchange, requestHead, { hasBody: false, chunked: false, ownConnection: true }, context)
    this.#context = context
    this.#exchange = exchange
    this.#client = exchange.req.socket
    this.#keep(early)
    // Read, or nobody would see the client leave.
    this.#client.on('data', this.#keep)
  }

  readonly #keep = (chunk: Buffer): void => {
    this.#early.push(chunk)
    if (this.#early.reduce((bytes, { length }) => bytes + length, 0) > EARLY_BYTES) this.#client.pause()
  }

  readonly onUpgraded = (head: ResponseHead, upstream: Socket, rest: Buffer): void => {
    const { res, requestId, identity, connection } = this.#exchange
    const client = this.#client
    const text = switchedResponseHead(head, requestId)
    if (text === undefined) {
      upstream.destroy()
      this.onFault('http_protocol_error', false)
      return
    }
    this.leaveHttp()
    this.#exchange.switched = true
    connection.end()
    res.detachSocket(client)
    client.off('data', this.#keep)
    client.write(text, 'latin1')
    this.#readBefore = client.bytesRead
    this.#writtenBefore = client.bytesWritten
    client.write(rest)
    for (const chunk of this.#early.splice(0)) upstream.write(chunk)
    join(client, upstream)
    if (identity === undefined) return
    const expiry: Waiting = { deadline: this.#expiry(identity.expiresAt), expire: () => client.destroy() }
    this.#context.deadlines.add(expiry)
    client.once('close', () => this.#context.deadlines.delete(expiry))
  }

  override onClientGone(): void {
    if (this.#exchange.switched) {
      this.#exchange.bytesIn = this.#client.bytesRead - this.#readBefore
      this.#exchange.bytesOut = this.#client.bytesWritten - this.#writtenBefore
    }
    super.onClientGone()
  }

  /** When the token expires, on the clock of the deadlines. */
  #expiry(expiresAt: number): number {
    return this.#context.deadlines.monotonicNow() + expiresAt * 1000 - this.#context.now()
  }
}

/** Lets two sockets carry each other's bytes, and die together. */
function join(client: Socket, upstream: Socket): void {
  upstream.on('close', () => closeWritten(client))
  client.on('close', () => upstream.destroy())
  client.pipe(upstream)
  upstream.pipe(client)
}
