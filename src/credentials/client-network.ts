/**
 * Maps a client address to the key under which its logins are counted.
 * One machine with IPv6 usually owns a /64 (RFC 7421), so a /64 is one client; an IPv4 address, plain or mapped, is one client.
 */
import ipaddr from 'ipaddr.js'

/** Returns the key; a text that is no IP address is its own key. */
export function clientNetwork(address: string): string {
  if (!ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address)
  // Behind NAT64 (RFC 6052) the last 32 bits are an IPv4 address: the /64 is the whole internet.
  if (parsed.kind() === 'ipv4' || parsed.range() === 'rfc6052') return parsed.toNormalizedString()
  return `${new ipaddr.IPv6(parsed.toByteArray().fill(0, 8)).toNormalizedString()}/64`
}
