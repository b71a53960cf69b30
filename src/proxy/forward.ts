/**
 * Forwarding: selects the upstream by the path. In: a request that the gate lets pass. Out: a transfer, or a tunnel.
 * http-proxy is a required package that runs passes (its name for steps). A pass of the sidecar comes first and ends the chain:
 * the package's own forward a chunked DELETE as two requests (CVE-2026-29057), rewrite paths and keep hop-by-hop headers.
 */
import type { SecureContext } from 'node:tls'
import httpProxy from 'http-proxy'
import type { SidecarRequest } from '../client/context.ts'
import type { Responder } from '../client/responder.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Config } from '../config/config.ts'
import type { ServiceDecision } from '../gate/gate.ts'
import { isWithin } from '../http/request-target.ts'
import { Transfer, type Upstream, type UpstreamEvents } from './transfer.ts'
import type { Tunnels } from './tunnel.ts'
import { upstreamAddress } from './upstream-connection.ts'
import { UpstreamPool } from './upstream-pool.ts'

/** http-proxy with its documented `before`, which its published types lack. */
class PassProxy extends httpProxy<SidecarRequest, SidecarResponse> {
  declare before: (type: 'web', name: string, pass: (req: unknown, res: SidecarResponse) => true) => void
}

interface ForwarderOptions {
  readonly secureContextOf: (prefix: string) => (() => SecureContext) | undefined
  readonly gate: Tunnels['gate']
  readonly responder: Responder
  readonly events: (prefix: string) => UpstreamEvents
  readonly now: () => number
  readonly onInternalError: (requestId: string, error: unknown) => void
}

export class Forwarder {
  readonly #responder: Responder
  /** The longest prefix is first. */
  readonly #upstreams: readonly Upstream[]
  readonly #tunnels: Tunnels
  // http-proxy runs no pass without a target. The sidecar's pass does not use it.
  readonly #proxy = new PassProxy({ target: {} })

  constructor(config: Config, options: ForwarderOptions) {
    const { secureContextOf, events, responder, onInternalError, gate, now } = options
    this.#responder = responder
    const endWithToken = config.enforcement === 'enforce'
    this.#tunnels = { open: new Set(), endWithToken, gate, now, onInternalError }
    const shared = { responder, onInternalError, tunnels: this.#tunnels }
    this.#upstreams = config.upstreams
      .map(({ prefix, url, assertionAudience = config.identity.assertion.audience }) => {
        const pathPrefix = prefix.replace(/\/$/, '')
        const address = upstreamAddress(url, secureContextOf(prefix))
        const pool = new UpstreamPool(prefix, address, config)
        return { ...shared, pathPrefix, pool, host: address.host, assertionAudience, events: events(prefix) }
      })
      .toSorted((a, b) => b.pathPrefix.length - a.pathPrefix.length)
    // `deleteLength` is the first pass of the package. A truthy result ends the chain.
    this.#proxy.before('web', 'deleteLength', (_req, res) => {
      const transfer = res.req.context.owner
      if (!(transfer instanceof Transfer)) throw new Error('there is no transfer of this request')
      transfer.start()
      return true
    })
  }

  forward(res: SidecarResponse, decision: ServiceDecision): void {
    const { path } = decision.admitted
    const upstream = this.#upstreams.find(({ pathPrefix }) => isWithin(path, pathPrefix))
    if (upstream === undefined) {
      this.#responder.sendUpstreamError(res, 'destination_not_found')
    } else {
      res.req.context.changeOwner(new Transfer(res, decision, upstream))
      this.#proxy.web(res.req, res)
    }
  }

  pools(): readonly Pick<UpstreamPool, 'prefix' | 'connections' | 'queued'>[] {
    return this.#upstreams.map(({ pool }) => pool)
  }

  /** Must be called when keys, credentials or revocations have changed: closes the tunnels of tokens refused now. */
  recheckTunnels(): void {
    for (const tunnel of this.#tunnels.open) void tunnel.recheck()
  }

  close(): void {
    for (const { pool } of this.#upstreams) pool.close()
  }
}
