/**
 * Routes a request by its method and path.
 * In: an admitted request. Out: its route and what it asks for. Paths are compared as raw bytes: decoding or normalizing
 * them could differ from the upstream's reading (CVE-2025-54576).
 */
import type { Config } from '../config/config.ts'
import { isWithin, LINKS_PATH, TOKEN_PATH } from '../http/request-target.ts'
import type { Admitted } from './admission.ts'

/** The label `route` of the metrics. `token_check`: GET or HEAD of the token endpoint, not the check of every token. */
export const ROUTES = [
  'token_issue',
  'token_check',
  'logout',
  'link_issue',
  'proxy',
  'link',
  'public',
  'forward_auth',
] as const

export type Route = (typeof ROUTES)[number]

/** What a request asks for. */
export type Routing =
  | ForUpstream
  | { readonly route: Route; readonly act: 'timeLeft' | 'logout' | 'createLink' }
  | { readonly route: Route; readonly act: 'endLink'; readonly linkId: string }
  | { readonly route: Route; readonly act: 'public' }
  | { readonly route: Route; readonly act: 'issue' }
  | { readonly route: Route; readonly act: 'otherMethod'; readonly allowed: string }

/** A request of the upstream. `forwardAuth`: a proxy asks whether it may forward the request to its own upstream. */
export interface ForUpstream {
  readonly route: Route
  readonly act: 'forward' | 'forwardAuth'
}

const FORWARD: Routing = { route: 'proxy', act: 'forward' }
const FORWARD_AUTH: Routing = { route: 'forward_auth', act: 'forwardAuth' }
const PUBLIC: Routing = { route: 'public', act: 'public' }

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
    if (method === 'POST') return { route: 'token_issue', act: 'issue' }
    if (method === 'GET' || method === 'HEAD') return { route: 'token_check', act: 'timeLeft' }
    if (method === 'DELETE' && logout) return { route: 'logout', act: 'logout' }
    const allowed = logout ? 'GET, HEAD, POST, DELETE' : 'GET, HEAD, POST'
    return { route: 'token_check', act: 'otherMethod', allowed }
  }

  const toLinkEndpoint = (method: string, path: string): Routing => {
    const route = 'link_issue'
    if (path === linksPath)
      return method === 'POST' ? { route, act: 'createLink' } : { route, act: 'otherMethod', allowed: 'POST' }
    if (!canEndLinks) return { route, act: 'otherMethod', allowed: '' }
    return method === 'DELETE'
      ? { route, act: 'endLink', linkId: path.slice(linksPath.length + 1) }
      : { route, act: 'otherMethod', allowed: 'DELETE' }
  }

  return ({ method, path, preflight, hasBody, namesOtherRequest }) => {
    if (path === tokenPath || path === tokenPathSlash) return toTokenEndpoint(method)
    if (links.enabled && isWithin(path, linksPath)) return toLinkEndpoint(method, path)
    if (forwardAuth.path !== '' && isWithin(path, forwardAuth.path)) return FORWARD_AUTH
    // Some services execute the method of `X-HTTP-Method-Override`, or act on the path of `Destination`.
    if (namesOtherRequest) return FORWARD
    if (publicRoutes.size > 0 && publicRoutes.has(`${method} ${path}`)) return PUBLIC
    return passPreflight && preflight && !hasBody ? PUBLIC : FORWARD
  }
}
