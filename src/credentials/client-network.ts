/**
 * Which clients count as one when failures are counted by address.
 *
 * In: the text of an address. Out: a key that equals for all addresses of one client. A machine with IPv6 usually
 * has a whole /64 to choose its address from (RFC 7421), so all of it is one; an IPv4 address, plain or
 * mapped into IPv6, stands for itself.
 *
 * @module
 */
import ipaddr from 'ipaddr.js'

/** The key for a client's address; a text that is no IP address is its own key. */
export function clientNetwork(address: string): string {
  if (!ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address)
  // Behind a NAT64 (RFC 6052) the last 32 bits are somebody's IPv4 address: the /64 is the whole internet.
  if (parsed.kind() === 'ipv4' || parsed.range() === 'rfc6052') return parsed.toNormalizedString()
  return `${new ipaddr.IPv6(parsed.toByteArray().fill(0, 8)).toNormalizedString()}/64`
}
