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
import { Transfer, type Upstream } from './transfer.ts'
import { upstreamAddress } from './upstream-connection.ts'
import { refuseFailed, type UpstreamEvents } from './upstream-errors.ts'
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
  readonly responder: Responder
  readonly secureContextOf: (prefix: string) => (() => SecureContext) | undefined
  readonly events: (prefix: string) => UpstreamEvents
}

export class Forwarder {
  readonly #responder: Responder
  /** The one with the longest prefix first. */
  readonly #upstreams: readonly Upstream[]
  readonly #tunnels = new Set<Tunnel>()
  // http-proxy requires a target before it runs any pass; ours chooses its own.
  readonly #proxy = new PassProxy({ target: {} })

  constructor(config: Config, { responder, secureContextOf, events, recheck, now }: ForwarderOptions) {
    const { limits, timeouts, identity } = config
    const { forwardAuthorization } = identity
    this.#responder = responder
    this.#upstreams = config.upstreams
      .map(({ prefix, url, assertionAudience = identity.assertion.audience }) => {
        const address = upstreamAddress(url, secureContextOf(prefix))
        const path = prefix.replace(/\/$/, '')
        const pool = new UpstreamPool(address, limits, timeouts)
        const headers = { host: address.host, assertionAudience, forwardAuthorization }
        const tunnel = { tunnels: this.#tunnels, recheck, now }
        return { prefix, path, pool, timeouts, responder, events: events(prefix), ...headers, ...tunnel }
      })
      .toSorted((a, b) => b.path.length - a.path.length)
    // Before the first of the package's passes. A truthy result ends the chain.
    this.#proxy.before('web', 'deleteLength', (_req, res) => {
      this.#transfer(res)
      return true
    })
  }

  /** Responds with the upstream's response, opens a tunnel, or refuses. */
  forward(req: SidecarRequest, res: SidecarResponse): void {
    this.#proxy.web(req, res)
  }

  #transfer(res: SidecarResponse): void {
    const { admitted, decision } = res.req.context
    if (admitted === undefined || decision?.act !== 'forward') throw new Error('a request that must not pass')
    const upstream = this.#upstreams.find(({ path }) => isWithin(admitted.path, path))
    if (upstream === undefined) refuseFailed(this.#responder, res, 'destination_not_found')
    else new Transfer(res, admitted, decision, upstream).start()
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
