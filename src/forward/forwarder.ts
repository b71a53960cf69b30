/**
 * Forwarding: http-proxy with a pass of our own in front of its stock ones.
 *
 * The stock passes turn a chunked DELETE into two upstream requests (CVE-2026-29057), rewrite object keys and
 * leak connections; a pass that returns true ends the chain, so none of them ever runs. What is left of
 * http-proxy is the frame: one proxy object for requests and for upgrades.
 *
 * @module
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { SecureContext } from 'node:tls'
import httpProxy from 'http-proxy'
import type { ClientRequest } from '../http/client-request.ts'
import type { ClientResponse } from '../http/client-response.ts'
import type { Deadlines } from '../http/deadlines.ts'
import type { Exchange } from '../http/exchange.ts'
import { createPrefixRouting } from './prefix-routing.ts'
import { createSendQueue } from './send-queue.ts'
import { upstreamRequestHead } from './towards-upstream.ts'
import { Transfer, type TransferContext } from './transfer.ts'
import { Tunnel, type TunnelContext } from './tunnel.ts'
import { type UpstreamSettings, upstreamAddress } from './upstream-address.ts'
import { faultError, type UpstreamOutcome } from './upstream-fault.ts'
import { UpstreamPool } from './upstream-pool.ts'

/** What forwarding works with. */
export interface ForwarderOptions {
  readonly upstreams: readonly UpstreamSettings[]
  /** See {@link upstreamAddress}, by the prefix of the upstream; default: none. */
  readonly secureContextOf?: (prefix: string) => (() => SecureContext) | undefined
  readonly deadlines: Deadlines
  readonly timeouts: {
    readonly idleSeconds: number
    readonly upstreamConnectSeconds: number
    readonly upstreamResponseSeconds: number
  }
  readonly limits: {
    readonly headerBytes: number
    readonly headerLines: number
    readonly upstreamConnections: number
    readonly upstreamQueue: number
  }
  /** Setting `identity.forwardAuthorization`. */
  readonly forwardAuthorization: boolean
  readonly isClosing: () => boolean
  /** Answers in place of the upstream. */
  readonly refuse: TransferContext['refuse']
  /** Told how each forwarded request ended. `upstream`: its prefix. */
  readonly onOutcome: (upstream: string, outcome: UpstreamOutcome) => void
  /** Told the milliseconds to each response head. */
  readonly onFirstByte: (upstream: string, ms: number) => void
  /** Epoch milliseconds. */
  readonly now: () => number
}

/** Forwards exchanges. */
export interface Forwarder {
  /** Forwards an exchange that may pass. */
  forward(exchange: Exchange): void
  /** The state of each upstream's pool. */
  pools(): { readonly upstream: string; readonly connections: number; readonly queued: number }[]
  /** Closes unused connections, and each other one when its response is over. */
  close(): void
}

interface Upstream {
  readonly context: TunnelContext
  readonly host: string
}

/** Makes the forwarder. */
export function createForwarder(options: ForwarderOptions): Forwarder {
  const { deadlines, timeouts, limits } = options
  const sendQueue = createSendQueue({ monotonicNow: deadlines.monotonicNow })
  const pools: { upstream: string; pool: UpstreamPool }[] = []
  const entries = options.upstreams.map((settings) => {
    const { connect, readyEvent, host } = upstreamAddress(
      settings,
      options.secureContextOf?.(settings.prefix),
    )
    const upstream = settings.prefix
    const pool = new UpstreamPool({
      connect,
      readyEvent,
      deadlines,
      connectMs: timeouts.upstreamConnectSeconds * 1000,
      limits,
      maxConnections: limits.upstreamConnections,
      maxQueue: limits.upstreamQueue,
    })
    pools.push({ upstream, pool })
    const context: TunnelContext = {
      pool,
      deadlines,
      idleMs: timeouts.idleSeconds * 1000,
      responseMs: timeouts.upstreamResponseSeconds * 1000,
      isClosing: options.isClosing,
      sendQueue,
      refuse: options.refuse,
      onOutcome: (outcome) => options.onOutcome(upstream, outcome),
      onFirstByte: (ms) => options.onFirstByte(upstream, ms),
      now: options.now,
    }
    return { prefix: settings.prefix, upstream: { context, host } satisfies Upstream }
  })
  const upstreamOf = createPrefixRouting<Upstream>(entries)

  const begin = (exchange: Exchange | undefined): true => {
    if (exchange?.admitted === undefined) throw new Error('an exchange is forwarded only after admission')
    const { admitted: request } = exchange
    const upstream = upstreamOf(request.path)
    if (upstream === undefined) {
      const fault = 'destination_not_found'
      exchange.reason = fault
      options.refuse(exchange, faultError(fault), fault, request.hasBody)
      return true
    }
    const head = upstreamRequestHead({
      request,
      rawHeaders: exchange.req.rawHeaders,
      identity: exchange.identity,
      requestId: exchange.requestId,
      peer: exchange.connection.peer,
      forwardAuthorization: options.forwardAuthorization,
      upgradeTo: request.upgrade && 'websocket',
      upstreamHost: upstream.host,
      last: exchange.req.isRemembered ? exchange.connection.lastForwarded : undefined,
    })
    if (request.upgrade === undefined) new Transfer(exchange, head, request, upstream.context).start()
    else new Tunnel(exchange, head, upstream.context).start()
    return true
  }

  // http-proxy wants a target before it runs any pass; ours chooses its own.
  const proxy = httpProxy.createProxyServer({ target: {} })
  /** The exchanges of handshakes: http-proxy hands a `ws` pass the socket instead of a response. */
  const tunnels = new WeakMap<ClientRequest, Exchange>()
  beforeStockPasses(proxy, {
    web: (_req, res) => begin(res.exchange),
    ws: (req) => begin(tunnels.get(req)),
  })

  return {
    forward(exchange) {
      const { req, res, admitted, connection } = exchange
      // http-proxy hands both on to our passes as they are: no other ever sees them.
      const message = req as unknown as IncomingMessage
      if (admitted?.upgrade === undefined) {
        proxy.web(message, res as unknown as ServerResponse)
        return
      }
      tunnels.set(req, exchange)
      proxy.ws(message, connection.socket, NOTHING_BEHIND)
    },
    pools: () =>
      pools.map(({ upstream, pool }) => ({ upstream, connections: pool.connections, queued: pool.queued })),
    close: () => {
      for (const { pool } of pools) pool.close()
    },
  }
}

/** What follows a handshake is the tunnel's to read. */
const NOTHING_BEHIND = Buffer.alloc(0)

/** Our passes, by the kind of request. Each says that the chain ends with it. */
interface OurPasses {
  readonly web: (req: ClientRequest, res: ClientResponse) => true
  readonly ws: (req: ClientRequest) => true
}

/** Puts ours in front. `before` is documented by http-proxy and missing in its types. */
function beforeStockPasses(proxy: httpProxy, { web, ws }: OurPasses): void {
  const hooked = proxy as httpProxy & { before(type: 'web' | 'ws', passName: string, pass: unknown): void }
  hooked.before('web', 'deleteLength', web)
  hooked.before('ws', 'checkMethodAndHeader', ws)
}
