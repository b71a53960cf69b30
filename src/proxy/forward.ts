/**
 * Forwarding: http-proxy with the sidecar's own pass, which ends the chain: no stock pass ever runs (CVE-2026-29057).
 * In: an admitted request. Out: a transfer, or a tunnel, to the upstream of its path.
 */
import type { SecureContext } from 'node:tls'
import httpProxy from 'http-proxy'
import { isWithin } from '../http/request-target.ts'
import type { SidecarRequest, SidecarResponse } from '../server/context.ts'
import { requestHead } from './request-headers.ts'
import { Transfer, type TransferOptions, type UpstreamEvents } from './transfer.ts'
import { upstreamAddress } from './upstream-connection.ts'
import { faultError } from './upstream-errors.ts'
import { UpstreamPool, type UpstreamPoolOptions } from './upstream-pool.ts'

/** http-proxy with its documented `before`, which its published types lack. */
class PassProxy extends httpProxy<SidecarRequest, SidecarResponse> {
  declare before: (
    type: 'web',
    passName: string,
    pass: (req: SidecarRequest, res: SidecarResponse) => true,
  ) => void
}

interface ForwarderOptions extends Pick<TransferOptions, 'refuse' | 'recheck' | 'now'> {
  readonly upstreams: readonly {
    readonly prefix: string
    readonly url: string
    readonly assertionAudience: string
  }[]
  readonly secureContextOf: (prefix: string) => (() => SecureContext) | undefined
  readonly limits: UpstreamPoolOptions['limits']
  readonly timeouts: UpstreamPoolOptions['timeouts']
  readonly forwardAuthorization: boolean
  readonly events: (prefix: string) => UpstreamEvents
}

/** The way from an accepted request to the upstream of its path. */
export interface Forwarder {
  /** Responds with the upstream's response, opens a tunnel, or refuses. */
  forward(req: SidecarRequest, res: SidecarResponse): void
  /** The state of the connections of each upstream. */
  pools(): { readonly upstream: string; readonly connections: number; readonly queued: number }[]
  /** Must be called when keys, credentials or revocations have changed: closes the tunnels of tokens refused now. */
  recheckTunnels(): void
  /** Closes every upstream connection as soon as it is idle. */
  close(): void
}

export function createForwarder(options: ForwarderOptions): Forwarder {
  const { timeouts, limits, refuse, recheck, now } = options
  const tunnelChecks = new Set<() => void>()
  const upstreams = options.upstreams.map(({ prefix, url, assertionAudience }) => {
    const address = upstreamAddress(url, options.secureContextOf(prefix))
    const pool = new UpstreamPool({ address, timeouts, limits })
    const events = options.events(prefix)
    const transfer = { pool, events, timeouts, refuse, recheck, tunnelChecks, now }
    return { prefix, path: prefix.replace(/\/$/, ''), address, pool, transfer, assertionAudience }
  })
  const longestFirst = upstreams.toSorted((a, b) => b.path.length - a.path.length)

  const begin = (req: SidecarRequest, res: SidecarResponse): true => {
    const { context } = req
    const { admitted: request, decision } = context
    if (request === undefined || decision?.act !== 'forward') throw new Error('a request that must not pass')
    const { caller, wouldRefuse, target } = decision
    const upstream = longestFirst.find(({ path }) => isWithin(request.path, path))
    if (upstream === undefined) {
      const fault = 'destination_not_found'
      refuse(req, res, faultError(fault), fault)
      return true
    }
    const parts = {
      request,
      rawHeaders: req.rawHeaders,
      caller,
      requestId: context.id,
      peer: context.connection.peer,
      // Report mode forwards a refused token unchanged; a public route never forwards one.
      keepAuthorization: caller === undefined ? wouldRefuse !== undefined : options.forwardAuthorization,
      upstreamHost: upstream.address.host,
      assertionAudience: upstream.assertionAudience,
      isHandshake: context.upgrade !== undefined,
    }
    new Transfer(req, res, requestHead(parts, target), upstream.transfer).start()
    return true
  }

  // http-proxy requires a target before it runs any pass; ours chooses its own.
  const proxy = new PassProxy({ target: {} })
  proxy.before('web', 'deleteLength', begin) // the first stock pass

  return {
    forward: (req, res) => proxy.web(req, res),
    pools: () =>
      upstreams.map(({ prefix, pool }) => ({
        upstream: prefix,
        connections: pool.connections,
        queued: pool.queued,
      })),
    recheckTunnels() {
      for (const check of tunnelChecks) check()
    },
    close() {
      for (const { pool } of upstreams) pool.close()
    },
  }
}
