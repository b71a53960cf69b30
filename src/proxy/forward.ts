/**
 * Selects the upstream by the path. In: a request that the gate lets pass. Out: a transfer, which may become a tunnel.
 * The required package http-proxy runs "passes" (its word for steps). The sidecar's pass runs first and ends the chain: the
 * package's passes send a chunked DELETE as two requests (CVE-2026-29057), rewrite paths and keep hop-by-hop headers.
 */
import type { SecureContext } from 'node:tls'
import httpProxy from 'http-proxy'
import type { SidecarRequest } from '../client/request.ts'
import type { Responder } from '../client/responder.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Config } from '../config/config.ts'
import { isWithin, withoutFinalSlash } from '../http/request-target.ts'
import { Transfer, type Upstream, type UpstreamEvents } from './transfer.ts'
import type { Tunnels } from './tunnel.ts'
import { upstreamAddress } from './upstream-address.ts'
import { UpstreamPool } from './upstream-pool.ts'

/** http-proxy with the method `before`, which is documented but missing in the types of the package. */
class PassProxy extends httpProxy<SidecarRequest, SidecarResponse> {
  declare before: (type: 'web', name: string, pass: (req: unknown, res: SidecarResponse) => true) => void
}

interface ForwarderOptions {
  readonly secureContextOf: (prefix: string) => (() => SecureContext) | undefined
  readonly gate: Tunnels['gate']
  readonly responder: Responder
  readonly events: (prefix: string) => UpstreamEvents
  readonly now: () => number
  readonly reportInternalError: (requestId: string, error: unknown) => void
}

export class Forwarder {
  readonly #responder: Responder
  /** The longest prefix is first, so that the first match is the most specific one. */
  readonly #upstreams: readonly Upstream[]
  readonly #tunnels: Tunnels
  // http-proxy runs no pass without a target. The sidecar's pass does not use the target.
  readonly #proxy = new PassProxy({ target: {} })

  constructor(config: Config, options: ForwarderOptions) {
    const { secureContextOf, events, responder, reportInternalError, gate, now } = options
    this.#responder = responder
    const endWithToken = config.enforcement === 'enforce'
    this.#tunnels = { open: new Set(), endWithToken, gate, now, reportInternalError }
    const shared = { responder, reportInternalError, tunnels: this.#tunnels }
    this.#upstreams = config.upstreams
      .map(({ prefix, url, assertionAudience = config.identity.assertion.audience }) => {
        const pathPrefix = withoutFinalSlash(prefix)
        const address = upstreamAddress(url, secureContextOf(prefix))
        const pool = new UpstreamPool(prefix, address, config)
        return { ...shared, pathPrefix, pool, host: address.host, assertionAudience, events: events(prefix) }
      })
      .toSorted((a, b) => b.pathPrefix.length - a.pathPrefix.length)
    // `deleteLength` is the first pass of the package. A truthy result of a pass ends the chain.
    this.#proxy.before('web', 'deleteLength', (_req, res) => {
      this.#transfer(res)
      return true
    })
  }

  /**
   * The context of the request must have the decision to forward it: `web` passes on no other argument. With options, `web` would
   * call a deprecated function of Node for each request.
   */
  forward(res: SidecarResponse): void {
    this.#proxy.web(res.req, res)
  }

  #transfer(res: SidecarResponse) {
    const { decision } = res.req.context
    if (decision?.act !== 'forward') throw new Error('the gate has not decided to forward the request')
    const upstream = this.#upstreams.find(({ pathPrefix }) => isWithin(decision.admitted.path, pathPrefix))
    if (upstream === undefined) return this.#responder.failForwarded(res, 'destination_not_found')
    const transfer = new Transfer(res, decision, upstream)
    res.req.context.changeOwner(transfer)
    upstream.pool.acquire(transfer)
  }

  pools(): readonly Pick<UpstreamPool, 'prefix' | 'connections' | 'queued'>[] {
    return this.#upstreams.map(({ pool }) => pool)
  }

  /** Closes each tunnel whose token would now be refused. Must be called after keys, credentials or revocations change. */
  recheckTunnels(): void {
    for (const tunnel of this.#tunnels.open) void tunnel.recheck()
  }

  close(): void {
    for (const { pool } of this.#upstreams) pool.close()
  }
}
