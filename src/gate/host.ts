/**
 * Which values of `Host` have one reading.
 *
 * @module
 */
import { isIPv6 } from 'node:net'

/**
 * `uri-host [ ":" port ]` (RFC 9110, section 7.2) without userinfo, lists or anything that ends an authority, and
 * no IPv6 address or port that a URL parser behind us would stumble over.
 */
export function isHost(value: string): boolean {
  let at = 0
  if (value.charCodeAt(0) === 0x5b) {
    at = value.indexOf(']') + 1
    const address = value.slice(1, at - 1)
    // A zone index means an interface of the client's machine, not of ours.
    if (at === 0 || !isIPv6(address) || address.includes('%')) return false
  } else {
    while (at < value.length && isHostCharacter(value.charCodeAt(at))) at++
    if (at === 0) return false
  }
  if (at === value.length) return true
  if (value.charCodeAt(at) !== 0x3a || value.length - at > 6) return false
  let port = 0
  for (at++; at < value.length; at++) {
    const code = value.charCodeAt(at)
    if (code < 0x30 || code > 0x39) return false
    port = port * 10 + code - 0x30
  }
  return port <= 65535
}

/** Letters, digits and `-._~%!$&'()*+;=`: a registered name without the comma, which makes lists (RFC 3986, 3.2.2). */
function isHostCharacter(code: number): boolean {
  if (code >= 0x61 && code <= 0x7a) return true
  if (code >= 0x30 && code <= 0x39) return true
  if (code >= 0x41 && code <= 0x5a) return true
  if (code === 0x2d || code === 0x2e || code === 0x5f || code === 0x7e) return true
  return code === 0x21 || (code >= 0x24 && code <= 0x2b) || code === 0x3b || code === 0x3d
}
