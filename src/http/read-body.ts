/**
 * Reads a small body whole.
 *
 * In: an exchange. Out: its body's bytes, or why there are none. Never holds more than its limit, and never waits
 * for a client that has stopped sending.
 *
 * @module
 */

import type { BodyTaker } from './client-request.ts'
import type { Deadlines, Waiting } from './deadlines.ts'
import type { Answerer, Exchange } from './exchange.ts'

/** A body, or why it could not be read. `gone`: there is nobody to answer. */
export type Body =
  | { readonly ok: true; readonly bytes: Buffer }
  | { readonly ok: false; readonly reason: 'too_large' | 'idle' | 'malformed' | 'gone' }

/** The bounds of a body. */
export interface BodyLimits {
  readonly maxBytes: number
  readonly idleMs: number
  readonly deadlines: Deadlines
}

/** Reads the body of an exchange. Never rejects. */
export function readBody(exchange: Exchange, limits: BodyLimits): Promise<Body> {
  return new Promise((resolve) => new BodyReader(exchange, limits, resolve))
}

class BodyReader implements Answerer, BodyTaker, Waiting {
  deadline: number
  readonly #exchange: Exchange
  readonly #limits: BodyLimits
  readonly #resolve: (body: Body) => void
  readonly #chunks: Buffer[] = []

  constructor(exchange: Exchange, limits: BodyLimits, resolve: (body: Body) => void) {
    this.#exchange = exchange
    this.#limits = limits
    this.#resolve = resolve
    this.deadline = limits.deadlines.monotonicNow() + limits.idleMs
    limits.deadlines.add(this)
    exchange.attach(this)
    exchange.req.giveTo(this)
  }

  onRequestBody(chunk: Buffer): void {
    this.#exchange.bytesIn += chunk.length
    this.deadline = this.#limits.deadlines.monotonicNow() + this.#limits.idleMs
    if (this.#exchange.bytesIn <= this.#limits.maxBytes) this.#chunks.push(Buffer.from(chunk))
    else this.#settle({ ok: false, reason: 'too_large' })
  }

  onRequestEnd(): void {
    this.#settle({ ok: true, bytes: Buffer.concat(this.#chunks) })
  }

  /** Answered by somebody else: the body is for nobody. */
  onFinished(): void {
    this.onClientGone()
  }

  onClientGone(): void {
    this.#settle({ ok: false, reason: 'gone' })
  }

  onMalformedBody(): void {
    this.#settle({ ok: false, reason: 'malformed' })
  }

  expire(): void {
    this.#settle({ ok: false, reason: 'idle' })
  }

  #settle(body: Body): void {
    this.#limits.deadlines.delete(this)
    this.#exchange.answerer = undefined
    this.#resolve(body) // a second call changes nothing
  }
}
