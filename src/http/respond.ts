/**
 * Answering an exchange ourselves.
 *
 * Keeps the connection where it can be kept: where the request's body has been read, or there is none, and nothing
 * about the request was ambiguous. Otherwise the answer closes it, after a bounded look at what still comes.
 *
 * @module
 */
import type { PublicError } from '../errors.ts'
import { type Answer, type ErrorFacts, errorAnswer, sendAnswer } from './answers.ts'
import type { Exchange } from './exchange.ts'
import { lingerAfterResponse } from './linger.ts'

/** Answers exchanges. */
export interface Responder {
  /** Sends an answer. `close`: the connection must end with it. Does nothing when the client has gone. */
  respond(exchange: Exchange, answer: Answer, close?: boolean): void
  /** Sends an error answer. */
  refuse(exchange: Exchange, error: PublicError, facts: ErrorFacts, close?: boolean): void
}

/** @param isClosing - whether connections end with their next answer, because we are stopping */
export function createResponder(isClosing: () => boolean): Responder {
  const respond: Responder['respond'] = (exchange, answer, mustClose = false) => {
    const { req, res, request, requestId } = exchange
    if (exchange.over || res.headersSent) return
    const unread = (request === undefined || request.hasBody) && !req.complete
    const close = mustClose || exchange.upgradeHead !== undefined || unread || isClosing()
    if (close) exchange.connection.end()
    if (unread) lingerAfterResponse(req)
    exchange.bytesOut += answer.body.length
    sendAnswer(res, answer, { requestId, close })
  }
  return {
    respond,
    refuse: (exchange, error, facts, close) => respond(exchange, errorAnswer(error, facts), close),
  }
}
