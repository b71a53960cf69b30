/**
 * Routes a request by its method and path, as raw bytes (`http/request-target.ts`), and by what its headers
 * ask for. In: an admitted request. Out: its route. `gate/gate.ts` decides whether the request may take it.
 */
import type { Config } from '../config/config.ts'
import { isWithin, LINKS_PATH, TOKEN_PATH } from '../http/request-target.ts'
import type { AdmittedRequest } from './admission.ts'

export type RouteSetting = 'contract' | 'corsPreflight' | 'forwardAuth' | 'links' | 'listen' | 'publicRoutes'

/** The label `route` of the metrics and the access log. */
export const ROUTE_LABELS = [
  'token_issue',
  /** Other requests to the token endpoint, not the token checks of forwarded requests. */
  'token_check',
  'logout',
  'link_issue',
  'proxy',
  'link',
  /** Needs no token: public routes, and the metadata of OAuth. */
  'public',
  'forward_auth',
] as const
export type RouteLabel = (typeof ROUTE_LABELS)[number]

/** `act`: what the sidecar does with an allowed request. */
export type Route = ServiceRoute | CallerRoute | OpenRoute

/**
 * To a service. The token's scope, or the link, must allow the request.
 * Without `needsToken`, the route is public.
 */
export interface ServiceRoute {
  readonly to: 'service'
  readonly act: 'forward' | 'approve'
  readonly needsToken: boolean
  readonly label: RouteLabel
}

/** To an endpoint of the sidecar that needs a token. Any valid one is enough. */
export interface CallerRoute {
  readonly to: 'endpoint'
  readonly act: 'sendTimeLeft' | 'logOut' | 'createLink' | 'endLink'
  readonly label: RouteLabel
}

/**
 * To an endpoint of the sidecar that needs no token. `allowed`: the value of `Allow`.
 * `respond`: the endpoint of a room at `path` answers each method, and reads `Authorization` itself.
 */
export type OpenRoute =
  | Readonly<{ to: 'openEndpoint'; act: 'respond'; label: RouteLabel; path: string }>
  | Readonly<{ to: 'openEndpoint'; act: 'logIn'; label: RouteLabel }>
  | Readonly<{ to: 'openEndpoint'; act: 'refuseMethod'; label: RouteLabel; allowed: string }>

const FORWARD: ServiceRoute = { to: 'service', act: 'forward', needsToken: true, label: 'proxy' }
export const FORWARD_LINK: ServiceRoute = { ...FORWARD, label: 'link' }
const FORWARD_PUBLIC: ServiceRoute = { ...FORWARD, needsToken: false, label: 'public' }
/** A proxy asks whether it may forward a request to its own upstream (forward auth). */
const APPROVE: ServiceRoute = { ...FORWARD, act: 'approve', label: 'forward_auth' }
const LOG_IN: Route = { to: 'openEndpoint', act: 'logIn', label: 'token_issue' }
const SEND_TIME_LEFT: Route = { to: 'endpoint', act: 'sendTimeLeft', label: 'token_check' }
const LOG_OUT: Route = { to: 'endpoint', act: 'logOut', label: 'logout' }
const CREATE_LINK: Route = { to: 'endpoint', act: 'createLink', label: 'link_issue' }
const END_LINK: Route = { to: 'endpoint', act: 'endLink', label: 'link_issue' }

/** By method. */
type Routes = ReadonlyMap<string, Route>

/** Returns the route to an endpoint for a method. Methods without a route are refused, with the `label`. */
function endpoint(label: RouteLabel, routes: Routes): (method: string) => Route {
  const allowed = [...routes.keys()].join(', ')
  const refuseMethod: Route = { to: 'openEndpoint', act: 'refuseMethod', label, allowed }
  return (method) => routes.get(method) ?? refuseMethod
}

function tokenRoutes(canLogOut: boolean): Routes {
  const routes = new Map<string, Route>([
    ['GET', SEND_TIME_LEFT],
    ['HEAD', SEND_TIME_LEFT],
    ['POST', LOG_IN],
  ])
  if (canLogOut) {
    routes.set('DELETE', LOG_OUT)
  }
  return routes
}

/** Where an endpoint of a room is. */
export interface EndpointPlace {
  /** The exact raw path. */
  readonly path: string
  readonly label: RouteLabel
}

/**
 * @param canEndLinks - whether there is a database for the revocations of links
 * @param endpoints - those of rooms
 */
export function createRouter(
  config: Pick<Config, RouteSetting>,
  canEndLinks: boolean,
  endpoints: readonly EndpointPlace[] = [],
) {
  const { links, forwardAuth, listen } = config
  const tokenPath = listen.basePath + TOKEN_PATH
  const tokenPathSlash = `${tokenPath}/`
  const linksPath = listen.basePath + LINKS_PATH
  const publicRoutes = new Set(config.publicRoutes.map(({ method, path }) => `${method} ${path}`))
  const passPreflight = config.corsPreflight === 'pass'
  const toTokens = endpoint('token_check', tokenRoutes(config.contract.logout))
  const toLinks = endpoint('link_issue', new Map([['POST', CREATE_LINK]]))
  const toLink = endpoint('link_issue', new Map(canEndLinks ? [['DELETE', END_LINK]] : []))

  const ofRooms = new Map(
    endpoints.map(({ path, label }): [string, OpenRoute] => [
      path,
      { to: 'openEndpoint', act: 'respond', label, path },
    ]),
  )

  function endpointAt(path: string) {
    if (path === tokenPath || path === tokenPathSlash) {
      return toTokens
    }
    if (!links.enabled || !isWithin(path, linksPath)) {
      return undefined
    }
    return path === linksPath ? toLinks : toLink
  }

  function isPublic({ method, path, isPreflight, hasBody, headersAddAccess }: AdmittedRequest): boolean {
    // Some services execute the method of `X-HTTP-Method-Override`, or act on the path of `Destination`.
    if (headersAddAccess) {
      return false
    }
    const isPassedPreflight = passPreflight && isPreflight && !hasBody
    return isPassedPreflight || (publicRoutes.size > 0 && publicRoutes.has(`${method} ${path}`))
  }

  return (request: AdmittedRequest): Route => {
    const { method, path } = request
    const toEndpoint = endpointAt(path)
    if (toEndpoint !== undefined) {
      return toEndpoint(method)
    }
    const ofRoom = ofRooms.size === 0 ? undefined : ofRooms.get(path)
    if (ofRoom !== undefined) {
      return ofRoom
    }
    if (forwardAuth.path !== '' && isWithin(path, forwardAuth.path)) {
      return APPROVE
    }
    return isPublic(request) ? FORWARD_PUBLIC : FORWARD
  }
}
