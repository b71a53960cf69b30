/**
 * A data listener whose requests a test works on itself.
 *
 * The listener believes what the gate says of where a body ends: each request that can be is admitted before the test
 * sees it.
 *
 * @module
 */
import type { Test } from 'tap'
import { admit } from '../../src/gate/admission.ts'
import { createDeadlines } from '../../src/http/deadlines.ts'
import type { Exchange } from '../../src/http/exchange.ts'
import { createListener, type Listener, type ListenerOptions } from '../../src/http/listener.ts'
import { createPeers } from '../../src/http/peer.ts'
import { type RawClient, rawClient } from './raw-client.ts'

/** A listener and what happened on it. */
export interface Listening {
  readonly listener: Listener
  readonly port: number
  /** The requests that were started, in order. */
  readonly started: Exchange[]
  /** How each one ended that is over. */
  readonly over: { readonly exchange: Exchange; readonly finished: boolean }[]
  /** The statuses of what the parser refused. */
  readonly refused: number[]
  readonly faults: unknown[]
  connect(): Promise<RawClient>
}

/** The limits of the default settings, but for the number of connections. */
export const LIMITS = { headerBytes: 16_384, headerLines: 200, connections: 100, inFlightPerConnection: 16 }

/** Listens on a free port, or as the options say. */
export async function startListening(
  t: Test,
  handle: (exchange: Exchange) => void,
  options: Partial<ListenerOptions> = {},
): Promise<Listening> {
  const started: Exchange[] = []
  const over: Listening['over'] = []
  const refused: number[] = []
  const faults: unknown[] = []
  const deadlines = options.deadlines ?? createDeadlines({ periodMs: 20 })
  const listener = createListener({
    host: '127.0.0.1',
    port: 0,
    limits: LIMITS,
    timeouts: { headersSeconds: 10, keepAliveSeconds: 75 },
    peerOf: createPeers([]),
    deadlines,
    handle: (exchange) => {
      started.push(exchange)
      const admission = admit(exchange.req, LIMITS)
      if (admission.ok) exchange.admitted = admission.request
      handle(exchange)
    },
    onOver: (exchange, finished) => void over.push({ exchange, finished }),
    onRefused: ({ status }) => void refused.push(status),
    onFault: (error) => void faults.push(error),
    ...options,
  })
  const { port } = await listener.listen()
  t.teardown(async () => {
    const closed = listener.close()
    listener.cut()
    await closed
    if (options.deadlines === undefined) deadlines.stop()
  })
  return { listener, port, started, over, refused, faults, connect: () => rawClient(t, port) }
}

/** Gives an exchange a request ID, and sees that its request was admitted. */
export function admitted(exchange: Exchange): void {
  if (exchange.admitted === undefined) throw new Error('the request was refused')
  exchange.requestId = 'id'
}

/** How an answer of a test differs from the usual one. */
export interface AnswerWanted {
  readonly status?: number
  /** The connection ends with it. */
  readonly close?: boolean
}

/** Answers a request with a text, each character one byte. */
export function answerWith(
  { res }: Exchange,
  text: string,
  { status = 200, close = false }: AnswerWanted = {},
): void {
  const lines = `Content-Length: ${text.length}\r\n`
  res.sendWhole({ status, lines, needsDate: true, close }, text)
}
