/**
 * Request targets and their paths (RFC 9112, section 3.2), as the bytes that came: decoding or normalizing them could
 * differ from the upstream's reading (CVE-2025-54576).
 */

/** The paths of the sidecar itself, behind `listen.basePath`. */
export const TOKEN_PATH = '/v2/auth/token'
export const LINKS_PATH = '/v2/auth/links'

/** The origin form of a target, also of an absolute one whose authority equals `host` (section 3.2.2); or undefined. */
export function originForm(url: string, host: string | undefined): string | undefined {
  let target = url
  if (!url.startsWith('/')) {
    const [, authority, rest = ''] = /^https?:\/\/([^/?]*)(.*)$/is.exec(url) ?? []
    if (authority === undefined || authority.toLowerCase() !== host?.toLowerCase()) return undefined
    target = rest.startsWith('/') ? rest : `/${rest}`
  }
  return HAS_FORBIDDEN.test(target) ? undefined : target
}

/** The bytes before `?`. */
export function pathOf(target: string): string {
  const query = target.indexOf('?')
  return query < 0 ? target : target.slice(0, query)
}

/** `/a` and `/a/` are one prefix. */
export const withoutFinalSlash = (path: string): string => path.replace(/\/$/, '')

/** A prefix ends on a segment boundary; `''` is the prefix of every path. */
export function isWithin(path: string, prefix: string): boolean {
  return path.startsWith(prefix) && (path.length === prefix.length || path[prefix.length] === '/')
}

/** Controls, the space and `#`: a target has no fragment. */
const HAS_FORBIDDEN = /[\x00-\x20#\x7f]/
