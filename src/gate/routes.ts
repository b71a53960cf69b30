/**
 * Routes a request: to the sidecar itself, or to the upstream with or without a token check.
 * Compares the method and the raw bytes of the path exactly. Decoding or normalizing the path could differ from the
 * upstream's (CVE-2025-54576).
 */

/** The label `route` of the metrics. */
export const ROUTES = ['token_issue', 'token_check', 'proxy', 'public', 'forward_auth'] as const

export type Route = (typeof ROUTES)[number]

export interface RouteOptions {
  /** Prefix of the token endpoint, `''` or `/…` without a slash at its end. */
  readonly basePath: string
  /** Requests that are forwarded without a token: exact method and path. */
  readonly publicRoutes: readonly { readonly method: string; readonly path: string }[]
  /** Whether a CORS preflight passes without a token. */
  readonly corsPreflight: 'deny' | 'pass'
  /** The path of forward-auth requests, with everything below it; `''` for none. */
  readonly forwardAuthPath: string
}

/** `token_method` and `token_preflight` are other methods on the token endpoint. */
export type RouteDecision = Route | 'token_method' | 'token_preflight'

/** Creates the function that routes a request. */
export function createRoutes(
  options: RouteOptions,
): (request: {
  readonly method: string
  readonly path: string
  readonly preflight: boolean
}) => RouteDecision {
  const tokenPath = `${options.basePath}/v2/auth/token`
  const tokenPathSlash = `${tokenPath}/`
  const { forwardAuthPath } = options
  const forwardAuthPrefix = `${forwardAuthPath}/`
  const publicRoutes = new Set(options.publicRoutes.map(({ method, path }) => `${method} ${path}`))
  const passPreflight = options.corsPreflight === 'pass'
  return ({ method, path, preflight }) => {
    if (path === tokenPath || path === tokenPathSlash) {
      if (method === 'POST') return 'token_issue'
      if (method === 'GET' || method === 'HEAD') return 'token_check'
      return preflight ? 'token_preflight' : 'token_method'
    }
    if (forwardAuthPath !== '' && `${path}/`.startsWith(forwardAuthPrefix)) return 'forward_auth'
    if (publicRoutes.size > 0 && publicRoutes.has(`${method} ${path}`)) return 'public'
    return passPreflight && preflight ? 'public' : 'proxy'
  }
}
