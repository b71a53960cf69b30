/**
 * Routes a request by its method and path, which are compared as raw bytes (`http/request-target.ts`).
 * In: an admitted request. Out: its route. `gate/gate.ts` decides whether the request may take it.
 */
import type { Config } from '../config/config.ts'
import { isWithin, LINKS_PATH, TOKEN_PATH } from '../http/request-target.ts'
import type { AdmittedRequest } from './admission.ts'

/** The label `route` of the metrics and the access log. */
export const ROUTE_LABELS = [
  'token_issue',
  /** GET or HEAD of the token endpoint, not the check of every token. */
  'token_check',
  'logout',
  'link_issue',
  'proxy',
  'link',
  'public',
  'forward_auth',
] as const
export type RouteLabel = (typeof ROUTE_LABELS)[number]

/** `act`: what the sidecar does with an allowed request. `needsToken`: a valid token, or a link. */
export type Route = ServiceRoute | EndpointRoute

/** To a service. The token's scope, or the link, must allow the request. Without `needsToken`, the route is public. */
export interface ServiceRoute {
  readonly to: 'service'
  readonly act: 'forward' | 'approve'
  readonly needsToken: boolean
  readonly label: RouteLabel
}

/** To an endpoint of the sidecar. If it needs a token, any valid one is enough. */
export type EndpointRoute = { readonly to: 'endpoint'; readonly label: RouteLabel } & (
  | { readonly act: 'logIn'; readonly needsToken: false }
  | { readonly act: 'refuseMethod'; readonly needsToken: false; readonly allowed: string }
  | { readonly act: 'sendTimeLeft' | 'logOut' | 'createLink'; readonly needsToken: true }
  | { readonly act: 'endLink'; readonly needsToken: true; readonly linkId: string }
)

export const FORWARD: ServiceRoute = { to: 'service', act: 'forward', needsToken: true, label: 'proxy' }
export const FORWARD_LINK: ServiceRoute = { ...FORWARD, label: 'link' }
const FORWARD_PUBLIC: ServiceRoute = { ...FORWARD, needsToken: false, label: 'public' }
/** A proxy asks whether it may forward a request to its own upstream (forward auth). */
const APPROVE: ServiceRoute = { ...FORWARD, act: 'approve', label: 'forward_auth' }
const LOG_IN: Route = { to: 'endpoint', act: 'logIn', needsToken: false, label: 'token_issue' }
const SEND_TIME_LEFT: Route = { to: 'endpoint', act: 'sendTimeLeft', needsToken: true, label: 'token_check' }
const LOG_OUT: Route = { to: 'endpoint', act: 'logOut', needsToken: true, label: 'logout' }
const CREATE_LINK: Route = { to: 'endpoint', act: 'createLink', needsToken: true, label: 'link_issue' }

function refuseMethod(label: 'token_check' | 'link_issue', allowed: string): Route {
  return { to: 'endpoint', act: 'refuseMethod', needsToken: false, label, allowed }
}

/** @param canEndLinks - whether there is a database for the revocations of links */
export function createRouter(config: Config, canEndLinks: boolean): (request: AdmittedRequest) => Route {
  const { basePath } = config.listen
  const { logout } = config.contract
  const { links, forwardAuth } = config
  const tokenPath = basePath + TOKEN_PATH
  const tokenPathSlash = `${tokenPath}/`
  const linksPath = basePath + LINKS_PATH
  const publicRoutes = new Set(config.publicRoutes.map(({ method, path }) => `${method} ${path}`))
  const passPreflight = config.corsPreflight === 'pass'

  const toTokenEndpoint = (method: string): Route => {
    if (method === 'POST') return LOG_IN
    if (method === 'GET' || method === 'HEAD') return SEND_TIME_LEFT
    if (method === 'DELETE' && logout) return LOG_OUT
    return refuseMethod('token_check', logout ? 'GET, HEAD, POST, DELETE' : 'GET, HEAD, POST')
  }

  const toLinkEndpoint = (method: string, path: string): Route => {
    if (path === linksPath) return method === 'POST' ? CREATE_LINK : refuseMethod('link_issue', 'POST')
    if (!canEndLinks) return refuseMethod('link_issue', '')
    if (method !== 'DELETE') return refuseMethod('link_issue', 'DELETE')
    const linkId = path.slice(linksPath.length + 1)
    return { to: 'endpoint', act: 'endLink', needsToken: true, label: 'link_issue', linkId }
  }

  return ({ method, path, isPreflight, hasBody, goesBeyondRequestLine }) => {
    if (path === tokenPath || path === tokenPathSlash) return toTokenEndpoint(method)
    if (links.enabled && isWithin(path, linksPath)) return toLinkEndpoint(method, path)
    if (forwardAuth.path !== '' && isWithin(path, forwardAuth.path)) return APPROVE
    // Never public: some services execute the method of `X-HTTP-Method-Override`, or act on the path of `Destination`.
    if (goesBeyondRequestLine) return FORWARD
    if (publicRoutes.size > 0 && publicRoutes.has(`${method} ${path}`)) return FORWARD_PUBLIC
    return passPreflight && isPreflight && !hasBody ? FORWARD_PUBLIC : FORWARD
  }
}
