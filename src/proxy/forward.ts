/** Selects the upstream by the path. In: a request that the gate lets pass. Out: a transfer, which may become a tunnel. */
import type { SecureContext } from 'node:tls'
import type { Responder } from '../client/responder.ts'
import type { Config } from '../config/config.ts'
import { isWithin, withoutFinalSlash } from '../http/request-target.ts'
import { throughHttpProxy } from './http-proxy.ts'
import { Transfer, type Upstream, type UpstreamEvents } from './transfer.ts'
import type { Tunnels } from './tunnel.ts'
import { upstreamAddress } from './upstream-address.ts'
import { UpstreamPool } from './upstream-pool.ts'

type ForwarderConfig = Pick<Config, 'enforcement' | 'identity' | 'limits' | 'timeouts' | 'upstreams'>

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

  constructor(config: ForwarderConfig, options: ForwarderOptions) {
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
  }

  /** The context of the request must have the decision to forward it, because http-proxy hands on no other argument. */
  readonly forward = throughHttpProxy((res) => {
    const { decision } = res.req.context
    if (decision?.act !== 'forward') throw new Error('the gate has not decided to forward the request')
    const upstream = this.#upstreams.find(({ pathPrefix }) => isWithin(decision.admitted.path, pathPrefix))
    if (upstream === undefined) return this.#responder.failForwarded(res, 'destination_not_found')
    const transfer = new Transfer(res, decision, upstream)
    res.req.context.changeOwner(transfer)
    upstream.pool.acquire(transfer)
  })

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
