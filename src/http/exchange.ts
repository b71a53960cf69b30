/**
 * One request and its response, and what the stages learn of them on the way.
 *
 * Made when a request head has been read; every stage is given it, and the listener accounts for it when the
 * response is over, however that happened.
 *
 * @module
 */
import type { Admitted } from '../gate/admission.ts'
import type { Route } from '../gate/routes.ts'
import type { Reason } from '../reason.ts'
import type { Identity } from '../token/verdict.ts'
import type { ClientConnection } from './client-connection.ts'
import type { ClientRequest } from './client-request.ts'
import type { ClientResponse } from './client-response.ts'

/** Whoever answers an exchange. Exactly one of `onFinished` and `onClientGone` is called, once. */
export interface Answerer {
  /** The response has been handed to the operating system, whole. */
  onFinished(): void
  /** The connection closed before that. */
  onClientGone(): void
  /** What the client sends as a body is none, from some byte on. */
  onMalformedBody(): void
}

/** One request and its response. */
export class Exchange {
  readonly req: ClientRequest
  readonly res: ClientResponse
  readonly connection: ClientConnection
  /** On the clock of the deadlines, in milliseconds. */
  readonly startedAt: number
  requestId = ''
  /** Before routing, and for what is refused there: `proxy`. */
  route: Route = 'proxy'
  /** What admission read in the request; absent before that, and where it was refused. */
  admitted: Admitted | undefined
  /** The caller, once the token has been verified. */
  identity: Identity | undefined
  /** The account that a login named, if there is such an account. */
  namedAccount: string | undefined
  /** Why the request was not answered as its client would wish. */
  reason: Reason | undefined
  /** Body bytes from the client. */
  bytesIn = 0
  /** Body bytes to the client. */
  bytesOut = 0
  /** The connection has left HTTP. */
  switched = false
  /** The response is over, or its connection is. */
  over = false
  /** Whoever answers it and must know of its end. */
  answerer: Answerer | undefined
  #bodyIsMalformed = false

  constructor(req: ClientRequest, res: ClientResponse, connection: ClientConnection, startedAt: number) {
    this.req = req
    this.res = res
    this.connection = connection
    this.startedAt = startedAt
    res.exchange = this
  }

  /** Gives the exchange to whoever will answer it. */
  attach(answerer: Answerer): void {
    this.answerer = answerer
    if (this.#bodyIsMalformed) answerer.onMalformedBody()
  }

  /** What the client sends as a body is none: said at once, or as soon as somebody wants to read it. */
  malformedBody(): void {
    this.#bodyIsMalformed = true
    this.answerer?.onMalformedBody()
  }

  /** It is over, once. `finished`: its response was sent whole. */
  end(finished: boolean): void {
    this.over = true
    if (finished) this.answerer?.onFinished()
    else this.answerer?.onClientGone()
  }
}
