/**
 * Request targets and their paths (RFC 9112, section 3.2). They stay the bytes that the client sent:
 * the upstream could read a decoded or normalized path differently (CVE-2025-54576).
 */
import type { HeaderLines } from './headers.ts'

/** The parts of a request by which a scope or a link allows it. */
export interface RequestedAccess {
  readonly method: string
  /** In origin form. */
  readonly target: string
  /** The bytes of the target before `?`. */
  readonly path: string
  /** Undefined if it is not known: HTTP/1.0 without `Host`, or two hosts. */
  readonly host: string | undefined
  readonly lines: HeaderLines
}

/** The paths of the sidecar itself, behind `listen.basePath`. */
export const TOKEN_PATH = '/v2/auth/token'
export const LINKS_PATH = '/v2/auth/links'
export const OAUTH_TOKEN_PATH = '/v2/oauth/token'
export const OAUTH_REVOCATION_PATH = '/v2/oauth/revoke'

/** The paths that standards define, which no setting moves (RFC 8414, section 3). */
export const JWKS_PATH = '/.well-known/jwks.json'
export const OAUTH_METADATA_PATH = '/.well-known/oauth-authorization-server'

/**
 * Returns the origin form of a target, or undefined.
 * An absolute target must have the authority `host` (section 3.2.2).
 */
export function originForm(url: string, host: string | undefined): string | undefined {
  let target = url
  if (!url.startsWith('/')) {
    const [, authority, rest = ''] = /^https?:\/\/([^/?]*)(.*)$/is.exec(url) ?? []
    if (authority === undefined || authority.toLowerCase() !== host?.toLowerCase()) {
      return undefined
    }
    target = rest.startsWith('/') ? rest : `/${rest}`
  }
  return HAS_FORBIDDEN.test(target) ? undefined : target
}

export function pathOf(target: string): string {
  const query = target.indexOf('?')
  return query < 0 ? target : target.slice(0, query)
}

/** `/a` and `/a/` are one prefix. */
export const withoutFinalSlash = (path: string): string => path.replace(/\/$/, '')

/** A prefix ends on a segment boundary; `''` is the prefix of every path. */
export const isWithin = (path: string, prefix: string): boolean =>
  path.startsWith(prefix) && (path.length === prefix.length || path[prefix.length] === '/')

/** Controls, the space and `#`: a target has no fragment. */
const HAS_FORBIDDEN = /[\x00-\x20#\x7f]/
