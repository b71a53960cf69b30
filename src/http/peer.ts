/**
 * Who is at the other end of a client connection.
 *
 * In: the addresses of a connection, and the trust list. Out: the facts of its peer, made once when it opens. What
 * a client claims of itself in `X-Forwarded-*` or `Forwarded` (RFC 7239) counts only when its address is in the list.
 *
 * @module
 */
import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'

/** The facts of one client connection, made once when it opens. */
export interface Peer {
  /** The address the connection comes from; IPv4-mapped IPv6 is told as IPv4. */
  readonly address: string
  /** Whether its forwarding headers are believed. */
  readonly trusted: boolean
  /** Our forwarding header lines but for those that name the host, each with its line end. */
  readonly lines: string
  /** Our `Forwarded` up to the host. */
  readonly forwarded: string
}

/** What is known of a connection. */
export interface PeerFacts {
  readonly remoteAddress: string | undefined
  readonly localPort: number | undefined
  readonly tls: boolean
}

type Network = [ipaddr.IPv4 | ipaddr.IPv6, number]

/** Reads a trust list of CIDRs and single addresses. Throws on one that is neither. */
export function createPeers(trust: readonly string[]): (facts: PeerFacts) => Peer {
  const networks = trust.map(network)
  return ({ remoteAddress, localPort, tls }) => {
    const parsed = remoteAddress === undefined ? undefined : parse(remoteAddress)
    const address = parsed?.toString() ?? 'unknown'
    const proto = tls ? 'https' : 'http'
    return {
      address,
      trusted: parsed !== undefined && isIn(parsed, networks),
      lines:
        `X-Forwarded-For: ${address}\r\nX-Forwarded-Proto: ${proto}\r\n` +
        `X-Forwarded-Port: ${localPort ?? (tls ? 443 : 80)}\r\n`,
      forwarded: `Forwarded: for=${parsed?.kind() === 'ipv6' ? `"[${address}]"` : address};proto=${proto}`,
    }
  }
}

/**
 * The client's own address: the connection's, or, behind trusted proxies, the nearest address of the
 * `X-Forwarded-For` list that is not one of theirs.
 *
 * @param peer - the connection's facts
 * @param lists - the values of `X-Forwarded-For`, in order
 */
export function createClientAddress(
  trust: readonly string[],
): (peer: Peer, lists: readonly string[]) => string {
  const networks = trust.map(network)
  return (peer, lists) => {
    let nearest = peer.address
    if (!peer.trusted) return nearest
    for (const text of lists.join(',').split(',').reverse()) {
      const address = parse(text.trim())
      if (address === undefined) break
      nearest = address.toString()
      if (!isIn(address, networks)) break
    }
    return nearest
  }
}

function network(text: string): Network {
  const [address, bits] = text.includes('/') ? ipaddr.parseCIDR(text) : single(text)
  // Peers are told as IPv4 where their addresses are mapped: so are ranges of such.
  return address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress() && bits >= 96
    ? [address.toIPv4Address(), bits - 96]
    : [address, bits]
}

function single(text: string): Network {
  const address = ipaddr.parse(text)
  return [address, address.kind() === 'ipv6' ? 128 : 32]
}

/** An address in one of its usual spellings. The library alone would take `1` or `0x7f.1` for one, too. */
function parse(text: string): ipaddr.IPv4 | ipaddr.IPv6 | undefined {
  if (isIP(text) === 0) return undefined
  return ipaddr.process(text.replace(/%.*$/, '')) // a zone index says which of our interfaces, not who the peer is
}

function isIn(address: ipaddr.IPv4 | ipaddr.IPv6, networks: readonly Network[]): boolean {
  return networks.some(
    ([base, bits]) => base.kind() === address.kind() && address.match([base, bits] as never),
  )
}
