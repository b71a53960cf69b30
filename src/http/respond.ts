/**
 * Answering an exchange ourselves.
 *
 * Keeps the connection where it can be kept: where the request's body has been read, or there is none, and nothing
 * about the request was ambiguous. Otherwise the answer closes it, after a bounded look at what still comes. A client
 * that does not take its answer does not keep its connection for ever.
 *
 * @module
 */
import type { PublicError } from '../errors.ts'
import { type Answer, type ErrorFacts, errorAnswer, sendAnswer } from './answers.ts'
import type { Deadlines, Waiting } from './deadlines.ts'
import type { Answerer, Exchange } from './exchange.ts'

/** Answers exchanges. */
export interface Responder {
  /** Sends an answer. `close`: the connection must end with it. Does nothing when the client has gone. */
  respond(exchange: Exchange, answer: Answer, close?: boolean): void
  /** Sends an error answer. */
  refuse(exchange: Exchange, error: PublicError, facts: ErrorFacts, close?: boolean): void
}

/** What a responder works with. */
export interface ResponderOptions {
  /** Whether connections end with their next answer, because we are stopping. */
  readonly isClosing: () => boolean
  readonly deadlines: Deadlines
  /** Milliseconds that a client may take to take an answer. */
  readonly idleMs: number
}

/** Makes a responder. */
export function createResponder({ isClosing, deadlines, idleMs }: ResponderOptions): Responder {
  const respond: Responder['respond'] = (exchange, answer, mustClose = false) => {
    const { req, res, admitted, requestId } = exchange
    if (exchange.over || res.headersSent) return
    const unread = (admitted === undefined || admitted.hasBody) && !req.complete
    const close = mustClose || admitted?.upgrade !== undefined || unread || isClosing()
    if (close) exchange.connection.end()
    if (unread) req.leaveUnread()
    if (req.method !== 'HEAD') exchange.bytesOut += answer.body.length
    sendAnswer(res, answer, { requestId, close })
    // Usually it has left in one write; then there is nothing to wait for.
    if (!res.sent && exchange.answerer === undefined)
      exchange.attach(new UntakenAnswer(exchange, deadlines, idleMs))
  }
  return {
    respond,
    refuse: (exchange, error, facts, close) => respond(exchange, errorAnswer(error, facts), close),
  }
}

/** An answer that waits: for those before it, or for the client to take it. */
class UntakenAnswer implements Answerer, Waiting {
  deadline: number
  readonly #exchange: Exchange
  readonly #deadlines: Deadlines
  readonly #idleMs: number
  /** Whether those before it were through already when its time began. */
  #hadTurn: boolean

  constructor(exchange: Exchange, deadlines: Deadlines, idleMs: number) {
    this.#exchange = exchange
    this.#deadlines = deadlines
    this.#idleMs = idleMs
    this.#hadTurn = exchange.res.hasTurn
    this.deadline = deadlines.monotonicNow() + idleMs
    deadlines.add(this)
  }

  expire(): void {
    const { res, connection } = this.#exchange
    if (this.#hadTurn) connection.socket.destroy()
    else this.deadline = this.#deadlines.monotonicNow() + this.#idleMs
    this.#hadTurn = res.hasTurn
  }

  onFinished(): void {
    this.#deadlines.delete(this)
  }

  onClientGone(): void {
    this.#deadlines.delete(this)
  }

  onMalformedBody(): void {}
}
