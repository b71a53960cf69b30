/**
 * Forwarding. In: a request that the gate lets pass. Out: a transfer, or a tunnel, to the upstream of its path.
 * The sidecar is required to use the package http-proxy, whose passes are steps that handle a request. Its own ones stay
 * unused: they forward a chunked DELETE as two requests (CVE-2026-29057), rewrite paths and keep hop-by-hop headers.
 */
import type { SecureContext } from 'node:tls'
import httpProxy from 'http-proxy'
import type { Config } from '../config/config.ts'
import { isWithin } from '../http/request-target.ts'
import type { SidecarRequest, SidecarResponse } from '../server/context.ts'
import type { Responder } from '../server/respond.ts'
import { Transfer, type TransferOptions, type UpstreamEvents } from './transfer.ts'
import { upstreamAddress } from './upstream-connection.ts'
import { refuseFailed } from './upstream-errors.ts'
import { UpstreamPool } from './upstream-pool.ts'
import type { Tunnel, TunnelOptions } from './websocket.ts'

/** http-proxy with its documented `before`, which its published types lack. */
class PassProxy extends httpProxy<SidecarRequest, SidecarResponse> {
  declare before: (
    type: 'web',
    passName: string,
    pass: (req: SidecarRequest, res: SidecarResponse) => true,
  ) => void
}

interface ForwarderOptions extends Pick<TunnelOptions, 'recheck' | 'now'> {
  readonly upstreams: readonly {
    readonly prefix: string
    readonly url: string
    readonly assertionAudience: string
  }[]
  readonly secureContextOf: (prefix: string) => (() => SecureContext) | undefined
  readonly limits: Config['limits']
  readonly timeouts: Config['timeouts']
  readonly forwardAuthorization: boolean
  readonly responder: Responder
  readonly events: (prefix: string) => UpstreamEvents
}

interface Upstream extends TransferOptions {
  readonly prefix: string
  /** The prefix without a slash at its end. */
  readonly path: string
}

export class Forwarder {
  readonly #responder: Responder
  /** The one with the longest prefix first. */
  readonly #upstreams: readonly Upstream[]
  readonly #tunnels = new Set<Tunnel>()
  // http-proxy requires a target before it runs any pass; ours chooses its own.
  readonly #proxy = new PassProxy({ target: {} })

  constructor(options: ForwarderOptions) {
    const { limits, timeouts, responder, forwardAuthorization, recheck, now } = options
    this.#responder = responder
    this.#upstreams = options.upstreams
      .map(({ prefix, url, assertionAudience }) => {
        const address = upstreamAddress(url, options.secureContextOf(prefix))
        return {
          prefix,
          path: prefix.replace(/\/$/, ''),
          host: address.host,
          assertionAudience,
          forwardAuthorization,
          pool: new UpstreamPool(address, limits, timeouts),
          events: options.events(prefix),
          timeouts,
          responder,
          recheck,
          tunnels: this.#tunnels,
          now,
        }
      })
      .toSorted((a, b) => b.path.length - a.path.length)
    // Before the first of the package's passes. A truthy result ends the chain.
    this.#proxy.before('web', 'deleteLength', (req, res) => {
      this.#transfer(req, res)
      return true
    })
  }

  /** Responds with the upstream's response, opens a tunnel, or refuses. */
  forward(req: SidecarRequest, res: SidecarResponse): void {
    this.#proxy.web(req, res)
  }

  #transfer(req: SidecarRequest, res: SidecarResponse): void {
    const { admitted, decision } = req.context
    if (admitted === undefined || decision?.act !== 'forward') throw new Error('a request that must not pass')
    const upstream = this.#upstreams.find(({ path }) => isWithin(admitted.path, path))
    if (upstream === undefined) refuseFailed(this.#responder, res, 'destination_not_found')
    else new Transfer(req, res, admitted, decision, upstream).start()
  }

  /** The state of the connections of each upstream. */
  pools(): { readonly upstream: string; readonly connections: number; readonly queued: number }[] {
    return this.#upstreams.map(({ prefix, pool }) => ({
      upstream: prefix,
      connections: pool.connections,
      queued: pool.queued,
    }))
  }

  /** Must be called when keys, credentials or revocations have changed: closes the tunnels of tokens refused now. */
  recheckTunnels(): void {
    for (const tunnel of this.#tunnels) void tunnel.recheck()
  }

  /** Closes every upstream connection as soon as it is idle. */
  close(): void {
    for (const { pool } of this.#upstreams) pool.close()
  }
}
