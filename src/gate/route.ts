/**
 * Routes a request by its method and path.
 * In: an admitted request. Out: what it asks for; of forward auth also the original request, which a trusted proxy has
 * received and names in headers of its own request. Paths are compared as raw bytes (`http/request-target.ts`).
 */
import type { Config } from '../config/config.ts'
import { headerKind, headerValues } from '../http/headers.ts'
import { isWithin, LINKS_PATH, originForm, pathOf, TOKEN_PATH } from '../http/request-target.ts'
import type { ScopedRequest } from '../token/scopes.ts'
import type { Admitted } from './admission.ts'

/** What a request asks for, and the label `route` that it has in the metrics. */
export const ROUTE_OF = {
  issueToken: 'token_issue',
  /** GET or HEAD of the token endpoint, not the check of every token. */
  timeLeft: 'token_check',
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
  | { readonly act: 'timeLeft' | 'logout' | 'issueLink' }
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
    if (method === 'GET' || method === 'HEAD') return { act: 'timeLeft' }
    if (method === 'DELETE' && logout) return { act: 'logout' }
    const allowed = logout ? 'GET, HEAD, POST, DELETE' : 'GET, HEAD, POST'
    return { act: 'otherMethod', route: ROUTE_OF.timeLeft, allowed }
  }

  const toLinkEndpoint = (method: string, path: string): Routing => {
    const isCollection = path === linksPath
    if (isCollection && method === 'POST') return { act: 'issueLink' }
    if (!isCollection && method === 'DELETE' && canEndLinks)
      return { act: 'endLink', linkId: path.slice(linksPath.length + 1) }
    const allowed = isCollection ? 'POST' : canEndLinks ? 'DELETE' : ''
    return { act: 'otherMethod', route: ROUTE_OF.issueLink, allowed }
  }

  return ({ method, path, isPreflight, hasBody, namesOtherRequest }) => {
    if (path === tokenPath || path === tokenPathSlash) return toTokenEndpoint(method)
    if (links.enabled && isWithin(path, linksPath)) return toLinkEndpoint(method, path)
    if (forwardAuth.path !== '' && isWithin(path, forwardAuth.path)) return FORWARD_AUTH
    // Some services execute the method of `X-HTTP-Method-Override`, or act on the path of `Destination`.
    if (namesOtherRequest) return FORWARD
    if (publicRoutes.size > 0 && publicRoutes.has(`${method} ${path}`)) return FORWARD_PUBLIC
    return passPreflight && isPreflight && !hasBody ? FORWARD_PUBLIC : FORWARD
  }
}

/** The request to allow: of forward auth the original one, otherwise the admitted request itself. */
export interface EffectiveRequest extends ScopedRequest {
  readonly target: string
}

const PAIRS = [
  ['x-forwarded-method', 'x-forwarded-uri'],
  ['x-original-method', 'x-original-uri'],
] as const

/** One that Node's parser accepts: services may read others without regard to case, or as a list. */
const METHOD = /^[A-Z][A-Z-]*$/

/**
 * Undefined unless a trusted proxy names one method and one target: a proxy that sets one pair of headers may pass the
 * client's spelling of the other.
 */
export function originalRequest(proxyRequest: Admitted, isTrusted: boolean): EffectiveRequest | undefined {
  if (!isTrusted) return undefined
  const { rawHeaders, connectionOptions } = proxyRequest
  const valuesOf = (name: string) => headerValues(rawHeaders, name)
  let named: { readonly method: string; readonly target: string } | undefined
  for (const pair of PAIRS) {
    const values = pair.map(valuesOf)
    if (values.every(({ length }) => length === 0)) continue
    const [method = '', target = ''] = values.map(([first]) => first)
    const isOther = named !== undefined && (named.method !== method || named.target !== target)
    if (isOther || values.some(({ length }) => length !== 1)) return undefined
    named = { method, target }
  }
  // Proxies may join repeated lines. Whether a line that `Connection` names reaches the service is up to the proxy.
  const isUnclear = rawHeaders.some(
    (name, at) =>
      at % 2 === 0 &&
      headerKind(name) === 'secondPath' &&
      (rawHeaders[at + 1]?.includes(',') || connectionOptions?.has(name.toLowerCase())),
  )
  if (named === undefined || isUnclear || !METHOD.test(named.method)) return undefined
  const target = originForm(named.target, undefined)
  if (target === undefined) return undefined
  const hosts = valuesOf('x-forwarded-host')
  const host = hosts.length === 0 ? proxyRequest.host : hosts.length === 1 ? hosts[0] : undefined
  return { method: named.method, target, path: pathOf(target), host, rawHeaders, connectionOptions }
}
