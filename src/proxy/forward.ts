/**
 * Selects the upstream by the path. In: a request that the gate lets pass. Out: a transfer,
 * which may become a tunnel. The required package http-proxy runs "passes" (its word for steps).
 * The sidecar's pass runs first and ends the chain: the package's passes send a chunked DELETE
 * as two requests (CVE-2026-29057), rewrite paths and keep hop-by-hop headers.
 */
import type { SecureContext } from 'node:tls'
import httpProxy from 'http-proxy'
import type { SidecarRequest } from '../client/request.ts'
import type { Responder } from '../client/responder.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Config } from '../config/config.ts'
import type { ServiceDecision } from '../gate/gate.ts'
import { isWithin, withoutFinalSlash } from '../http/request-target.ts'
import { upstreamAddress } from '../upstream/address.ts'
import { ReadBuffers } from '../upstream/buffers.ts'
import { OwnConnections } from '../upstream/own-connections.ts'
import { UpstreamPool } from '../upstream/pool.ts'
import type { RecheckSource } from './recheck.ts'
import { Transfer, type Upstream, type UpstreamEvents } from './transfer.ts'

type ForwarderConfig = Pick<Config, 'identity' | 'limits' | 'timeouts' | 'upstreams'>

interface ForwarderOptions extends RecheckSource, Pick<Upstream, 'responder'> {
  readonly secureContextOf: (prefix: string) => (() => SecureContext) | undefined
  readonly events: (prefix: string) => UpstreamEvents
}

export class Forwarder {
  readonly #responder: Responder
  /** Those of all upstreams. */
  readonly #ownConnections = new OwnConnections()
  /** The longest prefix is first, so that the first match is the most specific one. */
  readonly #upstreams: readonly Upstream[]

  constructor(config: ForwarderConfig, options: ForwarderOptions) {
    const { secureContextOf, events, responder, gate, now, reportError } = options
    const shared = { responder, gate, now, reportError, config }
    const sharedByPools = { ownConnections: this.#ownConnections, readBuffers: new ReadBuffers() }
    this.#responder = responder
    this.#upstreams = config.upstreams
      .map(({ prefix, url, assertionAudience = config.identity.assertion.audience }) => {
        const pathPrefix = withoutFinalSlash(prefix)
        const address = upstreamAddress(url, secureContextOf(prefix))
        const pool = new UpstreamPool(prefix, address, config, sharedByPools)
        return { ...shared, pathPrefix, host: address.host, assertionAudience, pool, events: events(prefix) }
      })
      .toSorted((a, b) => b.pathPrefix.length - a.pathPrefix.length)
  }

  /** If false, `forward` refuses the request without a transfer. */
  canForward(res: SidecarResponse, decision: ServiceDecision): boolean {
    return this.#upstreamOf(decision) !== undefined && !this.#isLoop(res)
  }

  forward(res: SidecarResponse, decision: ServiceDecision) {
    const upstream = this.#upstreamOf(decision)
    if (upstream === undefined) {
      return this.#responder.failForwarded(res, 'destination_not_found')
    }
    if (this.#isLoop(res)) {
      upstream.events.onOutcome('proxy_loop_detected')
      return this.#responder.failForwarded(res, 'proxy_loop_detected')
    }
    res.req.context.changeOwner(new Transfer(res, decision, upstream))
    proxy.web(res.req, res) // with options, it would call a deprecated function of Node for each request
  }

  #upstreamOf({ admitted }: ServiceDecision): Upstream | undefined {
    return this.#upstreams.find(({ pathPrefix }) => isWithin(admitted.path, pathPrefix))
  }

  /** Whether the sidecar has sent the request to itself. */
  #isLoop(res: SidecarResponse): boolean {
    return this.#ownConnections.has(res.req.context.connection.tcpSocket)
  }

  pools(): readonly Pick<UpstreamPool, 'prefix' | 'connections' | 'queued'>[] {
    return this.#upstreams.map(({ pool }) => pool)
  }

  close(): void {
    for (const { pool } of this.#upstreams) {
      pool.close()
    }
  }
}

/** http-proxy with the method `before`, which is documented but missing in the types of the package. */
class PassProxy extends httpProxy<SidecarRequest, SidecarResponse> {
  declare before: (type: 'web', name: string, pass: (req: unknown, res: SidecarResponse) => true) => void
}

// It runs no pass without a target, which the sidecar's pass does not use.
const proxy = new PassProxy({ target: {} })
// `deleteLength` is the first pass of the package. A truthy result of a pass ends the chain.
proxy.before('web', 'deleteLength', (_req, res) => {
  const { owner } = res.req.context
  if (!(owner instanceof Transfer)) {
    throw new Error('only a transfer is forwarded')
  }
  owner.start()
  return true
})
