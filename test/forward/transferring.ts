/**
 * Transfers and tunnels on real sockets and a set clock: nothing ends unless the test lets time pass.
 *
 * @module
 */
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import type { Test } from 'tap'
import { upstreamRequestHead } from '../../src/forward/towards-upstream.ts'
import { Transfer, type TransferContext } from '../../src/forward/transfer.ts'
import { Tunnel, type TunnelContext } from '../../src/forward/tunnel.ts'
import type { Connect } from '../../src/forward/upstream-address.ts'
import type { UpstreamOutcome } from '../../src/forward/upstream-fault.ts'
import { UpstreamPool } from '../../src/forward/upstream-pool.ts'
import { createResponder } from '../../src/http/respond.ts'
import type { Identity } from '../../src/token/verdict.ts'
import { eventually } from '../support/eventually.ts'
import { admitted, LIMITS, startListening } from '../support/listening.ts'
import type { RawClient } from '../support/raw-client.ts'
import { recordingUpstream, type UpstreamHooks } from '../support/recording-upstream.ts'
import { setDeadlines } from '../support/set-deadlines.ts'
import { connectTo } from './fake-user.ts'

/** Milliseconds that a response head is waited for. */
export const RESPONSE_MS = 60_000
/** Milliseconds without progress. */
export const IDLE_MS = 20_000

/** What a test may want otherwise. */
export interface Wanted {
  readonly hooks?: UpstreamHooks
  readonly maxConnections?: number
  readonly maxQueue?: number
  readonly connect?: Connect
  readonly sendQueue?: TransferContext['sendQueue']
  readonly isClosing?: () => boolean
  /** Whose requests they are; default: nobody's. */
  readonly identity?: Identity
  /** Epoch milliseconds. */
  readonly now?: () => number
}

/** Listener, transfers and pool. */
export async function transferring(t: Test, wanted: Wanted = {}) {
  const upstream = await recordingUpstream(t, wanted.hooks)
  const deadlines = setDeadlines(t)
  const isClosing = wanted.isClosing ?? (() => false)
  const responder = createResponder({ isClosing, deadlines, idleMs: IDLE_MS })
  const outcomes: UpstreamOutcome[] = []
  const firstBytes: number[] = []
  const pool = new UpstreamPool({
    connect: wanted.connect ?? connectTo(upstream.port),
    readyEvent: 'connect',
    deadlines,
    connectMs: 3000,
    limits: LIMITS,
    maxConnections: wanted.maxConnections ?? 8,
    maxQueue: wanted.maxQueue ?? 8,
  })
  const context: TunnelContext = {
    pool,
    deadlines,
    idleMs: IDLE_MS,
    responseMs: RESPONSE_MS,
    isClosing,
    refuse: (exchange, error, outcome, close) => responder.refuse(exchange, error, { error: outcome }, close),
    sendQueue: wanted.sendQueue ?? (() => Promise.resolve(undefined)),
    onOutcome: (outcome) => void outcomes.push(outcome),
    onFirstByte: (ms) => void firstBytes.push(ms),
    now: wanted.now ?? Date.now,
  }
  const { listener, connect, started, over } = await startListening(
    t,
    (exchange) => {
      admitted(exchange)
      const { admitted: request, req, connection } = exchange
      if (request === undefined) return
      exchange.identity = wanted.identity
      const head = upstreamRequestHead({
        request,
        rawHeaders: req.rawHeaders,
        identity: exchange.identity,
        requestId: 'id',
        peer: connection.peer,
        forwardAuthorization: false,
        upgradeTo: request.upgrade && 'websocket',
        upstreamHost: 'upstream',
      })
      if (request.upgrade === undefined) new Transfer(exchange, head, request, context).start()
      else new Tunnel(exchange, head, context).start()
    },
    { deadlines, timeouts: { headersSeconds: 1_000_000, keepAliveSeconds: 1_000_000 } },
  )
  return {
    upstream,
    deadlines,
    pool,
    listener,
    outcomes,
    firstBytes,
    exchanges: started,
    /** How each exchange ended that is over: whether its response was sent whole. */
    over: () => over.map(({ finished }) => finished),
    client: connect,
    /** Sends a request and waits until the upstream has something of it. */
    async asks(text: string): Promise<RawClient> {
      const client = await connect()
      const connections = upstream.sockets.length
      client.send(text)
      await upstream.until(() => upstream.sockets.length > connections, 'a connection')
      await upstream.until(() => upstream.sockets.at(-1)?.bytesRead !== 0, 'the request')
      return client
    },
    /** Waits until nothing waits but unused connections to the upstream, and clients that may ask again. */
    async isQuiet(unused: number): Promise<void> {
      await eventually(
        () =>
          deadlines.waiting.size === unused + listener.connections &&
          pool.connections === unused &&
          pool.queued === 0,
        () =>
          `${unused} unused connections alone: ${deadlines.waiting.size} wait, ${pool.connections} to the upstream`,
      )
    },
  }
}

/** A connection that is there at once, and takes what is written when it is told to. */
export class Stuck extends Duplex {
  /** Everything it was given. */
  taken = ''
  release = (): void => {}
  constructor() {
    super({ highWaterMark: 16_384 }) // Node's default differs between versions
  }
  setNoDelay(): this {
    return this
  }
  override _read(): void {}
  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.taken += chunk.toString('latin1')
    this.release = done
  }
  readonly connect = (): Socket => {
    process.nextTick(() => this.emit('connect'))
    return this as unknown as Socket
  }
}

/** Sends bytes, and waits until the kernel has taken them all. */
export async function sendAll({ socket }: RawClient, bytes: Uint8Array): Promise<void> {
  if (!socket.write(bytes)) await once(socket, 'drain')
}
