/**
 * Links (object stores: pre-signed URLs) allow one method on one target.
 * Their query parameter `link_token` holds a JWS.
 * In: request targets and account names, as raw text. Out: the parts of a link. `verify.ts` verifies the JWS.
 */
import { hash, randomBytes } from 'node:crypto'
import { failed, ok, type Result } from '../base/result.ts'
import { pathOf, type RequestedAccess } from '../http/request-target.ts'

/** The `typ` keeps a link from being an access token, and an access token from being a link. */
export const LINK_TYPE = 'link+jwt'

/** The one request that a link allows, and the token that made the link. */
export interface Link {
  readonly method: string
  /** In origin form, without `link_token`. */
  readonly target: string
  /** In lower case without a port. Undefined if the link is bound to no host. */
  readonly host: string | undefined
  /** The parent is the token that made the link. */
  readonly parentId: string
  readonly parentIssuedAtSeconds: number
  readonly parentIssuer: string
}

export const LINK_METHODS: ReadonlySet<unknown> = new Set(['GET', 'HEAD', 'PUT', 'POST', 'PATCH', 'DELETE'])
const MAX_LINK_TARGET = 4096
const PARAMETER = 'link_token'

/** A request with `link_token`, not verified. */
export interface PresentedLink {
  readonly method: string
  /** Without `link_token`. */
  readonly target: string
  /** Undefined if the target has the parameter more than once. */
  readonly token: string | undefined
}

/** Separates `link_token` from the rest of the target. Undefined if the target has no such parameter. */
export function presentedLink({ method, target }: RequestedAccess): PresentedLink | undefined {
  if (!target.includes(PARAMETER)) {
    return undefined
  }
  const path = pathOf(target)
  const query = target.slice(path.length + 1).split('&')
  const isLink = (part: string) => part === PARAMETER || part.startsWith(`${PARAMETER}=`)
  const [link, other] = query.filter(isLink)
  if (link === undefined) {
    return undefined
  }
  const rest = query.filter((part) => !isLink(part)).join('&')
  return {
    method,
    token: other === undefined ? link.slice(PARAMETER.length + 1) : undefined,
    target: query.length === 1 ? path : `${path}?${rest}`,
  }
}

export const withLinkParameter = (target: string, token: string): string =>
  `${target}${target.includes('?') ? '&' : '?'}${PARAMETER}=${token}`

/**
 * Percent-encodes what RFC 3986 forbids, and what browsers encode in a query (WHATWG URL,
 * section 1.3), so that clients send the target as it is bound.
 */
export function linkTarget(given: string): string {
  const path = pathOf(given)
  const query = given.slice(path.length)
  return path.replace(/["<>[\\\]^`{|}]/g, percentEncoded) + query.replace(/["'<>[\\\]^`{|}]/g, percentEncoded)
}

const percentEncoded = (character: string): string => `%${character.charCodeAt(0).toString(16).toUpperCase()}`

/**
 * Browsers remove such segments before they send a request (WHATWG URL, section 4.4). Services
 * may do so in other encodings: a slash or backslash that is encoded, a repeated encoding, a path parameter.
 */
const DOT_SEGMENT = /(?:\/|%(?:25)*(?:2f|5c))(?:\.|%(?:25)*2e){1,2}(?=\/|%(?:25)*(?:2f|5c)|;|$)/i

/**
 * With `&&`, or a separator at the end of the target, the removal of the parameter would be ambiguous.
 * @param target - see {@link linkTarget}
 */
export function linkTargetProblem(target: unknown): string | undefined {
  if (typeof target !== 'string' || !/^\/(?:[!"$&-~]|%[0-9A-Fa-f]{2})*$/.test(target)) {
    return "must be a path that begins with '/', percent-encoded, with an optional query"
  }
  if (target.startsWith('//') || DOT_SEGMENT.test(pathOf(target))) {
    return "must not begin with '//' or have a segment '.' or '..' in any encoding"
  }
  if (target.length > MAX_LINK_TARGET) {
    return `must have at most ${MAX_LINK_TARGET} characters`
  }
  if (target.includes(PARAMETER)) {
    return `must not contain ${PARAMETER}`
  }
  return target.includes('&&') || /[?&]$/.test(target)
    ? "must not contain '&&' or end with '?' or '&'"
    : undefined
}

/** Reads the request and the token that a link is bound to. `error`: the invalid claim. */
export function readLink(claims: Readonly<Record<string, unknown>>): Result<Link> {
  const { method, target, host, parent_jti: parentId } = claims
  const { parent_iat: parentIssuedAtSeconds, parent_iss: parentIssuer } = claims
  if (typeof method !== 'string' || !LINK_METHODS.has(method)) {
    return failed('method')
  }
  if (typeof target !== 'string' || linkTargetProblem(target) !== undefined) {
    return failed('target')
  }
  if (host !== undefined && typeof host !== 'string') {
    return failed('host')
  }
  if (typeof parentId !== 'string') {
    return failed('parent_jti')
  }
  if (typeof parentIssuedAtSeconds !== 'number') {
    return failed('parent_iat')
  }
  if (typeof parentIssuer !== 'string') {
    return failed('parent_iss')
  }
  return ok({ method, target, host, parentId, parentIssuedAtSeconds, parentIssuer })
}

/**
 * Returns why a verified token does not prove the caller of its request, by the rules of links.
 * @param link - defined if the token is a link
 * @param presented - defined if the request has the token in `link_token`, not in `Authorization`
 * @param host - to which a link of this request would be bound (`ScopeHosts.boundName`)
 * @param asksForMore - whether a service could do more for the request than its method and target say
 */
export function linkFailure(
  link: Link | undefined,
  presented: PresentedLink | undefined,
  host: string | undefined,
  asksForMore: boolean,
): 'claims' | 'scope' | undefined {
  // A link is refused as a bearer token, and an access token as a link.
  if (link === undefined || presented === undefined) {
    return 'claims'
  }
  const { method, target } = presented
  const isBoundMethod = method === link.method || (method === 'HEAD' && link.method === 'GET')
  const isBoundHost = host === undefined || host === link.host
  if (!isBoundMethod || !isBoundHost || target !== link.target) {
    return 'claims' // the claims of the link name another request
  }
  return asksForMore ? 'scope' : undefined
}

/** The characters of 16 bytes in base64url. */
const PART_LENGTH = 22

/**
 * The id has a random part,
 * and a digest of that part and the account, by which every sidecar recognizes the account.
 */
export function createLinkId(accountId: string): string {
  const random = randomBytes(16).toString('base64url')
  return random + accountDigest(random, accountId)
}

export const isLinkId = (id: string): boolean => /^[\w-]{44}$/.test(id)

export const isLinkOf = (id: string, accountId: string): boolean =>
  id.slice(PART_LENGTH) === accountDigest(id.slice(0, PART_LENGTH), accountId)

const accountDigest = (random: string, accountId: string): string =>
  hash('sha256', `${random} ${accountId}`, 'base64url').slice(0, PART_LENGTH)
