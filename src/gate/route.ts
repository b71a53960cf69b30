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

/**
 * `act`: what the sidecar does with an allowed request.
 * `needs`: `nothing`, any valid `token`, or the `permission` of a token or link for this request.
 */
export type Route = PublicRoute | OpenEndpoint | TokenEndpoint | PermissionRoute

interface RouteOf<Needs, Act> {
  readonly act: Act
  readonly label: RouteLabel
  readonly needs: Needs
}

type PublicRoute = RouteOf<'nothing', 'forward'>
export type OpenEndpoint =
  | RouteOf<'nothing', 'logIn'>
  | (RouteOf<'nothing', 'refuseMethod'> & { readonly allowed: string })
export type TokenEndpoint =
  | RouteOf<'token', 'sendTimeLeft' | 'logOut' | 'createLink'>
  | (RouteOf<'token', 'endLink'> & { readonly linkId: string })
type PermissionRoute = RouteOf<'permission', 'forward' | 'approve'>
export type CallerRoute = TokenEndpoint | PermissionRoute
export type ServiceRoute = PublicRoute | PermissionRoute

export const FORWARD: PermissionRoute = { act: 'forward', label: 'proxy', needs: 'permission' }
const FORWARD_PUBLIC: Route = { act: 'forward', label: 'public', needs: 'nothing' }
/** A proxy asks whether it may forward a request to its own upstream (forward auth). */
const APPROVE: Route = { act: 'approve', label: 'forward_auth', needs: 'permission' }
const LOG_IN: Route = { act: 'logIn', label: 'token_issue', needs: 'nothing' }
const SEND_TIME_LEFT: Route = { act: 'sendTimeLeft', label: 'token_check', needs: 'token' }
const LOG_OUT: Route = { act: 'logOut', label: 'logout', needs: 'token' }
const CREATE_LINK: Route = { act: 'createLink', label: 'link_issue', needs: 'token' }

function refuseMethod(label: 'token_check' | 'link_issue', allowed: string): Route {
  return { act: 'refuseMethod', label, needs: 'nothing', allowed }
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
    return { act: 'endLink', label: 'link_issue', needs: 'token', linkId }
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
