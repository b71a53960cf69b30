/**
 * A data listener whose requests a test works on itself.
 *
 * @module
 */
import type { Test } from 'tap'
import { admit } from '../../src/gate/admission.ts'
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
  readonly faults: Error[]
  connect(): Promise<RawClient>
}

/** Listens on a free port, or as the options say. */
export async function startListening(
  t: Test,
  handle: (exchange: Exchange) => void,
  options: Partial<ListenerOptions> = {},
): Promise<Listening> {
  const started: Exchange[] = []
  const over: Listening['over'] = []
  const refused: number[] = []
  const faults: Error[] = []
  const listener = createListener({
    host: '127.0.0.1',
    port: 0,
    limits: { headerBytes: 16_384, connections: 100, inFlightPerConnection: 16 },
    upgrade: false,
    timeouts: { headersSeconds: 10, keepAliveSeconds: 75 },
    peerOf: createPeers([]),
    monotonicNow: () => performance.now(),
    handle: (exchange) => {
      started.push(exchange)
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
  })
  return { listener, port, started, over, refused, faults, connect: () => rawClient(t, port) }
}

/** Admits a request that is known to be good. */
export function admitted(exchange: Exchange): void {
  const admission = admit(exchange.req, { headerLines: 200, headerBytes: 16_384 })
  if (!admission.ok) throw new Error(admission.error.message)
  exchange.admitted = admission.request
  exchange.requestId = 'id'
}
