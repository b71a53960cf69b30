/**
 * Which requests are answered here, which pass without a token, and which need one.
 *
 * Only the method and the raw bytes of the path decide, compared exactly: nothing is decoded, folded or
 * normalised, because every such step is a second reading that an attacker can aim at (CVE-2025-54576).
 *
 * @module
 */

/** The label `route` of the metrics. */
export type Route = 'token_issue' | 'token_check' | 'proxy' | 'public'

/** What the routes are made of. */
export interface RouteOptions {
  /** Prefix of the token endpoint, `''` or `/…` without a slash at its end. */
  readonly basePath: string
  /** Requests that are forwarded without a token: exact method and path. */
  readonly publicRoutes: readonly { readonly method: string; readonly path: string }[]
  /** Whether a CORS preflight passes without a token. */
  readonly corsPreflight: 'deny' | 'pass'
}

/** What a request must have to be routed. */
export interface Routed {
  readonly method: string
  readonly path: string
  readonly preflight: boolean
}

/** `method_not_allowed` is said of the token endpoint's paths alone. */
export type RouteDecision = Route | 'method_not_allowed'

/** Makes the function that routes a request. */
export function createRoutes(options: RouteOptions): (request: Routed) => RouteDecision {
  const tokenPath = `${options.basePath}/v2/auth/token`
  const tokenPathSlash = `${tokenPath}/`
  const publicRoutes = new Set(options.publicRoutes.map(({ method, path }) => `${method} ${path}`))
  const passPreflight = options.corsPreflight === 'pass'
  return ({ method, path, preflight }) => {
    if (path === tokenPath || path === tokenPathSlash) {
      if (method === 'POST') return 'token_issue'
      return method === 'GET' || method === 'HEAD' ? 'token_check' : 'method_not_allowed'
    }
    if (publicRoutes.size > 0 && publicRoutes.has(`${method} ${path}`)) return 'public'
    return passPreflight && preflight ? 'public' : 'proxy'
  }
}
