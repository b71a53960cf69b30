/**
 * The unambiguous forms of the request target and `Host` (RFC 9110 section 7.2, RFC 9112 section 3.2).
 */
import { isIPv6 } from 'node:net'

/**
 * Returns the target in origin form, or undefined when it is invalid. The absolute form is accepted when its authority
 * equals `Host` (RFC 9112, section 3.2.2); `*` and the authority form are not.
 */
export function originForm(url: string, host: string | undefined): string | undefined {
  let target = url
  if (url.charCodeAt(0) !== 0x2f) {
    const scheme = /^https?:\/\//i.exec(url)
    if (scheme === null || host === undefined) return undefined
    const rest = url.slice(scheme[0].length)
    if (rest.slice(0, host.length).toLowerCase() !== host.toLowerCase()) return undefined
    target = rest.slice(host.length)
    if (target === '' || target.charCodeAt(0) === 0x3f) target = `/${target}`
    else if (target.charCodeAt(0) !== 0x2f) return undefined
  }
  return HAS_FORBIDDEN.test(target) ? undefined : target
}

/** Controls, the space and `#`: a target has no fragment. */
const HAS_FORBIDDEN = /[\x00-\x20#\x7f]/

/** A registered name without the comma, which separates lists (RFC 3986, section 3.2.2), and an optional port. */
const NAMED_HOST = /^[\w.~!$&'()*+;=%-]+(?::([0-9]{0,5}))?$/
const IPV6_HOST = /^\[([0-9A-Fa-f:.]+)\](?::([0-9]{0,5}))?$/

/** Whether a `Host` value is one host and at most one port, without userinfo, lists or a zone index. */
export function isHost(value: string): boolean {
  const named = NAMED_HOST.exec(value)
  if (named !== null) return Number(named[1] ?? 0) <= 65535
  const [, address, port] = IPV6_HOST.exec(value) ?? []
  return address !== undefined && isIPv6(address) && Number(port ?? 0) <= 65535
}
