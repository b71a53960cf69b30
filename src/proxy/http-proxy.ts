/**
 * The required package http-proxy runs "passes" (its word for steps). The sidecar's pass runs first and ends the chain: the
 * package's passes send a chunked DELETE as two requests (CVE-2026-29057), rewrite paths and keep hop-by-hop headers.
 */
import httpProxy from 'http-proxy'
import type { SidecarRequest } from '../client/request.ts'
import type { SidecarResponse } from '../client/response.ts'

/** http-proxy with the method `before`, which is documented but missing in the types of the package. */
class PassProxy extends httpProxy<SidecarRequest, SidecarResponse> {
  declare before: (type: 'web', name: string, pass: (req: unknown, res: SidecarResponse) => true) => void
}

/** Returns a function that calls `pass` through http-proxy. */
export function throughHttpProxy(pass: (res: SidecarResponse) => void): typeof pass {
  const proxy = new PassProxy({ target: {} }) // it runs no pass without a target, which the sidecar's pass does not use
  // `deleteLength` is the first pass of the package. A truthy result of a pass ends the chain.
  proxy.before('web', 'deleteLength', (_req, res) => {
    pass(res)
    return true
  })
  return (res) => proxy.web(res.req, res) // with options, it would call a deprecated function of Node for each request
}
