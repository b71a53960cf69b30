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
import type { RawTaker } from '../http/request-intake.ts'
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

/** What a chunk costs beside its bytes: whoever sends single ones must not have thousands of them kept. */
const CHUNK_BYTES = 256

/** A handshake on its way to the upstream; a tunnel once it has succeeded. */
export class Tunnel extends Transfer implements RawTaker {
  readonly #context: TunnelContext
  readonly #exchange: Exchange
  readonly #client: Socket
  /** What the client says before the other protocol has begun. */
  readonly #early: Buffer[] = []
  #earlyBytes = 0
  #upstream: Socket | undefined
  #writtenBefore = 0

  /**
   * @param exchange - an exchange that asked for another protocol and may pass
   * @param requestHead - the head for the upstream, with the wish to upgrade
   */
  constructor(exchange: Exchange, requestHead: string, context: TunnelContext) {
    super(exchange, requestHead, { hasBody: false, chunked: false, ownConnection: true }, context)
    this.#context = context
    this.#exchange = exchange
    this.#client = exchange.connection.socket
    exchange.connection.intake.leaveHttp(this)
    // Whatever the answer is, nothing behind it is a request.
    exchange.connection.end()
  }

  /** Read from the beginning, or nobody would see the client leave. */
  onRaw(chunk: Buffer): void {
    const bytes = Buffer.from(chunk)
    if (this.#upstream === undefined) {
      this.#early.push(bytes)
      this.#earlyBytes += bytes.length + CHUNK_BYTES
      if (this.#earlyBytes > EARLY_BYTES) this.#client.pause()
    } else if (!this.#send(this.#upstream, bytes)) {
      this.#client.pause()
    }
  }

  onRawEnd(): void {
    if (this.#upstream === undefined) this.#client.end()
    else this.#upstream.end()
  }

  readonly onUpgraded = (head: ResponseHead, upstream: Socket, rest: Buffer): void => {
    const { requestId, identity } = this.#exchange
    const client = this.#client
    const text = switchedResponseHead(head, requestId)
    if (text === undefined) {
      upstream.destroy()
      this.onFault('http_protocol_error', false)
      return
    }
    this.leaveHttp()
    this.#exchange.switched = true
    client.write(text, 'latin1')
    this.#writtenBefore = client.bytesWritten
    client.write(rest)
    this.#upstream = upstream
    upstream.on('close', () => closeWritten(client))
    client.on('close', () => upstream.destroy())
    upstream.on('drain', () => client.resume())
    upstream.pipe(client)
    for (const chunk of this.#early.splice(0)) this.#send(upstream, chunk)
    if (!upstream.writableNeedDrain) client.resume()
    if (identity === undefined) return
    const expiry: Waiting = { deadline: this.#expiry(identity.expiresAt), expire: () => client.destroy() }
    this.#context.deadlines.add(expiry)
    client.once('close', () => this.#context.deadlines.delete(expiry))
  }

  override onClientGone(): void {
    if (this.#exchange.switched) this.#exchange.bytesOut = this.#client.bytesWritten - this.#writtenBefore
    super.onClientGone()
  }

  /** Says whether the upstream takes more for now. */
  #send(upstream: Socket, bytes: Buffer): boolean {
    this.#exchange.bytesIn += bytes.length
    return upstream.write(bytes)
  }

  /** When the token expires, on the clock of the deadlines. */
  #expiry(expiresAt: number): number {
    return this.#context.deadlines.monotonicNow() + expiresAt * 1000 - this.#context.now()
  }
}
