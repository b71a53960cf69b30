/**
 * Routes a request by its method and path.
 * In: an admitted request. Out: what it asks for. Paths are compared as raw bytes: decoding or normalizing them could
 * differ from the upstream's reading (CVE-2025-54576).
 */
import type { Config } from '../config/config.ts'
import { isWithin, LINKS_PATH, TOKEN_PATH } from '../http/request-target.ts'
import type { Admitted } from './admission.ts'

/** What a request asks for, and the label `route` that it has in the metrics. */
export const ROUTE_OF = {
  issueToken: 'token_issue',
  /** How much time a token has left: GET or HEAD of the token endpoint, not the check of every token. */
  checkToken: 'token_check',
  logout: 'logout',
  issueLink: 'link_issue',
  endLink: 'link_issue',
  forward: 'proxy',
  forwardLinked: 'link',
  forwardPublic: 'public',
  /** A proxy asks whether it may forward a request to its own upstream. */
  forwardAuth: 'forward_auth',
} as const

export type Route = (typeof ROUTE_OF)[keyof typeof ROUTE_OF]

export type Routing =
  | { readonly act: 'checkToken' | 'logout' | 'issueLink' }
  | { readonly act: 'forward' | 'forwardAuth' }
  | { readonly act: 'forwardPublic' }
  | { readonly act: 'issueToken' }
  | { readonly act: 'endLink'; readonly linkId: string }
  /** A method that the endpoint on this path does not have. */
  | { readonly act: 'otherMethod'; readonly route: Route; readonly allowed: string }

const FORWARD: Routing = { act: 'forward' }
const FORWARD_AUTH: Routing = { act: 'forwardAuth' }
const FORWARD_PUBLIC: Routing = { act: 'forwardPublic' }

/** @param canEndLinks - whether there is a database for the revocations of links */
export function createRouter(config: Config, canEndLinks: boolean): (request: Admitted) => Routing {
  const { basePath } = config.listen
  const { logout } = config.contract
  const { links, forwardAuth } = config
  const tokenPath = basePath + TOKEN_PATH
  const tokenPathSlash = `${tokenPath}/`
  const linksPath = basePath + LINKS_PATH
  const publicRoutes = new Set(config.publicRoutes.map(({ method, path }) => `${method} ${path}`))
  const passPreflight = config.corsPreflight === 'pass'

  const toTokenEndpoint = (method: string): Routing => {
    if (method === 'POST') return { act: 'issueToken' }
    if (method === 'GET' || method === 'HEAD') return { act: 'checkToken' }
    if (method === 'DELETE' && logout) return { act: 'logout' }
    const allowed = logout ? 'GET, HEAD, POST, DELETE' : 'GET, HEAD, POST'
    return { act: 'otherMethod', route: ROUTE_OF.checkToken, allowed }
  }

  const toLinkEndpoint = (method: string, path: string): Routing => {
    const isCollection = path === linksPath
    if (isCollection && method === 'POST') return { act: 'issueLink' }
    if (!isCollection && method === 'DELETE' && canEndLinks)
      return { act: 'endLink', linkId: path.slice(linksPath.length + 1) }
    const allowed = isCollection ? 'POST' : canEndLinks ? 'DELETE' : ''
    return { act: 'otherMethod', route: ROUTE_OF.issueLink, allowed }
  }

  return ({ method, path, preflight, hasBody, namesOtherRequest }) => {
    if (path === tokenPath || path === tokenPathSlash) return toTokenEndpoint(method)
    if (links.enabled && isWithin(path, linksPath)) return toLinkEndpoint(method, path)
    if (forwardAuth.path !== '' && isWithin(path, forwardAuth.path)) return FORWARD_AUTH
    // Some services execute the method of `X-HTTP-Method-Override`, or act on the path of `Destination`.
    if (namesOtherRequest) return FORWARD
    if (publicRoutes.size > 0 && publicRoutes.has(`${method} ${path}`)) return FORWARD_PUBLIC
    return passPreflight && preflight && !hasBody ? FORWARD_PUBLIC : FORWARD
  }
}
